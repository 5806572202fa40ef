"""Live tables written and read in this process."""

import datetime as dt
import decimal
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import forebay


def test_put_get_delete_and_closing(store):
    table = store.create("t", durability="os")
    table.put("a", "text")
    table.put(b"b", b"\xff")
    table.put(3, bytearray(b"x"))
    table.insert("a", "not taken")
    assert table.get_many(["a", "b", 3, "c"]) == [b"text", b"\xff", b"x", None]
    table.delete("a")
    assert "a" not in table and "b" in table and table.live and table.version is None
    with pytest.raises(TypeError, match="a value of this table is str or bytes, not int"):
        table.put("a", 5)
    table.close()
    with pytest.raises(forebay.Error, match="table t is closed"):
        table.get("b")
    again = store["t"]
    assert again["b"] == b"\xff"
    with pytest.raises(forebay.UsageError, match="table t exists already"):
        store.create("t")
    store.close()
    with pytest.raises(forebay.Error, match="is closed: open it again"):
        store.create("t")
    with again, pytest.raises(forebay.Error, match="table t is closed"):
        again.put("b", "x")


def test_partitions_begin_at_keys_of_any_bytes(store):
    table = store.create("t", order="ordered", boundary=["a", b"\xff\x00"], durability="os")
    table.put(b"\xff", "low")
    table.put(b"\xff\x01", "high")
    assert [key for key, _ in table.scan(binary=True)] == [b"\xff", b"\xff\x01"]
    with pytest.raises(forebay.UsageError, match="what lives for '0s' is never there"):
        store.create("u", ttl="0s")


def test_deltas_count_without_reading(store):
    clicks = store.create("clicks", delta="i64-saturating", durability="os")
    for n in range(100):
        clicks.delta("page", n)
    assert clicks["page"] == sum(range(100))
    clicks.put("page", 2**63 - 1)
    clicks.delta("page", 5)
    assert clicks["page"] == 2**63 - 1 and clicks.kind == "number"
    with pytest.raises(TypeError, match="whole number"):
        clicks.delta("page", 1.5)
    with pytest.raises(forebay.UsageError):
        clicks.put("page", 2**63)
    rates = store.create("rates", delta="f64", durability="os")
    rates.delta("a", 0.25)
    rates.delta("a", 1)
    assert rates["a"] == 1.25
    logs = store.create("logs", delta="append", durability="os")
    logs.delta("a", "x")
    logs.delta("a", b"y")
    assert logs["a"] == b"xy"
    plain = store.create("plain", durability="os")
    with pytest.raises(forebay.UsageError, match="made without a kind of deltas"):
        plain.delta("a", 1)


def test_rows_of_typed_columns(store):
    columns = {
        "name": "text", "n": "int16", "big": "uint64", "x": "float64", "yes": "bool",
        "raw": "binary", "day": "date", "at": "timestamp", "price": "decimal(9,2)",
    }  # fmt: skip
    people = store.create("people", value="row", column=columns, durability="os")
    row = {
        "name": "Ada", "n": -3, "big": 2**64 - 1, "x": 1.5, "yes": True, "raw": b"\xff",
        "day": dt.date(1815, 12, 10), "at": dt.datetime(2026, 1, 2, 3, 4, 5),
        "price": decimal.Decimal("12.30"),
    }  # fmt: skip
    people.put("ada", row)
    assert people["ada"] == row
    people.put("bob", {"name": "Bob"})
    assert people["bob"]["n"] is None and people["bob"]["name"] == "Bob"
    assert pa.table(people.scan()).num_rows == 2

    def wrong(match, **change):
        with pytest.raises(forebay.UsageError, match=match):
            people.put("x", {**row, **change})

    wrong("70000 is no int16 for 'n'", n=70_000)
    wrong("'5' is no int16 for 'n'", n="5")
    wrong("True is no int16", n=True)
    wrong("the table has no column 'age'; it has: name, n", age=5)
    wrong("is no decimal", price=decimal.Decimal("1.234"))
    wrong("is no date", day="2026-01-01")
    assert "x" not in people


