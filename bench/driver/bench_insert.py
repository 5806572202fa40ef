"""`make bench-insert`: bulk insertion into a live cluster, as in the Planned Bulk paper's experiments. Parts: size, rows, empty, skew,
nodes, replicas (total times), latency, moving, simulated.

FOREBAY names the forebay binary; `make bench-insert` sets it. `--parts size,latency` measures only these, and reports all that this
commit has. `--records` is how many rows the times are of (300,000), `--bytes` what the partition that is moved holds (1 GB).
"""

import sys

import common
import forebay_cli
from common import DATA, Done, Report


def main() -> None:
    options = common.arguments(__doc__, rounds=3)
    if not forebay_cli.available():
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-insert does)")
    import draw_insert
    import insert_latency
    import insert_moving
    import insert_simulated
    import insert_times

    times = ("size", "rows", "empty", "skew", "nodes", "replicas")
    parts = (*times, "latency", "moving", "simulated")
    wanted = common.picked(options.parts, "part", parts)
    DATA.mkdir(exist_ok=True)
    report = Report("insert", "Bulk insertion into a live cluster", options)
    done = Done("insert", options.fresh)
    report.warn_of_load()
    place = len(report.lines)
    insert_times.measure(report, options, done, {part for part in wanted if part in times})
    insert_latency.measure(report, options, done, "latency" in wanted)
    insert_moving.measure(report, options, done, "moving" in wanted)
    insert_simulated.measure(report, options, done, "simulated" in wanted)
    rows = [row for part, module in (("times", insert_times), ("latency", insert_latency), ("moving", insert_moving), ("simulated", insert_simulated))
            if report.body.get(part) for row in module.targets(report.body[part])]
    after = report.lines[place:]
    del report.lines[place:]
    report.targets(rows)
    report.lines += after
    report.write(lambda base: draw_insert.insert(report.body, base))


if __name__ == "__main__":
    main()
