"""`make bench-requests`: what Forebay asks of an object store, by kind, and what that costs; how soon nodes serve a swap.

Requests are counted by a proxy before a real S3 server (SeaweedFS), those of retries too: pushes of a small table,
swaps, and nodes that have nothing to do, alone with 1 and 100 tables, and three of a cluster. The gate compares each
push with the one before, and from the fourth on an old version is removed. Prices are Amazon's list prices. FOREBAY
names the forebay binary; `make bench-requests` sets it.
"""

import collections
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import common
from common import DATA, REPO, Report, say

sys.path.insert(0, str(REPO / "tests"))
import cluster as clusters  # noqa: E402
import nodes as pullers  # noqa: E402
import object_store  # noqa: E402
from data import people, write  # noqa: E402
from harness import wait_for  # noqa: E402

# Amazon S3 Standard, us-east-1, by its price list: dollars for 1,000 requests. DELETE is free.
PRICES = {"date": "2025", "region": "us-east-1", "put_list": 0.005, "get": 0.0004}
MONTH_S = 30 * 24 * 3600
ROWS, PUSHES, SWAPS, NODES, TABLES = 1000, 6, 20, 5, 100


def kind(exchange) -> str:
    if exchange.method == "GET" and "list-type=" in exchange.path:
        return "LIST"
    if exchange.method == "POST" and exchange.path.endswith("?delete"):
        return "DELETE"
    return exchange.method


def dollars(counts: dict) -> float:
    of = {"PUT": "put_list", "POST": "put_list", "LIST": "put_list", "GET": "get", "HEAD": "get"}
    return sum(count * PRICES[of[name]] / 1000 for name, count in counts.items() if name in of)


class Counting:
    """A server, a proxy before it, and stores in it."""

    def __init__(self, folder: Path):
        (folder / "s3").mkdir()
        self.folder, self.server = folder, object_store.S3Server(folder / "s3")
        self.proxy = object_store.Proxy(self.server)

    def store(self, prefix: str, through: bool = True) -> object_store.RemoteStore:
        store = object_store.RemoteStore(self.server, self.folder / prefix, prefix)
        return store.through(self.proxy.url, f"{prefix}-counted") if through else store

    def of(self, work) -> dict:
        """The requests of what is done, by kind."""
        with self.proxy.lock:
            since = len(self.proxy.exchanges)
        work()
        with self.proxy.lock:
            made = collections.Counter(kind(one) for one in self.proxy.exchanges[since:])
        return dict(sorted(made.items()))

    def end(self) -> None:
        self.proxy.stop()
        self.server.kill()


def commands(counting: Counting) -> list:
    """What each command asks."""
    store, out = counting.store("commands"), []

    def add(what: str, *words) -> None:
        out.append({"what": what, "requests": counting.of(lambda: store.run(*words, "--quiet"))})

    for version in range(1, PUSHES + 1):
        path = write(people(ROWS + version, version), counting.folder / f"{version}.parquet")
        add(f"push {version}", "push", "people", path, "--key", "{id}")
    add("swap", "swap", "people", PUSHES - 1)
    add("rollback", "rollback", "people")
    changes = write(people(10, 99), counting.folder / "changes.parquet")
    add("push --onto", "push", "people", changes, "--onto", "current")
    add("compact", "compact", "people")
    add("tables", "tables")
    return out


def idle_alone(counting: Counting, tables: int, seconds: int) -> dict:
    """A node that has nothing to do."""
    prefix = f"idle-{tables}"
    beside, store = counting.store(prefix, through=False), counting.store(prefix)
    path = write(people(20), counting.folder / "small.parquet")
    for number in range(tables):
        beside.run("push", f"t{number}", path, "--key", "{id}", "--quiet")
    node = pullers.Node(store, counting.folder / f"cache-{tables}")
    try:
        wait_for(lambda: node.value(f"t{tables - 1}:7", "v1") == "1", "the tables", 120)
        time.sleep(7)
        return counting.of(lambda: time.sleep(seconds))
    finally:
        node.stop()


def idle_cluster(counting: Counting, seconds: int) -> dict:
    """Three nodes of a cluster that have nothing to do."""
    store = counting.store("cluster")
    store.path.mkdir(exist_ok=True)
    made = clusters.Cluster(store, counting.folder, 3, 3, (), (), node_timeout=None)
    try:
        made.start()
        path = write(people(20), counting.folder / "small.parquet")
        for number in range(3):
            store.run("push", f"t{number}", path, "--key", "{id}", "--quiet")
        time.sleep(12)
        return counting.of(lambda: time.sleep(seconds))
    finally:
        made.end()


