"""Values that must not change: frames of pandas, rare types, unusual classes."""

import datetime as dt
import decimal
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import forebay

LARGE = 2**53 + 1


def test_a_data_frame_of_pandas_rounds_no_whole_numbers(store):
    rows = pa.table(
        {
            "id": [1, 2],
            "a": pa.array([LARGE, None], pa.int64()),
            "b": pa.array([2**64 - 1, None], pa.uint64()),
            "c": pa.array([LARGE, 5], pa.int64()),
            "d": pa.array([[LARGE, None], None], pa.list_(pa.int64())),
            "e": pa.array([0.5, None]),
        }
    )
    store.push(rows, "t", key="{id}", order="ordered")
    for frame in [store["t"].to_pandas(), store["t"].scan().to_pandas()]:
        assert list(frame.columns) == ["id", "a", "b", "c", "d", "e"]
        assert str(frame.a.dtype) == "Int64" and frame.a[0] == LARGE and frame.a[1] is pd.NA
        assert str(frame.b.dtype) == "UInt64" and frame.b[0] == 2**64 - 1
        assert frame.c.tolist() == [LARGE, 5] and str(frame.c.dtype) == "int64"
        assert list(frame.d[0]) == [LARGE, None]
        assert str(frame.e.dtype) == "float64"
    alone = store["t"].scan(columns=["a"]).to_pandas()
    assert alone.a[0] == LARGE and list(alone.columns) == ["a"] and len(alone) == 2


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.period_range("2020-01", periods=2, freq="M"), r"pandas' period\[M\]"),
        (pd.interval_range(0, 2), r"pandas' interval\[int64, right\]"),
    ],
)
def test_types_that_only_pandas_has_are_refused(path, column, words):
    with pytest.raises(forebay.DataError, match=words):
        forebay.push(pd.DataFrame({"id": [1, 2], "p": column}), "t", key="{id}", store=path)


def test_columns_of_nulls_of_polars(path):
    frame = pl.DataFrame({"id": [1, 2], "a": [None, None], "b": [[], []]})
    forebay.push(frame, "t", key="{id}", store=path)
    assert forebay.open(path)["t"]["2"] == {"id": 2, "a": None, "b": []}


RARE = {"half": "float16", "wide": "decimal(60,2)", "span": "interval", "days": "interval(days)"}


def test_rare_types_of_live_tables(store):
    table = store.create("t", value="row", column=RARE)
    row = {
        "half": 0.5,
        "wide": decimal.Decimal("12345678901234567890123456789012345678901.25"),
        "span": (1, -2, 3),
        "days": (0, 2, 5_000_000),
    }
    table.put("k", row)
    assert table["k"] == row
    table.put("again", table["k"])
    assert table["again"] == row
    table.put("arrow", {"span": pa.scalar((1, 2, 3), pa.month_day_nano_interval()).as_py()})
    assert table["arrow"]["span"] == (1, 2, 3)
    for column, value in [
        ("half", 0.1),
        ("half", 1e6),
        ("wide", decimal.Decimal("0.125")),
        ("span", dt.timedelta(1)),
        ("span", (1, 2)),
        ("days", (1, 2, 0)),
        ("days", (0, 2, 5)),
    ]:
        with pytest.raises(forebay.UsageError, match="is no "):
            table.put("x", {column: value})
    assert "x" not in table


def test_times_beyond_a_column_or_beyond_python(store):
    table = store.create("t", value="row", column={"at": "timestamp(ns)"})
    with pytest.raises(forebay.UsageError, match="is no timestamp"):
        table.put("k", {"at": dt.datetime(1500, 1, 1)})
    with pytest.raises(forebay.UsageError, match="no whole number of 64 bits"):
        store.create("n", delta="i64").delta("k", 2**63)
    far = pa.table({"id": [1], "at": pa.array([10**13], pa.timestamp("s"))})
    store.push(far, "far", key="{id}")
    with pytest.raises(forebay.UsageError, match="outside the years"):
        store["far"]["1"]