def test_lists(store):
    like = store.create("like", value="list", item="int64", durability="os")
    like.put("a", [1, 2, 3])
    like.put("b", ())
    assert like["a"] == [1, 2, 3] and like["b"] == []
    with pytest.raises(forebay.UsageError, match="'x' is no int64"):
        like.put("a", ["x"])
    with pytest.raises(TypeError, match="a list is a sequence"):
        like.put("a", "123")


def test_ordered_tables_are_scanned_as_of_one_moment(store):
    days = store.create("days", order="ordered", boundary=["d", "m"], durability="os")
    assert days.put_many({key: key.upper() for key in "fabcedzm"}) == 8
    assert list(days) == list("abcdefmz")
    moment = days.scan("b", "e")
    days.delete("c")
    days.put("bb", "new")
    assert [value for _, value in moment] == [b"B", b"C", b"D"]
    assert pa.table(moment)["key"].to_pylist() == ["b", "c", "d"]
    assert [key for key, _ in days.scan("b", "e", reverse=True)] == ["d", "bb", "b"]
    days.flush()
    days.optimize()
    assert list(days.scan("z"))[0] == ("z", b"Z")
    assert days.verify().rows == 8


def test_batches_are_applied_whole_or_not_at_all(store):
    table = store.create("t", durability="os", delta="append")
    with table.batch() as batch:
        batch.put("{u}1", "a")
        batch.delta("{u}1", "b")
        batch.insert("{u}2", "c")
        batch.delete("{u}3")
    assert table.get_many(["{u}1", "{u}2"]) == [b"ab", b"c"]
    with pytest.raises(ZeroDivisionError), table.batch() as batch:
        batch.put("{u}4", "never")
        raise ZeroDivisionError
    assert "{u}4" not in table
    with pytest.raises(forebay.UsageError, match="lie in different partitions"):
        with table.batch() as batch:
            for n in range(100):
                batch.put(n, "x")
    assert 0 not in table
    with pytest.raises(forebay.UsageError, match="written already"):
        batch.put("a", "b")


def test_threads_count_together(store):
    clicks = store.create("clicks", delta="i64", durability="100ms")
    errors = []

    def work():
        try:
            mine = store["clicks"]
            for n in range(2000):
                mine.delta(n % 7, 1)
                assert mine[n % 7] >= 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert sum(value for _, value in clicks.scan()) <= 8000
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(clicks.get_many(range(7))) == 8000


def test_a_data_frame_is_loaded_at_once_whether_the_table_is_open_or_not(store, path):
    clicks = store.create("clicks", delta="i64", order="ordered", durability="os")
    clicks.put("0", 100)
    counts = pa.table({"page": range(1000), "n": range(1000)})
    result = clicks.load(counts, key="{page}", as_="delta")
    assert (result.rows, result.applied.deltas) == (1000, 1000)
    assert str(result).startswith("clicks: 1,000 rows loaded, ")
    assert clicks.get_many([0, 7, 999]) == [100, 7, 999]
    clicks.close()
    result = forebay.load(counts, "clicks", key="{page}", as_="delta", store=path)
    assert result.rows == 1000
    with store["clicks"] as again:
        assert again.get_many([0, 7, 999]) == [100, 14, 1998]
        with pytest.raises(forebay.UsageError, match='say by value="COLUMN" which'):
            again.load(counts, key="{nr}")
        with pytest.raises(forebay.DataError, match="row 2: .*null"):
            again.load(pa.table({"page": ["a", None], "n": [1, 2]}), key="{page}")


