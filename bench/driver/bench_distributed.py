"""What building and serving over several machines costs. Parts: s3.

FOREBAY names the forebay binary; `make bench-distributed` sets it. `--parts s3` takes only that one.
"""

import common
import distributed_s3
from common import DATA, Report

PARTS = {"s3": distributed_s3.measure}


def main() -> None:
    options = common.arguments(__doc__)
    report = Report("distributed", "Building and serving over several machines", options)
    DATA.mkdir(exist_ok=True)
    wanted = [part for part in options.parts.split(",") if part] or list(PARTS)
    for part in wanted:
        PARTS[part](report, options)
    report.write()


if __name__ == "__main__":
    main()
