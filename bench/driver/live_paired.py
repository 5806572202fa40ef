"""The server's writes and reads, by this binary and by an earlier one, in turn on the same machine."""

import statistics
from pathlib import Path

import common
from common import Failed, Report, say, shown
from live_server import Forebay, redis_benchmark

#: What is asked, in which pipelines, and how many requests of a full run.
CASES = [("set", 1, 150_000), ("set", 16, 1_000_000), ("get", 1, 150_000), ("get", 16, 1_000_000), ("incr", 1, 150_000),
         ("incr", 16, 1_000_000)]
SIDES = ("before", "now")


def measure(report: Report, options) -> None:
    if not Path(options.before).is_file():
        raise Failed("--before: the binary to compare with, of an earlier build")
    rates: dict = {case: {side: [] for side in SIDES} for case in CASES}
    for round_ in range(options.rounds):
        # Who comes first has the machine's caches to itself; so each does, in turn.
        for side in SIDES if round_ % 2 == 0 else reversed(SIDES):
            say(f"round {round_ + 1} of {options.rounds}, {side}")
            with Forebay("os", binary=options.before if side == "before" else None) as server:
                for test, depth, requests in CASES:
                    got = redis_benchmark(server.port, test, requests // (10 if options.trial else 1), depth)
                    rates[test, depth, requests][side].append(got["rps"])
    report.body["paired"] = [
        {"test": test, "pipeline": depth, "requests": requests, **both} for (test, depth, requests), both in rates.items()
    ]
    tell(report, options)


def tell(report: Report, options) -> None:
    report.text(
        "## One server, by an earlier binary and by this one",
        "",
        f"redis-benchmark, 50 connections, values of 100 B, 1,000,000 keys, `--durability os`; {options.rounds} rounds, each side first in "
        "every other one; the server on core 0, the client on core 1. Requests a second, medians; the ratio is the median of the rounds', "
        "with the least and the most.",
    )
    rows = []
    for case in report.body["paired"]:
        ratios = [now / before for now, before in zip(case["now"], case["before"], strict=True)]
        rows.append([
            f"{case['test'].upper()}, {case['pipeline']}", *(shown(statistics.median(case[side]), 0) for side in SIDES),
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        ])
    report.table(["command, pipeline", "before", "now", "now / before"], rows)


def main(options) -> None:
    report = Report("live-paired", "One server, before and now", options)
    report.body["command"] = "make bench-live ARGS='--parts paired --before BINARY'"
    report.body["versions"] = {"Redis (redis-benchmark)": common.package_version("redis-server")}
    measure(report, options)
    report.write()
