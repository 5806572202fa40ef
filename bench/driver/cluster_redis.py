"""A whole table replaced, in Redis Cluster (three primaries) and in a cluster of three nodes: time, and memory meanwhile."""

import binascii
import contextlib
import os
import subprocess
import threading
import time
from pathlib import Path

import cluster_places
import common
from cluster_places import TABLE, middle
from common import Done, Failed, Process, Report, memory_of, run, say, shown

SLOTS = 16384
PORTS = (17601, 17602, 17603)
LABELS = {
    "forebay": "Forebay: `push` of Parquet: read, sort, build, verify, bring to three nodes, verify, swap",
    "in place": "Redis: SET of each key, in place",
    "renamed": "Redis: SET under other names, then RENAME of each key",
}


class Highest(threading.Thread):
    """The highest sum of what some processes hold, looked at each 20 ms."""

    def __init__(self, pids: list):
        super().__init__(daemon=True)
        self.pids, self.over = pids, threading.Event()
        self.anonymous = self.resident = 0

    def look(self) -> None:
        found = [memory_of(pid) for pid in self.pids]
        self.anonymous = max(self.anonymous, sum(one["anonymous_bytes"] for one in found))
        self.resident = max(self.resident, sum(one["resident_bytes"] for one in found))

    def run(self):
        while not self.over.wait(0.02):
            self.look()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.join()
        self.look()


def memory(pids: list) -> dict:
    highest = Highest(pids)
    highest.look()
    return {"anonymous": highest.anonymous, "resident": highest.resident}


def timed(pids: list, action) -> dict:
    start = time.monotonic()
    with Highest(pids) as highest:
        action()
        seconds = time.monotonic() - start
    after = memory(pids)
    return {
        "seconds": seconds, "after": after,
        "peak_anonymous": max(highest.anonymous, after["anonymous"]), "peak_resident": max(highest.resident, after["resident"]),
    }


