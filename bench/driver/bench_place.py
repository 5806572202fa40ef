"""`make bench-place`: the placement paper's workloads. Real clients ask a cluster of six nodes with a bounded share of
a core. They do so under the placement that the cluster makes by itself and under those of `forebay plan place`; then
the load shifts. Parts: throughput, latency and shift (both with throughput); and kept, by itself: the load shifts, and
the cluster keeps itself balanced.

FOREBAY names the forebay binary; `make bench-place` sets it. `--workloads gamma,normal` measures only these, and reports all that this commit has with
the same options. `--seconds` is how long each measure takes, `--mode batch` places a batch table.
"""

import sys

import common
import forebay_cli
from common import DATA, Done, Report, say

ROWS = 200_000


def more(parser) -> None:
    parser.add_argument("--workloads", default="", help="only these of uniform, beta, normal, powerlaw, gamma")
    parser.add_argument("--seconds", type=float, default=8, help="how long throughput and waits are measured each time")
    parser.add_argument("--mode", choices=("live", "batch"), default="live", help="the table that is placed")
    parser.add_argument("--replicas", type=int, default=3, help="of each partition; of live tables 1, 3 or 5")
    parser.add_argument("--partitions", type=int, default=96, help="of the table")
    parser.add_argument("--core", type=float, default=0.1, help="a node's part of a core")


def main() -> None:
    options = common.arguments(__doc__, rounds=1, more=more)
    if not forebay_cli.available():
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-place does)")
    import draw_place
    import place_case
    import place_tell
    from place_workloads import WORDS

    if options.parts == "kept":
        return kept(options)
    parts = {"throughput", *common.picked(options.parts, "part", ("throughput", "latency", "shift"))}
    wanted = common.picked(options.workloads, "workload", WORDS)
    options.records = (options.records or ROWS) // (10 if options.trial else 1)
    DATA.mkdir(exist_ok=True)
    report = Report("place", "Placement by load", options)
    named = {name: getattr(options, name) for name in ("mode", "replicas", "partitions", "core", "records", "seconds")}
    done = Done("place", options.fresh)
    report.warn_of_load()
    runs = []
    for number in range(options.rounds):
        for workload in WORDS:
            key = Done.key(*named.values(), *sorted(parts), workload, number)
            if workload in wanted and key not in done.results:
                try:
                    done.put(key, place_case.one(options, workload, number, parts))
                except Exception as why:  # noqa: BLE001 - the others go on
                    report.failed(workload, why)
            if key in done.results:
                runs.append(done.results[key])
    if not runs:
        say("nothing was measured")
        sys.exit(1)
    report.body["place"] = {**named, "runs": runs}
    place_tell.tell(report, report.body["place"])
    report.write(lambda base: draw_place.place(report.body["place"], base))


def kept(options) -> None:
    import draw_place
    import place_kept
    from place_workloads import SHIFTS

    report = Report("place", "Placement by load", options)
    report.name = "place-kept"
    report.body["command"] += ' BENCH_ARGS="--parts kept"'
    report.warn_of_load()
    options.records = (options.records or ROWS) // (10 if options.trial else 1)
    DATA.mkdir(exist_ok=True)
    named = {name: getattr(options, name) for name in ("mode", "replicas", "partitions", "core", "records", "seconds")}
    runs = []
    for workload in common.picked(options.workloads, "workload", SHIFTS):
        try:
            runs.append(place_kept.kept(options, workload))
        except Exception as why:  # noqa: BLE001 - the others go on
            report.failed(workload, why)
    place_kept.tell(report, named, runs)
    report.write(lambda base: draw_place.kept(runs, base))


if __name__ == "__main__":
    main()
