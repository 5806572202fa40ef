"""A cluster over a bucket that is struck at a moment of a rollout: its nodes can be cut off, the
bucket can be away, disks can be full or stand still, and requests to the bucket can be held."""

import json
import os
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa
from cluster import Cluster, table_of
from data import write
from disks import Disks
from object_store import Proxy, RemoteStore
from relays import LIMIT_S, Relay

DISK_MIB = 32
# How long a disk has to have stood still before the commit goes on.
STALL_S = 0.5
KEYS = 60
NAMES = [f"t:{i}" for i in range(KEYS)]


class Gate:
    """Holds who comes to it until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self):
        self.reached.set()
        self.wait_opened()

    def wait_opened(self):
        self.opened.wait(LIMIT_S)

    def wait_reached(self):
        assert self.reached.wait(LIMIT_S), "the moment does not come"

    def open(self):
        self.opened.set()


class StruckCluster(Cluster):
    """Nodes n1, n2, n3 in zones of their own. Each has a way of its own to the bucket, and so do
    the commands."""

    def __init__(self, server, directory):
        self.cut, self.healed, self.is_away = set(), threading.Event(), False
        # watch(node, exchange, is_done): sees each request of a node, before it is passed on and
        # before it is answered, and may hold it.
        self.watch = self.nothing
        self.damaged = None
        self.proxies, self.relays = [], []
        store = RemoteStore(server, directory / "machine", f"stores/{directory.name}")
        super().__init__(store.through(self.way(server, None), "commands"), directory)
        self.disks = Disks(directory, [node.name for node in self.nodes], DISK_MIB)
        for node in self.nodes:
            node.store = store.through(self.way(server, node), f"machine-{node.name}")
            node.disk = self.disks[node.name]
            node.cache = node.disk / "cache"
            self.relays.append(Relay(self, node))
            node.args = ["--advertise-peer", self.relays[-1].address]

    def way(self, server, node):
        proxy = Proxy(server)
        proxy.before = partial(self.before, node)
        proxy.after = partial(self.after, node)
        self.proxies.append(proxy)
        return proxy.url

    @staticmethod
    def nothing(node, exchange, is_done):
        pass

    def fails(self, node):
        """What a request comes to now, if it is not to go through."""
        if node and node.name in self.cut:
            self.healed.wait(LIMIT_S)
            return 503
        return 503 if self.is_away else None

    def before(self, node, exchange):
        if node:
            self.watch(node, exchange, False)
        return self.fails(node)

    def after(self, node, exchange, status, body):
        if node and status < 300:
            self.watch(node, exchange, True)
        failed = self.fails(node)
        if failed:
            return failed, b""
        if node is self.damaged and node and is_of_run(exchange) and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        return status, body

    def is_cut(self, *names):
        return bool(self.cut & set(names))

    def cut_off(self, node):
        """From the bucket and from all nodes, both ways, in silence; not from clients."""
        self.healed.clear()
        self.cut = {node.name}

    def heal(self):
        self.cut, self.is_away, self.damaged = set(), False, None
        self.healed.set()

    def stall(self, node, table):
        """A disk that stands still when the node is about to write down what serves: it is up,
        and does not come to say that it serves. Gives what ends that."""
        pointer = node.cache / "tables" / table / "current"
        pipe, real = node.disk / "pipe", node.disk / "current"

        def let_go():
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

        def put_pipe():
            let_go()
            for path in (pipe, real):
                path.unlink(missing_ok=True)
            os.mkfifo(pipe)
            os.link(pointer, real)
            link = node.disk / "link"
            os.link(pipe, link)
            os.rename(link, pointer)

        # Who read the pointer before, to remove versions that are old, may write it still.
        put_pipe()
        time.sleep(STALL_S)
        while not pointer.is_fifo():
            put_pipe()
            time.sleep(STALL_S)

        def go_on():
            if pointer.is_fifo():
                os.rename(real, pointer)
            let_go()

        return go_on

    def roles(self):
        """The coordinator, and two others."""
        first = self.coordinator()
        return first, *(node for node in self.nodes if node is not first)

    def end(self):
        self.watch = self.nothing
        self.heal()
        super().end()
        for relay in self.relays:
            relay.end()
        for proxy in self.proxies:
            proxy.stop()
        self.disks.end()


def is_of_run(exchange):
    return exchange.method == "GET" and "/runs/" in exchange.path


def puts_phase(exchange, phase):
    """Whether this is the document after which a head says that a rollout is in a phase."""
    is_document = exchange.method == "PUT" and "/cluster/d/" in exchange.path
    return is_document and f'"phase":"{phase}"'.encode() in (exchange.body or b"")


def puts_head(exchange):
    return exchange.method == "PUT" and exchange.path.endswith("/cluster/head")


def gets_head(exchange):
    return exchange.method == "GET" and exchange.path.endswith("/cluster/head")


class Table:
    """Table `t` on two of three nodes; rows say which version they are of."""

    def __init__(self, made, directory):
        self.made, self.directory, self.version = made, directory, 0
        assert self.push()["swapped"]
        self.version = 1

    def begin(self, *args):
        """Starts the push of the next version; one that is not built leaves no gap."""
        path = self.directory / "t.parquet"
        version = max(self.built(), default=0) + 1
        write(pa.table({"id": range(KEYS), "version": [version] * KEYS}), path)
        words = ["--replicas", "2", "--partitions", "6", "--json"]
        words += [] if "--deadline" in args else ["--deadline", "60s"]
        return self.made.store.start("push", "t", path, "--key", "{id}", *words, *args)

    def push(self, *args, code=0):
        """Gives what it told, or the error."""
        done = self.made.store.finish(self.begin(*args))
        assert done.code == code, (done.code, done.err)
        return json.loads(done.out.splitlines()[-1]) if code in (0, 6) else done.err

    def built(self):
        if not self.version:
            return []
        return [one["version"] for one in self.made.store.json("versions", "t")]


def phase_of(seen):
    rollout = table_of(seen, "t")["rollout"]
    return rollout and rollout["phase"]


def read_all(client):
    return {json.loads(row)["version"] for row in client.mget(NAMES)}


def versions_at(node):
    with node.through_gateway() as client:
        return read_all(client)


@contextmanager
def held(made, watch, gate):
    """What `watch` sends to a gate is held there."""
    made.watch = watch
    try:
        yield
    finally:
        made.watch = made.nothing
        gate.open()


@contextmanager
def stalled(made, table, node, phase):
    """A node's disk stands still from just before the commit on."""
    turn, gates = threading.Lock(), []

    def watch(_, exchange, is_done):
        if puts_phase(exchange, "committed") and not is_done:
            with turn:
                # A second one would take the first one's pipe for the pointer.
                if not gates:
                    gates.append(made.stall(node, "t"))

    made.watch = watch
    try:
        yield lambda: made.wait_for(lambda seen: phase_of(seen) == phase)
    finally:
        made.watch = made.nothing
        for go_on in gates:
            go_on()


class Tables:
    """A cluster with its table; the next case has the same one, unless this one failed."""

    def __init__(self, server, tmp_path_factory):
        self.server, self.tmp_path_factory = server, tmp_path_factory
        self.free, self.taken = None, None

    def take(self):
        self.end_failed()
        if not self.free:
            directory = self.tmp_path_factory.mktemp("struck")
            made = self.taken = StruckCluster(self.server, directory)
            self.free = Table(made.start(), directory)
        self.free, table = None, self.free
        self.taken = table.made
        return table

    def give_back(self, table):
        self.free, self.taken = table, None

    def end_failed(self):
        if self.taken:
            self.taken.end()
        self.taken = None

    def end(self):
        self.end_failed()
        if self.free:
            self.free.made.end()
            self.free.made.check_logs()
