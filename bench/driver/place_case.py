"""One workload in one cluster: what each placement carries, what clients wait at a fixed rate, then a shift of the load."""

import time

import place_load
import place_shift
import place_workloads
from cluster_places import quantile
from common import say
from place_load import Clients
from place_table import SETTLE_S, placed_table

#: The load lasts so long before a plan is made: nodes look every 10 s, and tell all within a minute. Hand-overs change little of what partitions are asked.
WARM_S, AGAIN_S = 70, 40
#: Before throughput is measured where no plan waits.
SOON_S = 5
#: Reads at a fixed rate, as a part of what the uniform placement carries under the workload.
PART = 0.6
#: {placement: copies that its plan may make at most}.
PLACEMENTS = {"uniform": None, "balanced": 0, "ours": None}


def placements(options, workload: str) -> list:
    """Only live tables of several replicas have leaders to choose among; there is nothing to choose where all are asked alike."""
    only_copies = options.mode == "batch" or options.replicas == 1 or workload == "uniform"
    return [name for name in PLACEMENTS if not (only_copies and name == "balanced")]


def one(options, workload: str, number: int, parts: set) -> dict:
    found = {"workload": workload, "round": number, "placements": {}}
    with placed_table(options) as table:
        shares = place_workloads.shares(table.made.store, workload, options.partitions)
        names = placements(options, workload)
        rate, plan = 0.0, None
        for name, following in zip(names, [*names[1:], None]):
            say(f"{workload}, {name}")
            placed = found["placements"][name] = {}
            if plan:
                placed["plan"] = table.carry_out(plan)
                time.sleep(SETTLE_S)
                placed["latency"] = latency(table, shares, rate, options.seconds) if "latency" in parts else None
            wait = SOON_S if not following else AGAIN_S if plan else WARM_S
            measured, plan = throughput(table, shares, wait, options.seconds, following)
            placed.update(measured)
            if not rate:
                rate = PART * measured["throughput"]
                placed["latency"] = latency(table, shares, rate, options.seconds) if "latency" in parts else None
        if "shift" in parts and workload != "uniform":
            say(f"{workload}: the load shifts {place_workloads.SHIFTS[workload]}")
            shifted = place_workloads.shares(table.made.store, workload, options.partitions, True)
            found["shift"] = place_shift.shift(table, shares, shifted, options.seconds)
        table.made.check_logs()
    return found


def throughput(table, shares: list, wait: float, seconds: float, following: str | None) -> tuple:
    """What clients get that ask as fast as they are answered, at the end of so many seconds; and the plan for the next placement, which is made then."""
    with Clients(table, shares) as clients:
        time.sleep(max(SOON_S, wait - seconds))
        window = clients.window(seconds)
        plan = table.plan(PLACEMENTS[following]) if following else None
    measured = {"throughput": clients.rate(window["span"]), "asked": clients.asked(window["span"]), "used": place_load.figures(window), **clients.problems()}
    say(f"  {measured['throughput']:,.0f} GET/s; {place_load.reported(window)}")
    for text, count in measured["failed"].items():
        say(f"  {count} failed: {text}")
    return measured, plan


def latency(table, shares: list, rate: float, seconds: float) -> dict:
    with Clients(table, shares, rate) as clients:
        time.sleep(2)
        window = clients.window(seconds)
    took = clients.took(window["span"])
    found = {"rate": rate, "reached": clients.rate(window["span"]), "used": place_load.figures(window), **clients.problems()}
    found.update({name: took and quantile(took, part) * 1e3 for name, part in (("p50", 0.5), ("p99", 0.99))})
    say(f"  at {rate:,.0f} GET/s p50 {found['p50']:.2f} ms, p99 {found['p99']:.2f} ms; {place_load.reported(window)}")
    return found
