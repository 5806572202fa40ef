"""How long a bulk insertion takes, in the ways of insert_ways.py: by size, by how its keys lie, into an empty table, by
number of nodes, by replicas. These are the paper's figures 5, 6, 7 and 11, and what figures 5 and 7 have of rows one at
a time."""

import time

import insert_places
import insert_ways
from cluster_places import middle
from common import Done, Report, say, shown
from insert_ways import WAYS

#: Rows of 1 KB, and rows that are there before. The case that others are compared with has twice as many; sizes go from half to that.
ROWS, BASE = 300_000, 100_000
#: Rows that are put one at a time; what they took is counted up to ROWS.
ROWS_ALONE = 20_000
NODES = 5
KINDS = {
    "partition": "all into one of ten partitions", "tenth": "all into a tenth of the keys", "zipf": "Zipf, Z = 1", "append": "behind all others",
    "uniform": "evenly over all keys",
}
RUNS = ("planned", "coarse", "unplanned")
TWO = ("planned", "unplanned")
#: What the paper's figure 5 says of 5 million rows on 10 servers, rows a second.
PAPER = {"planned": 4374, "random": 1625, "sorted": 694}


class Case:
    def __init__(self, part: str, kind: str, rows: int, base: int, nodes: int = NODES, replicas: int = 1, ways: tuple = RUNS, rounds: int = 1):
        self.part, self.kind, self.rows, self.base, self.nodes, self.replicas = part, kind, rows, base, nodes, replicas
        self.ways, self.rounds = ways, rounds

    def key(self, way: str, number: int) -> str:
        return Done.key("times", self.kind, self.rows, self.base, self.nodes, self.replicas, way, number)

    def rows_of(self, way: str) -> int:
        return min(self.rows, ROWS_ALONE) if way in insert_ways.ROWS else self.rows


