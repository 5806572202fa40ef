"""Clusters of real processes on this machine: nodes that are started, killed, stopped and ended."""

import json
import os
import random
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request

import redis
from harness import WAIT_S, Failed, wait_for

# Between them and the ephemeral ports are those of the S3 server (object_store.py).
FIRST_PORT, LAST_PORT = 10_000, 20_000
CLASS_PORTS = 4
PORTS = 4 + CLASS_PORTS
# What a live table has no replicas of when all of them are there and answer.
UNWHOLE = ("unreachable", "joining", "lost")

# Between two looks that cost a request.
STEP_S = 0.05
# A long poll ends after so long for what makes no revision: progress, the health of replicas.
POLL_MS = 200

# Of clusters in tests, so that what follows a fault takes a third of its documented time. Empty:
# the product's own. Where a busy machine keeps a node from its work for longer, a push is taken
# back, which is right, and fails its test.
NODE_TIMEOUT = os.environ.get("FOREBAY_TEST_NODE_TIMEOUT", "3s")


def free_block():
    """The first of PORTS free ports in a row, and a socket that keeps other tests from taking them.
    They are fixed, for a node comes back to its own."""
    chance = random.Random(f"{os.getpid()} {time.monotonic_ns()}")
    for _ in range(1000):
        first = chance.randrange(FIRST_PORT, LAST_PORT, PORTS + 1)
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", first + PORTS))
            for port in range(first, first + PORTS):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
            return first, guard
        except OSError:
            guard.close()
    raise Failed("no free ports")


