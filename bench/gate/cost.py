"""What the figures of values cost a push: the share of its processor time, by perf's samples.

    python bench/gate/cost.py [--forebay BINARY] [--rows N] [--rounds N]

Needs perf (Debian's linux-perf) and a release binary, whose symbols name what the time goes to.
Two tables: numbers, texts and times as a job writes them; and forty columns of floats, which have
most figures.
"""

import argparse
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
COUNTING = "forebay_load::column_profile"


def mixed(rows, random):
    names = random.integers(0, 10**6, rows).astype(str)
    return {
        "id": np.arange(rows),
        "price": random.normal(50, 10, rows),
        "quantity": random.integers(0, 1000, rows),
        "score": random.random(rows).astype("float32"),
        "name": pa.array(np.char.add("name ", names)),
        "flag": random.random(rows) < 0.5,
        "at": pa.array(random.integers(1_600_000_000, 1_700_000_000, rows).astype("datetime64[s]")),
    }


def wide(rows, random):
    floats = {f"f{number}": random.normal(0, 1, rows // 8) for number in range(40)}
    return {"id": np.arange(rows // 8), **floats}


def share(binary, source, directory):
    """Of one push into a new store."""
    data = directory / "perf.data"
    store = tempfile.mkdtemp(dir=directory)
    record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", "499", "-o", data, "--"]
    push = [binary, "push", "t", source, "--key", "{id}", "--create", "--store", store, "--quiet"]
    subprocess.run([*record, *push], check=True, capture_output=True)
    options = ["--no-children", "--stdio", "-g", "none", "-s", "symbol"]
    report = ["perf", "report", "-i", data, *options]
    text = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    return sum(float(line.split("%")[0]) for line in text.splitlines() if COUNTING in line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forebay", default=ROOT / "target/release/forebay")
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    for make in (mixed, wide):
        with tempfile.TemporaryDirectory() as directory:
            directory = Path(directory)
            table = pa.table(make(options.rows, np.random.default_rng(1)))
            pq.write_table(table, directory / "t.parquet", compression="zstd")
            source = directory / "t.parquet"
            shares = [share(options.forebay, source, directory) for _ in range(options.rounds)]
        size = f"{table.num_rows:,} rows of {table.num_columns} columns"
        median, least, most = statistics.median(shares), min(shares), max(shares)
        print(f"{make.__name__:6} {size}: {median:.1f}% ({least:.1f} to {most:.1f})")


if __name__ == "__main__":
    main()
