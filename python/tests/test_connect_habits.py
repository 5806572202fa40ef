"""Python idioms for tables of servers: Arrow, frames, pickles, forks, threads."""

import asyncio
import decimal
import multiprocessing
import pickle
import threading
import time
from datetime import timedelta

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from forking import in_a_child
from harness import Store as Files

import forebay

ROWS = 10_000


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Files:
    files = Files(tmp_path_factory.mktemp("habits") / "store")
    ids = list(range(ROWS))
    rows = {"id": ids, "name": [f"n{id}" for id in ids], "half": [id / 2 for id in ids]}
    path = str(files.path)
    forebay.push(rows, "names", key="{id:05}", order="ordered", store=path)
    forebay.push({**rows, "other": ids}, "hashed", key="{id}", store=path)
    files.run("create", "counts", "--delta", "i64")
    files.run("create", "texts")
    files.run("create", "people", "--value", "row", "--column", "name:text", "--column", "n:int64")
    return files


@pytest.fixture(scope="module")
def url(files):
    with files.serve() as server:
        server.client().hset("people:k", mapping={"name": "x", "n": 1})
        yield f"redis://127.0.0.1:{server.port}"


@pytest.fixture
def connection(url):
    with forebay.connect(url) as made:
        yield made


def test_many_values_as_arrow_equal_those_of_a_store(files, connection):
    with forebay.open(files.path) as store:
        for name, keys in (("names", ["00007", "x", "09999", "00007"]), ("hashed", [7, -1, 8])):
            mine, other = store[name], connection[name]
            for words in ({}, {"columns": ["name", "id"]}, {"columns": ["half"]}, {"binary": True}):
                ours, theirs = (
                    mine.get_many_arrow(keys, **words),
                    other.get_many_arrow(keys, **words),
                )
                assert theirs == ours and theirs.schema == ours.schema, (name, words)
            assert other.get_many_arrow([]).equals(mine.get_many_arrow([]))
        many = np.arange(-50, ROWS + 50)
        assert connection["hashed"].get_many_arrow(many) == store["hashed"].get_many_arrow(many)


def test_many_values_as_arrow_of_tables_without_columns(connection):
    counts = connection["counts"]
    counts.put_many({"a": 1, b"\xff": 2})
    assert counts.get_many_arrow(["a", "b"]).to_pydict() == {"key": ["a", None], "value": [1, None]}
    assert counts.get_many_arrow([b"\xff"], columns=["value"])["value"].to_pylist() == [2]
    assert counts.get_many_arrow([b"\xff"], binary=True)["key"].to_pylist() == [b"\xff"]
    with pytest.raises(forebay.UsageError, match="is not UTF-8: look up with binary=True"):
        counts.get_many_arrow([b"\xff"])
    counts.delete(b"\xff")


def test_a_scan_of_some_columns(files, connection):
    scan = connection["names"].scan("09998", columns=["name", "id"])
    assert scan.to_arrow().to_pydict() == {"name": ["n9998", "n9999"], "id": [9998, 9999]}
    assert scan.schema.names == ["name", "id"] == pa.schema(scan).names
    assert list(scan)[0] == ("09998", {"name": "n9998", "id": 9998})
    assert list(list(scan)[0][1]) == ["name", "id"], "in the requested order"
    people = connection["people"]
    assert list(people.scan(columns=["key", "n"])) == [("k", {"n": 1})]
    assert people.scan(columns=["key", "n"]).to_arrow().to_pydict() == {"key": ["k"], "n": [1]}
    connection["counts"].put("k", 7)
    assert ("k", 7) in list(connection["counts"].scan(columns=["value"]))
    assert "k" in list(connection["counts"].keys()) and list(people.keys()) == ["k"]
    with pytest.raises(TypeError, match="columns is a list"):
        people.scan(columns="n")
    assert connection["counts"].scan(columns=["value"]).schema.names == ["value"]


def test_a_missing_column_is_reported_with_the_existing_ones(files, connection):
    with forebay.open(files.path) as store:
        for call in (
            lambda table: table.scan(columns=["nme"]),
            lambda table: table.get_many_arrow(["00001"], columns=["nme"]),
            lambda table: table.get_many_arrow([], columns=["nme"]),
        ):
            reported = []
            for table in (store["names"], connection["names"]):
                with pytest.raises(forebay.UsageError) as refused:
                    call(table)
                reported.append(str(refused.value))
            assert reported[0] == reported[1]
            assert "no column 'nme'; did you mean 'name'?; there are: id, name, half" in reported[0]


def test_a_whole_table_is_read_as_a_frame(files, connection):
    with forebay.open(files.path) as store:
        mine, other = store["names"], connection["names"]
        assert other.schema == mine.schema and other.to_arrow() == mine.to_arrow()
        assert other.to_polars().equals(mine.to_polars())
        assert other.to_pandas().equals(mine.to_pandas())
    scan = other.scan("00001", "00003", reverse=True)
    for frame in (scan.to_pandas(), scan.to_polars()):
        assert frame["id"].to_list() == [2, 1]
    for make in (pd.DataFrame, np.array, np.asarray):
        for whole in (other, other.scan()):
            with pytest.raises(TypeError, match="to_pandas"):
                make(whole)
    assert pl.DataFrame(other.scan(limit=2)).height == 2


