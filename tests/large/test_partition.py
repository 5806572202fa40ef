"""More than 4 GiB in one partition, in large values and in small ones."""

import pyarrow as pa
import pytest
from data import write

MIB = 1 << 20


def value(i, length):
    """Text of a row's number, repeated, so that every part shows its row."""
    return (f"{i:09} " * (length // 10 + 1))[:length]


@pytest.mark.parametrize("rows, length", [(4500, MIB), (1_300_000, 3500)])
@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_more_than_4_gib_in_a_partition(store, tmp_path, rows, length, order):
    step = rows // 10
    for part in range(10):
        ids = list(range(part * step, (part + 1) * step))
        table = pa.table({"id": ids, "text": [value(i, length) for i in ids]})
        write(table, tmp_path / f"part-{part}.parquet")
    args = ["--value", "text", "--partitions", "1", "--order", order, "--memory", "512M"]
    pushed = store.push("t", tmp_path / "part-*.parquet", args=args)
    assert pushed["rows"] == rows and pushed["bytes"] > 1 << 32
    files = [path for path in store.runs("t") if path.suffix == ".run"]
    assert len(files) == 1
    keys = [0, 1, rows // 2, rows - 1]
    got = store.json("get", "t", *keys, rows)
    assert got == [*(value(i, length) for i in keys), None]
    assert store.json("verify", "t")["rows"] == rows
