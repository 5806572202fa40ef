"""Parquet to serving: `forebay push` beside DuckDB and pyarrow merely reading the file, and beside
loading the same rows into Redis."""

import os
import shutil
import sys
import time
from pathlib import Path

import common
import forebay_cli
from common import DATA, Failed, Process, Report, ensure_set, harness, median_of, memory_of, say, shown

# Run in a fresh Python process each, so that nothing is shared; they print their seconds.
PYARROW = """
import sys, time, pyarrow, pyarrow.parquet as parquet
pyarrow.set_cpu_count(2)
start = time.monotonic()
rows = parquet.read_table(sys.argv[1]).num_rows
print(time.monotonic() - start, rows)
"""
DUCKDB = """
import sys, time, duckdb
con = duckdb.connect(config={"threads": 2})
start = time.monotonic()
rows = con.execute("SELECT count(*), bit_xor(hash(k)), bit_xor(hash(v)) FROM read_parquet(?)", [sys.argv[1]]).fetchone()[0]
print(time.monotonic() - start, rows)
"""


def versions() -> dict:
    text = "import duckdb, pyarrow; print(duckdb.__version__, pyarrow.__version__)"
    duckdb, pyarrow = common.run([sys.executable, "-c", text]).split()
    return {"DuckDB": duckdb, "pyarrow": pyarrow}


def write_parquet(data: Path, out: Path) -> None:
    """The flat set as Parquet with columns k and v (text), snappy, row groups of a million."""
    import json

    import numpy
    import pyarrow
    import pyarrow.parquet

    if out.exists():
        return
    shape = json.loads(data.with_suffix(".json").read_text())
    keys, values = shape["key_bytes"], shape["value_bytes"]
    flat = numpy.memmap(data.with_suffix(".flat"), numpy.uint8, "r").reshape(-1, keys + values)
    schema = pyarrow.schema([("k", pyarrow.string()), ("v", pyarrow.string())])
    unfinished = out.with_suffix(".unfinished")
    with pyarrow.parquet.ParquetWriter(
        unfinished, schema, compression="snappy", use_dictionary=False
    ) as writer:
        for first in range(0, len(flat), 1_000_000):
            part = flat[first : first + 1_000_000]
            columns = [_strings(part[:, :keys]), _strings(part[:, keys:])]
            writer.write_table(pyarrow.table(columns, schema=schema))
    unfinished.rename(out)


def _strings(block):
    import numpy
    import pyarrow

    rows, width = block.shape
    offsets = numpy.arange(0, (rows + 1) * width, width, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(numpy.ascontiguousarray(block))]
    return pyarrow.Array.from_buffers(pyarrow.string(), rows, buffers)


class Redis:
    """A Redis that keeps nothing on disk, on a port of its own."""

    def __init__(self, port: int, prefix: tuple = ()):
        self.port, self.prefix = port, prefix

    def __enter__(self):
        DATA.mkdir(exist_ok=True)
        self.server = Process(
            [*self.prefix, "redis-server", "--port", self.port, "--save", "", "--appendonly", "no",
             "--bind", "127.0.0.1", "--dir", DATA],
            DATA / "redis.log",
        )
        self.server.wait_until(lambda: "PONG" in self.cli("ping"), 10, "redis-server")
        return self

    def __exit__(self, *_):
        self.server.stop()

    def cli(self, *words) -> str:
        return common.run(["redis-cli", "-p", self.port, *words])

    def load(self, commands: Path) -> float:
        """Seconds of redis-cli --pipe with a file of SET commands."""
        import subprocess

        start = time.monotonic()
        with commands.open("rb") as source:
            done = subprocess.run(
                ["redis-cli", "-p", str(self.port), "--pipe"], stdin=source, capture_output=True, text=True
            )
        if done.returncode != 0 or "errors: 0" not in done.stdout:
            raise Failed(f"redis-cli --pipe: {done.stdout.strip()[-200:]} {done.stderr.strip()[-200:]}")
        return time.monotonic() - start


def measure(report: Report, records: int, options) -> None:
    name = f"s{records // 1_000_000}m-v100"
    data = ensure_set(name, records, 100, "decimal")
    file = data.with_suffix(".parquet")
    commands = data.with_suffix(".resp")
    say(f"Parquet to serving: {records:,} rows")
    write_parquet(data, file)
    if not commands.exists():
        harness("export", "--data", data, "--format", "resp", "--out", commands)
    steps = {
        "forebay": ("forebay push: read, sort, write, verify, swap", lambda: push(file)),
        "duckdb": ("DuckDB merely reading (a hash over both columns)", lambda: python(DUCKDB, file, records)),
        "pyarrow": ("pyarrow merely reading into memory", lambda: python(PYARROW, file, records)),
        "redis": ("redis-cli --pipe of ready SET commands", lambda: redis(commands)),
    }
    runs: dict = {}
    for _ in range(options.rounds):
        for key, (_, step) in steps.items():
            if key == "forebay" and not forebay_cli.available():
                continue
            os.sync()
            try:
                runs.setdefault(key, []).append(step())
            except Failed as why:
                report.failed(steps[key][0], why)
    rows = [
        {"name": key, "label": steps[key][0], **median_of(these), "runs": these} for key, these in runs.items() if these
    ]
    report.body["parquet"] = {"records": records, "file_bytes": file.stat().st_size, "rows": rows}
    report.text(
        f"## Parquet to serving: {records:,} rows of 12 B keys and 100 B values "
        f"({file.stat().st_size / 1e9:.2f} GB of Parquet, snappy)"
    )
    report.table(
        ["what", "s", "M rows/s", "own memory MB (push: peak; Redis: after loading)"],
        [
            [r["label"], shown(r["seconds"], 2), shown(records / r["seconds"] / 1e6, 2),
             shown(r.get("peak_anonymous_bytes") or r.get("anonymous_bytes"), 0, 1e-6)]
            for r in rows
        ],
    )


def push(file: Path) -> dict:
    store = DATA / "build" / "parquet"
    shutil.rmtree(store, ignore_errors=True)
    try:
        return forebay_cli.push(store, "key", file)
    finally:
        shutil.rmtree(store, ignore_errors=True)


def python(code: str, file: Path, records: int) -> dict:
    seconds, rows = common.run([sys.executable, "-c", code, file]).split()
    if int(rows) != records:
        raise Failed(f"{rows} rows read of {records}")
    return {"seconds": float(seconds)}


def redis(commands: Path) -> dict:
    with Redis(17379) as server:
        seconds = server.load(commands)
        return {"seconds": seconds, **memory_of(server.server.pid)}