def commands(folder: Path, records: int, seed: int, ranges: list) -> dict:
    """Files of ready commands for each primary, as its slots are: SET, SET under the other name, RENAME."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(cluster_places.source(records, seed))
    kinds = {"set": [], "new": [], "rename": []}
    parts = {kind: [[] for _ in ranges] for kind in kinds}
    for number, value in zip(range(records), table["v"].to_pylist()):
        name = f"{TABLE}:{number:012d}"
        slot = binascii.crc_hqx(name.encode(), 0) % SLOTS
        place = next(place for place, (first, last) in enumerate(ranges) if first <= slot <= last)
        # The braces keep the other name in the same slot.
        other = f"{{{name}}}:n"
        for kind, words in (("set", ("SET", name, value)), ("new", ("SET", other, value)), ("rename", ("RENAME", other, name))):
            parts[kind][place].append(f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words))
    for kind in kinds:
        for place, lines in enumerate(parts[kind]):
            path = folder / f"{kind}-{seed}-{place}.resp"
            path.write_text("".join(lines), newline="")
            kinds[kind].append(path)
    return kinds


def pipe(paths: list) -> None:
    """redis-cli --pipe, one for each primary, at the same time."""
    children = []
    for port, path in zip(PORTS, paths):
        with path.open("rb") as source:
            children.append(subprocess.Popen(["redis-cli", "-p", str(port), "--pipe"], stdin=source, stdout=subprocess.PIPE, text=True))
    for child in children:
        out, _ = child.communicate(timeout=300)
        if "errors: 0" not in out:
            raise Failed(f"redis-cli --pipe: {out.strip()[-200:]}")


@contextlib.contextmanager
def redis_cluster(folder: Path):
    """Three primaries that keep nothing on disk."""
    with contextlib.ExitStack() as ending:
        servers = []
        for port in PORTS:
            home = folder / f"redis-{port}"
            home.mkdir(parents=True)
            words = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                     "--cluster-enabled", "yes", "--dir", home]
            servers.append(ending.enter_context(Process(words, home / "log")))
            servers[-1].wait_until(lambda port=port: "PONG" in run(["redis-cli", "-p", port, "ping"]), 10, "redis-server")
        run(["redis-cli", "--cluster", "create", *(f"127.0.0.1:{port}" for port in PORTS), "--cluster-yes"])
        joined = lambda: all("cluster_state:ok" in run(["redis-cli", "-p", port, "cluster", "info"]) for port in PORTS)  # noqa: E731
        servers[0].wait_until(joined, 30, "Redis Cluster")
        yield [server.pid for server in servers]


def slots() -> list:
    """Of each primary the first and the last slot."""
    found = []
    for port in PORTS:
        own = next(line for line in run(["redis-cli", "-p", port, "cluster", "nodes"]).splitlines() if "myself" in line)
        first, last = own.split()[8].split("-")
        found.append((int(first), int(last)))
    return found


def count() -> int:
    return sum(int(run(["redis-cli", "-p", port, "dbsize"])) for port in PORTS)


def redis_round(records: int) -> dict:
    with cluster_places.folder() as folder, redis_cluster(folder) as pids:
        files = {seed: commands(folder, records, seed, slots()) for seed in (1, 2)}
        first = timed(pids, lambda: pipe(files[1]["set"]))
        in_place = timed(pids, lambda: pipe(files[2]["set"]))

        def renamed():
            pipe(files[1]["new"])
            pipe(files[1]["rename"])

        by_name = timed(pids, renamed)
        if count() != records:
            raise Failed(f"{count()} keys of {records}")
        return {"first": first, "in place": in_place, "renamed": by_name}


def forebay_round(records: int) -> dict:
    with cluster_places.directory_cluster(3) as made:
        pids = [node.process.pid for node in made.nodes]
        files = [cluster_places.source(records, seed) for seed in (1, 2)]
        first = timed(pids, lambda: cluster_places.push(made.store, files[0], "--replicas", "1"))
        again = timed(pids, lambda: cluster_places.push(made.store, files[1]))
        touch(made, records)
        again["after"] = after = memory(pids)
        again["peak_anonymous"] = max(again["peak_anonymous"], after["anonymous"])
        again["peak_resident"] = max(again["peak_resident"], after["resident"])
        again["disk"] = sum(path.stat().st_size for node in made.nodes for path in node.cache.rglob("*.run"))
        back = timed(pids, lambda: made.store.json("rollback", TABLE))
        return {"first": first, "forebay": again, "rollback": back}


def touch(made, records: int) -> None:
    """Reads, so that pages that serve are counted as they would be."""
    for node in made.nodes:
        run(["redis-benchmark", "-p", node.gateway, "-t", "get", "-r", records, "-n", records // 2, "-P", 16, "--csv"], 120)


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    records = 100_000 if options.trial else 1_000_000
    rounds = []
    for number in range(min(options.rounds, 3)):
        key = Done.key("redis", records, number)
        if wanted and key not in done.results:
            say(f"a table replaced beside Redis Cluster, round {number + 1}")
            try:
                works = [forebay_round, redis_round]
                found = {}
                for work in works if number % 2 == 0 else works[::-1]:
                    os.sync()
                    found.setdefault(work.__name__, work(records))
                done.put(key, found)
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed("redis", why)
        if key in done.results:
            rounds.append(done.results[key])
    if rounds:
        write(report, rounds, records)


def write(report: Report, rounds: list[dict], records: int) -> None:
    report.body["redis"] = {"records": records, "runs": rounds}

    def all_of(way: str) -> list[dict]:
        return [one["forebay_round" if way == "forebay" else "redis_round"][way] for one in rounds]

    disk = middle(one["disk"] for one in all_of("forebay"))
    report.text(
        f"## A whole table replaced, beside Redis Cluster: {records:,} records of 16 + 100 B, {len(rounds)} rounds",
        "",
        "Three primaries of Redis Cluster that keep nothing on disk, and three nodes with one replica of each part over a directory, on the same two "
        "cores. Redis gets ready commands, sorted by primary, by three `redis-cli --pipe` at once; Forebay a Parquet file. With SET in place "
        "readers see old and new values as long as it lasts; with RENAME each key changes at one moment, the table does "
        "not. Neither leaves anything to go back to. Forebay's nodes swap together, and hold the version before, too. Memory is the sum of the "
        "three servers: what is their own (anonymous), and with the pages of files that they have mapped, which the system may take back; "
        "the command that pushes is not in it.",
    )
    report.table(
        ["", "s", "own memory after it, MB", "at its highest", "resident after it, MB", "at its highest"],
        [
            [label, shown(middle(one["seconds"] for one in all_of(way)), 2),
             shown(middle(one["after"]["anonymous"] for one in all_of(way)), 0, 1e-6),
             shown(middle(one["peak_anonymous"] for one in all_of(way)), 0, 1e-6),
             shown(middle(one["after"]["resident"] for one in all_of(way)), 0, 1e-6),
             shown(middle(one["peak_resident"] for one in all_of(way)), 0, 1e-6)]
            for way, label in LABELS.items()
        ],
    )
    back = middle(one["forebay_round"]["rollback"]["seconds"] for one in rounds)
    report.text(
        f"A rollback of Forebay's table took {common.shown(back, 2)} s; Redis would be loaded again. The nodes have {common.shown(disk, 0, 1e-6)} MB of "
        "files, two versions."
    )