def test_other_processes_load_into_a_table_that_is_open_here(store, path, tmp_path):
    clicks = store.create("clicks", delta="i64", durability="os")
    clicks.put(7, 1)
    source = tmp_path / "counts.csv"
    source.write_text("page,n\n" + "".join(f"{n},{n}\n" for n in range(1000)))
    words = ["load", "clicks", str(source), "--key", "{page}", "--as", "delta", "--store", path]
    command = [sys.executable, "-m", "forebay", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 1000
    assert clicks.get_many([6, 7, 999]) == [6, 8, 999]
    # A load in this process, by the store's path, while a thread writes.
    stop = threading.Event()

    def write():
        while not stop.is_set():
            clicks.delta("busy", 1)

    thread = threading.Thread(target=write)
    thread.start()
    counts = pa.table({"page": range(1000), "n": range(1000)})
    try:
        assert forebay.load(counts, "clicks", key="{page}", as_="delta", store=path).rows == 1000
    finally:
        stop.set()
        thread.join()
    assert clicks.get_many([6, 7, 999]) == [12, 15, 1998] and clicks["busy"] > 0


def test_a_closed_table_can_be_opened_by_others_at_once(store, path):
    words = ["get", "t", "k", "--store", path]
    command = [sys.executable, "-m", "forebay", *words, "--json"]
    for n in range(3):
        table = store["t"] if n else store.create("t", durability="os")
        table.put("k", str(n))
        held = subprocess.run(command, capture_output=True, text=True, timeout=60)
        # The process that has it open lets others read a checkpoint.
        assert held.returncode == 0 and str(n) in held.stdout, held.stderr
        table.close()
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and str(n) in done.stdout, done.stderr


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_keys_expire_one_by_one(store):
    table = store.create("t", ttl="per-key", delta="append", durability="os")
    table.put("second", "x", ttl=0.3)
    table.put("hour", "x", ttl=dt.timedelta(hours=1))
    table.put("day", "x", ttl="1d")
    table.put("ever", "x")
    assert table["second"] == b"x" and 0 < table.ttl("second") <= 0.3
    assert 3590 < table.ttl("hour") <= 3600 and 86390 < table.ttl("day") <= 86400
    assert table.ttl("ever") is None
    wait_until(lambda: "second" not in table)
    with pytest.raises(KeyError, match="second"):
        table.ttl("second")
    # An insert sees no expired value; a delta sets a new expiry time.
    table.insert("second", "y", ttl=60)
    table.insert("hour", "z", ttl=60)
    assert table["second"] == b"y" and table["hour"] == b"x" and table.ttl("hour") > 3000
    table.delta("hour", "!", ttl=60)
    assert table["hour"] == b"x!" and table.ttl("hour") <= 60
    assert table.put_many({"a": "1", "b": "2"}, ttl=100) == 2 and table.ttl("b") > 90
    with table.batch() as batch:
        batch.put("{u}1", "1", ttl="5m")
        batch.put("{u}2", "2")
    assert table.ttl("{u}1") > 290 and table.ttl("{u}2") is None
    assert table.put_many([("a", "3")]) == 1 and table.put_many([("b", "4")], ttl=50) == 1
    assert table.ttl("a") is None and table.ttl("b") <= 50
    for wrong in (0, -1, float("nan"), float("inf"), "soon", True, [1]):
        with pytest.raises(forebay.UsageError):
            table.put("a", "x", ttl=wrong)
    assert table["a"] == b"3"
    plain = store.create("plain", ttl="never", durability="os")
    with pytest.raises(forebay.UsageError, match="made without expiry"):
        plain.put("a", "x", ttl=5)
    aged = store.create("aged", ttl="1h", durability="os")
    aged.put("a", "x")
    aged.put("b", "x", ttl=5)
    assert 3590 < aged.ttl("a") <= 3600 and aged.ttl("b") <= 5
    store.push(pa.table({"id": [1]}), "batch", key="{id}", ttl="1h")
    assert 3500 < store["batch"].ttl(1) <= 3600


KILLED = """
    import sys, forebay
    table = forebay.open({path!r})["t"]
    for n in range(10**6):
        table.put(n, str(n))
        print(n, flush=True)
"""


def test_acknowledged_writes_survive_a_kill(store, path):
    store.create("t", durability="sync").close()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(KILLED.format(path=path))],
        stdout=subprocess.PIPE,
        text=True,
    )
    last = [process.stdout.readline() for _ in range(50)][-1]
    with pytest.raises(forebay.BusyError, match="live table t is in use"):
        store["t"]
    os.kill(process.pid, signal.SIGKILL)
    rest = process.communicate()[0].splitlines()
    last = int(([last, *rest])[-1] or last)
    table = store["t"]
    assert table.get_many(range(last + 1)) == [str(n).encode() for n in range(last + 1)]


