"""Python idioms for a store and its tables: keys, views, pickles, forks."""

import asyncio
import collections.abc
import decimal
import enum
import gc
import multiprocessing
import pickle
import signal
import threading
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from forking import in_a_child

import forebay

# Several times the number of records that are converted to objects at once.
MANY = 20_000


class Number(enum.IntEnum):
    SEVEN = 7


@pytest.fixture
def opened(path):
    ids = list(range(MANY))
    rows = pa.table({"id": ids, "name": [f"n{id}" for id in ids]})
    forebay.push(rows, "names", key="{id}", order="ordered", store=path)
    with forebay.open(path) as store:
        yield store


def names(ids):
    return [f"n{id}" for id in ids]


def test_keys_are_whole_numbers_of_any_kind(opened):
    table = opened["names"]
    numbers = [7, np.int64(7), np.uint8(7), pa.scalar(7), Number.SEVEN]
    for key in [*numbers, "7", b"7", bytearray(b"7"), np.str_("7"), pa.scalar("7")]:
        assert table[key]["name"] == "n7" and key in table, key
    for wrong in [7.0, np.float64(7), True, np.True_, None, [7], pa.scalar(None)]:
        with pytest.raises(TypeError, match="a key is str, bytes or a whole number, not "):
            table[wrong]


def test_many_keys_are_columns_too(opened):
    table = opened["names"]
    ids = list(range(5, MANY + 5))
    texts = [str(id) for id in ids]
    shuffled = pd.Series(ids, index=ids[::-1])
    columns = [
        *(np.array(ids), np.array(texts), np.array(ids, dtype=np.uint16)),
        *(pa.array(ids), pa.array(texts), pa.array([t.encode() for t in texts])),
        *(pa.chunked_array([ids[:7], ids[7:]]), pa.table({"id": ids})["id"]),
        *(pd.Series(ids), shuffled, pd.Index(texts), pl.Series(ids), pl.Series(texts)),
        *(iter(ids), (id for id in texts), dict.fromkeys(ids), range(5, MANY + 5)),
    ]
    wanted = names(range(5, MANY)) + ["?"] * 5
    for column in columns:
        found = table.get_many(column, {"name": "?"})
        assert [row["name"] for row in found] == wanted, type(column)
    assert table.get_many([]) == table.get_many(np.array([], dtype=np.int64)) == []
    assert table.get_many([1, MANY])[1] is None


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("abc", r'keys are a list, as in \["a", "b"\], not str'),
        (b"abc", "keys are a list"),
        (pd.DataFrame({"id": [1]}), r'keys are one column, as in data\["id"\], not DataFrame'),
        (pl.DataFrame({"id": [1]}), "keys are one column"),
        (pa.array([1, None]), "a key is str, bytes or a whole number, not NoneType"),
        (pd.Series([1, None]), "a whole number, not float"),
        (pa.table({"id": [1]}), "a whole number, not dict"),
        (np.zeros((2, 2), dtype=int), "a whole number, not list"),
        (5, "not iterable"),
    ],
)
def test_values_that_hold_no_keys_are_refused(opened, wrong, words):
    with pytest.raises(TypeError, match=words):
        opened["names"].get_many(wrong)


@pytest.mark.parametrize("call", ["get_many", "get_many_arrow", "scan"])
def test_other_threads_run_during_a_long_call(store, call):
    rows = 200_000
    store.push({"id": range(rows)}, "many", key="{id}", progress=False)
    table, woken, over = store["many"], [], threading.Event()

    def sleeper():
        while not over.wait(0.001):
            woken.append(time.monotonic())

    def reads():
        if call == "scan":
            return sum(1 for _ in table.scan())
        return len(getattr(table, call)([*range(rows)]))

    thread = threading.Thread(target=sleeper)
    thread.start()
    began = time.monotonic()
    assert reads() == rows
    ended = time.monotonic()
    over.set()
    thread.join()
    # A starved thread wakes up only after the call.
    assert len([at for at in woken if began < at < ended]) >= (ended - began) / 0.1


