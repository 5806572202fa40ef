"""Data without a value does not count: under nulls, in unused entries, between views.

Rows keep their numbers across batches, row groups and threads.
"""

import json

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

HALF = 7.5
WHOLE = pa.int32()
ITEM = pa.list_(pa.float64())


def bits(*valid):
    """A bitmap of the values that are valid."""
    return pa.py_buffer(
        bytes([sum(1 << place for place, is_valid in enumerate(valid) if is_valid)])
    )


def floats(*values):
    return pa.array(values, pa.float64())


def under_null(array_type, buffers, children=()):
    """Two values. The first is null, and the data under it does not fit."""
    return pa.Array.from_buffers(array_type, 2, [bits(0, 1), *buffers], children=list(children))


def offsets(*places):
    return pa.array(places, pa.int32()).buffers()[1]


ODD = {
    "a float under a null": under_null(pa.float64(), [floats(HALF, 7).buffers()[1]]),
    "items of a null list": under_null(ITEM, [offsets(0, 1, 2)], [floats(HALF, 7)]),
    "items of a null list of fixed size": under_null(
        pa.list_(pa.float64(), 2), [], [floats(HALF, HALF, 7, 8)]
    ),
    "the field of a null struct": under_null(
        pa.struct([("a", pa.float64())]), [], [floats(HALF, 7)]
    ),
    "items that no view shows": pa.ListViewArray.from_arrays([0, 2], [0, 1], floats(HALF, HALF, 7)),
    "items before a list and after it": pa.ListArray.from_arrays([1, 1, 2], floats(HALF, 7, HALF)),
    "a slice": pa.concat_arrays([floats(HALF), floats(None, 7), floats(HALF)])[1:3],
    "an entry that no row has": pa.DictionaryArray.from_arrays([1, 2], floats(HALF, None, 7)),
    "an entry under a null": pa.DictionaryArray.from_arrays(
        pa.array([0, 1], pa.int8(), mask=pa.array([True, False]).to_numpy(False)), floats(HALF, 7)
    ),
    "run ends": pa.RunEndEncodedArray.from_arrays([1, 2], floats(None, 7)),
    "the value of a null map": under_null(
        pa.map_(pa.string(), pa.float64()),
        [offsets(0, 1, 2)],
        [pa.StructArray.from_arrays([pa.array(["a", "b"]), floats(HALF, 7)], ["key", "value"])],
    ),
}


def whole(value):
    """A value with integers in the place of floats."""
    if isinstance(value, list):
        return [whole(item) for item in value]
    if isinstance(value, dict):
        return {name: whole(item) for name, item in value.items()}
    return int(value) if isinstance(value, float) else value


def wanted(array):
    rows = array.to_pylist()
    is_map = pa.types.is_map(array.type)
    return [whole(dict(row) if is_map and row is not None else row) for row in rows]


def target(t):
    if pa.types.is_dictionary(t) or isinstance(t, pa.RunEndEncodedType):
        return target(t.value_type)
    if pa.types.is_struct(t):
        return "struct(a int32)"
    if pa.types.is_map(t):
        return "map(text, int32)"
    return "int32" if pa.types.is_floating(t) else "list(int32)"


@pytest.mark.parametrize("case", ODD)
def test_data_without_a_value_is_not_converted(store, tmp_path, case):
    array, path = ODD[case], tmp_path / "rows.arrow"
    table = pa.table({"id": [0, 1], "v": array})
    with pyarrow.ipc.new_file(path, table.schema) as out:
        out.write_table(table)
    store.push("t", path, args=["--column", f"v:{target(array.type)}"])
    assert [row["v"] for row in store.json("get", "t", "0", "1")] == wanted(array)


ROWS = 30_000
BAD = [0, 1, 8191, 8192, 9_999, 10_000, 29_999]


@pytest.fixture(params=[".parquet", ".arrow", ".csv", ".jsonl"])
def floats_file(request, tmp_path):
    """Many whole numbers as floats, in several row groups or batches, with some fractions."""
    values = [HALF if row in BAD else float(row) for row in range(ROWS)]
    table = pa.table({"id": range(ROWS), "v": values, "w": [row / 2 for row in range(ROWS)]})
    path = tmp_path / f"rows{request.param}"
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=ROWS // 3)
    elif path.suffix == ".arrow":
        with pyarrow.ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=ROWS // 3)
    elif path.suffix == ".csv":
        lines = (f"{row['id']},{row['v']},{row['w']}\n" for row in table.to_pylist())
        path.write_text("id,v,w\n" + "".join(lines))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    return path


def place(entry, path):
    """The row of a bad-rows entry."""
    if "batch" in entry:
        return (entry["batch"] - 1) * ROWS // 3 + entry["row"] - 1
    return (
        entry["line"] - (2 if path.suffix == ".csv" else 1) if "line" in entry else entry["row"] - 1
    )


def test_rows_and_changed_values_are_counted(store, tmp_path, floats_file):
    rejected = tmp_path / "bad"
    columns = ["--column", "v:int64", "--column", "w:int64:truncate"]
    args = ["--bad-rows", rejected, "--threads", "3", *columns]
    result = store.push("t", floats_file, args=args)
    entries = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert sorted(place(entry, floats_file) for entry in entries) == BAD
    assert all("'v'" in entry["reason"] and "7.5" in entry["reason"] for entry in entries)
    changed = sum(row % 2 for row in range(ROWS) if row not in BAD)
    assert result["lossy"] == [{"column": "w", "how": "truncate", "values": changed}]
    assert (result["rows"], result["rejected"]) == (ROWS - len(BAD), len(BAD))
    found = store.json("get", "t", "2", "8193", "29997", "1")
    assert [row and (row["v"], row["w"]) for row in found] == [
        (2, 1),
        (8193, 4096),
        (29997, 14998),
        None,
    ]
