"""Clusters of real processes on this machine. Tests start, kill, pause and stop their nodes."""

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

# The S3 server's ports (object_store.py) lie between these and the ephemeral ports.
FIRST_PORT, LAST_PORT = 10_000, 20_000
CLASS_PORTS = 4
PORTS = 4 + CLASS_PORTS
# These counts are zero if every replica of a live table is present and answers.
INCOMPLETE = ("unreachable", "joining", "lost")

# Pause between two checks that each cost a request.
STEP_S = 0.05
# How long a long poll waits. Progress and replica health change without a new revision.
POLL_MS = 200

# Node timeout of test clusters: failures take a third of the documented time. An empty value means
# the product's default. If a busy machine stalls a node for longer, the cluster rolls a push back,
# and the test fails.
NODE_TIMEOUT = os.environ.get("FOREBAY_TEST_NODE_TIMEOUT", "3s")


def free_block():
    """Returns the first of PORTS free ports in a row, and a socket that reserves them. The ports
    are fixed, because a restarted node needs the same ones."""
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
    """A `forebay serve --cluster` process that can be started again."""

    # If the host is not loopback, nodes connect to each other by TLS.
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

    def wait_listening(self, seconds=WAIT_S):
        """Waits until the process listens."""
        readable, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if readable else b""
        if not line:
            raise Failed(f"{self.name} did not start: {self.log.read_text()}")
        ready = json.loads(line)
        assert ready["listen"].endswith(f":{self.port}")
        # The process prints its isolation policy at the start.
        assert ready["on_isolation"] == "serve" or ready["on_isolation"].startswith("refuse:")
        return self

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def is_awake(self):
        """Whether the node answers. A process stopped by SIGSTOP does not."""
        return self.alive() and not self.is_stopped

    def signal(self, sign):
        self.process.send_signal(sign)
        if sign in (signal.SIGSTOP, signal.SIGCONT):
            self.is_stopped = sign == signal.SIGSTOP

    def logged(self):
        """The log since the test began."""
        with self.log.open("rb") as log:
            log.seek(self.log_mark)
            return log.read().decode(errors="replace")

    def kill(self):
        """Kills the process without warning, like a power failure."""
        if self.alive():
            self.signal(signal.SIGKILL)
            self.process.communicate()

    def stop(self, seconds=WAIT_S):
        """Stops the node with SIGTERM, as an operator does, and returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.name} did not end: {self.log.read_text()}") from None
        return self.process.returncode

    def ask(self, path, seconds=10):
        """Returns the status and body of a page."""
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
        """The value of a metric. The name includes its labels."""
        found = re.search(rf"^{re.escape(name)} (\S+)$", self.ask("/metrics")[1], re.M)
        return float(found[1]) if found else None

    def through_gateway(self, **options):
        """A client that does not know the cluster and never retries."""
        return self.client(self.gateway, **options)

    def client(self, port=None, **options):
        options = {"socket_timeout": 20, "retry": None, "decode_responses": True, **options}
        return redis.Redis(port=port or self.port, **options)

    def cluster_client(self, **options):
        options = {"socket_timeout": 10, "decode_responses": True, **options}
        return redis.RedisCluster(host="127.0.0.1", port=self.port, **options)

    def slots(self):
        """The ports in CLUSTER SLOTS: one list for each range of slots."""
        with self.client(decode_responses=False) as client:
            rows = client.execute_command("CLUSTER", "SLOTS")
        if isinstance(rows, dict):
            return [
                [row["primary"][1], *(replica[1] for replica in row["replicas"])]
                for row in rows.values()
            ]
        return [[address[1] for address in row[2:]] for row in rows]


class Cluster:
    """Nodes n1, n2, ... over one store. They take turns over the zones z1, z2, ..."""

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
            node.wait_listening()
        self.wait_up()
        return self

    def join(self, name, zone, args=None, cache=None):
        """Adds a node, and waits until all nodes know it."""
        args = self.args if args is None else args
        self.nodes.append(ClusterNode(self.store, self.directory, name, zone, args))
        self.nodes[-1].cache = cache or self.nodes[-1].cache
        self.nodes[-1].start().wait_listening()
        self.wait_up()
        return self.nodes[-1]

    def __getitem__(self, name):
        return next(node for node in self.nodes if node.name == name)

    def alive(self):
        return [node for node in self.nodes if node.alive()]

    def ask_coordinator(self, after=None, wait_ms=POLL_MS):
        """The coordinator's status, from the first node that reaches it, or None. With a revision,
        the request waits up to `wait_ms` for a later one."""
        query = "" if after is None else f"?after={after}&wait={wait_ms}ms"
        for node in self.nodes:
            if node.is_awake():
                code, text = node.ask(f"/v1/cluster{query}")
                status = json.loads(text) if code == 200 else None
                if status and status["coordinator"]:
                    return status
        return None

    def wait_for(self, condition, what="the cluster's state", seconds=WAIT_S):
        """Waits until the condition holds for the coordinator's status, and returns that status. It
        asks at each revision, and every POLL_MS for changes without one."""
        status, end = None, time.monotonic() + seconds
        while True:
            begun = time.monotonic()
            status = self.ask_coordinator(status["revision"] if status else None)
            if status and condition(status):
                return status
            if begun > end:
                what = what() if callable(what) else what
                raise AssertionError(f"not within {seconds} s: {what}: {status}")
            # No node reaches a coordinator, or revisions follow each other quickly.
            time.sleep(max(0, begun + STEP_S / 2 - time.monotonic()))

    def status(self):
        """The catalog's current status, from a node that has read it, or from the command."""
        least = self.revision()
        if least is None or not any(node.is_awake() for node in self.nodes):
            return self.store.json("cluster", "status")
        return self.wait_for(lambda status: status["revision"] >= least, f"revision {least}")

    def revision(self):
        """The revision of the catalog in the store, or None if the catalog is lost."""
        head = self.store.content("cluster/head")
        found = head and re.search(rb'"revision":(\d+)', head)
        return int(found[1]) if found else None

    def states(self):
        return states_of(self.status())

    def table(self, name):
        return table_of(self.status(), name)

    def wait_states(self, **states):
        """Waits until nodes are in these states: wait_states(n1="down")."""
        self.wait_for(lambda status: states.items() <= states_of(status).items(), states)

    def wait_no_plan(self, seconds=WAIT_S):
        self.wait_for(lambda status: status["plan"] is None, "no plan", seconds)

    def wait_whole(self, *tables, seconds=WAIT_S):
        """Waits until all partitions of these live tables (by default all) have a leader, and all
        their replicas answer."""
        self.wait_for(lambda status: is_whole(status, tables), "all replicas are there", seconds)

    def split(self, table, at, option="--at"):
        """Splits a partition once it has all replicas. Returns the new partition."""
        results = []

        def is_split():
            words = ["cluster", "split", table, option, str(at), "--json"]
            result = self.store.run(*words, code=None)
            assert result.code == 0 or "then ask again" in result.err, result.err
            results[:] = [result.json()] if result.code == 0 else []
            return bool(results)

        wait_for(is_split, f"{at} is split", 120, 0.5)
        assert results[0]["led"], results
        return results[0]["partition"]

    def coordinator(self):
        """Waits for a coordinator, and returns its node."""
        names = [node.name for node in self.nodes]
        status = self.wait_for(lambda status: status["coordinator"] in names)
        return self[status["coordinator"]]

    def restart(self, *args):
        """Restarts the nodes one after another with these options."""
        for node in self.nodes:
            node.stop()
            node.args = args
            node.start()
        for node in self.nodes:
            node.wait_listening()

    def wait_up(self, seconds=WAIT_S):
        """Waits until all nodes are up and every node knows it."""
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
        self.wait_for(lambda status: names.items() <= states_of(status).items(), names, seconds)

    def tidy(self):
        """Resets the cluster to its first state: the first nodes and options, and no tables."""
        for node in self.nodes:
            if node.is_stopped:
                node.signal(signal.SIGCONT)
            if node.args is not node.first_args[0] and node.alive():
                node.stop()
            (node.args,) = node.first_args
            if not node.alive():
                node.start().wait_listening()
        self.wait_up()
        for table in self.status()["tables"]:
            self.store.run("drop", table["table"], "--yes")
        self.remove_joined_nodes()
        is_healthy = lambda status: status["healthy"] and not status["plan"]  # noqa: E731
        empty = self.wait_for(is_healthy, "the cluster is healthy")
        assert empty["tables"] == [] and not empty.get("loads"), empty

    def remove_joined_nodes(self):
        """Removes the nodes that tests joined."""
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
        """Kills all nodes, whatever their state."""
        for node in self.nodes:
            node.kill()
            node.guard.close()

    def check_logs(self):
        for node in self.nodes:
            if node.log.exists():
                assert "panicked" not in node.log.read_text(), node.log.read_text()


def states_of(status):
    return {node["name"]: node["state"] for node in status["nodes"]}


def table_of(status, name):
    return next((table for table in status["tables"] if table["table"] == name), None)


def is_whole(status, tables=()):
    live = status.get("live")
    found = live and [live["tables"].get(name) for name in tables or live["tables"]]
    if not found or live["short"]["count"] or live["without_leader"]["count"]:
        return False
    return all(
        one and one["led"] == one["partitions"] and not any(one[what] for what in INCOMPLETE)
        for one in found
    )


class Reading(threading.Thread):
    """Reads with one client in a loop, and records the versions and the failures.

    `read_once(client)` returns the versions in a reply. A reply with several versions is mixed.
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
        assert not self.is_alive(), "the read does not end"
        return self

    @classmethod
    def end_all(cls):
        """Ends the readers that a test left. Another node may use their ports next."""
        while cls.begun:
            cls.begun.pop().end()
