"""Batch tables read in this process, and their versions."""

import datetime as dt
import decimal
import random
import threading
from pathlib import Path
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest

import forebay


@pytest.fixture
def opened(birds, path):
    forebay.push(birds, "birds", key="bird/{id:04}", order="ordered", partitions=3, store=path)
    with forebay.open(path) as store:
        yield store


def test_reads_by_key(opened):
    table = opened["birds"]
    assert table["bird/0017"] == {"id": 17, "name": "bird 17", "weight": 4.25, "colour": "blue"}
    assert table[b"bird/0010"]["weight"] is None
    assert table.get("bird/9999") is None and table.get("bird/9999", 7) == 7
    assert "bird/0999" in table and "bird/1000" not in table
    with pytest.raises(KeyError, match="bird/1000"):
        table["bird/1000"]
    names = [row and row["name"] for row in table.get_many(["bird/0002", "x", b"bird/0001"])]
    assert names == ["bird 2", None, "bird 1"]
    for wrong in [1.5, None, True, ["a"]]:
        with pytest.raises(TypeError, match="a key is str, bytes or a whole number"):
            table.get(wrong)
    assert (table.name, table.version, table.order, table.kind) == ("birds", 1, "ordered", "row")
    assert table.rows_between == (1000, 1000) and table.key_template == "bird/{id:04}"
    assert table.columns[0] == ("id", "Int64")


def test_scans_are_arrow_streams(opened):
    table = opened["birds"]
    whole = pa.table(table.scan())
    assert whole.schema.names == ["id", "name", "weight", "colour"]
    assert whole["id"].to_pylist() == list(range(1000))
    part = table.scan("bird/0100", "bird/0200")
    assert pl.DataFrame(part)["id"].to_list() == list(range(100, 200))
    assert pa.schema(part) == whole.schema
    # A scan can be read again, and by a loop.
    assert [key for key, _ in part] == [f"bird/{id:04}" for id in range(100, 200)]
    last = table.scan("bird/0100", limit=2, reverse=True)
    assert [row["id"] for _, row in last] == [999, 998]
    assert pa.table(last)["id"].to_pylist() == [999, 998]
    assert pa.table(table.scan("x", "y")).num_rows == 0
    assert next(iter(table.scan(binary=True)))[0] == b"bird/0000"
    assert list(table)[:2] == ["bird/0000", "bird/0001"] == list(table.keys())[:2]
    assert dict(table.items())["bird/0003"]["name"] == "bird 3"


def test_a_scan_pushed_again_is_the_same_table(opened):
    opened.push(opened["birds"].scan(), "again", key="bird/{id:04}", order="ordered", partitions=3)
    first, again = opened["birds"].versions()[-1], opened["again"].versions()[-1]
    assert first.checksum == again.checksum and first.rows == again.rows


def test_hashed_tables_have_no_ranges(birds, path):
    forebay.push(birds, "t", key="{id}", value="name", store=path)
    with forebay.open(path) as store:
        with pytest.raises(forebay.UsageError, match="kept in the order of hashes"):
            store["t"].scan("1")
        scanned = pa.table(store["t"].scan())
        assert scanned.schema.names == ["key", "value"] and scanned.num_rows == 1000
        assert scanned["value"].type == pa.binary()


def test_every_type_is_read_back_as_a_python_value(path):
    moment = dt.datetime(2026, 11, 22, 4, 5, 6, 789_000)
    row = {
        "id": 1,
        "bool": True,
        "small": -128,
        "big": 2**64 - 1,
        "half": 0.5,
        "float": 0.1,
        "text": "é",
        "bytes": b"\xff\x00",
        "date": dt.date(1969, 12, 31),
        "moment": moment,
        "zoned": moment.replace(tzinfo=dt.UTC),
        "time": dt.time(23, 59, 59, 1),
        "span": dt.timedelta(days=-1, microseconds=5),
        "money": decimal.Decimal("-12.30"),
        "huge": decimal.Decimal("1" + "0" * 50 + ".25"),
        "list": [1, None, 3],
        "nested": {"a": [{"b": "c"}], "d": None},
        "map": [("k", 1), ("l", None)],
        "nothing": None,
    }
    types = {
        "id": pa.int32(), "bool": pa.bool_(), "small": pa.int8(), "big": pa.uint64(),
        "half": pa.float16(), "float": pa.float64(), "text": pa.large_string(),
        "bytes": pa.binary(), "date": pa.date32(), "moment": pa.timestamp("ns"),
        "zoned": pa.timestamp("ms", "Europe/Berlin"), "time": pa.time64("us"),
        "span": pa.duration("us"), "money": pa.decimal128(9, 2), "huge": pa.decimal256(60, 2),
        "list": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.int64()),
        "nested": pa.struct({"a": pa.list_(pa.struct({"b": pa.string()})), "d": pa.int8()}),
        "nothing": pa.string(),
    }  # fmt: skip
    schema = pa.schema(types)
    data = pa.Table.from_pylist([row], schema=schema)
    forebay.push(data, "t", key="{id}", store=path)
    with forebay.open(path) as store:
        got = store["t"][1]
        assert got == row and got["zoned"].tzinfo == ZoneInfo("Europe/Berlin")
        assert list(got) == list(types)
        assert pa.table(store["t"].scan())["moment"].to_pylist() == [moment]


def test_a_time_that_python_cannot_hold_is_an_error(path):
    fine = pa.table({"id": [1], "at": pa.array([1_500], pa.timestamp("ns"))})
    forebay.push(fine, "t", key="{id}", store=path)
    with forebay.open(path) as store:
        with pytest.raises(forebay.UsageError, match="'at': .*nanoseconds"):
            store["t"][1]


