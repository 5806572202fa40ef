"""Live tables whose partitions have three replicas: SETs beside a single node and beside Redis with two replicas, GETs by
lease beside a single node, and what idle groups cost."""

import contextlib
import random
import socket
import threading
import time

import cluster_places
from cluster_places import cpu_seconds, middle, on_core
from cluster_reads import in_turn
from common import Done, Failed, Process, Report, run, say, shown
from harness import Store
from resp import word

TABLE = "key"
NODES = 3
CONNECTIONS = 16
PIPELINES = (1, 16, 64)
KEYS = 100_000
VALUE = b"x" * 100
REDIS_PORTS = (17611, 17612, 17613)
LABELS = {
    "alone": "Forebay, one server",
    "leader": "three nodes, 1 partition, at the node that leads it",
    "gateway 3": "three nodes, 3 partitions, at one gateway",
    "gateway 16": "three nodes, 16 partitions, at one gateway",
    "redis": "Redis, two replicas, WAIT 1 behind each pipeline",
}


class Writer(threading.Thread):
    """Sends pipelines of SETs over one connection, each when the one before is answered."""

    def __init__(self, port: int, table: str, depth: int, waits: bool, seed: int):
        super().__init__(daemon=True)
        chance = random.Random(seed)
        key = lambda: b"%s:%012d" % (table.encode(), chance.randrange(KEYS))  # noqa: E731
        wait = word(b"WAIT", b"1", b"0") if waits else b""
        sets = lambda: b"".join(word(b"SET", key(), VALUE) for _ in range(depth))  # noqa: E731
        self.payloads = [sets() + wait for _ in range(max(8, 2000 // depth))]
        self.depth, self.waits, self.done, self.over, self.problem = depth, waits, 0, False, None
        self.stream = socket.create_connection(("127.0.0.1", port), 30)

    def run(self):
        wanted = 5 * self.depth + (4 if self.waits else 0)
        at = 0
        while not self.over:
            self.stream.sendall(self.payloads[at % len(self.payloads)])
            at += 1
            got = b""
            while len(got) < wanted:
                some = self.stream.recv(1 << 16)
                got += some
                if not some or b"-" in some:
                    self.problem = got[-200:]
                    return
            self.done += self.depth


def sets_per_second(port: int, table: str, depth: int, waits: bool, seconds: float) -> float:
    writers = [Writer(port, table, depth, waits, seed) for seed in range(CONNECTIONS)]
    for writer in writers:
        writer.start()
    time.sleep(seconds / 4)
    begun, before = time.monotonic(), sum(writer.done for writer in writers)
    time.sleep(seconds)
    done, took = sum(writer.done for writer in writers) - before, time.monotonic() - begun
    for writer in writers:
        writer.over = True
    for writer in writers:
        writer.join(30)
        writer.stream.close()
        if writer.problem:
            raise Failed(f"port {port}: {writer.problem}")
    return done / took


@contextlib.contextmanager
def redis_replicas(folder):
    """A primary and two replicas that keep nothing on disk."""
    with contextlib.ExitStack() as ending:
        first = None
        for port in REDIS_PORTS:
            home = folder / f"redis-{port}"
            home.mkdir(parents=True)
            words = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", home]
            words += ["--replicaof", "127.0.0.1", REDIS_PORTS[0]] if first else []
            server = ending.enter_context(Process(words, home / "log"))
            server.wait_until(lambda port=port: "PONG" in run(["redis-cli", "-p", port, "ping"]), 10, "redis-server")
            first = first or server
        joined = lambda: run(["redis-cli", "-p", REDIS_PORTS[0], "info", "replication"]).count("state=online") == 2  # noqa: E731
        first.wait_until(joined, 60, "Redis's replicas")
        yield


def leader_of(made, table: str):
    """The node that leads the only partition of a table."""
    with made.nodes[0].client() as client:
        [[_, _, nodes]] = client.execute_command("KV.MAP", table)
    return next(node for node in made.nodes if nodes[0].endswith(f":{node.port}"))


def create(store, table: str, partitions: int, *args) -> None:
    store.run("create", table, "--mode", "live", "--durability", "os", "--partitions", str(partitions), *args)


def sets(options) -> dict:
    """{pipeline: [{contender: SETs a second}]}, a row a round."""
    seconds = 1 if options.trial else 4
    with cluster_places.folder() as path, cluster_places.directory_cluster(NODES) as made, contextlib.ExitStack() as ending:
        alone = Store(path / "alone")
        create(alone, TABLE, 4)
        server = ending.enter_context(alone.serve())
        for table, partitions in (("one", 1), ("three", 3), ("many", 16)):
            create(made.store, table, partitions, "--replicas", "3")
        ending.enter_context(redis_replicas(path))
        gateway = made.nodes[0].gateway
        targets = {
            "alone": (server.port, TABLE, False),
            "leader": (leader_of(made, "one").gateway, "one", False),
            "gateway 3": (gateway, "three", False),
            "gateway 16": (gateway, "many", False),
            "redis": (REDIS_PORTS[0], TABLE, True),
        }
        found: dict = {}
        for depth in PIPELINES:
            for number in range(1 if options.trial else options.rounds):
                names = list(targets)
                order = names[number % len(names):] + names[: number % len(names)]
                one = {}
                for name in order:
                    port, table, waits = targets[name]
                    one[name] = sets_per_second(port, table, depth, waits, seconds)
                found.setdefault(str(depth), []).append(one)
        return found


def gets(options) -> dict:
    """{pipeline: [{target: run}]}: the leader and a server alone on core 0, the client on core 1."""
    requests = {1: 1_000_000, 16: 8_000_000}
    requests = {depth: count // (10 if options.trial else 1) for depth, count in requests.items()}
    with cluster_places.folder() as path, cluster_places.directory_cluster(NODES, start=False) as made, contextlib.ExitStack() as ending:
        with on_core(0):
            made.start()
            alone = Store(path / "alone")
            create(alone, TABLE, 1)
            server = ending.enter_context(alone.serve())
        create(made.store, TABLE, 1, "--replicas", "3")
        leader = leader_of(made, TABLE)
        for port in (server.port, leader.gateway):
            fill = ["redis-benchmark", "-p", port, "-t", "set", "-r", KEYS, "-n", 5 * KEYS, "-c", "8", "-P", "64", "-d", "100", "-q"]
            run(fill, 300)
        with on_core(1):
            found = in_turn(
                {"alone": server.port, "leader": leader.port}, {"alone": server.process.pid, "leader": leader.process.pid},
                KEYS, requests, 1 if options.trial else options.rounds,
            )
        return {str(depth): runs for depth, runs in found.items()}


def idle(options) -> dict:
    """Processor seconds a second of each node: with no live table, and with so many idle groups."""
    groups, seconds = (100, 5) if options.trial else (1000, 30)

    def used(made) -> list:
        before = [cpu_seconds(node.process.pid) for node in made.nodes]
        time.sleep(seconds)
        return [(cpu_seconds(node.process.pid) - was) / seconds for node, was in zip(made.nodes, before)]

    with cluster_places.directory_cluster(NODES) as made:
        time.sleep(5)
        without = used(made)
        create(made.store, "idle", groups, "--replicas", "3")
        time.sleep(5 if options.trial else 20)
        return {"groups": groups, "without": without, "with": used(made)}


def kept(what: str, work, options, done: Done, wanted: bool, report: Report):
    key = Done.key("live", what, options.trial)
    if wanted and key not in done.results:
        say(f"live tables: {what}")
        try:
            done.put(key, work(options))
        except Exception as why:  # noqa: BLE001 - the other figures go on
            report.failed(f"live tables, {what}", why)
    return done.results.get(key)


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    found = {what: kept(what, work, options, done, wanted, report) for what, work in (("sets", sets), ("gets", gets), ("idle", idle))}
    if not any(found.values()):
        return
    report.body["live"] = found
    report.text("## Live tables: three nodes, three replicas of each partition, durability `os`")
    if found["sets"]:
        tell_sets(report, found["sets"])
    if found["gets"]:
        tell_gets(report, found["gets"])
    if found["idle"]:
        tell_idle(report, found["idle"])


def tell_sets(report: Report, found: dict) -> None:
    report.text(
        f"SETs of 100 B over {KEYS:,} keys by {CONNECTIONS} connections of one client, which sends a pipeline when the one before is answered; the same "
        "client for all. All processes share the two cores: a cluster does the work of three nodes there. Rounds in turn, medians.",
    )
    rate = lambda depth, name: middle(one[name] for one in found[depth])  # noqa: E731
    ratio = lambda depth, name, to: middle(one[name] / one[to] for one in found[depth])  # noqa: E731
    report.table(
        ["SET/s", *(f"pipeline {depth}" for depth in found), *(f"x one server, {depth}" for depth in found), *(f"x Redis, {depth}" for depth in found)],
        [
            [label, *(shown(rate(depth, name)) for depth in found), *(shown(ratio(depth, name, "alone"), 3) for depth in found),
             *(shown(ratio(depth, name, "redis"), 2) for depth in found)]
            for name, label in LABELS.items()
        ],
    )
    best = lambda depth: max(ratio(depth, name, "alone") for name in ("leader", "gateway 3", "gateway 16"))  # noqa: E731
    report.targets([(f"SETs of one server / of three replicas, pipeline {depth} (at least 0.25 x)", 1 / best(depth), 4, " x") for depth in found])


def tell_gets(report: Report, found: dict) -> None:
    report.text("GETs by lease at the node that leads the only partition, beside one server: `redis-benchmark` on core 1, all servers on core 0.")
    report.table(
        ["", "GET/s", "p50 ms", "p99 ms", "its processor time, us a GET"],
        [
            [f"{label}, pipeline {depth}", *(shown(middle(one[name][field] for one in found[depth]), digits)
                                             for field, digits in (("rps", 0), ("p50_ms", 3), ("p99_ms", 3))),
             shown(middle(one[name]["cpu_us"][name] for one in found[depth]), 3)]
            for depth in found for name, label in (("alone", "one server"), ("leader", "the leader"))
        ],
    )
    rows = []
    for depth in found:
        ratios = [one["leader"]["cpu_us"]["leader"] / one["alone"]["cpu_us"]["alone"] for one in found[depth]]
        rows.append((f"processor time of a GET at the leader / at one server, pipeline {depth}", middle(ratios), 1.03, " x"))
    report.targets(rows)


def tell_idle(report: Report, found: dict) -> None:
    groups = found["groups"]
    more = [100 * (after - before) for before, after in zip(found["without"], found["with"])]
    report.text(
        f"{groups:,} groups of three replicas that nobody asks anything: each node took {', '.join(f'{part:.2f}%' for part in more)} of a core more than "
        f"without them ({', '.join(f'{100 * part:.2f}%' for part in found['without'])} before).",
    )
    report.targets([(f"a core for {groups:,} idle groups, the node that takes most", max(more), 2, "%")])
