"""Replicas and placement: the paper's tables and figures 5, 6 and 8 over again, migrations, times.

`make bench-plan` runs it after the planner of inserts.
"""

import json

import common
import draw
from common import BENCH, Report, run, say, shown

HARNESS = BENCH / "target" / "release" / "bench-plan"
# The paper's table I, and table II as a ratio to its row "complete".
TABLE_1 = {
    "uniform": [7565, 7548, 7449, 7438], "beta": [10313, 10288, 4715, 4684], "normal": [14882, 14827, 149, 142],
    "power law": [17344, 8795, 3361, 500], "gamma": [23542, 6329, 129, 0],
}
TABLE_2 = {
    "base": [394.8, 353.5, 290.4, 206.6, 171.2], "coarse": [None, 367.8, 364.0, 381.9, 309.7],
    "compact": [375.4, 377.5, 374.6, 383.2, 374.2], "balanced": [408.1, 412.6, 442.5, 422.8, 455.9],
    "complete": [446.8, 445.4, 450.1, 448.3, 447.0],
}


def main() -> None:
    options = common.arguments(__doc__, rounds=1)
    report = Report("placement", "Replicas and placement", options)
    report.body["command"] = "make bench-plan" + (" TRIAL=1" if options.trial else "")
    say("placements of the paper's workloads")
    words = ["placements", *(["--instances", 10, "--nodes", 300] if options.trial else [])]
    body = json.loads(run([HARNESS, *words], 900))
    report.body.update(body)
    report.text(
        "The paper's cluster: M = 4, N = 8, k = 32 slots a node, 128 partitions, 30,000 requests drawn with seed 1 "
        "unless said otherwise; replication vectors by minmax. Capacity is exact, by maximum flow: 1 when no node "
        "has to carry more than the mean."
    )
    tables(report, body)
    robustness(report, body)
    migration(report, body)
    scale(report, body)
    report.text("## Targets")
    report.targets(targets(body))
    report.write(lambda base: draw.placement(body, base))


def tables(report: Report, body: dict) -> None:
    report.text("## The paper's table I", "", "Requests on four partitions, sorted; the paper's in brackets.")
    report.table(
        ["workload", "1", "2", "3", "4"],
        [[row["workload"], *(f"{got:,.0f} ({printed:,})" for got, printed in zip(row["requests"], TABLE_1[row["workload"]]))]
         for row in body["table1"]],
    )
    report.text(
        "## The paper's table II", "",
        "Capacity of each scheme; in brackets the paper's throughput as a ratio to its complete placement.",
    )
    report.table(["scheme", *TABLE_1], [[scheme, *(beside(body, scheme, name, "capacity") for name in TABLE_1)] for scheme in schemes(body)])
    report.text("Throughput (mean over the hottest node) by routing: evenly split / random / to the least loaded holder.")
    report.table(["scheme", *TABLE_1], [
        [scheme, *(" / ".join(f"{row[field]:.3f}" for field in ("even_split", "random", "least_loaded"))
                   for row in (cell(body, scheme, name) for name in TABLE_1))]
        for scheme in schemes(body)
    ])
    report.text("Different partitions a node, and with the worst node down: load lost, capacity of the others.")
    report.table(["scheme", *TABLE_1], [
        [scheme, *(f"{row['partitions_a_node']:.1f}, {row['lost_load']:.1%}, {row['capacity_with_a_node_down']:.3f}"
                   for row in (cell(body, scheme, name) for name in TABLE_1))]
        for scheme in schemes(body)
    ])


def schemes(body: dict) -> list[str]:
    return list(dict.fromkeys(row["scheme"] for row in body["table2"]))


def cell(body: dict, scheme: str, workload: str) -> dict:
    return next(row for row in body["table2"] if row["scheme"] == scheme and row["workload"] == workload)