def test_a_signal_ends_a_look_up(store):
    keys = [*range(200_000)]
    store.push({"id": keys}, "many", key="{id}", progress=False)

    def handler(signum, frame):
        raise InterruptedError

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(InterruptedError):
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            # Look-ups run before and after the signal, even if either is late.
            while True:
                store["many"].get_many(keys)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_table_has_the_views_of_a_mapping(opened):
    table = opened["names"]
    assert isinstance(table.keys(), collections.abc.KeysView)
    assert len(table) == len(table.keys()) == len(table.values()) == len(table.items()) == MANY
    assert next(iter(table.keys())) == "0" == next(iter(table))
    assert "17" in table.keys() and "x" not in table.keys()
    assert table.keys() & {"1", "2", "x"} == {"1", "2"}
    assert next(iter(table.values())) == {"id": 0, "name": "n0"}
    assert {"id": 3, "name": "n3"} in table.values() and {"id": 3} not in table.values()
    assert ("3", {"id": 3, "name": "n3"}) in table.items() and ("3", {}) not in table.items()
    assert dict(table)["19"] == {"id": 19, "name": "n19"} and bool(table)


def test_a_live_table_counts_its_records(path):
    with forebay.open(path, create=True) as store:
        live = store.create("live", delta="i64", durability="os")
        assert len(live) == 0 and not live and list(live.values()) == []
        live.put_many({number: number for number in range(100)})
        live.delete(5)
        other = store.create("other", durability="os")
        other.put(b"\xff", "not UTF-8")
        assert bool(other) and len(other) == 1
        assert len(live) == 99 and bool(live) and sum(live.values()) == sum(range(100)) - 5
        onto = pa.table({"id": [1, MANY], "name": ["one", "more"]})
        store.push(pa.table({"id": [1], "name": ["n1"]}), "names", key="{id}")
        store.push(onto, "names", onto="current")
        assert len(store["names"]) == 2


def test_a_whole_table_is_read_as_a_frame(opened):
    table = opened["names"]
    assert table.schema.names == ["id", "name"] == table.scan().schema.names
    assert table.to_arrow()["id"].to_pylist() == [row["id"] for row in table.values()]
    assert table.to_pandas()["name"].tolist() == table.to_polars()["name"].to_list()
    assert table.scan("1", "2", limit=3).to_arrow().num_rows == 3
    # Neither silently makes a frame of pairs.
    for make in [pd.DataFrame, np.array, np.asarray]:
        for whole in [table, table.scan()]:
            with pytest.raises(TypeError, match="to_pandas"):
                make(whole)