class ClusterNode:
    """`forebay serve --cluster`, which may be started again and again."""

    # Other nodes are met by TLS where it is not loopback.
    peer_host = "127.0.0.1"

    def __init__(self, store, directory, name, zone, args=()):
        self.store, self.name, self.zone, self.args = store, name, zone, args
        self.cache = directory / f"cache-{name}"
        self.log = directory / f"{name}.log"
        self.port, self.guard = free_block()
        self.peer, self.gateway, self.http = (self.port + i for i in (1, 2, 3))
        self.process, self.is_stopped, self.log_mark = None, False, 0
        self.first_args = None

    def words(self):
        at = "127.0.0.1:{}".format
        first, last = self.port + 4, self.port + PORTS - 1
        peer = ["--peer", f"{self.peer_host}:{self.peer}"]
        if self.peer_host != "127.0.0.1":
            peer += ["--advertise-peer", at(self.peer)]
        return [
            *["serve", "--cluster", "--json", "--cache", self.cache],
            *["--node", self.name, "--zone", self.zone, "--listen", at(self.port)],
            *[*peer, "--gateway", at(self.gateway), "--http", at(self.http)],
            *["--class-ports", f"{first}-{last}", *self.args],
        ]

    def start(self):
        self.first_args = self.first_args or (self.args,)
        with self.log.open("ab") as log:
            self.process = self.store.start(*self.words(), stderr=log)
        self.is_stopped = False
        return self

    def comes_up(self, seconds=WAIT_S):
        """Waits until the process listens."""
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            raise Failed(f"{self.name} did not come up: {self.log.read_text()}")
        ready = json.loads(line)
        assert ready["listen"].endswith(f":{self.port}")
        # What it does when it is cut off is said at its start.
        assert ready["on_isolation"] == "serve" or ready["on_isolation"].startswith("refuse:")
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def is_awake(self):
        """Whether it answers at all: a process that was stopped by a signal does not."""
        return self.alive() and not self.is_stopped

    def signal(self, sign):
        self.process.send_signal(sign)
        if sign in (signal.SIGSTOP, signal.SIGCONT):
            self.is_stopped = sign == signal.SIGSTOP

    def logged(self):
        """What it logged since the test began."""
        with self.log.open("rb") as log:
            log.seek(self.log_mark)
            return log.read().decode(errors="replace")

    def kill(self):
        """As a power cut to the process: it is told nothing."""
        if self.alive():
            self.signal(signal.SIGKILL)
            self.process.communicate()

    def stop(self, seconds=WAIT_S):
        """As an operator ends it; gives the exit code."""
        self.signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end: {self.log.read_text()}") from None
        return self.process.returncode

    def ask(self, path, seconds=10):
        """Status and body of a page."""
        url = f"http://127.0.0.1:{self.http}{path}"
        try:
            with urllib.request.urlopen(url, timeout=seconds) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return None, str(error)

    def is_ready(self):
        return self.ask("/ready")[0] == 200

    def metric(self, name):
        """A metric by its name, with labels where it has some."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics")[1], re.M)
        return float(found[1]) if found else None

    def through_gateway(self, **options):
        """A client that knows nothing of clusters, and sends nothing twice."""
        return self.client(self.gateway, **options)

    def client(self, port=None, **options):
        options = {"socket_timeout": 20, "retry": None, "decode_responses": True, **options}
        return redis.Redis(port=port or self.port, **options)

    def cluster_client(self, **options):
        options = {"socket_timeout": 10, "decode_responses": True, **options}
        return redis.RedisCluster(host="127.0.0.1", port=self.port, **options)

    def slots(self):
        """The ports that CLUSTER SLOTS tells: [[those of a row of slots]]."""
        with self.client(decode_responses=False) as client:
            rows = client.execute_command("CLUSTER", "SLOTS")
        if isinstance(rows, dict):
            return [
                [row["primary"][1], *(replica[1] for replica in row["replicas"])]
                for row in rows.values()
            ]
        return [[address[1] for address in row[2:]] for row in rows]


class Cluster:
    """Nodes n1, n2, ... in the zones z1, z2, ... by turns, over one store."""

    def __init__(
        self, store, directory, count=3, zones=3, args=(), create=(), node_timeout=NODE_TIMEOUT
    ):
        self.store, self.directory, self.args = store, directory, args
        timeout = ["--node-timeout", node_timeout] if node_timeout else []
        self.store.run("cluster", "create", *timeout, *create)
        self.count = count
        names = [(f"n{i + 1}", f"z{i % zones + 1}") for i in range(count)]
        self.nodes = [ClusterNode(store, directory, *name, args) for name in names]

    def start(self):
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.comes_up()
        self.wait_up()
        return self

    def join(self, name, zone, args=None, cache=None):
        """One node more, once all know it."""
        args = self.args if args is None else args
        self.nodes.append(ClusterNode(self.store, self.directory, name, zone, args))
        self.nodes[-1].cache = cache or self.nodes[-1].cache
        self.nodes[-1].start().comes_up()
        self.wait_up()
        return self.nodes[-1]

    def __getitem__(self, name):
        return next(node for node in self.nodes if node.name == name)

    def alive(self):
        return [node for node in self.nodes if node.alive()]

    def heard(self, after=None, wait_ms=POLL_MS):
        """What the coordinator says, by the first node that reaches it; None where none does. With
        a revision it is asked for a later one, for so long."""
        query = "" if after is None else f"?after={after}&wait={wait_ms}ms"
        for node in self.nodes:
            if node.is_awake():
                status, text = node.ask(f"/v1/cluster{query}")
                says = json.loads(text) if status == 200 else None
                if says and says["coordinator"]:
                    return says
        return None

    def wait_for(self, condition, what="the cluster's state", seconds=WAIT_S):
        """Waits until the condition holds of what the coordinator says, and gives that. It is asked
        at each revision, and every POLL_MS for what is none."""
        says, end = None, time.monotonic() + seconds
        while True:
            begun = time.monotonic()
            says = self.heard(says["revision"] if says else None)
            if says and condition(says):
                return says
            if begun > end:
                what = what() if callable(what) else what
                raise AssertionError(f"not within {seconds} s: {what}: {says}")
            # Nobody reaches a coordinator, or revisions come one after the other.
            time.sleep(max(0, begun + STEP_S / 2 - time.monotonic()))

    def status(self):
        """What the catalog says now, by a node that has read it, or by the command."""
        least = self.revision()
        if least is None or not any(node.is_awake() for node in self.nodes):
            return self.store.json("cluster", "status")
        return self.wait_for(lambda says: says["revision"] >= least, f"revision {least}")

    def revision(self):
        """That of the catalog in the store; None where it is lost."""
        head = self.store.content("cluster/head")
        found = head and re.search(rb'"revision":(\d+)', head)
        return int(found[1]) if found else None

    def states(self):
        return states_of(self.status())

    def table(self, name):
        return table_of(self.status(), name)

    def wait_states(self, **states):
        """Waits until nodes are in these states: wait_states(n1="down")."""
        self.wait_for(lambda says: states.items() <= states_of(says).items(), states)

    def wait_no_plan(self, seconds=WAIT_S):
        self.wait_for(lambda says: says["plan"] is None, "no plan", seconds)

    def wait_whole(self, *tables, seconds=WAIT_S):
        """Waits until the live tables' partitions (of all, or of these) have a leader and all of
        their replicas, which answer."""
        self.wait_for(lambda says: is_whole(says, tables), "all replicas are there", seconds)

    def split(self, table, at, option="--at"):
        """Cuts, once the partition has all of its replicas. Returns the new partition."""
        says = []

        def is_cut():
            words = ["cluster", "split", table, option, str(at), "--json"]
            result = self.store.run(*words, code=None)
            assert result.code == 0 or "then ask again" in result.err, result.err
            says[:] = [result.json()] if result.code == 0 else []
            return bool(says)

        wait_for(is_cut, f"{at} is cut", 120, 0.5)
        assert says[0]["led"], says
        return says[0]["partition"]

    def coordinator(self):
        """The node that is it, once there is one."""
        says = self.wait_for(lambda says: any(says["coordinator"] == n.name for n in self.nodes))
        return self[says["coordinator"]]

    def restart(self, *args):
        """Starts all nodes again, one after another, with these options."""
        for node in self.nodes:
            node.stop()
            node.args = args
            node.start()
        for node in self.nodes:
            node.comes_up()

    def wait_up(self, seconds=WAIT_S):
        """Waits until all nodes are up, and each knows that all are."""
        available = 'forebay_cluster_nodes{state="available"}'
        names = {node.name: "up" for node in self.nodes}

        def seen():
            return {n.name: (n.ask("/ready"), n.metric(available)) for n in self.nodes}

        def up():
            return all(
                node.metric(available) == len(self.nodes) and node.is_ready()
                for node in self.nodes
            )

        wait_for(up, lambda: f"all nodes are up: {seen()}", seconds, STEP_S)
        self.wait_for(lambda says: names.items() <= states_of(says).items(), names, seconds)

    def tidy(self):
        """Makes it as it was at first: its nodes are up, with their first options and no others,
        and there are no tables."""
        for node in self.nodes:
            if node.is_stopped:
                node.signal(signal.SIGCONT)
            if node.args is not node.first_args[0] and node.alive():
                node.stop()
            (node.args,) = node.first_args
            if not node.alive():
                node.start().comes_up()
        self.wait_up()
        for table in self.status()["tables"]:
            self.store.run("drop", table["table"], "--yes")
        self.part_from_others()
        empty = self.wait_for(lambda says: says["healthy"] and not says["plan"], "it is well")
        assert empty["tables"] == [] and not empty.get("loads"), empty

    def part_from_others(self):
        """Those that joined leave."""
        others = self.nodes[self.count :]
        holding = [node["name"] for node in self.status()["nodes"] if node["holds"]]
        names = [node.name for node in others if node.name in holding]
        if names:
            self.store.run("cluster", "drain", *names, "--yes")
        for node in others:
            node.stop()
            self.wait_states(**{node.name: "left"})
            self.store.run("cluster", "remove", node.name)
            node.guard.close()
        del self.nodes[self.count :]

    def end(self):
        """Ends all that runs, whatever became of it."""
        for node in self.nodes:
            node.kill()
            node.guard.close()

    def check_logs(self):
        for node in self.nodes:
            if node.log.exists():
                assert "panicked" not in node.log.read_text(), node.log.read_text()


def states_of(says):
    return {node["name"]: node["state"] for node in says["nodes"]}


def table_of(says, name):
    return next((table for table in says["tables"] if table["table"] == name), None)


def is_whole(says, tables=()):
    live = says.get("live")
    found = live and [live["tables"].get(name) for name in tables or live["tables"]]
    if not found or live["short"]["count"] or live["without_leader"]["count"]:
        return False
    return all(
        one and one["led"] == one["partitions"] and not any(one[what] for what in UNWHOLE)
        for one in found
    )


class Reading(threading.Thread):
    """Reads by one client all the time; notes what the replies say, and what failed.

    `read_once(client)` gives the versions that a reply shows. A reply of more than one is mixed.
    """

    begun = []

    def __init__(self, client, read_once, pause_s=0.02):
        super().__init__(daemon=True)
        self.begun.append(self)
        self.client, self.read_once, self.pause_s = client, read_once, pause_s
        self.replies, self.seen, self.failed, self.mixed = 0, [], [], []
        self.slowest_s = 0.0
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(self.pause_s):
            begun = time.monotonic()
            try:
                versions = self.read_once(self.client)
            except Exception as error:
                self.failed.append(f"{type(error).__name__}: {error}")
                continue
            self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
            self.replies += 1
            if len(versions) != 1:
                self.mixed.append(versions)
            elif versions != set(self.seen[-1:]):
                self.seen += versions

    def wait_for(self, version, seconds=WAIT_S):
        wait_for(lambda: self.seen[-1:] == [version], lambda: f"{version}: {self.seen}", seconds)

    def end(self):
        self.over.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "a read that never ends"
        return self

    @classmethod
    def end_all(cls):
        """Ends those that a test left, which would read from whoever gets its ports next."""
        while cls.begun:
            cls.begun.pop().end()
