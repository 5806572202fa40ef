"""Pushes of Python's own lists and dicts, of generators and lazy frames."""

from __future__ import annotations

import datetime as dt
import decimal
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
def test_rows_come_whole_and_unaltered_from(source: str, tmp_path: Path) -> None:
    table = pushed(SOURCES[source](), tmp_path / "store")
    assert len(table) == 300
    assert [row for _, row in table.scan()] == sorted(ROWS, key=lambda row: str(row["id"]))


def test_a_load_takes_them_too(tmp_path: Path) -> None:
    with forebay.open(tmp_path / "store", create=True) as store:
        table = store.create("t", value="row", column={"id": "int64", "name": "text"})
        table.load([{"id": 1, "name": "a"}], key="{id}")
        table.load(iter([[{"id": 2, "name": "b"}], [{"id": 3, "name": "c"}]]), key="{id}")
        assert [row["name"] for row in table.get_many([1, 2, 3])] == ["a", "b", "c"]


def test_rows_may_lack_columns_wherever_they_stand(tmp_path: Path) -> None:
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
}


@pytest.mark.parametrize("told", ALTERED)
@pytest.mark.parametrize("form", ["rows", "columns", "objects", "pandas"])
def test_what_arrow_would_alter_is_refused(told: str, form: str, tmp_path: Path) -> None:
    values = ALTERED[told]
    ids = list(range(len(values)))
    objects = np.empty(len(values), dtype=object)
    objects[:] = values
    data: Any = {
        "rows": [{"id": n, "x": value} for n, value in zip(ids, values, strict=True)],
        "columns": {"id": ids, "x": values},
        "objects": {"id": np.array(ids), "x": objects},
        "pandas": pd.DataFrame({"id": ids, "x": pd.Series(objects, dtype=object)}),
    }[form]
    # Of numbers in a data frame the words are pyarrow's alone.
    numbers = type(values[0]) is int
    told = "pandas.DataFrame: " if form == "pandas" and numbers else told
    with pytest.raises(forebay.DataError, match=told):
        pushed(data, tmp_path / "store")


def test_objects_of_polars_are_refused(tmp_path: Path) -> None:
    frame = pl.DataFrame({"id": [1], "x": pl.Series([decimal.Decimal(1)], dtype=pl.Object)})
    for data in (frame, frame.lazy(), iter([frame])):
        with pytest.raises(forebay.DataError, match="the column 'x' is of the type Object"):
            pushed(data, tmp_path / "store")


def test_categories_are_looked_at_too(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": [1, 2], "x": pd.Categorical([b"a", "b"])})
    with pytest.raises(forebay.DataError, match="mixes"):
        pushed(frame, tmp_path / "store")


def test_empty_lists_among_batches_are_left_out(tmp_path: Path) -> None:
    assert len(pushed(iter([[], ROWS[:5], [], ROWS[5:7]]), tmp_path / "store")) == 7


def test_an_index_of_objects_is_looked_at_too(tmp_path: Path) -> None:
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


def test_what_a_generator_raises_is_what_the_push_raises(tmp_path: Path) -> None:
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
    with pytest.raises(TypeError, match="let it give lists of them"):
        pushed(iter([{"id": 1}]), store)


def test_batches_of_fewer_types_become_those_of_the_first(tmp_path: Path) -> None:
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
    # No float is that number.
    with pytest.raises(forebay.DataError, match="batch 2 has 'x' as int64, and the first as doub"):
        pushed(iter([[{"id": 1, "x": 1.5}], [{"id": 2, "x": 2**53 + 1}]]), tmp_path / "store")


def test_what_has_no_rows_is_told(tmp_path: Path) -> None:
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
