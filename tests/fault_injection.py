"""A cluster over a bucket, with faults at chosen moments of a rollout. Tests cut nodes off, make
the bucket unavailable, fill or stall disks, and hold requests to the bucket."""

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
# How long a disk must stall before the commit continues.
STALL_S = 0.5
KEYS = 60
NAMES = [f"t:{i}" for i in range(KEYS)]


class Gate:
    """Holds its callers until it is opened."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self):
        self.reached.set()
        self.wait_opened()

    def wait_opened(self):
        self.opened.wait(LIMIT_S)

    def wait_reached(self):
        assert self.reached.wait(LIMIT_S), "no request reached the gate"

    def open(self):
        self.opened.set()


class FaultyCluster(Cluster):
    """Nodes n1, n2 and n3, each in its own zone. Each node has its own proxy to the bucket, and so
    do the commands."""

    def __init__(self, server, directory):
        self.cut, self.healed, self.is_away = set(), threading.Event(), False
        # watch(node, exchange, is_done) sees each request of a node twice: before the proxy
        # forwards it, and before the proxy answers. It may hold the request.
        self.watch = self.ignore
        self.damaged = None
        self.proxies, self.relays = [], []
        store = RemoteStore(server, directory / "machine", f"stores/{directory.name}")
        super().__init__(store.through(self.make_proxy(server, None), "commands"), directory)
        self.disks = Disks(directory, [node.name for node in self.nodes], DISK_MIB)
        for node in self.nodes:
            node.store = store.through(self.make_proxy(server, node), f"machine-{node.name}")
            node.disk = self.disks[node.name]
            node.cache = node.disk / "cache"
            self.relays.append(Relay(self, node))
            node.args = ["--advertise-peer", self.relays[-1].address]

    def make_proxy(self, server, node):
        proxy = Proxy(server)
        proxy.before = partial(self.before, node)
        proxy.after = partial(self.after, node)
        self.proxies.append(proxy)
        return proxy.url

    @staticmethod
    def ignore(node, exchange, is_done):
        pass

    def fault_status(self, node):
        """The status with which requests fail now, or None."""
        if node and node.name in self.cut:
            self.healed.wait(LIMIT_S)
            return 503
        return 503 if self.is_away else None

    def before(self, node, exchange):
        if node:
            self.watch(node, exchange, False)
        return self.fault_status(node)

    def after(self, node, exchange, status, body):
        if node and status < 300:
            self.watch(node, exchange, True)
        failed = self.fault_status(node)
        if failed:
            return failed, b""
        if node is self.damaged and node and is_of_run(exchange) and body:
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]
        return status, body

    def is_cut(self, *names):
        return bool(self.cut & set(names))

    def cut_off(self, node):
        """Cuts a node off from the bucket and all nodes, in both directions, without an error.
        Clients still reach it."""
        self.healed.clear()
        self.cut = {node.name}

    def heal(self):
        self.cut, self.is_away, self.damaged = set(), False, None
        self.healed.set()

    def stall(self, node, table):
        """Stalls the node's disk just before it writes the pointer. The node is up, and does not
        report that it serves. Returns a function that ends the stall."""
        pointer = node.cache / "tables" / table / "current"
        pipe, real = node.disk / "pipe", node.disk / "current"

        def open_pipe():
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))

        def put_pipe():
            open_pipe()
            for path in (pipe, real):
                path.unlink(missing_ok=True)
            os.mkfifo(pipe)
            os.link(pointer, real)
            link = node.disk / "link"
            os.link(pipe, link)
            os.rename(link, pointer)

        # The removal of old versions may have read the pointer before, and may still write it.
        put_pipe()
        time.sleep(STALL_S)
        while not pointer.is_fifo():
            put_pipe()
            time.sleep(STALL_S)

        def resume():
            if pointer.is_fifo():
                os.rename(real, pointer)
            open_pipe()

        return resume

    def roles(self):
        """The coordinator and two other nodes."""
        first = self.coordinator()
        return first, *(node for node in self.nodes if node is not first)

    def end(self):
        self.watch = self.ignore
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
    """Whether this document moves a rollout to a phase, once a head names it."""
    is_document = exchange.method == "PUT" and "/cluster/d/" in exchange.path
    return is_document and f'"phase":"{phase}"'.encode() in (exchange.body or b"")


def puts_head(exchange):
    return exchange.method == "PUT" and exchange.path.endswith("/cluster/head")


def gets_head(exchange):
    return exchange.method == "GET" and exchange.path.endswith("/cluster/head")


class Table:
    """Table `t` on two of three nodes. Each row holds its version."""

    def __init__(self, made, directory):
        self.made, self.directory, self.version = made, directory, 0
        assert self.push()["swapped"]
        self.version = 1

    def begin(self, *args):
        """Starts the push of the next version. A version that is not built leaves no gap."""
        path = self.directory / "t.parquet"
        version = max(self.built(), default=0) + 1
        write(pa.table({"id": range(KEYS), "version": [version] * KEYS}), path)
        words = ["--replicas", "2", "--partitions", "6", "--json"]
        words += [] if "--deadline" in args else ["--deadline", "60s"]
        return self.made.store.start("push", "t", path, "--key", "{id}", *words, *args)

    def push(self, *args, code=0):
        """Returns the push's result, or its error."""
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
    """Holds the requests that `watch` sends to a gate."""
    made.watch = watch
    try:
        yield
    finally:
        made.watch = made.ignore
        gate.open()


@contextmanager
def stalled(made, table, node, phase):
    """Stalls a node's disk from just before the commit."""
    turn, gates = threading.Lock(), []

    def watch(_, exchange, is_done):
        if puts_phase(exchange, "committed") and not is_done:
            with turn:
                # A second stall would take the first one's pipe for the pointer.
                if not gates:
                    gates.append(made.stall(node, "t"))

    made.watch = watch
    try:
        yield lambda: made.wait_for(lambda seen: phase_of(seen) == phase)
    finally:
        made.watch = made.ignore
        for resume in gates:
            resume()


class Tables:
    """A cluster with its table. The next test reuses it, unless this one failed."""

    def __init__(self, server, tmp_path_factory):
        self.server, self.tmp_path_factory = server, tmp_path_factory
        self.free, self.taken = None, None

    def take(self):
        self.end_failed()
        if not self.free:
            directory = self.tmp_path_factory.mktemp("faulty")
            made = self.taken = FaultyCluster(self.server, directory)
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
