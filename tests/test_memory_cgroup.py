"""A push stays within `--memory` in a memory cgroup, where the system kills a process that uses
more."""

import os
import random
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
import pytest

MIB = 1 << 20
BUDGET = 256 * MIB
# The program, its threads and the current values use memory beyond the budget.
EXTRA = 96 * MIB
# Bytes of a value and of a file of values. Each file exceeds the budget.
FILES = [(16 * MIB, 300 * MIB), (MIB, 300 * MIB), (1000, 300 * MIB), (10, 100 * MIB)]


class MemoryGroup:
    """A memory cgroup, of either version of cgroups."""

    def __init__(self, name):
        first = Path("/sys/fs/cgroup/memory")
        self.is_first = first.is_dir()
        self.path = (first if self.is_first else Path("/sys/fs/cgroup")) / name

    def make(self, limit):
        self.path.mkdir()
        names = ("memory.limit_in_bytes",) if self.is_first else ("memory.max", "memory.swap.max")
        for name, value in zip(names, (limit, 0), strict=False):
            (self.path / name).write_text(str(value))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def most(self):
        name = "memory.max_usage_in_bytes" if self.is_first else "memory.peak"
        return int((self.path / name).read_text())


@contextmanager
def memory_group(limit):
    group = MemoryGroup(f"forebay-test-{os.getpid()}")
    try:
        group.make(limit)
    except OSError as error:
        if group.path.exists():
            group.path.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {error}")
    try:
        yield group
    finally:
        group.path.rmdir()


def values(length, count, rng):
    """Texts of random digits."""
    if length <= 16:
        numbers = pa.array([rng.randrange(10**length) for _ in range(count)])
        return pyarrow.compute.utf8_lpad(numbers.cast(pa.string()), length, "0")
    return pa.array([rng.randbytes(length // 2).hex() for _ in range(count)])


def write(path, length, file_bytes, rng):
    """Writes a Parquet file with row groups of at most 100 MiB, and returns its number of rows."""
    group = min(100 * MIB // (length + 8), 1 << 20)
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    options = {"compression": "zstd", "use_dictionary": False}
    count = file_bytes // (length + 8)
    with pyarrow.parquet.ParquetWriter(path, schema, **options) as file:
        for first in range(0, count, group):
            ids = pa.array(range(first, min(first + group, count)))
            texts = values(length, len(ids), rng)
            file.write_table(pa.table([ids, texts], schema), row_group_size=group)
    return count


@pytest.mark.alone
@pytest.mark.nightly
@pytest.mark.parametrize("length, file_bytes", FILES)
def test_values_of_any_size_in_a_memory_cgroup(store, tmp_path, length, file_bytes):
    path = tmp_path / "values.parquet"
    with memory_group(BUDGET + EXTRA) as group:
        count = write(path, length, file_bytes, random.Random(length))
        words = ["--key", "{id}", "--memory", BUDGET, "--threads", 2]
        # The system kills the command if it uses more.
        result = store.run("push", "t", path, *words, "--json", preexec_fn=group.enter)
        # The file's pages in the system's cache count, up to the limit.
        print(f"values of {length} bytes: at most {group.most() / MIB:.0f} MiB")
    assert result.json()["rows"] == count
    assert store.json("verify", "t")["rows"] == count