@pytest.mark.parametrize(("unit", "units"), [("s", 10**14), ("s", -(2**63)), ("ms", 2**63 - 1)])
def test_durations_beyond_those_of_python_are_reported(store, unit, units):
    far = pa.table({"id": [1], "span": pa.array([units], pa.duration(unit))})
    store.push(far, "far", key="{id}", order="ordered")
    table = store["far"]
    for read in (lambda: table[1], lambda: table.get_many([1]), lambda: list(table.scan())):
        with pytest.raises(forebay.UsageError, match="^column 'span': the value is longer than"):
            read()
    assert table.scan().to_arrow()["span"].cast("int64").to_pylist() == [units]


def test_odd_classes_are_refused(store):
    table = store.create("t")
    with pytest.raises(TypeError, match="'ab' is no pair"):
        table.put_many(["ab"])
    with pytest.raises(forebay.UsageError, match="no time to live"):
        table.put("k", b"v", ttl=1e30)
    assert "k" not in table and "a" not in table
    with pytest.raises(TypeError, match="a boundary is a key of str or bytes, not 5"):
        store.create("u", order="ordered", boundary=[5])
    with pytest.raises(forebay.UsageError, match="invalid value 'x' for durability"):
        store.create("u", durability="x")
    with pytest.raises(forebay.UsageError, match="invalid value 'some' for dry_run"):
        store.push({"id": [1]}, "u", key="{id}", dry_run="some")


@pytest.mark.parametrize("ttl", [3600, np.float64(3600), dt.timedelta(hours=1), "1h"])
def test_times_to_live_of_tables_and_pushes(store, ttl):
    table = store.create("t", ttl=ttl)
    table.put("k", b"v")
    assert 3500 < table.ttl("k") <= 3600
    store.push({"id": [1]}, "u", key="{id}", ttl=ttl)
    assert 3500 < store["u"].ttl("1") <= 3600
    with pytest.raises(forebay.UsageError, match="no time to live"):
        store.push({"id": [1]}, "u", key="{id}", ttl=-1)


def test_lists_of_tables_and_versions_pickle(store):
    store.push({"id": [1]}, "t", key="{id}")
    for listing in [store.tables(), store["t"].versions()]:
        assert pickle.loads(pickle.dumps(listing)) == listing


def test_times_and_dates_that_python_lacks_are_reported(store):
    """Times after the end of a day and before its start, and years beyond 9999."""
    odd = pa.array([86_400_000_000, -1], pa.int64()).cast(pa.time64("us"))
    days = pa.array([3_000_000, -800_000], pa.int32()).cast(pa.date32())
    with pytest.raises(forebay.DataError, match="'odd' holds .* is no time of a day"):
        store.push(pa.table({"id": [1, 2], "odd": odd}), "t", key="{id}")
    store.push(pa.table({"id": [1, 2], "day": days}), "days", key="{id}")
    for key in 1, 2:
        with pytest.raises(forebay.UsageError, match="outside the years"):
            store["days"][key]


def test_values_of_similar_classes_are_refused(store):
    lists = store.create("lists", value="list", item="int64")
    for value in {1: 2}, bytearray(b"ab"), "12":
        with pytest.raises(TypeError, match="a list is a sequence of its items"):
            lists.put("k", value)
    rows = store.create("rows", value="row", column={"m": "map(text, int64)", "h": "float16"})
    with pytest.raises(TypeError, match="a map is a dict, or a list of pairs"):
        rows.put("k", {"m": ""})
    with pytest.raises(forebay.UsageError, match="is no float16: it is too large"):
        rows.put("k", {"h": 10**400})
    numbers = store.create("numbers", delta="f64")
    numbers.put("k", float("inf"))
    with pytest.raises(forebay.UsageError, match="is no number to add: give a finite one"):
        numbers.delta("k", float("-inf"))
    with pytest.raises(forebay.UsageError, match="beyond the numbers of 64 bits"):
        numbers.put("k", 10**400)
    assert numbers["k"] == float("inf")