def test_a_value_that_python_cannot_hold_is_named_by_its_column(path):
    inner = pa.array([{"late": 1}], pa.struct([("late", pa.time64("ns"))]))
    data = pa.table({"id": [1], "noon": pa.array([1], pa.time64("ns")), "in": inner})
    forebay.push(data.select(["id", "noon"]), "plain", key="{id}", store=path)
    forebay.push(data.select(["id", "in"]), "nested", key="{id}", store=path)
    with forebay.open(path) as store:
        with pytest.raises(forebay.UsageError, match="^column 'noon': the value has nanoseconds"):
            store["plain"][1]
        with pytest.raises(forebay.UsageError, match="^column 'in': column 'late': the value has"):
            store["nested"][1]


def test_lists_and_bytes_are_values_too(path):
    data = pa.table({"id": [1], "like": [[3, 5]], "raw": [b"\xff"]})
    forebay.push(data, "like", key="{id}", value="like", store=path)
    forebay.push(data, "raw", key="{id}", value="raw", store=path)
    with forebay.open(path) as store:
        assert store["like"][1] == [3, 5] and store["like"].kind == "list"
        assert store["raw"][1] == b"\xff" and store["raw"].kind == "bytes"


def test_versions_swap_rollback_diff_verify(birds, opened):
    table = opened["birds"]
    weights = birds.column("weight").to_pylist()
    weights[3] = 0.0
    changed = birds.set_column(2, "weight", pa.array(weights)).slice(0, 999)
    assert table.push(changed, key="bird/{id:04}", order="ordered").version == 2
    assert table.version == 2 and table["bird/0003"]["weight"] == 0.0

    diff = table.diff(1, 2)
    assert (diff.added, diff.removed, diff.changed, diff.unchanged) == (0, 1, 1, 998)
    assert diff.columns == {"id": 0, "name": 0, "weight": 1, "colour": 0}
    found = {d.key: (d.change, d.columns) for d in diff.differences}
    assert found["bird/0003"][1]["weight"] == ("0.75", "0.0") or found["bird/0003"][0] == "changed"
    assert found["bird/0999"][0] == "removed"

    old = opened["birds@1"]
    assert table.rollback() == forebay.Swapped("birds", 1, 2)
    assert table.version == 1 and "bird/0999" in table
    assert table.swap(2).previous == 1 and table.version == 2
    # A handle keeps its version; `refresh` moves it to the serving one.
    other = opened["birds"]
    table.rollback()
    assert other.version == 2 and other.refresh() and other.version == 1 and not other.refresh()
    assert old.version == 1 and not old.refresh()

    verified = table.verify(progress=False)
    assert (verified.version, verified.rows) == (1, 1000)
    assert verified.checksum == table.versions()[0].checksum
    assert [v.serving for v in table.versions()] == [True, False]
    with pytest.raises(forebay.MissingError, match="no version 9; it has 1, 2"):
        table.swap(9)
    with pytest.raises(forebay.MissingError, match="has no version 9"):
        opened["birds@9"]
    opened.drop("birds")
    assert "birds" not in opened and len(opened) == 0


def test_damage_is_reported(opened, path):
    runs = [file for file in Path(path).rglob("runs/*") if file.is_file()]
    run = max(runs, key=lambda file: file.stat().st_size)
    data = bytearray(run.read_bytes())
    data[len(data) // 3] ^= 1
    run.write_bytes(data)
    with pytest.raises(forebay.Error, match="version 1 of table birds, 1 problem: .*damaged"):
        opened["birds"].verify(progress=False)
    with pytest.raises(forebay.DamagedError, match="damaged"), forebay.open(path) as again:
        list(again["birds"].items())


def test_a_missing_store_and_table(path, opened):
    with pytest.raises(forebay.MissingError, match="there is no forebay store at"):
        forebay.open(path + "-other")
    with pytest.raises(forebay.MissingError, match="there is no table cats"):
        opened["cats"]
    with pytest.raises(forebay.UsageError, match="is not a version: write TABLE@NUMBER"):
        opened["birds@x"]
    assert isinstance(forebay.MissingError("x"), LookupError)


def test_many_threads_read_while_versions_are_swapped(birds, opened):
    """Each reader has its own handle and checks that its rows are of the handle's version."""
    second = birds.set_column(1, "name", pa.array([f"second {id}" for id in range(1000)]))
    opened.push(second, "birds", key="bird/{id:04}", order="ordered", no_swap=True)
    shared, errors, over = opened["birds"], [], threading.Event()

    def read(seed):
        rng, mine = random.Random(seed), opened["birds"]
        try:
            while not over.is_set():
                id = rng.randrange(1000)
                mine.refresh()
                name = ["bird", "second"][mine.version - 1]
                assert mine[f"bird/{id:04}"]["name"] == f"{name} {id}"
                rows = mine.get_many([f"bird/{id:04}", f"bird/{id:04}"])
                assert rows[0]["name"] == rows[1]["name"] == f"{name} {id}"
                assert shared[f"bird/{id:04}"]["id"] == id
                assert pa.table(mine.scan(f"bird/{id:04}", limit=1))["id"].to_pylist() == [id]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for turn in range(20):
        shared.swap(turn % 2 + 1)
    over.set()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_scan_shared_by_threads_gives_every_record_once(opened):
    records, seen, lock = iter(opened["birds"].scan()), [], threading.Lock()

    def take():
        for key, _ in records:
            with lock:
                seen.append(key)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [f"bird/{id:04}" for id in range(1000)]