def test_a_missing_package_is_named(opened, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(forebay.UsageError, match="pip install polars"):
        opened["names"].to_polars()


def test_a_store_that_is_closed_refuses(path, opened):
    table = opened["names"]
    opened.close()
    for call in [
        lambda: opened["names"],
        lambda: opened.tables(),
        lambda: opened.create("t"),
        lambda: opened.push(pa.table({"id": [1]}), "t", key="{id}"),
        lambda: opened.drop("names"),
        lambda: table.versions(),
        lambda: table.refresh(),
    ]:
        with pytest.raises(forebay.Error, match="is closed: open it again"):
            call()
    assert table["7"]["name"] == "n7", "a table opened earlier is still readable"
    opened.close()
    assert repr(opened) == f"<forebay store {path}>"


def test_pickles_open_the_store_again(path, opened):
    table = opened["names"]
    opened.push(pa.table({"id": [1], "name": ["new"]}), "names", key="{id}", force=True)
    store, again, current = pickle.loads(pickle.dumps((opened, table, opened["names"])))
    assert again.store is store and store.url == str(path) and store is not opened
    assert (again.version, current.version) == (1, 2)
    assert again["19"]["name"] == "n19" and current["1"]["name"] == "new"
    assert again.refresh() and again.version == 2
    with forebay.open(path, memory_bytes=64 << 20) as small:
        assert pickle.loads(pickle.dumps(small)).memory_bytes == 64 << 20
    by_number = pickle.loads(pickle.dumps(opened["names@1"]))
    assert not by_number.refresh() and by_number.version == 1


def test_a_pickled_live_table_opens_once_the_table_is_free(path):
    with forebay.open(path, create=True) as store:
        live = store.create("live", durability="os")
        live.put("a", "1")
        pickled = pickle.dumps(live)
        # An error during unpickling would kill a worker for which a pool waits.
        unopened = pickle.loads(pickled)
        for use in len, list, lambda table: table["a"], lambda table: table.put("a", "2"):
            with pytest.raises(forebay.BusyError):
                use(unopened)
        assert "not opened" in repr(pickle.loads(pickle.dumps(unopened)))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            with pytest.raises(forebay.BusyError):
                pool.apply_async(len, (live,)).get(timeout=90)
    again = pickle.loads(pickled)
    assert again["a"] == b"1"
    again.store.close()


def test_a_forked_child_reads_batch_tables(opened):
    table = opened["names"]
    assert in_a_child(lambda: table["7"]["name"]) == "n7"
    assert in_a_child(lambda: len(table.get_many(np.arange(MANY)))) == str(MANY)
    assert in_a_child(lambda: opened["names"]["8"]["name"]) == "n8"
    assert in_a_child(lambda: sum(row["id"] for row in table.values())) == str(sum(range(MANY)))


def test_a_live_table_is_refused_in_a_forked_child(path):
    with forebay.open(path, create=True) as store:
        live = store.create("live", durability="os")
        other = store.create("other", durability="os")
        other.close()
        live.put("a", "1")
        scan = live.scan()

        def reported(call):
            def check():
                try:
                    call()
                except forebay.BusyError as error:
                    return error
                return "nothing"

            return in_a_child(check)

        for call in [
            lambda: live.get("a"),
            lambda: live.get_many(["a"]),
            lambda: live.put("a", "2"),
            lambda: "a" in live,
            lambda: len(live),
            lambda: list(scan),
            lambda: live.flush(),
            lambda: store["live"],
            lambda: store["other"],
        ]:
            assert "is open in the process that this one was forked from" in reported(call)

        def let_go():
            nonlocal live, store, scan
            live.close()
            store.close()
            live = store = scan = None
            gc.collect()
            return "gone"

        assert in_a_child(let_go) == "gone"
        live.put("b", "2")
        assert live["a"] == b"1" and live["b"] == b"2"
    with forebay.open(path) as store:
        assert dict(store["live"]) == {"a": b"1", "b": b"2"}


def read_one(table, key):
    return table[key]["name"]


def test_workers_of_a_pool_get_tables(opened):
    table = opened["names"]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.starmap(read_one, [(table, 7), (table, 8)]) == ["n7", "n8"]


def test_many_values_as_one_table_of_arrow(path):
    rows = pa.table({"id": [1, 2, 3], "name": ["a", None, "c"], "n": [1.5, 2.5, None]})
    forebay.push(rows, "t", key="{id}", store=path)
    table = forebay.open(path)["t"]
    found = table.get_many_arrow(np.array([3, 9, 1, 3]))
    assert found.to_pydict() == {
        "id": [3, None, 1, 3],
        "name": ["c", None, "a", "c"],
        "n": [None, None, 1.5, None],
    }
    assert table.get_many_arrow(["2"], columns=["n", "id"]).to_pydict() == {"n": [2.5], "id": [2]}
    none = table.get_many_arrow([])
    assert (none.num_rows, none.schema.names) == (0, ["id", "name", "n"])
    many = table.get_many_arrow(range(20_000))
    assert many.num_rows == 20_000 and many["id"].null_count == 19_997
    with pytest.raises(forebay.UsageError, match="no column 'nme'; did you mean 'name'"):
        table.get_many_arrow([1], columns=["nme"])


def test_many_values_as_arrow_of_tables_without_columns(store):
    clicks = store.create("clicks", delta="i64")
    clicks.put_many({"a": 1, b"\xff": 2})
    found = clicks.get_many_arrow(["a", "b"])
    assert found.to_pydict() == {"key": ["a", None], "value": [1, None]}
    assert clicks.get_many_arrow([b"\xff"], columns=["value"])["value"].to_pylist() == [2]
    assert clicks.get_many_arrow([b"\xff"], binary=True)["key"].to_pylist() == [b"\xff"]
    with pytest.raises(forebay.UsageError, match="is not UTF-8: .*binary=True"):
        clicks.get_many_arrow([b"\xff"])


def test_a_scan_of_some_columns(store, path):
    rows = pa.table({"id": ["a", "b", "c"], "name": ["x", "y", "z"], "n": [1, 2, 3]})
    forebay.push(rows, "t", key="{id}", order="ordered", store=path)
    scan = store["t"].scan("b", columns=["n", "id"])
    assert scan.to_arrow().to_pydict() == {"n": [2, 3], "id": ["b", "c"]}
    assert scan.schema.names == ["n", "id"]
    assert list(scan) == [("b", {"n": 2, "id": "b"}), ("c", {"n": 3, "id": "c"})]
    with pytest.raises(forebay.UsageError, match="no column 'm'; .*there are: id, name, n"):
        store["t"].scan(columns=["m"])
    live = store.create("live", value="row", column={"n": "int64", "m": "text"})
    live.put("k", {"n": 1, "m": "x"})
    assert list(live.scan(columns=["key", "m"])) == [("k", {"m": "x"})]
    assert live.scan(columns=["key", "m"]).to_arrow().to_pydict() == {"key": ["k"], "m": ["x"]}
    counts = store.create("counts", delta="i64")
    counts.put("k", 7)
    assert list(counts.scan(columns=["value"])) == [("k", 7)]


def test_invalid_arguments_are_refused(store, path):
    forebay.push(pa.table({"id": [1, 2]}), "t", key="{id}", store=path)
    table = store["t"]
    assert table.scan(limit=np.int64(1)).to_arrow().num_rows == 1
    assert table.scan(limit=2**80, columns=("id",)).to_arrow().num_rows == 2
    with pytest.raises(forebay.UsageError, match="how many records there are at most, not -1"):
        table.scan(limit=-1)
    with pytest.raises(TypeError, match="limit is a whole number, not float"):
        table.scan(limit=1.5)
    for read in table.scan, lambda columns: table.get_many_arrow(["1"], columns=columns):
        with pytest.raises(TypeError, match=r"columns is a list of names, as in \['id'\]"):
            read(columns="id")
        with pytest.raises(TypeError, match="columns has a name that is str, not int"):
            read(columns=[1])


def test_a_null_of_pyarrow_is_no_key(store):
    live = store.create("live", durability="os")
    live.put("None", "x")
    for null in pa.scalar(None, pa.int64()), pa.scalar(None, pa.string()), pa.scalar(None):
        with pytest.raises(TypeError, match="a key is str, bytes or a whole number"):
            live.get(null)
    assert live[pa.scalar("None")] == b"x"


def test_rows_that_have_expired_are_not_counted(store, path):
    forebay.push(pa.table({"id": list(range(9))}), "t", key="{id}", store=path, ttl="1ms")
    time.sleep(0.01)
    assert (len(store["t"]), list(store["t"])) == (0, [])


def test_an_event_loop_keeps_running_while_many_keys_are_read(opened):
    table, keys = opened["names"], np.arange(MANY).repeat(5)

    async def turns(read) -> int:
        reading, count = asyncio.create_task(read()), 0
        while not reading.done():
            await asyncio.sleep(0.001)
            count += 1
        assert len(await reading) == 100_000
        return count

    async def in_the_loop() -> list:
        return table.get_many(keys)

    assert asyncio.run(turns(lambda: asyncio.to_thread(table.get_many, keys))) > 20
    assert asyncio.run(turns(in_the_loop)) < 5


def test_a_held_push_can_be_pickled(path):
    rows = [{"id": n} for n in range(10)]
    forebay.push(rows, "t", key="{id}", store=path)
    with pytest.raises(forebay.GateHeld) as held:
        forebay.push(rows[:1], "t", key="{id}", store=path)
    again = pickle.loads(pickle.dumps(held.value))
    assert (str(again), again.result) == (str(held.value), held.value.result)


def test_types_that_polars_lacks_are_an_error(store):
    wide = pa.array([decimal.Decimal("1.5")], pa.decimal256(60, 2))
    store.push(pa.table({"id": [1], "n": wide}), "t", key="{id}")
    with pytest.raises(forebay.UsageError, match="polars does not hold the types of all columns"):
        store["t"].to_polars()
    assert store["t"].scan(columns=["id"]).to_polars()["id"].to_list() == [1]
