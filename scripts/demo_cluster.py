"""A cluster in five minutes: five nodes in three zones. One node dies under readers and one is
drained; two tables are replaced at one moment, and rolled back.

Everything lives in .demo/ and goes with the next run; the nodes take free ports and are ended.
"""

import contextlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import redis
from demo_flights import (
    FOREBAY,
    HOME,
    KEY,
    WATCHED,
    delays,
    first_version,
    forebay,
    say,
    second_version,
    shown,
    step,
)
from redis.backoff import NoBackoff
from redis.retry import Retry

STORE = HOME / "store"
ZONES = ["a", "b", "c"]
# Ports of a node: clients of clusters, nodes, all other clients, HTTP, and those of its classes.
PORTS = 8
# Of a read, a tenth of a second apart: after three seconds it has failed.
AWARE_TRIES = 30
# Of every day a carrier's flights and their mean delay, computed from the flights.
DAY_KEY = "{month:02}-{day:02}/{carrier}"
WATCHED_DAYS = [f"07-{name[8:10]}/UA" for name in WATCHED]
NAMES = [f"flights:{key}" for key in WATCHED] + [f"days:{key}" for key in WATCHED_DAYS]


def summary(table):
    by_day = table.group_by(["month", "day", "carrier"])
    found = by_day.aggregate([("flight", "count"), ("arr_delay", "mean")])
    return found.rename_columns(["month", "day", "carrier", "flights", "delay"])


def mean_delays(table):
    """The watched rows of a summary."""
    rows = table.filter((pc.field("month") == 7) & (pc.field("carrier") == "UA"))
    return tuple(row["delay"] for row in rows.sort_by("day").to_pylist()[: len(WATCHED_DAYS)])