def beside(body: dict, scheme: str, workload: str, field: str) -> str:
    got = f"{cell(body, scheme, workload)[field]:.3f}"
    place = list(TABLE_1).index(workload)
    printed = TABLE_2.get(scheme, [None] * 5)[place]
    return got if printed is None else f"{got} ({printed / TABLE_2['complete'][place]:.2f})"


def robustness(report: Report, body: dict) -> None:
    report.text(
        "## Another load than was planned for", "",
        "The shifts of the paper's table IV, requests sent to the least loaded holder: throughput, the least of five.",
    )
    names = list(dict.fromkeys(row["scheme"] for row in body["figure8"]))
    workloads = list(dict.fromkeys(row["workload"] for row in body["figure8"]))
    least = {(row["scheme"], row["workload"]): min(row["least_loaded"]) for row in body["figure8"]}
    report.table(["scheme", *workloads], [[name, *(f"{least[name, w]:.3f}" for w in workloads)] for name in names])
    report.text(
        "Capacity under log-normal noise of sigma 1 on each partition (the median and the worst tenth of the draws), and "
        "with the hot range a quarter of the partitions further on."
    )
    rows = [
        [f"{row['scheme']}, {row['workload']}", *(f"{row[field]:.3f}" for field in ("noise_median", "noise_tenth", "noise_least", "moved"))]
        for row in body["shifts"]
    ]
    report.table(["scheme, workload", "noise: median", "worst tenth", "worst", "moved"], rows)


def migration(report: Report, body: dict) -> None:
    report.text(
        "## Migration", "",
        "From base to 0.99 of the best capacity, copies shipped over 20 seeds; the bound that no migration beats; what "
        "`smooth` from nothing ships after its nodes were matched with the current ones.",
    )
    report.table(["workload", "copies, mean", "most", "bound, mean", "from nothing, mean"], [
        [row["workload"], f"{row['copies_mean']:.1f}", f"{row['copies_max']:.0f}", f"{row['bound_mean']:.1f}", f"{row['anew_mean']:.0f}"]
        for row in body["migration"]
    ])


def scale(report: Report, body: dict) -> None:
    report.text(
        "## Times", "",
        "Milliseconds, gamma, 32 partitions and 64 slots a node, one thread. `all failures` is the capacity without each "
        "of the nodes; migrate goes from base to 0.99.",
    )
    fields = ("compact", "balanced", "smooth", "max_flow", "all_failures", "migrate")
    report.table(["nodes x partitions", *(field.replace("_", " ") for field in fields), "copies shipped (bound)"], [
        [f"{row['nodes']:,} x {row['partitions']:,}", *(shown(row[field], 1) for field in fields),
         f"{row['migrate_copies']:,} ({row['migrate_bound']:,})"]
        for row in body["scale"]
    ])


def targets(body: dict) -> list[tuple]:
    short = {
        scheme: 1 - min(row["capacity"] for row in body["table2"] if row["scheme"] == scheme)
        for scheme in ("compact", "balanced", "smooth")
    }
    shifts = 1 - min(min(row["least_loaded"]) for row in body["figure8"] if row["scheme"] == "smooth")
    largest = body["scale"][-1]
    return [
        ("compact: capacity short of 1", short["compact"], 0.01, ""),
        ("balanced: capacity short of 1", short["balanced"], 0.001, ""),
        ("smooth: capacity short of 1", short["smooth"], 0.001, ""),
        ("smooth under table IV, least loaded: short of 1", shifts, 0.01, ""),
        ("migration from base: most copies, mean over seeds", max(row["copies_mean"] for row in body["migration"]), 20, ""),
        ("migration from base: most copies of any seed", max(row["copies_max"] for row in body["migration"]), 20, ""),
        (f"{largest['nodes']:,} nodes: smooth and its capacity", (largest["smooth"] + largest["max_flow"]) / 1e3, 5, " s"),
        (f"{largest['nodes']:,} nodes: migrate", largest["migrate"] / 1e3, 10, " s"),
    ]


if __name__ == "__main__":
    main()
