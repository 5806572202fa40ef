"""What a catalog of 10,000 nodes and two million partitions takes: the example `scale` of forebay-cluster."""

import common
from common import REPO, Done, Failed, Report, say

COMMAND = ["cargo", "run", "--release", "--quiet", "-p", "forebay-cluster", "--example", "scale"]


def measure(report: Report, options, done: Done, run: bool) -> None:
    key = Done.key("scale")
    if run and key not in done.results:
        say("a catalog of 10,000 nodes and 2,000,000 partitions (some minutes of compiling the first time)")
        try:
            lines = common.run([*COMMAND, "--manifest-path", REPO / "Cargo.toml"], 1800).strip().splitlines()
            done.put(key, {"lines": lines})
        except Failed as why:
            report.failed("scale", why)
    if key in done.results:
        lines = done.results[key]["lines"]
        report.body["scale"] = lines
        report.text(
            "## A catalog of 10,000 nodes and 2,000,000 partitions",
            "",
            "100 ordered tables of 20,000 ranges; heartbeats of all nodes, one a second each, as the coordinator's own work without "
            f"sockets (`{' '.join(COMMAND)}`):",
            "",
            *(f"    {line}" for line in lines),
        )
