"""The planners: how near their plans come to the optimum and to proved bounds, and how long they take.

FOREBAY names the forebay binary, whose whole command is timed too; `make bench-plan` sets it. `--parts clusters` measures by itself how long a
cluster's planner takes: the model, pieces, destinations, what each batch copies.
"""

import json
import os
import statistics
import sys
import time
from pathlib import Path

import common
import draw
import exact
from common import BENCH, DATA, Report, run, say, shown

HARNESS = BENCH / "target" / "release" / "bench-plan"
SMALL = ((3, 12), (4, 24), (3, 40), (5, 30), (6, 48))
MODES = ("paper", "fast", "polish")
#: Nodes of a cluster, up to as many as a table can have four partitions for.
CLUSTERS = (10, 50, 200, 1_000, 4_000)
SIZES = ((10, 2_000), (100, 20_000), (1_000, 200_000), (3_000, 600_000), (10_000, 2_000_000))


def main() -> None:
    options = common.arguments(__doc__, rounds=1)
    report = Report("plan", "The planners", options)
    if options.parts == "clusters":
        return clusters(report, options)
    targets: list = []
    small(report, options, targets)
    medium(report, options, targets)
    large(report, options, targets)
    command(report, options, targets)
    report.text("## Targets")
    report.targets(targets)
    report.write(lambda base: draw.plan(report.body, base))


def clusters(report: Report, options) -> None:
    report.name = "plan-clusters"
    report.body["command"] += ' BENCH_ARGS="--parts clusters"'
    report.warn_of_load()
    rows = []
    for nodes in CLUSTERS[:2] if options.trial else CLUSTERS:
        say(f"a plan for {nodes} nodes")
        planned = [one for _ in range(max(3, options.rounds)) for one in lines("cluster", "--nodes", nodes)]
        rows.append({**planned[0], "milliseconds": statistics.median(one["milliseconds"] for one in planned)})
    report.body["clusters"] = rows
    report.text(
        "## Planning a bulk insert in a cluster", "",
        "A live table of four partitions a node, three replicas each, 500,000 rows of 1 KB a node; 100,000 more for each node come, all into a tenth of the "
        "keys. How long the plan takes to make, with what each batch copies, once rows are sampled and partitions have reported what they hold; nodes take in 12 MiB "
        "a second. What the plan takes and saves are the planner's own estimates. Medians of three.",
    )
    report.table(
        ["nodes", "partitions", "splits", "moves", "planning, ms", "splitting and moving, s", "the load is shorter by, s"],
        [[shown(row["nodes"]), shown(row["partitions"]), shown(row["splits"]), shown(row["moves"]), shown(row["milliseconds"], 1),
          shown(row["takes_seconds"], 0), shown(row["saves_seconds"], 0)] for row in rows],
    )
    report.write()


def lines(*words, seconds: float = 900) -> list[dict]:
    return [json.loads(line) for line in run([HARNESS, *words], seconds).splitlines()]


def plans(machines: int, partitions: int, seeds: int, mode: str, *more) -> list[dict]:
    """Each of the instances planned; HARNESS prints families in order, seeds within."""
    return lines(
        "insert", "--machines", machines, "--partitions", partitions, "--seeds", seeds, "--mode", mode, *more
    )


def small(report: Report, options, targets: list) -> None:
    """Beside the optimum, as far as HiGHS proves it within its time."""
    seeds, limit = (1, 2) if options.trial else (2, 20)
    say("small instances: the optimum by HiGHS")
    optima, unproved = {}, 0
    for machines, partitions in SMALL:
        size = ("--machines", machines, "--partitions", partitions, "--seeds", seeds)
        for place, instance in enumerate(lines("instances", *size)):
            solved = exact.solve(instance, limit)
            proved = solved["cost"] <= solved["bound"] * (1 + 1e-5) + 1e-6
            unproved += not proved
            optima[machines, partitions, place] = solved["cost"] if proved else None
    rows = []
    report.body["small"] = {"instances": len(optima), "unproved": unproved, "modes": {}}
    for mode in MODES:
        ratios, times = [], []
        for machines, partitions in SMALL:
            for place, plan in enumerate(plans(machines, partitions, seeds, mode, "--seconds", 0.5)):
                optimum = optima[machines, partitions, place]
                times.append(plan["milliseconds"])
                if optimum:
                    ratios.append(plan["cost"] / optimum)
        within = sum(ratio <= 1.01 for ratio in ratios) / len(ratios)
        found = {
            "mean": statistics.mean(ratios), "max": max(ratios), "within_1_percent": within,
            "milliseconds_max": max(times), "ratios": sorted(ratios),
        }
        report.body["small"]["modes"][mode] = found
        rows.append([mode, *quality(found), f"{within:.1%}", shown(max(times), 1)])
    report.text(
        "## Few partitions",
        "",
        f"{len(optima)} instances of 12 families, 3 to 6 machines, 12 to 48 partitions; cost / optimum by HiGHS "
        f"({unproved} not proved within {limit} s are left out).",
    )
    report.table(["mode", "mean", "max", "at most 1.01", "slowest ms"], rows)
    fast = report.body["small"]["modes"]["fast"]
    targets += [
        ("small, fast: part above 1.01 of the optimum", 1 - fast["within_1_percent"], 0.05, ""),
        ("small, fast: worst / optimum", fast["max"], 1.04, ""),
        ("small, fast: slowest", fast["milliseconds_max"], 1000, " ms"),
    ]


