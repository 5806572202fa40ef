"""Conversions that once changed values silently, each with its own test."""

import json
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from oracle import drive

F32, INT32 = pa.float32(), pa.int32()


def one(tmp_path, value, t=None, name="new.parquet"):
    """A file of one row, with the value in column `v`."""
    return drive.write(pa.table({"id": [1], "v": pa.array([value], t)}), tmp_path / name)


def onto(store, tmp_path, base, change):
    """Pushes a file onto a table made from another, and returns the failed command's message."""
    store.push("t", one(tmp_path, base, name="base.parquet"))
    return store.refuse("push", "t", change, "--onto", "current")


def test_structs_are_matched_by_the_names_of_their_fields(store, tmp_path):
    store.push("t", one(tmp_path, {"net": 1.0, "gross": 1.19}, name="base.parquet"))
    change = one(tmp_path, {"gross": 2.38, "net": 2.0})
    store.run("push", "t", change, "--onto", "current")
    assert store.json("get", "t", "1")[0]["v"] == {"net": 2.0, "gross": 2.38}


def test_a_field_of_another_name_is_refused(store, tmp_path):
    message = onto(store, tmp_path, {"a": 1}, one(tmp_path, {"z": 9}))
    assert "v.z" in message or "'z'" in message, message


def test_a_field_that_the_table_lacks_is_refused(store, tmp_path):
    message = onto(store, tmp_path, {"a": 1}, one(tmp_path, {"a": 1, "b": 2}))
    assert "v.b" in message or "'b'" in message, message
    assert store.json("get", "t", "1")[0]["v"] == {"a": 1}


def test_a_field_that_the_source_lacks_is_null(store, tmp_path):
    store.push("t", one(tmp_path, {"a": 1, "b": 2}, name="base.parquet"))
    store.run("push", "t", one(tmp_path, {"a": 3}), "--onto", "current")
    assert store.json("get", "t", "1")[0]["v"] == {"a": 3, "b": None}


def test_a_column_that_the_source_lacks_is_not_made_null(store, tmp_path):
    base = pa.table({"id": [1, 2], "v": [1, 2], "w": [3, 4]})
    store.push("t", drive.write(base, tmp_path / "base.parquet"))
    message = store.refuse("push", "t", one(tmp_path, 7), "--onto", "current")
    assert "'w'" in message, message


LOSSES = {
    "a half in an integer": (7.5, None, "int32", "7.5"),
    "a decimal in an integer": (199, pa.decimal128(5, 2), "int64", "1.99"),
    "a half in a list of integers": ([1.7], None, "list(int64)", "1.7"),
    "a number beyond float32": (1e300, None, "float32", "1e300"),
    "an integer that no float64 is": (2**53 + 1, None, "float64", "9007199254740993"),
    "two in a bool": (2, None, "bool", "2"),
    "a duration of a fraction": (1500, pa.duration("ms"), "duration(s)", "1.5"),
    "a duration beyond nanoseconds": (1 << 60, pa.duration("s"), "duration(ns)", str(1 << 60)),
    "a timestamp of a fraction": (
        1500,
        pa.timestamp("ms"),
        "timestamp(s)",
        "1970-01-01T00:00:01.5",
    ),
    "a timestamp beyond nanoseconds": (1 << 40, pa.timestamp("s"), "timestamp(ns)", "T"),
    "a time of day of a fraction": (1500, pa.time32("ms"), "time(s)", "00:00:01.5"),
    "a decimal with fewer places": (199, pa.decimal128(5, 2), "decimal(5,1)", "1.99"),
    "a decimal with fewer digits": (12345, pa.decimal128(5, 2), "decimal(3,2)", "123.45"),
    "a negative in an unsigned integer": (-1, None, "uint64", "-1"),
    "NaN in an integer": (float("nan"), None, "int64", "NaN"),
}


def value_of(value, t):
    """A decimal from its digits, or any other value unchanged."""
    if t is not None and pa.types.is_decimal(t):
        return Decimal(value).scaleb(-t.scale)
    return value


@pytest.mark.parametrize("case", LOSSES)
@pytest.mark.parametrize("way", ["column", "load", "onto"])
def test_a_value_that_does_not_fit_is_a_bad_row(store, tmp_path, case, way):
    value, t, to, shown = LOSSES[case]
    path = one(tmp_path, value_of(value, t), t)
    given = ["--column", f"v:{to}"]
    if way == "column":
        message = store.refuse("push", "t", path, "--key", "{id}", *given)
    elif way == "load":
        store.run("create", "t", "--value", "row", "--column", "id:int64", *given)
        message = store.refuse("load", "t", path, "--key", "{id}")
    else:
        base = drive.write(pa.table({"id": [2], "v": pa.nulls(1, t)}), tmp_path / "base.parquet")
        store.push("t", base, args=given)
        message = store.refuse("push", "t", path, "--onto", "current")
    for word in ["new.parquet", "row 1", "'v", shown]:
        assert word in message, message