def swaps_seen(counting: Counting, swaps: int) -> list:
    """Swaps a second apart: seconds from the start and from the end of each `forebay swap` until the last of five nodes serves what it says."""
    store = counting.store("seen", through=False)
    for version in (1, 2):
        path = write(people(ROWS, version), counting.folder / f"seen-{version}.parquet")
        store.run("push", "people", path, "--key", "{id}", "--quiet")
    made = [pullers.Node(store, counting.folder / f"seen-cache-{number}") for number in range(NODES)]
    out = []
    try:
        # Hints are followed ten times in a row, then once a second.
        for version in (2, *[1 + number % 2 for number in range(swaps)]):
            begun = time.monotonic()
            store.run("swap", "people", version, "--quiet")
            ended = time.monotonic()
            wait_for(lambda: all(node.value("people:7", "v1") == str(version) for node in made), "the swap", 60, 0.005)
            now = time.monotonic()
            time.sleep(1)
            out.append({"since_start": now - begun, "since_end": now - ended, "command": ended - begun})
    finally:
        for node in made:
            node.stop()
    # The first one waits for the nodes to start.
    return out[1:]


def shown_counts(counts: dict) -> list:
    return [counts.get(name, 0) or "" for name in ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")]


def tell(report: Report) -> None:
    body = report.body
    report.text(
        f"A push is of {ROWS:,} small rows, one file; the gate compares it, and from the fourth push on an old version is removed. Nodes are alone (`forebay serve --cache`), with `--poll 6s`, or three of a cluster. "
        f"Prices: Amazon S3 Standard, {PRICES['region']}, price list of {PRICES['date']}: ${PRICES['put_list']} for 1,000 PUT and LIST, ${PRICES['get']} for 1,000 GET and HEAD, DELETE free; bytes come on top. Build: {body['build']}."
    )
    heads = ["GET", "HEAD", "LIST", "PUT", "POST", "DELETE"]
    report.table(
        ["command", "requests", *heads, "dollars for 1,000"],
        [[one["what"], sum(one["requests"].values()), *shown_counts(one["requests"]), f"{1000 * dollars(one['requests']):.3f}"] for one in body["commands"]],
    )
    report.table(
        ["idle", "seconds", "requests", *heads, "a second and node", "dollars a month and node"],
        [[one["what"], one["seconds"], sum(one["requests"].values()), *shown_counts(one["requests"]), f"{one['per_s']:.3f}", f"{one['dollars_a_month']:.2f}"] for one in body["idle"]],
    )
    report.targets([
        *[(one["what"], sum(one["requests"].values()), 20, "") for one in body["commands"] if one["what"].startswith("push ")],
        *[(f"{one['what']}, requests a second and node", one["per_s"], 0.2, "") for one in body["idle"]],
        (f"forebay swap to the last of {NODES} nodes serving, median", body["seen_median_s"], 1, " s"),
        (f"forebay swap to the last of {NODES} nodes serving, longest of {len(body['seen'])}", body["seen_most_s"], 1, " s"),
    ])


def main() -> None:
    options = common.arguments(__doc__, rounds=1)
    report = Report("requests", "Requests to an object store, and what they cost", options)
    if not os.environ.get("FOREBAY"):
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-requests does)")
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        counting = Counting(Path(folder))
        try:
            measure(report, counting, seconds=30 if options.trial else 60, swaps=4 if options.trial else SWAPS)
        finally:
            counting.end()
    tell(report)
    report.write()


def measure(report: Report, counting: Counting, seconds: int, swaps: int) -> None:
    body = report.body
    body["prices"], body["build"] = PRICES, Path(os.environ["FOREBAY"]).parent.name
    say("commands")
    body["commands"] = commands(counting)
    body["idle"] = []
    cases = [(f"a node alone, {tables} table{'s' * (tables > 1)}", 1, lambda tables=tables: idle_alone(counting, tables, seconds)) for tables in (1, TABLES)]
    for what, nodes, work in [*cases, ("three nodes of a cluster", 3, lambda: idle_cluster(counting, seconds))]:
        say(what)
        made = work()
        month = dollars(made) / seconds / nodes * MONTH_S
        body["idle"].append({"what": what, "seconds": seconds, "requests": made, "per_s": sum(made.values()) / seconds / nodes, "dollars_a_month": month})
    say("swaps")
    body["seen"] = swaps_seen(counting, swaps)
    took = [one["since_start"] for one in body["seen"]]
    body["seen_median_s"], body["seen_most_s"] = statistics.median(took), max(took)


if __name__ == "__main__":
    main()
