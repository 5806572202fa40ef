"""Pushes of Python's own lists and dicts, of generators and lazy frames."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import forebay

ROWS = [{"id": n, "name": f"n{n}", "score": n / 2} for n in range(300)]
AWARE = dt.datetime(2026, 1, 2, 3, tzinfo=ZoneInfo("Europe/Berlin"))
NAIVE = dt.datetime(2026, 1, 2, 3)


def pushed(data: Any, store: Path, **options: Any) -> Any:
    options = {"key": "{id}", "order": "ordered", **options}
    forebay.push(data, "t", store=store, **options)
    return forebay.open(store)["t"]


SOURCES = {
    "rows": lambda: ROWS,
    "tuples of rows": lambda: tuple(ROWS),
    "columns": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "arrays": lambda: {
        "id": np.arange(300),
        "name": pd.Series([row["name"] for row in ROWS]),
        "score": pa.array([row["score"] for row in ROWS]),
    },
    "batches": lambda: iter(pa.Table.from_pylist(ROWS).to_batches(max_chunksize=64)),
    "mixed batches": lambda: (
        pl.DataFrame(ROWS[at : at + 50]).to_arrow().cast(pa.Table.from_pylist(ROWS).schema)
        for at in range(0, 300, 50)
    ),
    "batches of rows": lambda: iter([ROWS[:7], ROWS[7:]]),
    "lazy frame": lambda: pl.LazyFrame(ROWS).filter(pl.col("id") >= 0),
    "relation": lambda: duckdb.from_arrow(pa.Table.from_pylist(ROWS)),
    "pandas": lambda: pd.DataFrame(ROWS),
}


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_stored_whole_and_unaltered_from(source: str, tmp_path: Path) -> None:
    table = pushed(SOURCES[source](), tmp_path / "store")
    assert len(table) == 300
    assert [row for _, row in table.scan()] == sorted(ROWS, key=lambda row: str(row["id"]))


def test_a_load_accepts_rows_and_batches_of_rows(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", create=True) as store:
        table = store.create("t", value="row", column={"id": "int64", "name": "text"})
        table.load([{"id": 1, "name": "a"}], key="{id}")
        table.load(iter([[{"id": 2, "name": "b"}], [{"id": 3, "name": "c"}]]), key="{id}")
        assert [row["name"] for row in table.get_many([1, 2, 3])] == ["a", "b", "c"]


def test_any_row_may_lack_columns(tmp_path: Path) -> None:
    rows = [{"id": 1}, {"id": 2, "late": "x"}, {"late": "y", "id": 3, "more": 2**63}]
    table = pushed(rows, tmp_path / "store")
    assert table.get_many([1, 2, 3]) == [
        {"id": 1, "late": None, "more": None},
        {"id": 2, "late": "x", "more": None},
        {"id": 3, "late": "y", "more": 2**63},
    ]


ALTERED = {
    "mixes dates and times without a zone": [dt.date(2026, 1, 2), NAIVE],
    "mixes times with a zone and times without a zone": [AWARE, NAIVE],
    "mixes times without a zone and times with a zone": [NAIVE, AWARE],
    "mixes text and bytes": ["a", b"a"],
    r"column 'x.\[\].at' mixes": [[{"at": AWARE}, {"at": NAIVE}], None],
    "whose nanoseconds would be lost": [pd.Timestamp(1), None],
    "times of a day have no zone": [dt.time(1, tzinfo=dt.UTC), None],
    "mixes truth values and numbers": [True, 1],
    "mixes numbers and truth values": [2.5, True],
    "timedelta64.ns., as by": [pd.Timedelta(1, "ns"), None],
    r"mixes times of timedelta64\[s\]": [np.array([1], "m8[s]"), np.array([1], "m8[ns]")],
    r"column 'x.\[\]' mixes": [np.array([AWARE, NAIVE], dtype=object), None],
    "column 'x': .*outside of the range exactly representable": [2**53 + 1, 0.5],
    "has numbers beyond 64 bits": [2**64, 1],
    "mixes numbers of float16 and whole numbers": [np.float16(1.5), 2],
    "mixes whole numbers and numbers of float16": [2, np.float16(1.5)],
    r"column 'x.\[\]' mixes numbers of float16 and whole": [[np.float16(1.5), 2], None],
    r"column 'x.\[\]' mixes whole numbers and": [[2], np.array([1.5], "f2")],
    r"column 'x.a.\[\]' mixes truth values and": [{"a": np.array([True])}, {"a": [1]}],
    "x' mixes truth values and numbers": [np.True_, 7],
    "mixes durations and numbers": [dt.timedelta(days=1), 3600],
    "mixes durations and decimals": [dt.timedelta(days=1), decimal.Decimal(5)],
    "mixes times of a day and numbers": [dt.time(1), 5.0],
    "mixes numbers and objects of the class UUID": [1, uuid.UUID(int=3)],
    "mixes objects of the class UUID and dates": [uuid.UUID(int=3), NAIVE.date()],
    "mixes numbers and objects of the class Fraction": [1, fractions.Fraction(3, 2)],
    r"x.\[\]' mixes text and bytes": [np.array(["a"]), [b"a"]],
    "mixes numbers and values of longdouble|float128": [1.5, np.longdouble(1.5)],
    "mixes text and bytes$": ["a", bytearray(b"a")],
    "has a dict with the key b'a', which is bytes": [{b"a": 1}, {"a": 2}],
    r"column 'x.b.\[\]' has a dict with the key 1,": [{"b": [{"a": 1, 1: 2}]}, None],
    r"has Decimal\('Infinity'\), which no decimal": [decimal.Decimal("Infinity"), None],
    r"x.\[\]' has Decimal\('-Infinity'\)": [[decimal.Decimal("-Infinity")], None],
}


@pytest.mark.parametrize("reported", ALTERED)
@pytest.mark.parametrize("form", ["rows", "columns", "objects", "pandas"])
def test_values_that_arrow_would_alter_are_refused(
    reported: str, form: str, tmp_path: Path
) -> None:
    values = ALTERED[reported]
    ids = list(range(len(values)))
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    data: Any = {
        "rows": [{"id": n, "x": value} for n, value in zip(ids, values, strict=True)],
        "columns": {"id": ids, "x": values},
        "objects": {"id": np.array(ids), "x": objects},
        "pandas": pd.DataFrame({"id": ids, "x": pd.Series(objects, dtype=object)}),
    }[form]
    # For numbers in a data frame the message is that of pyarrow.
    numbers = type(values[0]) is int and "mixes" not in reported
    reported = "pandas.DataFrame: " if form == "pandas" and numbers else reported
    with pytest.raises(forebay.DataError, match=reported):
        pushed(data, tmp_path / "store")


def test_numbers_that_stay_exact_may_be_mixed(tmp_path: Path) -> None:
    values = [[1, 2.5], [1.5, np.float16(0.5)], [decimal.Decimal("1.5"), 2], [np.int8(3), 2**40]]
    for place, (one, other) in enumerate(values):
        rows = [{"id": 1, "x": one}, {"id": 2, "x": other}]
        table = pushed(rows, tmp_path / str(place))
        assert [row["x"] for row in table.get_many([1, 2])] == [one, other]


def test_nat_among_dates_is_refused_or_null(tmp_path: Path) -> None:
    values = [[pd.NaT], [NAIVE.date()]]
    with pytest.raises(forebay.DataError, match=r"'x.\[\]' mixes dates and NaT: give None"):
        pushed({"id": [1, 2], "x": values}, tmp_path / "store")
    frame = pd.DataFrame({"id": [1, 2], "x": values})
    assert pushed(frame, tmp_path / "store").get(1) == {"id": 1, "x": [None]}


def test_a_decimal_nan_is_refused_and_null_from_pandas(tmp_path: Path) -> None:
    values = [decimal.Decimal("NaN"), decimal.Decimal(1)]
    with pytest.raises(forebay.DataError, match=r"column 'x' has Decimal\('NaN'\), which no"):
        pushed({"id": [1, 2], "x": values}, tmp_path / "store")
    frame = pd.DataFrame({"id": [1, 2], "x": pd.Series(values, dtype=object)})
    assert pushed(frame, tmp_path / "store")[1] == {"id": 1, "x": None}


class FrameOfPandas3(pd.DataFrame):
    """A frame whose class is in the module `pandas` itself, as in pandas 3."""


FrameOfPandas3.__module__, FrameOfPandas3.__name__ = "pandas", "DataFrame"


class Derived(pd.DataFrame):
    """A frame of a derived class, as in GeoPandas."""


@pytest.mark.parametrize("kind", [pd.DataFrame, FrameOfPandas3, Derived])
def test_frames_of_derived_classes_are_recognized(kind: Any, tmp_path: Path) -> None:
    mixed = pd.Series([NAIVE, AWARE], dtype=object)
    at = pd.Index([NAIVE, AWARE], dtype=object)
    dates = pd.MultiIndex.from_arrays([[1, 2], at], names=["n", None])
    data = [
        (kind({"id": [1, 2], "x": mixed}), "column 'x' mixes"),
        (kind({"id": [1, 2]}, index=at), "column '__index_level_0__' mixes"),
        (kind({"id": [1, 2]}, index=dates), "column '__index_level_1__' mixes"),
        (kind({"id": [1, 2], "x": pd.period_range("2026", periods=2)}), "is of pandas' period"),
        (kind({"id": [1]}, index=pd.interval_range(0, 1)), "is of pandas' interval"),
        (kind([[1, 2, 3]], columns=["id", "x", "x"]), "2 columns have the name 'x'"),
    ]
    for frame, reported in data:
        for given in (frame, iter([frame])):
            with pytest.raises(forebay.DataError, match=reported):
                pushed(given, tmp_path / "store")
    frame = kind({"id": [1, 2], "name": ["a", None], "at": pd.to_datetime([1, 2], unit="us")})
    table = pushed(frame, tmp_path / "store")
    assert [row["name"] for row in table.get_many([1, 2])] == ["a", None]
    assert table[2]["at"] == dt.datetime(1970, 1, 1, microsecond=2)


def test_columns_of_types_of_pandas_are_also_refused_in_dicts(tmp_path: Path) -> None:
    periods = pd.period_range("2026", periods=2, freq="M")
    for column in (periods, pd.Series(periods), pd.Categorical(periods), pd.interval_range(0, 2)):
        with pytest.raises(forebay.DataError, match=r"column 'x' is of pandas' (period|interval)"):
            pushed({"id": [1, 2], "x": column}, tmp_path / "store")
    with pytest.raises(forebay.DataError, match="mixes"):
        pushed({"id": [1, 2], "x": pd.Categorical([b"a", "b"])}, tmp_path / "store")


def test_a_column_alone_is_refused(tmp_path: Path) -> None:
    for column in (pd.Series([1]), pd.Index([1]), pl.Series("id", [1]), pa.array([1])):
        for data in (column, iter([column])):
            with pytest.raises(TypeError, match="is a column: give a frame, or a dict of columns"):
                pushed(data, tmp_path / "store")
    assert pushed(pa.array([{"id": 1}]), tmp_path / "store")[1] == {"id": 1}


def test_elements_that_are_not_rows_or_batches_are_named(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1]})
    wrong = [
        ([{"id": 1}, None], "element 2 of the list is None, and not a dict"),
        ([frame, frame], "element 1 of the list is of the class polars.DataFrame: give batches by"),
        (["a.parquet", 5], "element 2 of the list is of the class int, and not a path"),
        (iter([None]), "list_iterator: batch 1 is None: batches are frames"),
        (iter([[], [{"id": 1}], "ab"]), "list_iterator: batch 2 is of the class str"),
        (iter([5]), "list_iterator: batch 1, int, is neither"),
        ({1: [2]}, "columns have names that are str, not 1"),
    ]
    for data, reported in wrong:
        with pytest.raises(TypeError, match=reported):
            pushed(data, tmp_path / "store")


def test_objects_of_polars_are_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1], "x": pl.Series([decimal.Decimal(1)], dtype=pl.Object)})
    for data in (frame, frame.lazy(), iter([frame])):
        with pytest.raises(forebay.DataError, match="the column 'x' is of the type Object"):
            pushed(data, tmp_path / "store")


def test_categories_are_checked(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1, 2], "x": pd.Categorical([b"a", "b"])})
    with pytest.raises(forebay.DataError, match="mixes"):
        pushed(frame, tmp_path / "store")


def test_empty_lists_among_batches_are_left_out(tmp_path: Path) -> None:
    assert len(pushed(iter([[], ROWS[:5], [], ROWS[5:7]]), tmp_path / "store")) == 7


def test_an_index_of_objects_is_checked(tmp_path: Path) -> None:
    index = pd.Index([NAIVE, AWARE], name="at", dtype=object)
    with pytest.raises(forebay.DataError, match="column 'at' mixes"):
        pushed(pd.DataFrame({"id": [1, 2]}, index=index), tmp_path / "store")


def test_values_of_one_class_stay(tmp_path: Path) -> None:
    row = {
        "id": 1,
        "aware": AWARE,
        "naive": NAIVE,
        "day": NAIVE.date(),
        "time": dt.time(1, 2, 3, 4),
        "amount": decimal.Decimal("12.30"),
        "list": [1, None],
        "struct": {"a": "x", "b": b"y"},
        "float": 0.1,
        "bool": True,
        "span": dt.timedelta(days=1, microseconds=3),
    }
    assert pushed([row], tmp_path / "store")["1"] == row


def test_a_push_raises_the_exception_of_its_generator(tmp_path: Path) -> None:
    class Ours(Exception):
        pass

    def failing() -> Iterator[Any]:
        yield ROWS[:100]
        raise Ours("the source broke")

    with pytest.raises(Ours, match="the source broke"):
        pushed(failing(), tmp_path / "store")
    with pytest.raises(forebay.MissingError):
        forebay.open(tmp_path / "store")["t"]


def test_batches_that_differ_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(
        forebay.DataError, match="batch 2 has 'x' as double, and the first as int64"
    ):
        pushed(iter([[{"id": 1, "x": 1}], [{"id": 2, "x": 1.5}]]), store)
    with pytest.raises(forebay.DataError, match="batch 2 has the columns id, and the first id, x"):
        pushed(iter([[{"id": 1, "x": 1}], [{"id": 2}]]), store)
    with pytest.raises(forebay.DataError, match="gave no batch"):
        pushed(iter([]), store)
    with pytest.raises(TypeError, match="it must give lists of them"):
        pushed(iter([{"id": 1}]), store)


def test_batches_of_narrower_types_are_cast_to_the_first(tmp_path: Path) -> None:
    batches = [
        [{"id": "a", "x": 1.5, "n": 1}],
        [{"id": "b", "x": 2, "n": None}],
        [{"id": "c", "x": None, "n": 2**60}],
    ]
    assert dict(pushed(iter(batches), tmp_path / "store").items()) == {
        "a": {"id": "a", "x": 1.5, "n": 1},
        "b": {"id": "b", "x": 2.0, "n": None},
        "c": {"id": "c", "x": None, "n": 2**60},
    }
    # No float has that value.
    with pytest.raises(forebay.DataError, match="batch 2 has 'x' as int64, and the first as doub"):
        pushed(iter([[{"id": 1, "x": 1.5}], [{"id": 2, "x": 2**53 + 1}]]), tmp_path / "store")


def test_data_without_rows_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(forebay.DataError, match="different numbers of rows: id 2, x 1"):
        pushed({"id": [1, 2], "x": [1]}, store)
    with pytest.raises(TypeError, match="the column 'x' is str, and has to be a list"):
        pushed({"id": [1], "x": "abc"}, store)
    with pytest.raises(TypeError, match="names that are str, not 1"):
        pushed([{1: 2}], store)
    with pytest.raises(forebay.DataError, match="there are no rows, and so no columns"):
        pushed([], store)
    for nothing in ({}, 7):
        with pytest.raises((TypeError, forebay.Error)):
            pushed(nothing, store)
