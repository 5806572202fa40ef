"""A push stays within its memory budget, however large the input is."""

import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
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
    """Bytes of the process's own memory, without mapped files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def push(store, *words):
    """Pushes with --json. Also returns the greatest memory use of the command."""
    process = store.start("push", "t", *words, "--json")
    most = 0
    while process.poll() is None:
        most = max(most, own_memory(process.pid))
        time.sleep(0.01)
    result = store.finish(process)
    assert result.code == 0, result.err
    return result.json(), most


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_a_push_of_twenty_times_the_budget(store, large, order):
    pushed, most = push(store, *large, "--key", "{id}", "--memory", "8M", "--order", order)
    assert pushed["rows"] == 160_000
    # The budget is for records. The program, its threads and the Parquet readers use more.
    assert 0 < most < 112 * MIB, f"{most / MIB:.0f} MiB"
    assert store.json("verify", "t")["rows"] == 160_000


def large_values(path, length, count, page_values=None, **options):
    """One row group of values that all differ and compress well.

    Each page has `page_values`, by default 20 MB at most.
    """
    texts = pa.array([f"{number:06} " * (length // 7) for number in range(count)])
    table = pa.table({"id": range(count), "text": texts})
    at_once = page_values or max(1, 20 * MIB // length)
    usual = {"compression": "zstd", "use_dictionary": False, "write_batch_size": at_once}
    pyarrow.parquet.write_table(table, path, row_group_size=count, **(usual | options))
    return path


def check_large_values(store, path, length, count):
    pushed, most = push(store, path, "--key", "{id}", "--memory", "64M")
    assert pushed["rows"] == count
    # The program, a page of the file and some copies of the current value use more.
    assert 0 < most < 180 * MIB + 6 * length, f"{most / MIB:.0f} MiB"
    last = store.json("get", "t", str(count - 1))[0]
    assert last["text"] == f"{count - 1:06} " * (length // 7)


@pytest.mark.parametrize("length, count", [(20_000, 10_000), (MIB, 200), (15 * MIB, 14)])
def test_values_of_any_size(store, tmp_path, length, count):
    path = large_values(tmp_path / "large.parquet", length, count)
    check_large_values(store, path, length, count)


@pytest.mark.parametrize("compression, version", [("zstd", "1.0"), ("gzip", "2.0")])
def test_one_page_of_large_values(store, tmp_path, compression, version):
    options = {"compression": compression, "data_page_version": version}
    path = large_values(tmp_path / "large.parquet", MIB, 300, page_values=300, **options)
    check_large_values(store, path, MIB, 300)


def test_a_damaged_page_of_large_values(store, tmp_path):
    options = {"compression": "none", "write_page_checksum": True}
    path = large_values(tmp_path / "large.parquet", MIB, 40, page_values=40, **options)
    store.run("push", "t", path, "--key", "{id}")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "damaged" in message and "checksum" in message, message
    assert store.json("verify", "t")["rows"] == 40
