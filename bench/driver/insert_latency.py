"""What clients of the same table and of another one wait while rows are loaded with a plan (the paper's figure 9)."""

import json
import os
import time

import insert_places
import insert_ways
from cluster_beside import Beside
from cluster_places import middle, quantile
from common import Done, Report, say, shown

NODES, BASE, ROWS = 5, 100_000, 300_000
KIND = "partition"
BEFORE_S, AFTER_S, CAPACITY_S = 12, 8, 4
TABLES = ("t", "other")
#: Of who finds out what nodes can do, and of the client: enough for what a partition that is cut holds up.
CAPACITY_CONNECTIONS, CONNECTIONS = 10, 400
#: The paper's latency while splits and moves go on, and while rows are inserted, in times of that before.
PAPER = {"planning": 1.5, "inserting": 3.0}
LIMIT = 1.5


def words(made, rate: float, base: int, **more) -> str:
    connections = CONNECTIONS if rate else CAPACITY_CONNECTIONS
    ports = [made.nodes[place % len(made.nodes)].gateway for place in range(connections)]
    found = {"ports": ports, "tables": TABLES, "keys": str(insert_places.keys_file(base, 3)), "rate": rate, "writes": 0.5, "value_bytes": insert_places.VALUE_BYTES}
    return json.dumps({**found, **more})


def capacity(made, base: int) -> float:
    """Commands a second that as many connections get, each as fast as it is answered."""
    with Beside("insert_client.py", b"going\n", words(made, 0, base)) as client:
        time.sleep(CAPACITY_S)
    return len(client.found["ops"]) / CAPACITY_S


def one(options, number: int) -> dict:
    part = 10 if options.trial else 1
    rows, base = (options.records or ROWS) // part, BASE // part
    source = insert_places.source(KIND, rows, 5)
    with insert_places.bounded_cluster(NODES) as made:
        insert_ways.fresh_table(made, "other", base, 1)
        insert_ways.fresh_table(made, "t", base, 1)
        most = capacity(made, base)
        with Beside("insert_client.py", b"going\n", words(made, most / 3, base)) as client:
            time.sleep(2)
            quiet = time.monotonic()
            time.sleep(BEFORE_S)
            # The loading command stands for another machine's: it takes what the others leave.
            loaded = insert_ways.insert(made, "t", "coarse", source, begins=lambda: os.nice(19))
            time.sleep(AFTER_S)
        insert_ways.check(made, "t", source)
    begun, ended = loaded["begun"], loaded["ended"]
    spans = {"before": [quiet, begun], **loaded["spans"], "after": [ended, ended + AFTER_S], "the whole load": [begun, ended]}
    # The stage that the command calls splitting and moving is shown by its steps.
    spans = {name: span for name, span in spans.items() if not name.startswith("splitting and moving")}
    ops = client.found["ops"]
    found = {name: measures([op for op in ops if span[0] <= op[0] < span[1]], span[1] - span[0]) for name, span in spans.items()}
    timeline = slices(ops, quiet, ended + AFTER_S)
    marks = {name: [span[0] - quiet, span[1] - quiet] for name, span in spans.items()}
    return {"round": number, "capacity": most, "rate": most / 3, "rows": rows, "spans": found, "marks": marks, "timeline": timeline,
            "seconds": loaded["seconds"], "failed": client.found["failed"][:20], "failures": len(client.found["failed"]), "ops": len(ops)}


def measures(ops: list, seconds: float) -> dict:
    out = {"seconds": seconds, "ops": len(ops)}
    sides = {"all": ops, "reads": [op for op in ops if not op[2]], "writes": [op for op in ops if op[2]],
             "same": [op for op in ops if op[3] == 0], "other": [op for op in ops if op[3] == 1]}
    for side, these in sides.items():
        took = sorted(op[1] for op in these)
        for name, part in (("p50", 0.5), ("p99", 0.99)):
            out[f"{side}_{name}"] = quantile(took, part) * 1e3 if took else None
        out[f"{side}_max"] = took[-1] * 1e3 if took else None
    return out


def slices(ops: list, start: float, end: float) -> list:
    """p50 and p99 of each second."""
    found = []
    for second in range(int(end - start)):
        took = sorted(op[1] for op in ops if start + second <= op[0] < start + second + 1)
        if took:
            found.append([second, quantile(took, 0.5) * 1e3, quantile(took, 0.99) * 1e3])
    return found


def measure(report: Report, options, done: Done, wanted: bool) -> None:
    runs = []
    for number in range(min(options.rounds, 2)):
        key = Done.key("latency", options.trial, options.records, number)
        if wanted and key not in done.results:
            say("reads and writes of two tables while one is loaded with a plan")
            try:
                done.put(key, one(options, number))
            except Exception as why:  # noqa: BLE001 - the other parts go on
                report.failed("latency", why)
        if key in done.results:
            runs.append(done.results[key])
    if runs:
        report.body["latency"] = {"runs": runs}
        tell(report, runs)


def tell(report: Report, runs: list) -> None:
    first = runs[0]
    report.text(
        "## What clients wait meanwhile",
        "",
        f"Reads and writes in equal parts of keys of the table that is loaded and of another one, through all gateways, {CONNECTIONS} connections (so that what one partition holds up holds up nothing else), "
        f"{middle(run['rate'] for run in runs):,.0f} a second (open loop; a third of the {middle(run['capacity'] for run in runs):,.0f} that {CAPACITY_CONNECTIONS} connections "
        f"get), while {first['rows']:,} rows come ({KIND}). {NODES} nodes with {insert_places.CORE:g} of a core each, `--pull-rate {insert_places.PULL_RATE}`, the default throttle with "
        f"a ceiling; the loading command at the lowest priority, as if it ran elsewhere. Milliseconds, medians of {len(runs)} run(s). "
        f"{sum(run['failures'] for run in runs)} of {sum(run['ops'] for run in runs):,} commands failed. The paper: while it splits and moves 1.5 times, "
        "while it inserts 3 times the idle latency (a mean).",
    )
    names = list(dict.fromkeys(name for run in runs for name in run["spans"]))
    of = lambda name, field: middle(run["spans"][name].get(field) for run in runs if name in run["spans"])  # noqa: E731
    fields = ("all_p50", "all_p99", "reads_p99", "writes_p99", "same_p99", "other_p99", "all_max")
    report.table(
        ["phase", "s", "p50", "p99", "p99 of reads", "p99 of writes", "p99, same table", "p99, other table", "longest", "p99 / before"],
        [
            [name, shown(of(name, "seconds"), 1), *(shown(of(name, field), 2) for field in fields),
             shown(of(name, "all_p99") and of(name, "all_p99") / of("before", "all_p99"), 2)]
            for name in names
        ],
    )


def targets(found: dict) -> list:
    ratios = [run["spans"]["the whole load"]["all_p99"] / run["spans"]["before"]["all_p99"] for run in found["runs"]]
    return [("p99 of clients during the whole load / before", middle(ratios), LIMIT, "")]
