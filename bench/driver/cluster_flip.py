"""How long a swap, a rollback and the swap at the end of a push take to go through a cluster: five nodes in three zones
over a store in a directory, and over a bucket."""

import time

import cluster_places
from cluster_beside import Beside
from cluster_places import TABLE, middle, spread
from common import Done, Report, say, shown

KINDS = {"swap": "forebay swap", "rollback": "forebay rollback", "push": "the swap that ends a push"}
PLACES = {"directory": "a directory", "bucket": "a bucket (SeaweedFS)"}
#: Seconds from the commit to the last node.
LIMITS = {"directory": 1.0, "bucket": 2.0}


def watching(made, head: str) -> Beside:
    """Versions at all nodes, by cluster_watch.py."""
    ports = [node.port for node in made.nodes]
    return Beside("cluster_watch.py", b"watching\n", TABLE, head, *ports)


class Heads:
    """When heads of a bucket were written: a proxy took the request at the first time, and the server had it at the
    second."""

    def __init__(self, proxies: dict):
        self.begun = []
        for proxy in proxies.values():
            proxy.before = self.before

    def before(self, exchange) -> None:
        if exchange.method == "PUT" and exchange.path.partition("?")[0].endswith("/cluster/head"):
            self.begun.append(time.monotonic())


def one_place(place: str, records: int, rounds: int) -> dict:
    if place == "directory":
        with cluster_places.directory_cluster(5) as made:
            return flips(made, str(made.store.path / "cluster" / "head"), None, records, rounds)
    with cluster_places.bucket_cluster(5) as (made, proxies):
        return flips(made, "-", Heads(proxies), records, rounds)


def flips(made, head: str, heads: Heads | None, records: int, rounds: int) -> dict:
    files = [cluster_places.source(records, seed) for seed in (1, 2)]
    for file in files:
        cluster_places.push(made.store, file)
    done = []

    def timed(kind: str, action) -> None:
        start = time.monotonic()
        action()
        done.append((kind, start, time.monotonic()))
        # Old versions go, and nodes tell what they hold.
        time.sleep(1)

    with watching(made, head) as watch:
        for number in range(rounds):
            for _ in range(2):
                serving = made.table(TABLE)["version"]
                timed("rollback", lambda: made.store.json("rollback", TABLE))
                timed("swap", lambda serving=serving: made.store.json("swap", f"{TABLE}@{serving}", "--force"))
            timed("push", lambda file=files[number % 2]: cluster_places.push(made.store, file))
    written = heads.begun if heads else watch.found["heads"]
    nodes = list(watch.found["nodes"].values())
    return {
        "flips": [flip(*one, nodes, written) for one in done],
        "gap_s": watch.found["gap"],
        "nodes": len(made.nodes),
    }


def flip(kind: str, start: float, end: float, nodes: list, heads: list) -> dict:
    """Times of one swap. A first answer is taken to have come when it was heard."""
    firsts = [next(seen for seen in node if start < seen[1] < end + 1) for node in nodes]
    heard = sorted(seen[1] for seen in firsts)
    # The commit is the last head that was written before anybody answered with the new version.
    commit = max(head for head in heads if start - 0.001 <= head <= heard[0])
    return {
        "kind": kind,
        "command_s": end - start,
        "to_commit_s": commit - start,
        "spread_s": heard[-1] - heard[0],
        "to_first_s": heard[0] - commit,
        "to_last_s": heard[-1] - commit,
        "unsure_s": max(seen[1] - seen[3] for seen in firsts),
    }


def measure(report: Report, options, done: Done, run: bool) -> None:
    records = 100_000 if options.trial else 1_000_000
    found = {}
    for place in PLACES:
        key = Done.key("flip", place, records)
        if run and key not in done.results:
            say(f"flips: five nodes over {PLACES[place]}")
            try:
                done.put(key, one_place(place, records, options.rounds))
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed(f"flips, {place}", why)
        if key in done.results:
            found[place] = done.results[key]
    if found:
        write(report, found, records)


def write(report: Report, found: dict, records: int) -> None:
    report.body["flip"] = {"records": records, "places": found}
    gap = max(one["gap_s"] for one in found.values())
    report.text(
        f"## A swap goes through the cluster: five nodes, three zones, {records:,} rows, three replicas",
        "",
        "Each node is asked `KV.VERSION` at its ordinary port by a connection of its own, again 0.5 ms after it has answered; a node "
        "counts from when its first new answer was heard. All nodes, the one who asks, the command and the S3 server share two "
        f"cores: two answers of a node were {gap * 1000:.1f} ms apart (median), more while the others work, so that the times are the "
        "least that such a machine can show, not the least there are. The commit is the write of the catalog's head: of a bucket, when the "
        "request came to the proxy before the server, which is before it was carried out; of a directory, when the file was another one. "
        "Milliseconds: median (least to most).",
    )
    report.table(
        ["what", "times", "first to last node", "commit to first", "commit to last", "start of the command to commit", "the whole command"],
        [
            [f"{PLACES[place]}: {KINDS[kind]}", len(these),
             *(spread([one[field] for one in these], 1, 1000)
               for field in ("spread_s", "to_first_s", "to_last_s", "to_commit_s", "command_s"))]
            for place, one_found in found.items() for kind in KINDS
            if (these := [one for one in one_found["flips"] if one["kind"] == kind])
        ],
    )
    rows = []
    for place, one_found in found.items():
        every = one_found["flips"]
        rows += [
            (f"{PLACES[place]}: first to last node, ms, median", middle(one["spread_s"] for one in every) * 1000, 100, " ms"),
            (f"{PLACES[place]}: first to last node, ms, the longest", max(one["spread_s"] for one in every) * 1000, 100, " ms"),
            (f"{PLACES[place]}: commit to last node, median", middle(one["to_last_s"] for one in every), LIMITS[place], " s"),
            (f"{PLACES[place]}: commit to last node, the longest", max(one["to_last_s"] for one in every), LIMITS[place], " s"),
        ]
    report.targets(rows)
    unsure = max(one["unsure_s"] for place in found.values() for one in place["flips"])
    report.text(f"The longest time between a node's last old answer and its first new one was {shown(unsure, 1, 1000)} ms.")