@pytest.mark.parametrize(
    ("text", "to"),
    [("7.5", "decimal(10,0)"), ("1e400", "float64"), ("7.5", "int32"), ("12.345", "decimal(10,2)")],
)
def test_a_number_of_a_csv_file_that_does_not_fit_is_a_bad_row(store, tmp_path, text, to):
    path = tmp_path / "rows.csv"
    path.write_text(f"id,v\n1,7\n2,{text}\n")
    message = store.refuse("push", "t", path, "--key", "{id}", "--column", f"v:{to}")
    for word in ["rows.csv", "line 3", "'v'", text]:
        assert word in message, message


def test_the_nearest_float16_is_not_rounded_through_float32(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n1,7.9602e-05\n2,1.0004882813\n")
    store.push("t", path, args=["--column", "v:float16:round"])
    found = [row["v"] for row in store.json("get", "t", "1", "2")]
    assert found == [float(str(np.float16(x))) for x in (7.957e-05, 1.001)]


@pytest.mark.parametrize("number", [2**64, 2**64 + 1, -(2**63) - 1, 10**37 + 1])
@pytest.mark.parametrize("others", [[], [7], [-7], [0.5]])
def test_integers_of_json_lines_beyond_64_bits_are_not_rounded(store, tmp_path, number, others):
    path = tmp_path / "rows.jsonl"
    rows = [number, *others]
    path.write_text("".join(f'{{"id": {id}, "v": {json.dumps(v)}}}\n' for id, v in enumerate(rows)))
    result = store.run("push", "t", path, "--key", "{id}", code=None)
    if result.code == 0:
        (row,) = store.json("get", "t", "0")
        assert Fraction(row["v"]) == number, row
    else:
        assert "rows.jsonl" in result.err and "'v'" in result.err, result.err


@pytest.mark.parametrize(
    ("value", "t", "to", "stored"),
    [
        (7.0, None, "int32", 7),
        (700, pa.decimal128(5, 2), "int64", 7),
        (7, INT32, "decimal(76,10)", 7.0),
        (2**53, None, "float64", 2.0**53),
        (1, None, "bool", True),
        (0.5, None, "decimal(5,1)", 0.5),
        (2000, pa.duration("ms"), "duration(s)", "PT2S"),
        (1.5, F32, "float64", 1.5),
    ],
)
def test_a_value_that_fits_exactly_is_stored(store, tmp_path, value, t, to, stored):
    store.push("t", one(tmp_path, value_of(value, t), t), args=["--column", f"v:{to}"])
    assert store.json("get", "t", "1")[0]["v"] == stored


@pytest.mark.parametrize("way", ["column", "onto"])
def test_a_field_of_json_lines_that_the_type_lacks_is_not_lost(store, tmp_path, way):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 1, "v": {"a": 1, "b": 2}}\n')
    if way == "column":
        message = store.refuse("push", "t", path, "--key", "{id}", "--column", "v:struct(a int64)")
        assert "v.b" in message or "'b'" in message, message
    else:
        message = onto(store, tmp_path, {"a": 1}, path)
        assert "v.b" in message or "'b'" in message, message


def twice(*values):
    """A struct with that many fields of one name."""
    return pa.StructArray.from_arrays([pa.array([value]) for value in values], ["a"] * len(values))


@pytest.mark.parametrize(("base", "change"), [(1, 2), (2, 1)])
def test_two_fields_of_one_name_are_refused(store, tmp_path, base, change):
    """One of them would be lost, because fields are matched by name."""
    paths = [tmp_path / "base.arrow", tmp_path / "change.arrow"]
    for path, count in zip(paths, (base, change), strict=True):
        drive.write(pa.table({"id": [1], "v": twice(*range(count))}), path)
    result = store.run("push", "t", paths[0], "--key", "{id}", code=None)
    if result.code == 0:
        result = store.run("push", "t", paths[1], "--onto", "current", code=None)
    assert result.code == 1 and "'v.a'" in result.err, result.err


@pytest.mark.parametrize("text", ['"v": 1, "v": 2', '"v": {"a": 1, "a": 2}'])
def test_a_duplicate_name_in_json_is_a_bad_row(store, tmp_path, text):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": 0, "v": null}\n{"id": 1, ' + text + "}\n")
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "rows.jsonl" in message and "line 2" in message, message


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_is_not_rounded_to_the_hour_24(store, tmp_path, unit):
    path = one(tmp_path, 86_400 * 10**9 - 1, pa.time64("ns"))
    given = ["--column", f"v:time({unit}):round"]
    message = store.refuse("push", "t", path, "--key", "{id}", *given)
    assert "'v'" in message and "23:59:59.999999999" in message, message