class Node:
    """A node of the cluster, which may be killed and started again."""

    def __init__(self, name, zone, first_port):
        self.name, self.zone, self.port = name, zone, first_port
        self.gateway, self.process = first_port + 2, None

    def start(self, show=False):
        at = [f"127.0.0.1:{self.port + i}" for i in range(4)]
        words = ["serve", "--cluster", "--store", "store", "--cache", f"cache-{self.name}"]
        words += ["--node", self.name, "--zone", self.zone, "--listen", at[0], "--peer", at[1]]
        words += ["--gateway", at[2], "--http", at[3]]
        words += ["--class-ports", f"{self.port + 4}-{self.port + PORTS - 1}"]
        if show:
            shown("forebay", *words)
        with Path(HOME / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [FOREBAY, *words], cwd=HOME, stdout=subprocess.DEVNULL, stderr=log
            )

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self):
        """As an operator does."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def free_ports(count):
    """`count` free ports in a row."""
    for first in range(7400, 32000, count):
        try:
            for port in range(first, first + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
    sys.exit("there are no free ports")


def status():
    return json.loads(forebay("cluster", "status", "--store", "store", "--json", show=False)[1])


def wait_for(condition, what, seconds=60):
    """Waits until condition() is true; gives the seconds it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            sys.exit(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - begun


class Plain:
    """A client that knows nothing of clusters: some gateways, and when one is gone, the next."""

    kind = "plain client"

    def __init__(self, nodes, known):
        options = {"socket_timeout": 5, "retry": Retry(NoBackoff(), 0)}
        self.clients = [redis.Redis(port=node.gateway, **options) for node in nodes]
        self.known, self.moved_on = known, 0

    def read(self):
        """The pair of versions that one MGET of both tables shows; None when it mixes them."""
        for _ in self.clients:
            try:
                reply = self.clients[0].mget(NAMES)
                break
            except redis.ConnectionError:
                self.clients.append(self.clients.pop(0))
                self.moved_on += 1
        else:
            raise redis.ConnectionError("no gateway answers")
        rows = [json.loads(row) for row in reply]
        seen = tuple(row["arr_delay"] for row in rows[: len(WATCHED)])
        means = tuple(row["delay"] for row in rows[len(WATCHED) :])
        return self.known.get((seen, means))


class Aware:
    """A client of Redis Cluster: it asks the nodes that have a key. One key a read."""

    kind = "cluster client"

    def __init__(self, nodes, known):
        self.client = redis.RedisCluster(host="127.0.0.1", port=nodes[0].port, socket_timeout=5)
        self.known, self.place, self.moved_on = known, 0, 0

    def read(self):
        self.place = (self.place + 1) % len(WATCHED)
        row = json.loads(self.get(f"flights:{WATCHED[self.place]}"))
        fitting = [pair for (seen, _), pair in self.known.items() if self.fits(seen, row)]
        return fitting[0] if fitting else None

    def get(self, key):
        """The client's own retries follow each other at once: while the nodes find that one of them
        is gone, they are used up."""
        for _ in range(AWARE_TRIES):
            with contextlib.suppress(redis.ConnectionError):
                return self.client.get(key)
            self.moved_on += 1
            time.sleep(0.1)
        raise redis.ConnectionError("no node answers")

    def fits(self, seen, row):
        return seen[self.place] == row["arr_delay"]


class Reader(threading.Thread):
    """One client that reads without a pause, and what came of it."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.over = client, threading.Event()
        self.reads, self.failed, self.mixed, self.slowest, self.last = 0, 0, 0, 0.0, None
        self.start()

    def run(self):
        while not self.over.is_set():
            begun = time.monotonic()
            self.reads += 1
            try:
                self.last = self.client.read()
                self.mixed += self.last is None
            except (redis.RedisError, TypeError):
                self.failed += 1
            self.slowest = max(self.slowest, time.monotonic() - begun)

    def stop(self):
        self.over.set()
        self.join()


def wait_for_readers(readers, pair):
    """Waits until all plain clients read these versions of the two tables."""
    plain = [reader for reader in readers if isinstance(reader.client, Plain)]
    what = f"the readers see versions {pair}"
    return wait_for(lambda: all(reader.last == pair for reader in plain), what)


def write_sources():
    """Three versions of the flights, two of the days; and which pairs serve together, by what a
    reader sees of them."""
    first = first_version()
    tables = [first, second_version(first), second_version(first, minutes=10)]
    days = [summary(tables[0]), summary(tables[2])]
    for number, table in enumerate(tables, 1):
        pq.write_table(table, HOME / f"flights-{number}.parquet")
    for number, table in enumerate(days, 1):
        pq.write_table(table, HOME / f"days-{number}.parquet")
    pairs = [(1, 1), (2, 1), (3, 2)]
    known = {(delays(tables[f - 1]), mean_delays(days[d - 1])): (f, d) for f, d in pairs}
    say(f"  flights: {first.num_rows:,} rows; days, computed from them: {days[0].num_rows:,} rows")
    return known


def push(table, version, key, *more, code=0):
    words = ["push", table, f"{table}-{version}.parquet", "--key", key, "--store", "store"]
    return forebay(*words, *more, code=code)[0]


def run():
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir()
    with contextlib.ExitStack() as ending:
        tell(*demonstrate(ending))


def demonstrate(ending):
    step("1. The data: flights that left New York in 2013, and a summary of each day")
    known = write_sources()
    took = {}

    step("2. A cluster is a store and its nodes: five, in three zones")
    forebay("cluster", "create", "--store", "store")
    first = free_ports(5 * PORTS)
    nodes = [Node(f"n{i + 1}", ZONES[i % 3], first + i * PORTS) for i in range(5)]
    for node in nodes:
        ending.callback(node.kill)
        node.start(show=node is nodes[0])
    say("    ... and four more")
    everyone = lambda: [node["state"] for node in status()["nodes"]] == ["up"] * 5  # noqa: E731
    took["start"] = wait_for(everyone, "all nodes are up")

    step("3. A push ends when three nodes have each part, have read it back, and serve it")
    took["push"] = push("flights", 1, KEY)
    push("days", 1, DAY_KEY)
    clients = [Plain([node, *(n for n in nodes if n is not node)], known) for node in nodes[:3]]
    readers = [Reader(client) for client in [*clients, Aware(nodes, known)]]
    wait_for_readers(readers, (1, 1))
    say("  Four clients read from now on: three through gateways, one as a client of a cluster.")

    step("4. A node is killed, and the next version published without it")
    lost = nodes[1]
    shown("kill", "-9", lost.name)
    lost.kill()
    took["push without a node"] = push("flights", 2, KEY, code=6)
    say("    (exit code 6: done, but for a node that was left out)")
    wait_for_readers(readers, (2, 1))
    forebay("cluster", "status", "--store", "store")
    lost.start()
    there = redis.Redis(port=lost.gateway, socket_timeout=5, decode_responses=True)
    took["back"] = wait_for(lambda: serves(there, 2), "the node serves again")
    say(f"  {lost.name} was started again, and served version 2 after {took['back']:.1f} s.")

    step("5. Two tables are replaced at one moment")
    push("flights", 3, KEY, "--no-swap")
    push("days", 2, DAY_KEY, "--no-swap")
    took["swap"], _ = forebay("swap", "flights@3", "days@2", "--store", "store")
    wait_for_readers(readers, (3, 2))

    step("6. And both back again")
    took["rollback"], _ = forebay("rollback", "flights", "days", "--store", "store")
    wait_for_readers(readers, (2, 1))

    step("7. A node is drained: others come to hold what it holds, and it can go")
    gone = nodes[4]
    took["drain"], _ = forebay("cluster", "drain", gone.name, "--yes", "--store", "store")
    shown("kill", gone.name)
    gone.stop()
    forebay("cluster", "remove", gone.name, "--store", "store")
    wait_for_readers(readers, (2, 1))
    for reader in readers:
        reader.stop()
    return readers, took


def serves(client, version):
    try:
        return client.execute_command("KV.VERSION", "flights") == version
    except redis.RedisError:
        return False


def tell(readers, took):
    step("What happened")
    say(f"  Five nodes were a cluster after {took['start']:.1f} s.")
    say(f"  A push took {took['push']:.1f} s. With a node that had just died it took")
    say(f"  {took['push without a node']:.1f} s: it waits until that node's lease has ended.")
    say(f"  Two tables were brought, verified and swapped in {took['swap']:.1f} s.")
    say(f"  Both were rolled back in {took['rollback'] * 1000:.0f} ms.")
    say(f"  A node was drained in {took['drain']:.1f} s.")
    failed = 0
    for kind in (Plain.kind, Aware.kind):
        own = [reader for reader in readers if reader.client.kind == kind]
        reads, bad = sum(r.reads for r in own), sum(r.failed for r in own)
        mixed, moved = sum(r.mixed for r in own), sum(r.client.moved_on for r in own)
        slowest = max(r.slowest for r in own)
        say(f"  {len(own)} x {kind}: {reads:,} reads, {bad} failed, {mixed} mixed versions.")
        say(f"    The slowest took {slowest * 1000:.0f} ms. {moved} were sent to another node.")
        failed += bad + mixed
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    run()