def cases(options) -> list:
    part = 10 if options.trial else 1
    rows, base = (options.records or ROWS) // part, BASE // part
    again = options.rounds
    return [
        Case("size", "partition", 2 * rows, base, rounds=again),
        Case("size", "partition", rows, base, rounds=again), Case("size", "partition", rows // 2, base, ways=TWO),
        Case("rows", "partition", 2 * rows, base, ways=tuple(insert_ways.ROWS)),
        Case("rows", "uniform", rows, base, ways=("random 8", "sorted 8")),
        Case("empty", "partition", rows, 0, ways=TWO),
        *(Case("skew", kind, rows, base, ways=TWO) for kind in KINDS if kind != "partition"),
        *(Case("nodes", "partition", rows * nodes // NODES, base * nodes // NODES, nodes, ways=TWO) for nodes in (3, 4, 6)),
        Case("replicas", "partition", rows, base, replicas=3, ways=(*TWO, "random 8")),
    ]


def one(made, case: Case, way: str, number: int) -> dict:
    table = f"t{time.monotonic_ns() % 10**9}"
    insert_ways.fresh_table(made, table, case.base, case.replicas, "--plan" in WAYS[way][1] and way != "unplanned")
    source = insert_places.source(case.kind, case.rows_of(way), 5)
    try:
        found = insert_ways.insert(made, table, way, source)
        insert_ways.check(made, table, source)
    finally:
        made.store.run("drop", table, "--yes")
    for word in ("told", "begun", "ended", "spans"):
        found.pop(word)
    return {**found, "round": number}


def measure(report: Report, options, done: Done, wanted: set) -> None:
    """Parts: size, rows, empty, skew, nodes, replicas."""
    all_of = cases(options)
    for nodes in sorted({case.nodes for case in all_of}, key=lambda nodes: nodes != NODES):
        todo = [
            (case, way, number) for case in all_of if case.nodes == nodes and case.part in wanted
            for number in range(case.rounds) for way in case.ways if case.key(way, number) not in done.results
        ]
        if any(way in insert_ways.ROWS for _, way, _ in todo) and not insert_ways.has_rows():
            report.failed("rows one at a time", Exception("this binary's `forebay load` has no --insert rows"))
            todo = [item for item in todo if item[1] not in insert_ways.ROWS]
        if not todo:
            continue
        with insert_places.bounded_cluster(nodes) as made:
            for case, way, number in todo:
                say(f"{case.part}: {case.rows_of(way):,} rows, {KINDS[case.kind]}, {nodes} nodes, {case.replicas} replicas: {WAYS[way][0]}")
                try:
                    done.put(case.key(way, number), one(made, case, way, number))
                    say(f"  {done.results[case.key(way, number)]['seconds']:.1f} s")
                except Exception as why:  # noqa: BLE001 - the others go on
                    report.failed(f"{case.part}, {way}, {case.rows:,} rows, {case.kind}, {nodes} nodes", why)
    found = collect(all_of, done)
    if found:
        report.body["times"] = found
        tell(report, found)


def collect(all_of: list, done: Done) -> list:
    rows = []
    for case in all_of:
        for way in case.ways:
            runs = [done.results[key] for number in range(case.rounds) if (key := case.key(way, number)) in done.results]
            if not runs:
                continue
            seconds = middle(run["seconds"] for run in runs)
            names = dict.fromkeys(name for run in runs for name in run["phases"])
            rows.append({
                "part": case.part, "kind": case.kind, "rows": case.rows, "base": case.base, "nodes": case.nodes, "replicas": case.replicas, "way": way,
                "runs": runs, "seconds": seconds * case.rows / case.rows_of(way), "measured_rows": case.rows_of(way),
                "phases": {name: middle(run["phases"].get(name) for run in runs) for name in names},
            })
    return rows


def seconds_of(found: list, **wanted) -> float | None:
    for row in found:
        if all(row[name] == value for name, value in wanted.items()):
            return row["seconds"]
    return None


def main_case(found: list) -> dict:
    """The case that figures are compared by: the first, or the rows one at a time where these alone were measured."""
    first = next((row for row in found if row["part"] == "size"), found[0])
    return {name: first[name] for name in ("kind", "rows", "base", "nodes", "replicas")}


def tell(report: Report, found: list) -> None:
    report.text(
        f"## Total time: rows of {insert_places.VALUE_BYTES + insert_places.KEY_BYTES} B, {found[0]['nodes']} nodes",
        "",
        f"Each node has {insert_places.CORE:g} of a core (a control group) and brings at most {insert_places.PULL_RATE.split(':')[1]}iB a second "
        f"(`--pull-rate {insert_places.PULL_RATE}`); the loading command is not bounded. A table of ten uneven partitions, ordered, one replica unless it says "
        "otherwise, holds rows that lie evenly over its keys. Larger partitions: `--partition-bytes` is the part of the rows that each node takes, so that there are few cuts. The time is that of the whole command: reading, planning, cutting, moving, inserting, until a majority "
        "of each partition's replicas has the rows; some are read back after it. Seconds.",
    )
    tell_runs(report, found)
    tell_rows(report, found)
    tell_phases(report, found)


def tell_runs(report: Report, found: list) -> None:
    lines = []
    for row in found:
        if row["way"] != "unplanned":
            continue
        case = {name: row[name] for name in ("kind", "rows", "base", "nodes", "replicas")}
        planned = {way: seconds_of(found, way=way, **case) for way in RUNS}
        best = min((seconds for way, seconds in planned.items() if seconds and way != "unplanned"), default=None)
        lines.append([
            KINDS[row["kind"]], f"{row['rows']:,}", f"{row['base']:,}", row["nodes"], row["replicas"], *(shown(planned[way], 1) for way in RUNS),
            shown(best and row["seconds"] / best, 2),
        ])
    if lines:
        report.table(
            ["where rows fall", "rows", "rows before", "nodes", "replicas", "planned", "planned, larger partitions", "unplanned runs",
             "unplanned / planned (the better)"], lines,
        )


def tell_rows(report: Report, found: list) -> None:
    rows = [row for row in found if row["way"] in insert_ways.ROWS]
    if not rows:
        return

    def beside(row: dict) -> float | None:
        """What a planned load of the same case took."""
        case = {name: row[name] for name in ("kind", "rows", "base", "nodes", "replicas")}
        return min((seconds for way in RUNS[:2] if (seconds := seconds_of(found, way=way, **case))), default=None)

    report.text(
        f"Rows in place of runs: {rows[0]['measured_rows']:,} rows were put, and the time is counted up to all of them by rows a second. The paper "
        "(5 million rows, 10 servers, 10 clients): planned 4,374 rows a second, in random order 1,625 (2.7 times slower), sorted 694 (6.3 times).",
    )
    report.table(
        ["rows", "where they fall", "all rows", "replicas", "rows a second", "s for all", "/ planned"],
        [
            [WAYS[row["way"]][0], KINDS[row["kind"]], f"{row['rows']:,}", row["replicas"], shown(row["rows"] / row["seconds"]), shown(row["seconds"], 1),
             shown((planned := beside(row)) and row["seconds"] / planned, 1)]
            for row in rows
        ],
    )


def tell_phases(report: Report, found: list) -> None:
    rows = [row for row in found if row["way"] in RUNS]
    names = list(dict.fromkeys(name for row in rows for name in row["phases"]))
    if not rows:
        return
    report.text(f"Where the seconds go (`{insert_ways.CUTS}`, `{insert_ways.MOVES}` and `{insert_ways.LET_GO}` are parts of the stage that the command "
                f"calls splitting and moving; looked at every {insert_ways.LOOK_S:g} s):")
    report.table(
        ["way", "case", *names, "all"],
        [
            [WAYS[row["way"]][0], f"{row['kind']}, {row['rows']:,} rows, {row['base']:,} before, {row['nodes']} nodes, {row['replicas']} replica(s)",
             *(shown(row["phases"].get(name), 1) for name in names), shown(row["seconds"], 1)]
            for row in rows
        ],
    )


def targets(found: list) -> list:
    """What the issue asks for, as rows of Report.targets: how many times less is measured as the part of the other's time."""
    case, rows = main_case(found), []
    sizes = sorted({row["rows"] for row in found if row["part"] == "size"}, reverse=True)
    for way, times, of_sizes in (("unplanned", 2, sizes), ("random", 20, [case["rows"]])):
        for size in of_sizes:
            of = lambda way, size=size: seconds_of(found, way=way, **{**case, "rows": size})  # noqa: E731
            planned, other = min((seconds for way in RUNS[:2] if (seconds := of(way))), default=None), of(way)
            ratio = planned / other if planned and other else None
            rows.append((f"planned / {WAYS[way][0]}, {KINDS[case['kind']]}, {size:,} rows", ratio, 1 / times, ""))
    return rows
