"""The report of `make bench-place`: our figures beside the paper's, and targets."""

import place_case
import place_load
import place_shift
from bench_placement import TABLE_2
from cluster_places import middle
from common import Report, ratio, shown
from place_table import NODES
from place_workloads import LABELS, SHIFTS, TABLE_5, WORDS, of_paper, paper_gain

#: How the placements are called; of a batch table nobody leads.
NAMES = {"uniform": "uniform", "balanced": "balanced (`--copies 0`)", "ours": "ours (`--copies 20`)"}
#: Under the uniform workload a placement by load is to lose no more than this. Under others it is to have clients wait
#: no longer.
EVEN, WAITS = 1.05, 1.0
MOST_SECONDS = 60


def value(runs: list, *path) -> float | None:
    """The median over the rounds."""
    found = []
    for at in runs:
        for name in path:
            at = at.get(name) if isinstance(at, dict) else None
        found.append(at if isinstance(at, (int, float)) else None)
    return middle(found)


def by_workload(found: dict) -> dict:
    all_of = {workload: [run for run in found["runs"] if run["workload"] == workload] for workload in WORDS}
    return {workload: runs for workload, runs in all_of.items() if runs}


def placements(runs: list) -> list:
    return [name for name in NAMES if name in runs[0]["placements"]]


def all_placements(all_of: dict) -> list:
    return [name for name in NAMES if any(name in placements(runs) for runs in all_of.values())]


def carried(runs: list, name: str) -> float | None:
    return value(runs, "placements", name, "throughput")


def gain(runs: list, name: str) -> float | None:
    """Throughput in times of the uniform placement's."""
    return ratio(carried(runs, name), carried(runs, "uniform"))


def p99_ratio(runs: list) -> float | None:
    return ratio(value(runs, "placements", "ours", "latency", "p99"), value(runs, "placements", "uniform", "latency", "p99"))


def tell(report: Report, found: dict) -> None:
    others = sum(not place_load.is_bound_by_nodes(placed["used"]) for run in found["runs"] for placed in run["placements"].values())
    if others:
        report.text(f"**In {others} measures of throughput the nodes were not what took the time (see the last table): these are no figures of placements.**")
    report.targets(targets(found))
    table = "live, each partition with a leader and followers" if found["mode"] == "live" else "a batch table, any replica of which answers"
    report.text(
        f"{NODES} nodes with {found['core']:g} of a core each (a control group), one hashed table ({table}; {found['replicas']} replica(s), "
        f"{found['partitions']} partitions of equally many slots, {found['records']:,} rows of 12 + 100 B). {place_load.PROCESSES} processes of "
        f"clients, which ask the nodes that KV.MAP and MOVED name. Throughput: {place_load.OUTSTANDING} GETs outstanding all the time, "
        f"{found['seconds']:g} s; partitions are asked by their shares of the workload, so that a node that is asked too much holds up all. "
        "*Uniform* is how the cluster lays the table out by itself; *balanced*: after `plan place --from-load 1m --copies 0` other replicas lead, and "
        "nothing is copied; *ours*: after `plan place --from-load 1m`. `cluster apply` carries both out. The paper has 8 nodes with two replicas of "
        "4 partitions (*base*, *coarse*) or of 128 (*balanced*).",
    )
    all_of = by_workload(found)
    throughput(report, all_of)
    waits(report, all_of)
    shifts(report, all_of)
    plans(report, all_of)
    busy(report, all_of)


def throughput(report: Report, all_of: dict) -> None:
    names = all_placements(all_of)
    report.text("## Throughput", "", "GETs a second; then in times of the uniform placement, beside the paper's Table II in times of its base.")
    report.table(
        ["workload", *(NAMES[name] for name in names), *(f"{name} / uniform" for name in names[1:]), "the paper: coarse / base", "the paper: balanced / base"],
        [
            [LABELS[workload], *(shown(carried(runs, name)) for name in names), *(shown(gain(runs, name), 2) for name in names[1:]),
             *(shown(paper_gain(scheme, workload), 2) for scheme in ("coarse", "balanced"))]
            for workload, runs in all_of.items()
        ],
    )
    report.text("What the most asked node answers, in multiples of the mean, beside the paper's Table V:")
    report.table(
        ["workload", *(NAMES[name] for name in names), *(f"the paper: {scheme}" for scheme in TABLE_5)],
        [
            [LABELS[workload], *(shown(value(runs, "placements", name, "asked"), 2) for name in names),
             *(shown(of_paper(TABLE_5, scheme, workload), 2) for scheme in TABLE_5)]
            for workload, runs in all_of.items()
        ],
    )
    report.text("The paper's throughput, queries a second (Table II):")
    schemes = ("base", "coarse", "balanced")
    report.table(["workload", *schemes], [[LABELS[workload], *(shown(of_paper(TABLE_2, scheme, workload), 1) for scheme in schemes)] for workload in all_of])


def waited(all_of: dict) -> dict:
    """Those of which it was measured what clients wait."""
    return {workload: runs for workload, runs in all_of.items() if p99_ratio(runs) is not None}


def waits(report: Report, all_of: dict) -> None:
    there = waited(all_of)
    if not there:
        return
    names = all_placements(there)
    report.text(
        "## What clients wait", "",
        f"GETs at a fixed rate (open loop), {place_case.PART:.0%} of what the uniform placement carries under the workload. Milliseconds, p50 / p99.",
    )
    of = lambda runs, name, field: shown(value(runs, "placements", name, "latency", field), 2)  # noqa: E731
    report.table(
        ["workload", "GETs a second", *(NAMES[name] for name in names), "p99, ours / uniform"],
        [
            [LABELS[workload], shown(value(runs, "placements", "uniform", "latency", "rate")),
             *(f"{of(runs, name, 'p50')} / {of(runs, name, 'p99')}" for name in names), shown(p99_ratio(runs), 2)]
            for workload, runs in there.items()
        ],
    )


