"""Data is read as it was pushed, or the push reports the difference.

Indexes, time zones, lists of a fixed size, arrays and nulls.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from decimal import Decimal
from importlib.metadata import requires
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import forebay
from forebay._typed import Types


def table_of(data: Any, path: str, **options: Any) -> forebay.Table:
    forebay.push(data, "t", store=path, **{"key": "{id}", **options})
    return forebay.open(path)["t"]


# Indexes. In pandas 3 `set_index` makes a range of 1, 2, 3 and none of 1, 2, 5.


@pytest.mark.parametrize("index", [pd.RangeIndex(1, 4, name="id"), pd.Index([1, 2, 5], name="id")])
@pytest.mark.parametrize("form", [lambda frame: frame, lambda frame: iter([frame])])
def test_an_index_with_a_name_is_a_column(index, form, path):
    table = table_of(form(pd.DataFrame({"x": [1.5, 2.5, 3.5]}, index=index)), path)
    assert table.get_many(index) == [
        {"x": x, "id": int(id)} for x, id in zip([1.5, 2.5, 3.5], index, strict=True)
    ]


def test_a_range_index_without_a_name_is_not_a_column(path):
    frame = pd.DataFrame({"id": [7, 8]}, index=pd.RangeIndex(5, 7))
    assert table_of(frame, path)[7] == {"id": 7}


# Time zones.

ZONES = ["UTC", "Europe/Berlin", "America/New_York", "+05:30", "-03:15"]


@pytest.mark.parametrize("zone", ZONES)
def test_times_have_the_zone_of_their_column_by_every_read(zone, path):
    kind = pa.timestamp("ms", zone)
    # Two times with the same hour in Berlin, when clocks are set back.
    moments = [1_792_888_200_000, 1_792_891_800_000]
    data = pa.table(
        {
            "id": [1, 2],
            "at": pa.array(moments, kind),
            "all": pa.array([moments, None], pa.list_(kind)),
        }
    )
    table = table_of(data, path)
    expected = pa.array(moments, kind).to_pylist()
    read = Types(for_arrow=False).decoder({"timestamp": {"unit": "millisecond", "zone": zone}})
    texts = ["2026-10-25T00:30:00.000Z", "2026-10-25T01:30:00.000Z"]
    for rows in (
        table.get_many([1, 2]),
        [table[1], table[2]],
        [row for _, row in sorted(table.scan())],
        [{"at": read(text)} for text in texts],
    ):
        found = [row["at"] for row in rows]
        assert [at.isoformat() for at in found] == [at.isoformat() for at in expected]
    assert [at.utcoffset() for at in table[1]["all"]] == [at.utcoffset() for at in expected]


def test_a_zone_that_this_machine_does_not_know_is_named(path):
    table = table_of(
        pa.table({"id": [1], "at": pa.array([0], pa.timestamp("s", "Mars/Base"))}), path
    )
    with pytest.raises(forebay.UsageError, match="does not know the time zone 'Mars/Base'"):
        table.get(1)
    assert table.to_arrow()["at"].cast("int64").to_pylist() == [0]


def test_a_time_that_its_zone_puts_beyond_the_years_of_python_is_refused(path):
    first = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    table = table_of(
        {"id": [1], "at": pa.array([first], pa.timestamp("us", "America/New_York"))}, path
    )
    with pytest.raises(forebay.UsageError, match="outside the years"):
        table.get(1)


def test_a_live_table_answers_in_its_column_s_zone(path):
    with forebay.open(path, create=True) as store:
        table = store.create("t", value="row", column={"at": "timestamptz(us,Asia/Tokyo)"})
        table.put("a", {"at": dt.datetime(2026, 1, 2, tzinfo=ZoneInfo("Europe/Berlin"))})
        assert table["a"]["at"].isoformat() == "2026-01-02T08:00:00+09:00"


# Lists.


def test_lists_of_a_fixed_size_that_are_all_of_a_value_stay_fixed(path):
    kind = pa.list_(pa.float32(), 2)
    data = pa.table({"id": [1, 2], "v": pa.array([[1, 2], [3, 4]], kind)})
    table = table_of(data, path, value="v", order="ordered")
    assert table.schema.field("value").type == kind
    assert table.to_arrow()["value"].to_pylist() == [[1, 2], [3, 4]]
    assert table.get_many_arrow([2, 9])["value"].to_pylist() == [[3, 4], None]
    changes = pa.table({"id": [2], "v": pa.array([[5, 6]], pa.list_(pa.float32()))})
    table.push(changes, onto="current")
    assert table.schema.field("value").type == kind
    assert table[2] == [5, 6]


ARRAYS = {
    "float32": np.arange(6, dtype="f4").reshape(2, 3),
    "bool": np.array([[True, False], [False, True]]),
    "text": np.array([["a", "bc"], ["", "d"]]),
    "days": np.array([["2026-01-02"], ["1969-12-31"]], dtype="M8[D]"),
    "three dimensions": np.arange(12).reshape(2, 2, 3),
    "no items": np.zeros((2, 0)),
    "columns of Fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "masked": np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]]),
    "objects": np.array([["a", None], ["b", "c"]], dtype=object),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_of_two_dimensions_and_more_are_lists(name, path):
    values = ARRAYS[name]
    table = table_of({"id": [1, 2], "v": values}, path)
    assert [row["v"] for row in table.get_many([1, 2])] == values.tolist()
    if values.size:
        assert table.schema.field("v").type.list_size == values.shape[1]


def test_cells_of_two_dimensions_are_lists_of_lists(path):
    cells = [np.arange(4, dtype="f4").reshape(2, 2), None, np.zeros((1, 2), "f4")]
    expected = [[[0, 1], [2, 3]], None, [[0, 0]]]
    frame = pd.DataFrame({"id": [1, 2, 3], "v": pd.Series(cells, dtype=object)})
    before = frame.copy()
    rows = [{"id": id, "v": cell} for id, cell in zip([1, 2, 3], cells, strict=True)]
    for place, data in enumerate([frame, rows, {"id": [1, 2, 3], "v": cells}]):
        table = table_of(data, f"{path}-{place}")
        assert [row["v"] for row in table.get_many([1, 2, 3])] == expected
        assert table.schema.field("v").type == pa.list_(pa.list_(pa.float32()))
    pd.testing.assert_frame_equal(frame, before)


def test_objects_of_an_array_are_checked_like_others(path):
    with pytest.raises(forebay.DataError, match="column 'v' mixes text and bytes"):
        table_of({"id": [1], "v": np.array([["a", b"a"]], dtype=object)}, path)


# Nulls, and keys that are absent.


def test_columns_with_nulls_are_read_as_nullable_types_of_pandas(path):
    frame = pd.DataFrame(
        {
            "id": [1, 2],
            "n": pd.array([2**60 + 1, None], dtype="Int64"),
            "u": pd.array([7, None], dtype="UInt8"),
            "b": pd.array([True, None], dtype="boolean"),
            "l": [[1, None], None],
        }
    )
    found = table_of(frame, path, order="ordered").to_pandas()
    assert found.dtypes.astype(str).to_dict() == frame.dtypes.astype(str).to_dict()
    assert found["n"][0] == 2**60 + 1 and found["b"].tolist() == [True, pd.NA]
    assert list(found["l"][0]) == [1, None] and found.columns.tolist() == ["id", "n", "u", "b", "l"]


def test_absent_keys_do_not_turn_whole_numbers_into_floats(path):
    data = {"id": [1, 2], "n": [2**60 + 1, 3], "b": [True, False], "x": [0.5, 1.5]}
    table = table_of(data, path)
    found = table.get_many_arrow([1, 9], columns=["n", "b", "x"]).to_pandas()
    assert found.dtypes.astype(str).to_dict() == {"n": "Int64", "b": "boolean", "x": "float64"}
    assert found["n"].tolist() == [2**60 + 1, pd.NA]
    whole = table.get_many_arrow([2, 1], columns=["n", "b"]).to_pandas()
    assert whole.dtypes.astype(str).to_dict() == {"n": "int64", "b": "bool"}


# Types and metadata that are not stored.


def test_a_push_reports_types_and_metadata_that_are_not_stored(path):
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    kinds = pa.array(["a"]).dictionary_encode()
    rows = pa.array([{"kind": "a"}]).cast(pa.struct([("kind", kinds.type)]))
    data = pa.table({"id": [1], "u": uuids, "c": kinds, "s": rows})
    data = data.replace_schema_metadata({"unit": "m", "pandas": "{}"})
    expected = (
        "categories are not stored; these columns come back as their values: c, s.kind",
        "extension types are not stored; these columns come back as what they are made of: "
        "u (arrow.uuid)",
        "metadata of the schema are not stored: unit",
    )
    forebay.push([{"id": 1}], "old", key="{id}", store=path)
    assert forebay.push(data, "t", key="{id}", store=path).messages == expected
    assert forebay.push(data, "t", key="{id}", store=path, dry_run=True).messages[:3] == expected
    frame = pd.DataFrame({"id": [1], "c": pd.Categorical(["a"])})
    assert forebay.push(frame, "f", key="{id}", store=path).messages == (
        "categories are not stored; these columns come back as their values: c",
    )
    assert forebay.push(pd.DataFrame({"id": [1]}), "g", key="{id}", store=path).messages == ()


# Installed packages, paths of stores, and logging.


def test_packages_that_all_tables_need_are_installed_with_forebay():
    needed = [word for word in requires("forebay") or [] if "extra ==" not in word]
    assert [re.match(r"[a-z]+", word)[0] for word in needed] == ["pyarrow"]


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text("id\n1\nx\n")
    forebay.push(
        "~/rows.csv", "t", key="{id}", store="~/a", column={"id": "int64"}, bad_rows="~/bad.jsonl"
    )
    with forebay.open(Path("~") / "a") as store:
        assert list(store["t"]) == ["1"] and store.url == str(tmp_path / "a")
        store.create("live", delta="i64").close()
        forebay.load([{"id": 1, "n": 2}], "live", key="{id}", as_="delta", store=Path("~/a"))
        assert store["live"][1] == 2
    for place in ["~/a", Path("~/a"), Path("~") / "a"]:
        with forebay.Store(place) as store:
            assert store.url == str(tmp_path / "a") and list(store["t"]) == ["1"]
    with pytest.raises(forebay.MissingError, match=str(tmp_path / "nowhere")):
        forebay.Store(Path("~/nowhere"))
    assert {file.name for file in tmp_path.iterdir()} == {"a", "rows.csv", "bad.jsonl"}


def test_a_tilde_is_the_home_in_the_files_of_a_connection(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    made: list[Any] = []
    monkeypatch.setattr("forebay._remote.Servers", lambda *given: made.append(given[2]))
    forebay.connect("rediss://localhost", ca_file=Path("~/ca.pem"), key_file="~/key.pem")
    ca, key = (str(tmp_path / name) for name in ("ca.pem", "key.pem"))
    assert made == [{"ca_certs": ca, "certfile": None, "keyfile": key}]


def test_a_new_store_logs_a_warning_and_pushes_log_information(path, caplog):
    caplog.set_level(logging.INFO, "forebay")
    for _ in range(2):
        forebay.push([{"id": 1}], "t", key="{id}", store=path)
    levels = [(record.levelname, record.getMessage()) for record in caplog.records]
    (level, message), *results = levels
    assert level == "WARNING" and f"there was no store at {path}: made a new one" in message
    assert [level for level, _ in results] == ["INFO", "INFO"]
    assert "t version 2 serves: 1 row" in results[1][1]


@pytest.mark.parametrize("values", [[True, False, None], [None] * 3, [Decimal("1.10"), None, None]])
def test_categories_of_any_type_are_read_from_a_file(values, path, tmp_path):
    frame = pd.DataFrame({"id": [0, 1, 2], "v": pd.Categorical(values)})
    frame.to_parquet(tmp_path / "t.parquet")
    forebay.push(tmp_path / "t.parquet", "t", key="{id}", store=path)
    with forebay.open(path) as store:
        assert [store["t"][id]["v"] for id in range(3)] == values