def quality(found: dict) -> list[str]:
    return [f"{found['mean']:.4f}", f"{found['max']:.4f}"]


def medium(report: Report, options, targets: list) -> None:
    """10 x 500, beside the planner's own bound and the linear relaxation."""
    seeds = 1 if options.trial else 5
    say("10 machines, 500 partitions: the linear relaxations")
    size = ("--machines", 10, "--partitions", 500, "--seeds", seeds)
    relaxed = [exact.solve(instance, 120, False)["cost"] for instance in lines("instances", *size)]
    report.body["medium"] = {}
    families: dict = {}
    for mode in MODES:
        say(f"  mode {mode}")
        planned = plans(10, 500, seeds, mode, "--seconds", 2)
        ratios = []
        for plan, bound in zip(planned, relaxed, strict=True):
            ratio = plan["cost"] / max(bound, plan["lower_bound"])
            ratios.append(ratio)
            families.setdefault(plan["family"], {}).setdefault(mode, []).append(ratio)
        times = [plan["milliseconds"] for plan in planned]
        report.body["medium"][mode] = {
            "mean": statistics.mean(ratios), "max": max(ratios),
            "milliseconds_median": statistics.median(times), "milliseconds_max": max(times),
        }
    report.body["families"] = {
        family: {mode: statistics.mean(ratios) for mode, ratios in modes.items()} for family, modes in families.items()
    }
    no_moves = [plan["cost_no_moves"] / plan["lower_bound"] for plan in planned]
    report.text(
        "## 10 machines, 500 partitions",
        "",
        f"{len(relaxed)} instances of 12 families; cost / the larger of the linear relaxation and the planner's bound. "
        f"No moves cost {statistics.mean(no_moves):.2f} times the bound on average. Means by family:",
    )
    report.table(
        ["family", *MODES], [[family, *(f"{modes[mode]:.4f}" for mode in MODES)] for family, modes in report.body["families"].items()]
    )
    rows = [
        [mode, *quality(found), shown(found["milliseconds_median"], 1), shown(found["milliseconds_max"], 1)]
        for mode, found in report.body["medium"].items()
    ]
    report.table(["mode", "mean", "max", "median ms", "slowest ms"], rows)
    fast, polish = report.body["medium"]["fast"], report.body["medium"]["polish"]
    targets += [
        ("10 x 500, fast: mean / bound", fast["mean"], 1.012, ""),
        ("10 x 500, fast: worst / bound", fast["max"], 1.05, ""),
        ("10 x 500, fast: median", fast["milliseconds_median"], 20, " ms"),
        ("10 x 500, polish: mean / bound", polish["mean"], 1.006, ""),
    ]


def large(report: Report, options, targets: list) -> None:
    say("growth")
    sizes = SIZES[:3] if options.trial else SIZES
    rows, report.body["growth"] = [], []
    for machines, partitions in sizes:
        planned = plans(machines, partitions, 1, "fast")
        found = {
            "machines": machines, "partitions": partitions,
            "mean": statistics.mean(plan["cost"] / plan["lower_bound"] for plan in planned),
            "max": max(plan["cost"] / plan["lower_bound"] for plan in planned),
            "milliseconds_median": statistics.median(plan["milliseconds"] for plan in planned),
            "milliseconds_max": max(plan["milliseconds"] for plan in planned),
        }
        report.body["growth"].append(found)
        rows.append([
            f"{machines:,} x {partitions:,}", *quality(found), shown(found["milliseconds_median"]),
            shown(found["milliseconds_max"]),
        ])
        if machines == 1_000:
            targets += [
                ("1,000 x 200,000: worst / bound", found["max"], 1.015, ""),
                ("1,000 x 200,000: slowest", found["milliseconds_max"], 1000, " ms"),
            ]
    report.text("## Growth", "", "Mode fast, one instance of each of the 12 families; cost / the planner's bound.")
    report.table(["machines x partitions", "mean", "max", "median ms", "slowest ms"], rows)


def command(report: Report, options, targets: list) -> None:
    """The whole command: process, reading JSON, planning, checking, printing JSON."""
    binary = os.environ.get("FOREBAY")
    if not binary:
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-plan does)")
    say("the whole command")
    DATA.mkdir(exist_ok=True)
    rows, report.body["command_ms"] = [], {}
    for machines, partitions, limit in ((10, 500, None), (1_000, 200_000, 1000)):
        path = Path(DATA / f"plan-{machines}.json")
        size = ("--machines", machines, "--partitions", partitions, "--families", "uniform")
        path.write_text(run([HARNESS, "instances", *size]))
        times = []
        for _ in range(3 if options.trial else 9):
            start = time.monotonic()
            run([binary, "plan", "insert", "--input", path, "--json"])
            times.append((time.monotonic() - start) * 1e3)
        middle = statistics.median(times)
        report.body["command_ms"][f"{machines}x{partitions}"] = middle
        rows.append([f"{machines:,} x {partitions:,}", shown(middle, 1), shown(max(times), 1)])
        if limit:
            targets.append((f"{machines:,} x {partitions:,}: the whole command", middle, limit, " ms"))
        path.unlink()
    report.text("## The whole command", "", "`forebay plan insert --input FILE --json`, family uniform, from start to exit.")
    report.table(["machines x partitions", "median ms", "slowest ms"], rows)


if __name__ == "__main__":
    main()
