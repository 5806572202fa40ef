"""A push keeps to its memory, however large the input is."""

import time
from pathlib import Path

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


def own_memory(pid):
    """Bytes of memory that are the process's own: not files mapped from the system's cache."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_twenty_times_the_budget(store, large, order):
    process = store.start(
        "push", "t", *large, "--key", "{id}", "--memory", "8M", "--order", order, "--json"
    )
    most = 0
    while process.poll() is None:
        most = max(most, own_memory(process.pid))
        time.sleep(0.01)
    result = store.finish(process)
    assert result.code == 0, result.err
    assert result.json()["rows"] == 160_000
    # The budget is the records'; the program, its threads and the Parquet readers come on top.
    assert 0 < most < 112 * MIB, f"{most / MIB:.0f} MiB"
    assert store.json("verify", "t")["rows"] == 160_000
