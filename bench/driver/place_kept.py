"""The load shifts on a cluster that keeps itself balanced (`serve --keep-balanced`), and nobody makes a plan: when clients have
their throughput back."""

import time

import place_workloads
from common import Report, say, shown
from place_load import Clients
from place_shift import BACK, BACK_S, SLICE_S
from place_table import NODES, placed_table

#: What copies may take in an hour.
KEPT = ("--keep-balanced", "10G")
#: So long clients ask before the shift: for the cluster to spread the load as it is then, and for the pause after that plan.
SETTLED_S = 150
#: So long after the shift it is looked for that throughput is back.
LOOK_S = 240


def kept(options, workload: str) -> dict:
    with placed_table(options, KEPT) as table:
        shares, shifted = (place_workloads.shares(table.made.store, workload, options.partitions, is_shifted) for is_shifted in (False, True))
        with Clients(table, shares) as clients:
            time.sleep(SETTLED_S - options.seconds)
            before = clients.window(options.seconds)["span"]
            begun = clients.shift(shifted)
            time.sleep(LOOK_S)
            end = time.monotonic()
        notes = table.made.store.json("cluster", "status")["notes"]
        table.made.check_logs()
    wanted = BACK * clients.rate(before)
    found = {
        "workload": workload, "before": clients.rate(before), "first": clients.rate([begun + 1, begun + 11]), "last": clients.rate([end - 20, end]),
        "back_s": back(clients, begun, end, wanted), "notes": notes, **clients.problems(),
        "timeline": [[at + SLICE_S, round(clients.rate([begun + at, begun + at + SLICE_S]))] for at in range(0, LOOK_S - SLICE_S, SLICE_S)],
    }
    say(f"  before the shift {found['before']:,.0f} GET/s, in 10 s after it {found['first']:,.0f}, at the end {found['last']:,.0f}; back after "
        f"{shown(found['back_s'], 1)} s")
    return found


def back(clients, begun: float, end: float, wanted: float) -> float | None:
    """From when on, counted from the shift, no later 10 s had less than what was wanted."""
    at = end - 10
    while at > begun + BACK_S and clients.rate([at, at + 10]) >= wanted:
        at -= 1
    return None if at >= end - 10 else at - begun + 10


def tell(report: Report, found: dict, runs: list) -> None:
    report.body["kept"] = {**found, "runs": runs}
    failed = sum(sum(run["failed"].values()) for run in runs)
    report.text(
        "## The load shifts, and the cluster keeps itself balanced", "",
        f"{NODES} nodes with {found['core']:g} of a core each (a control group) and `{' '.join(KEPT)}`, one hashed table ({found['mode']}, {found['replicas']} "
        f"replica(s), {found['partitions']} partitions, {found['records']:,} rows of 12 + 100 B). Clients with a fixed number of GETs outstanding ask by "
        f"the shares of the workload for {SETTLED_S} s, then by other ones for {LOOK_S} s; nobody makes a plan. Throughput is back from when on no 10 s had "
        f"less than {BACK:.0%} of that before the shift. {failed} GETs failed.",
    )
    report.table(
        ["workload", "shift", "GET/s before", "10 s after the shift", "at the end", "at the end / before", "back after, s"],
        [[place_workloads.LABELS[run["workload"]], place_workloads.SHIFTS[run["workload"]], shown(run["before"]), shown(run["first"]), shown(run["last"]),
          shown(run["last"] / run["before"], 2), shown(run["back_s"], 0)] for run in runs],
    )