def test_a_missing_package_is_named(connection, monkeypatch):
    for package in ("polars", "pandas"):
        monkeypatch.setitem(__import__("sys").modules, package, None)
        with pytest.raises(forebay.UsageError, match=f"pip install {package}"):
            getattr(connection["names"], f"to_{package}")()


def test_pickles_connect_again(url, connection):
    table, scan = connection["names"], connection["names"].scan("09999")
    assert table["00007"]["name"] == "n7"
    made, again, walked = pickle.loads(pickle.dumps((connection, table, scan)))
    assert again["00007"]["name"] == "n7" and made["names"].name == again.name == "names"
    assert [key for key, _ in walked] == ["09999"]
    made.close()
    assert table["00008"]["name"] == "n8", "the first connection stays open"
    with forebay.connect("redis://127.0.0.1:1", timeout=0.2) as unreachable:
        # No server is asked before the first call.
        assert isinstance(pickle.loads(pickle.dumps(unreachable)), forebay.Connection)
        with pytest.raises(forebay.BusyError):
            pickle.loads(pickle.dumps(unreachable))["names"]


def test_pickles_have_the_login_and_the_options(tmp_path):
    url = "rediss://shop:p%40ss@one:1,two:2"
    made = forebay.connect(url, timeout=3.5, ca_file="ca.pem", key_file="key.pem")
    again = pickle.loads(pickle.dumps(made))
    before, after = (one._servers.__reduce__()[1] for one in (made, again))
    assert before == after
    assert after[0].password == "p@ss" and after[1] == 3.5 and after[2]["ca_certs"] == "ca.pem"


def read_one(table, key):
    return table[key]["name"]


@pytest.mark.parametrize("start", ["spawn", "fork"])
def test_workers_of_a_pool_get_tables(connection, start):
    table = connection["names"]
    assert table["00001"]
    with multiprocessing.get_context(start).Pool(2) as pool:
        words = [(table, f"{id:05}") for id in range(20)]
        assert pool.starmap(read_one, words) == [f"n{id}" for id in range(20)]


def sockets(connection) -> set[tuple[str, int]]:
    """Returns this process's ends of the open connections."""
    found = set()
    for pool in connection._servers.wire._pools.values():
        for one in [*pool._available_connections, *pool._in_use_connections]:
            if one._sock is not None:
                found.add(one._sock.getsockname())
    return found


def test_a_forked_child_makes_connections_of_its_own(connection):
    table = connection["names"]
    assert table["00007"]["name"] == "n7"
    mine = sockets(connection)
    assert len(mine) == 1

    def child():
        assert sockets(connection) == set()
        names = {table[f"{id:05}"]["name"] for id in range(50)}
        theirs = sockets(connection)
        connection.close()
        return len(names), len(theirs), theirs & mine

    assert in_a_child(child) == "(50, 1, set())"
    # The child closed only its own connection.
    assert table["00008"]["name"] == "n8" and sockets(connection) == mine


def test_parent_and_child_read_at_the_same_time(connection):
    table = connection["names"]
    wrong, done = [], threading.Event()

    def read():
        number = 0
        while not done.is_set():
            number = (number + 1) % ROWS
            if table[f"{number:05}"]["id"] != number:
                wrong.append(number)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(5):
            keys = [f"{id:05}" for id in range(turn * 300, turn * 300 + 300)]
            reply = in_a_child(lambda keys=keys: [table[key]["id"] for key in keys])
            assert reply == str([int(key) for key in keys])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_fork_while_another_thread_has_the_lock(connection):
    table = connection["names"]
    assert table["00001"]
    with connection._servers._lock, connection._servers.wire._lock:
        assert in_a_child(lambda: table["00007"]["name"]) == "n7"
    assert table["00008"]["name"] == "n8"


def test_a_closed_connection_connects_again(url):
    with forebay.connect(url) as connection:
        table = connection["names"]
        assert table["00007"]["name"] == "n7" and len(sockets(connection)) == 1
    assert sockets(connection) == set()
    assert table["00008"]["name"] == "n8"
    connection.close()
    assert sockets(connection) == set()


def test_an_event_loop_keeps_running_while_many_keys_are_read(connection):
    table = connection["names"]
    keys = [f"{id:05}" for id in range(ROWS)]

    async def turns() -> int:
        reading = asyncio.create_task(asyncio.to_thread(table.get_many, keys))
        count = 0
        while not reading.done():
            await asyncio.sleep(0.001)
            count += 1
        assert len(await reading) == ROWS
        return count

    assert asyncio.run(turns()) > 5


