"""Reads by redis-benchmark: at a node that has the keys beside a server without a cluster; and through a node that has
none of them beside one that has all."""

import contextlib
import re

import cluster_places
from cluster_places import cpu_seconds, middle, on_core
from common import Done, Failed, Report, run, say, shown
from harness import Server, Store

DEPTHS = (1, 16)
CONNECTIONS = 50
PARTITIONS = ["--partitions", "4"]


def benchmark(port: int, pids: dict, records: int, requests: int, depth: int) -> dict:
    """One run, and the processor time that each process took for an operation, in us."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    out = run(
        ["redis-benchmark", "-p", port, "-t", "get", "-r", records, "-n", requests, "-c", CONNECTIONS, "-P", depth, "--csv"], 120,
    )
    fields = [re.sub('"', "", field) for field in out.strip().splitlines()[-1].split(",")]
    used = {name: (cpu_seconds(pid) - before[name]) / requests * 1e6 for name, pid in pids.items()}
    return {"rps": float(fields[1]), "p50_ms": float(fields[4]), "p99_ms": float(fields[6]), "cpu_us": used}


def in_turn(targets: dict, pids: dict, records: int, requests: dict, rounds: int) -> dict:
    """{depth: [{target: run}]}: each round asks all targets, the first of a round by turns."""
    found: dict = {}
    for depth in DEPTHS:
        # What was not read yet is looked at now.
        for port in targets.values():
            benchmark(port, pids, records, requests[depth] // 4, depth)
        for number in range(rounds):
            names = list(targets)
            order = names[number % len(names):] + names[: number % len(names)]
            runs = {name: benchmark(targets[name], pids, records, requests[depth], depth) for name in order}
            found.setdefault(depth, []).append(runs)
    return found


@contextlib.contextmanager
def alone(path, file):
    """`forebay serve` without a cluster, over the same rows."""
    store = Store(path)
    cluster_places.push(store, file, *PARTITIONS)
    with store.serve() as server:
        yield server


def direct(records: int, requests: dict, rounds: int) -> dict:
    """Both servers on core 0, the client on core 1."""
    file = cluster_places.source(records, 1)
    with cluster_places.folder() as path, cluster_places.directory_cluster(1, start=False) as made, contextlib.ExitStack() as ending:
        with on_core(0):
            made.start()
            cluster_places.push(made.store, file, "--replicas", "1", *PARTITIONS)
            server: Server = ending.enter_context(alone(path / "alone", file))
        node = made.nodes[0]
        check(node.port, server.port)
        with on_core(1):
            return in_turn(
                {"alone": server.port, "node": node.port, "gateway": node.gateway},
                {"alone": server.process.pid, "node": node.process.pid}, records, requests, rounds,
            )


def forward(records: int, requests: dict, rounds: int) -> dict:
    """The second node comes after the push, and holds nothing. All processes may use both cores."""
    with cluster_places.directory_cluster(1) as made:
        cluster_places.push(made.store, cluster_places.source(records, 1), "--replicas", "1", *PARTITIONS)
        holder = made.nodes[0]
        other = made.join("n2", "z2")
        if any((other.cache / "tables").glob("*/runs/*.run")):
            raise Failed("the second node holds something")
        check(holder.gateway, other.gateway)
        pids = {"holder": holder.process.pid, "other": other.process.pid}
        return in_turn({"direct": holder.gateway, "forwarded": other.gateway}, pids, records, requests, rounds)


def check(first: int, second: int) -> None:
    """Both answer the same, and something."""
    for number in (0, 77, 9_999):
        answers = {run(["redis-cli", "-p", port, "GET", f"key:{number:012d}"]) for port in (first, second)}
        if len(answers) != 1 or len(answers.pop().strip()) < 50:
            raise Failed("the answers differ")


def each(found: dict, depth, name: str, field: str) -> float:
    return middle(one[name][field] for one in found[depth])


def cpu(found: dict, depth, name: str, process: str) -> float:
    return middle(one[name]["cpu_us"][process] for one in found[depth])


def paired(found: dict, depth, ours: str, theirs: str) -> float:
    """The median of the ratios in a round."""
    return middle(one[ours]["rps"] / one[theirs]["rps"] for one in found[depth])


def sizes(options, quick: dict) -> tuple[int, dict]:
    records = 100_000 if options.trial else 1_000_000
    return records, {depth: requests // (10 if options.trial else 1) for depth, requests in quick.items()}


def kept(what: str, options, done: Done, wanted: bool, report: Report, work, records: int, requests: dict) -> dict | None:
    key = Done.key(what, records)
    if wanted and key not in done.results:
        say(f"reads: {what}, {records:,} rows")
        try:
            found = work(records, requests, options.rounds)
            done.put(key, {str(depth): runs for depth, runs in found.items()})
        except Exception as why:  # noqa: BLE001 - the other parts go on
            report.failed(what, why)
    return done.results.get(key)


def measure_forward(report: Report, options, done: Done, wanted: bool) -> None:
    records, requests = sizes(options, {1: 200_000, 16: 1_500_000})
    found = kept("forward", options, done, wanted, report, forward, records, requests)
    if not found:
        return
    report.body["forward"] = {"records": records, "runs": found}
    report.text(
        f"## Reads through a node that has none of the keys: {records:,} rows of 100 B",
        "",
        f"`redis-benchmark -t get -c {CONNECTIONS}` at the gateways of two nodes, of which one has all and the other came later and has nothing. "
        "redis-benchmark and both nodes share two cores, while a direct read leaves one to each. So the throughput says what "
        "such a machine bears in all; the processor time says what each node bears on a machine of its own.",
    )
    report.table(
        ["", "rounds", "GET/s", "p50 ms", "p99 ms", "us a GET: the node that has the keys", "the node that has not", "both"],
        [
            [f"{name}, pipeline {depth}", len(found[depth]), shown(each(found, depth, name, "rps")), shown(each(found, depth, name, "p50_ms"), 3),
             shown(each(found, depth, name, "p99_ms"), 3), shown(cpu(found, depth, name, "holder"), 2),
             shown(cpu(found, depth, name, "other"), 2),
             shown(cpu(found, depth, name, "holder") + cpu(found, depth, name, "other"), 2)]
            for depth in found for name in ("direct", "forwarded")
        ],
    )
    rows = []
    lines = []
    for depth in found:
        rows.append((f"direct / forwarded throughput, pipeline {depth} (forwarded at least 0.4 x)",
                     1 / paired(found, depth, "forwarded", "direct"), 2.5, " x"))
        own = cpu(found, depth, "direct", "holder")
        asker, owner = (cpu(found, depth, "forwarded", who) for who in ("other", "holder"))
        report.body["forward"][f"cpu_ratio_{depth}"] = {"asker": own / asker, "both": own / (asker + owner)}
        lines.append(
            f"Pipeline {depth}: throughput {paired(found, depth, 'forwarded', 'direct'):.2f} x. By processor time a node that forwards "
            f"everything bears {own / asker:.2f} x the reads of one that has the keys; the two nodes together {own / (asker + owner):.2f} x.",
        )
    report.targets(rows)
    report.text(*lines)


def measure_direct(report: Report, options, done: Done, wanted: bool) -> None:
    # Long enough that a round's processor time, which comes in hundredths of a second, tells a percent.
    records, requests = sizes(options, {1: 400_000, 16: 6_000_000})
    found = kept("direct", options, done, wanted, report, direct, records, requests)
    if not found:
        return
    report.body["direct"] = {"records": records, "runs": found}
    report.text(
        f"## Reads at a node that has the keys, beside a server without a cluster: {records:,} rows of 100 B",
        "",
        f"`redis-benchmark -t get -c {CONNECTIONS}` on core 1; the server and the node on core 0, one idle while the other is asked. Rounds in turn; "
        "both have the table in four partitions.",
    )
    labels = {"alone": "forebay serve, no cluster", "node": "node, ordinary port", "gateway": "node, gateway"}
    report.table(
        ["", "rounds", "GET/s", "p50 ms", "p99 ms", "its processor time, us a GET"],
        [
            [f"{label}, pipeline {depth}", len(found[depth]), shown(each(found, depth, name, "rps")), shown(each(found, depth, name, "p50_ms"), 3),
             shown(each(found, depth, name, "p99_ms"), 3), shown(cpu(found, depth, name, "alone" if name == "alone" else "node"), 3)]
            for depth in found for name, label in labels.items()
        ],
    )
    rows = []
    for depth in found:
        ratio = middle(one["node"]["cpu_us"]["node"] / one["alone"]["cpu_us"]["alone"] for one in found[depth])
        report.body["direct"][f"cpu_ratio_{depth}"] = ratio
        rows += [
            (f"throughput without a cluster / at a node, pipeline {depth} (node at least 0.97 x)",
             1 / paired(found, depth, "node", "alone"), round(1 / 0.97, 3), " x"),
            (f"processor time a GET at a node / without a cluster, pipeline {depth}", ratio, round(1 / 0.97, 3), " x"),
        ]
    report.targets(rows)