def shifts(report: Report, all_of: dict) -> None:
    there = {workload: runs for workload, runs in all_of.items() if any("shift" in run for run in runs)}
    if not there:
        return
    report.text(
        "## The load shifts", "",
        "After *ours* clients ask by other shares (parameters as in the paper's Table IV; normal further on). It is noticed once "
        f"`plan place --from-load 1m` says that the hottest node has {place_shift.IMBALANCE:g} times the mean, and {place_shift.MORE:g} times what it had "
        f"before. {', '.join(map(str, place_shift.PLANS_S[:-1]))} and {place_shift.PLANS_S[-1]} s later a plan is made and applied if a node still has so "
        "much, for at first what is measured is a mean of the old load and the new one; all of them together may make "
        f"{place_shift.MOST_COPIES} copies. Throughput is back when {place_shift.BACK_S:g} s have {place_shift.BACK:.0%} of what was carried before the "
        "shift. Seconds count from the shift, in the last column from when it was noticed.",
    )
    of = lambda runs, *path: value(runs, "shift", *path)  # noqa: E731
    report.table(
        ["workload", "shift", "GET/s before", "right after", "placed anew", "most asked node before", "right after", "placed anew", "plans", "handed over",
         "copies", "noticed", "first placed anew", "back", "notice to back, s"],
        [
            [LABELS[workload], SHIFTS[workload], shown(of(runs, "before")), shown(of(runs, "old")), shown(of(runs, "new")),
             shown(of(runs, "asked_before"), 2), shown(of(runs, "asked_old"), 2), shown(of(runs, "asked_new"), 2),
             shown(middle(len(run["shift"]["plans"]) for run in runs if "shift" in run)), shown(of(runs, "handed_over")), shown(of(runs, "copies")),
             *(shown(of(runs, field), 1) for field in ("noticed_s", "first_s", "back_s", "seconds"))]
            for workload, runs in there.items()
        ],
    )


def plans(report: Report, all_of: dict) -> None:
    report.text(
        "## Plans", "",
        "What `plan place` told: the hottest node's load in multiples of the mean, and the least that is possible with these partitions. First round.",
    )
    rows = []
    for workload, runs in all_of.items():
        made = {name: runs[0]["placements"][name].get("plan") for name in placements(runs)}
        made.update({f"{plan['at_s']:.0f} s after the shift": plan for plan in runs[0].get("shift", {}).get("plans", [])})
        for name, plan in made.items():
            if plan:
                rows.append([f"{LABELS[workload]}, {name}", *(shown(plan[field]) for field in ("handed_over", "copies", "copied_bytes")),
                             *(shown(plan[field], 2) for field in ("hottest_before", "hottest_after", "bound")), shown(plan["apply_s"], 1)])
    report.table(["", "handed over", "copies", "bytes copied", "hottest before", "after", "bound", "carried out in, s"], rows)


def busy(report: Report, all_of: dict) -> None:
    """Whether nodes were what took the time."""
    rows, failed = [], []
    for workload, runs in all_of.items():
        for name in placements(runs):
            used = runs[0]["placements"][name]["used"]
            rows.append([f"{LABELS[workload]}, {name}", f"{min(used['nodes']):.0%} to {max(used['nodes']):.0%}", place_load.listed(used["clients"]),
                         shown(used["idle"], 2), "nodes" if place_load.is_bound_by_nodes(used) else "**not the nodes**"])
        for run in runs:
            phases = {**run["placements"], "after the shift": run.get("shift", {})}
            failed += [f"{LABELS[workload]}, {name}: {count} times {text}" for name, phase in phases.items() for text, count in phase.get("failed", {}).items()]
    report.text(
        "## Who was busy", "",
        "Processor time while throughput was measured, first round: of nodes as a part of their share, the least and the most busy one; of the clients' "
        "processes in cores; cores that nobody used. The nodes were what took the time where the busiest used "
        f"{place_load.NODE_LEAST:.0%} of its share or more, and no client's process above {place_load.CLIENT_MOST:g} of a core.",
    )
    report.table(["", "nodes", "clients", "idle", "what took the time"], rows)
    if failed:
        report.text("GETs that failed: " + "; ".join(failed) + ".")


def targets(found: dict) -> list:
    """How many times more is measured as the part of ours that the uniform placement carries."""
    rows = []
    for workload, runs in by_workload(found).items():
        label, is_even = LABELS[workload], workload == "uniform"
        limit = EVEN if is_even else round(1 / paper_gain("balanced", workload), 3)
        what = f"{label}: GET/s, uniform placement / ours" + ("" if is_even else " (limit: the paper's base / balanced)")
        rows.append((what, ratio(carried(runs, "uniform"), carried(runs, "ours")), limit, ""))
        if p99_ratio(runs) is not None:
            rows.append((f"{label}: p99 at the same rate, ours / uniform placement", p99_ratio(runs), EVEN if is_even else WAITS, ""))
        if any("shift" in run for run in runs):
            rows.append((f"{label} shifts: copies", value(runs, "shift", "copies"), place_shift.MOST_COPIES, ""))
            rows.append((f"{label} shifts: from its notice until throughput is back", value(runs, "shift", "seconds"), MOST_SECONDS, " s"))
    return rows