def test_a_connection_knows_whether_there_is_a_table(connection):
    assert "names" in connection and "unreachable" not in connection
    with pytest.raises(TypeError):
        iter(connection)


def test_invalid_addresses_and_numbers_are_refused(url, connection):
    with pytest.raises(TypeError, match="url is str, as in 'redis://127.0.0.1:7379', not 5"):
        forebay.connect(5)
    for timeout in ["x", 0, -1, True, float("nan")]:
        with pytest.raises(forebay.UsageError, match="timeout is a number of seconds above 0"):
            forebay.connect(url, timeout=timeout)
    for call in (lambda: connection[5], lambda: 5 in connection):
        with pytest.raises(TypeError, match="a table's name is str, not 5"):
            call()
    with pytest.raises(forebay.UsageError, match="limit is how many records"):
        connection["names"].scan(limit=-1)


def served(files, connection, name, data):
    forebay.push(data, name, key="{id}", store=str(files.path))
    wait = time.monotonic() + 10
    while name not in connection and time.monotonic() < wait:
        time.sleep(0.05)
    with forebay.open(files.path) as store:
        return store[name], connection[name]


def test_a_length_is_counted_without_values(files, connection):
    at = pa.array([1, 2], pa.timestamp("ns"))
    served(files, connection, "fine", pa.table({"id": [1, 2], "at": at}))
    assert len(connection["fine"]) == 2 and sorted(connection["fine"].keys()) == ["1", "2"]


def test_frames_without_columns_have_as_many_rows(files, connection):
    with forebay.open(files.path) as store:
        for table in (store["names"], connection["names"]):
            scan = table.scan(columns=[])
            assert scan.to_arrow().num_rows == scan.to_pandas().shape[0] == ROWS
            assert scan.to_polars().shape == (ROWS, 0)
            assert table.get_many_arrow(["00001", "x"], columns=[]).num_rows == 2


def test_decimals_beyond_the_digits_of_their_type_equal_those_of_a_store(files, connection):
    most = 2**127 - 1
    data = duckdb.sql(f"select 1 as id, {most}::hugeint as n union all select 2, -5")
    mine, other = served(files, connection, "huge", data.union(duckdb.sql("select 3, null")))
    ours, theirs = mine.to_arrow().sort_by("id"), other.to_arrow().sort_by("id")
    assert theirs == ours and theirs.schema == ours.schema
    assert [*map(str, theirs["n"].to_pylist())] == [str(most), "-5", "None"]
    data = duckdb.sql(f"select 1 as id, [{most}::hugeint] as n")
    _, other = served(files, connection, "huge_lists", data)
    for call in (other.to_arrow, other.to_polars):
        with pytest.raises(forebay.UsageError, match="of what column 'n' has: take the values by"):
            call()


def test_types_that_polars_lacks_are_reported(files, connection):
    data = [{"id": 1, "n": decimal.Decimal("1" * 40)}]
    for table in served(files, connection, "long", data):
        with pytest.raises(forebay.UsageError, match="polars does not hold the types of all"):
            table.to_polars()
    span = duckdb.sql("select 1 as id, interval 3 month as span")
    for table in served(files, connection, "spans", span):
        with pytest.raises(forebay.UsageError, match="polars does not hold the types of all"):
            table.to_polars()


def test_keys_that_are_not_text_are_reported_with_the_option_of_python(tmp_path):
    with forebay.open(tmp_path / "store", create=True) as store:
        table = store.create("t")
        table.put(b"\xff", "v")
        for call in (table.to_arrow, table.to_pandas, table.to_polars):
            with pytest.raises(forebay.UsageError, match="0xff is not UTF-8: scan.binary=True."):
                call()


def test_values_longer_than_servers_accept_are_refused(connection):
    texts = connection["texts"]
    most = b"x" * (16 << 20)
    texts.put("most", most)
    assert texts["most"] == most
    for call in (
        lambda: texts.put("k", most + b"x"),
        lambda: texts.put_many({"k": most + b"x"}),
        lambda: texts.put_versioned("k", most + b"x", "0" * 32),
    ):
        with pytest.raises(forebay.UsageError, match="servers take at most 16 MiB"):
            call()
    assert "k" not in texts


def test_keys_last_for_their_ttl(connection):
    texts, day = connection["texts"], 86_400
    for ttl in (day, timedelta(days=1), "1d", "24 h", np.float64(day)):
        texts.put("k", "v", ttl=ttl)
        assert day - 60 < texts.ttl("k") <= day, ttl
    texts.put("k", "v")
    assert texts.ttl("k") is None and connection["names"].ttl("00007") is None
    with pytest.raises(KeyError):
        texts.ttl("x")
    for ttl in (True, "x", "0s", "1.5h", 0, -1, float("nan"), 1e20, [1]):
        with pytest.raises(forebay.UsageError, match="give seconds above 0, a timedelta, or text"):
            texts.put("k", "v", ttl=ttl)