def test_batch_tables_take_no_single_writes(store):
    store.push(pa.table({"id": [1]}), "batch", key="{id}")
    with pytest.raises(forebay.UsageError, match="batch is a batch table"):
        store["batch"].put("a", "b")
    with pytest.raises(forebay.UsageError, match="batch is a batch table"):
        store["batch"].flush()
    live = store.create("live", durability="os")
    with pytest.raises(forebay.UsageError, match="live table: it has no versions"):
        live.versions()
    store.drop("live")
    assert [table.table for table in store.tables()] == ["batch"]


ROW_TYPES = {
    "narrow": "float32",
    "wide": "float64",
    "naive": "timestamp(us)",
    "zoned": "timestamptz(us)",
    "fine": "timestamp(ns)",
    "span": "duration(us)",
    "hour": "time(us)",
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("narrow", 1e300),
        ("narrow", 16777217),
        ("wide", 2**53 + 1),
        ("naive", dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ("zoned", dt.datetime(2020, 1, 1)),
        ("naive", pd.Timestamp(1)),
        ("span", pd.Timedelta(1, "ns")),
        ("hour", dt.time(1, tzinfo=dt.UTC)),
    ],
)
def test_a_value_that_a_column_cannot_hold_is_refused(store, column, value):
    table = store.create("t", value="row", column=ROW_TYPES)
    with pytest.raises(forebay.UsageError):
        table.put("k", {column: value})
    assert "k" not in table


def test_values_of_columns_are_read_back(store):
    table = store.create("t", value="row", column=ROW_TYPES)
    moment = dt.datetime(2020, 1, 1, 12, 0, 0, 5)
    row = {
        "narrow": 0.5,
        "wide": 0.1,
        "naive": moment,
        "zoned": moment.replace(tzinfo=dt.timezone(dt.timedelta(hours=2))),
        "fine": pd.Timestamp(moment),
        "span": pd.Timedelta(3, "us"),
        "hour": dt.time(1, 2, 3, 4),
    }
    table.put("k", row)
    assert table["k"] == row
    table.put("k", {"narrow": 0.1, "fine": pd.Timestamp(1)})
    found = table.get_many_arrow(["k"])
    assert found["narrow"][0].as_py() == np.float32(0.1)
    assert found["fine"].cast("int64").to_pylist() == [1]
    assert list(table.keys()) == ["k"]
    sums = store.create("sums", delta="f64")
    with pytest.raises(forebay.UsageError, match="nearest number"):
        sums.delta("k", 2**53 + 1)


def test_numbers_of_numpy_are_numbers(store):
    table = store.create("t", value="row", column={"n": "int16", "x": "float64", "yes": "bool"})
    table.put("k", {"n": np.int64(5), "x": np.float32(0.5), "yes": np.bool_(True)})
    assert table["k"] == {"n": 5, "x": 0.5, "yes": True}
    for column, value in [
        ("n", np.int64(70_000)),
        ("n", np.float64(1.0)),
        ("n", np.timedelta64(5, "ns")),
        ("n", np.datetime64("2026-01-01", "ns")),
        ("yes", np.int8(1)),
    ]:
        with pytest.raises(forebay.UsageError):
            table.put("x", {column: value})
    assert "x" not in table
    sums = store.create("sums", delta="i64")
    sums.delta("k", np.uint8(7))
    assert sums["k"] == 7
    with pytest.raises(TypeError, match="a whole number, not timedelta64"):
        sums.delta("k", np.timedelta64(7, "ns"))


NESTED = {"at": "date64", "pair": "list(int64,2)", "ages": "map(text, int64)"}


def test_maps_and_lists_of_a_length(store):
    table = store.create("t", value="row", column=NESTED)
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6000)
    table.put("k", {"at": moment, "pair": [1, 2], "ages": {"Ada": 36, "Bob": None}})
    assert table["k"] == {"at": moment, "pair": [1, 2], "ages": [("Ada", 36), ("Bob", None)]}
    table.put("read", table["k"])
    assert table["read"] == table["k"]
    with pytest.raises(forebay.UsageError, match=r"\[1\] is no list\(int64,2\) for 'pair'"):
        table.put("x", {"pair": [1]})
    with pytest.raises(TypeError, match="a map is a dict, or a list of pairs"):
        table.put("x", {"ages": ["Ada"]})
    with pytest.raises(forebay.UsageError, match="'key' cannot be null"):
        table.put("x", {"ages": {None: 1}})
    assert "x" not in table
