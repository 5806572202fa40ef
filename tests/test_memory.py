"""A push keeps to its memory, however large the input is."""

import os

import pyarrow as pa
import pytest
from data import write

MIB = 1 << 20


@pytest.fixture
def large(tmp_path):
    """160 MB of rows in shuffled order, in several files."""
    rows, files = 40_000, 4
    paths = []
    for part in range(files):
        ids = [(i * 7919 + part) % 1_000_003 for i in range(part * rows, (part + 1) * rows)]
        text = [f"{i:09} " * 100 for i in ids]
        table = pa.table({"id": [i * files + part for i in ids], "text": text})
        paths.append(write(table, tmp_path / f"large-{part}.parquet"))
    return paths


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_twenty_times_the_budget(store, large, order):
    process = store.start(
        "push", "t", *large, "--key", "{id}", "--memory", "8M", "--order", order, "--json"
    )
    out = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, process.stderr.read().decode()
    process.stdout.close()
    process.stderr.close()
    assert b'"rows":160000' in out.replace(b" ", b"")
    # The budget is the sort's; the program, its threads and the Parquet readers come on top.
    assert used.ru_maxrss * 1024 < 160 * MIB, f"{used.ru_maxrss // 1024} MiB resident"
    assert store.json("verify", "t")["rows"] == 160_000
