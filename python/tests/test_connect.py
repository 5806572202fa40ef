"""`forebay.connect` on one server: results equal those of a store in this process."""

import doctest
import hashlib
import json
import math
import re
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import every_type
import pyarrow as pa
import pytest
from harness import Store as Files
from secured import Secured

import forebay

TABLES = {
    "kv": [],
    "log": ["--order", "ordered", "--boundary", "m"],
    "count": ["--delta", "i64"],
    "sums": ["--delta", "f64"],
    "words": ["--delta", "append"],
    "people": ["--value", "row", "--column", "name:text", "--column", "age:int64"],
    "lists": ["--value", "list", "--item", "int64"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory, birds) -> Files:
    files = Files(tmp_path_factory.mktemp("connect") / "store")
    path = str(files.path)
    forebay.push(birds, "birds", key="{id}", store=path)
    forebay.push(birds, "ordered", key="{id:04}", order="ordered", store=path)
    for name, words in TABLES.items():
        files.run("create", name, *words)
    return files


@pytest.fixture(scope="module")
def server(files):
    with files.serve() as server:
        yield server


@pytest.fixture
def connection(server):
    with forebay.connect(f"redis://127.0.0.1:{server.port}", timeout=10) as made:
        yield made


def embedded(files: Files, table: str) -> forebay.Table:
    return forebay.open(files.path)[table]


def test_reads_equal_those_of_a_store(files, connection):
    with forebay.open(files.path) as store:
        for name in ("birds", "ordered"):
            mine, other = store[name], connection[name]
            keys = ["0007", 7, b"990", "none", "0990", 10]
            assert other.get_many(keys) == mine.get_many(keys)
            assert (other.kind, other.order, other.version) == ("row", mine.order, 1)
            assert other.get_many(pa.array([990, 5000]), "?") == [mine.get(990, "?"), "?"]
            assert dict(other.items()) == dict(mine.items()) == dict(other)
            assert len(other) == len(mine) == len(other.keys()) and bool(other)
            assert list(other.values())[:3] == list(mine.values())[:3]
            assert pa.table(other.scan()).schema == pa.table(mine.scan()).schema
        table = connection["birds"]
        assert table[10] == {"id": 10, "name": "bird 10", "weight": None, "colour": "red"}
        assert table.get("none", "nobody") == "nobody" and 10 in table and "x" not in table
        with pytest.raises(KeyError):
            table["none"]
        assert table.get_many([]) == [] and not table.live
        many = [str(i) for i in range(1500)]
        assert table.get_many(many) == store["birds"].get_many(many)
        everything = [pa.table(t.scan()).sort_by("id") for t in (table, store["birds"])]
        assert everything[0] == everything[1]


def test_ranges(files, connection):
    mine, other = embedded(files, "ordered"), connection["ordered"]
    for words in (
        {},
        {"start": "0990"},
        {"end": "0010"},
        {"start": "0100", "end": "0200", "reverse": True},
        {"start": "0100", "limit": 7},
        {"reverse": True, "limit": 7},
        {"start": "0200", "end": "0100"},
        {"limit": 0},
        {"end": ""},
        {"start": ""},
        {"binary": True, "limit": 3},
    ):
        assert list(other.scan(**words)) == list(mine.scan(**words)), words
        assert pa.table(other.scan(**words)) == pa.table(mine.scan(**words)), words
    for words in ({"start": "1"}, {"reverse": True}):
        with pytest.raises(forebay.UsageError, match="birds is hashed"):
            list(connection["birds"].scan(**words))


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_every_type_equals_that_of_a_store(tmp_path, order):
    given = every_type.every_type()
    files = Files(tmp_path / "store")
    forebay.push(given, "types", key="{id}", order=order, store=str(files.path))
    with files.serve() as server, forebay.open(files.path) as store:
        with forebay.connect(f"redis://127.0.0.1:{server.port}") as connection:
            mine, other = store["types"], connection["types"]
            ours, theirs = (pa.table(table.scan()).sort_by("id") for table in (mine, other))
            assert theirs.schema == ours.schema
            for name in ours.column_names:
                pairs = zip(stored(ours[name]), stored(theirs[name]), strict=True)
                assert all(same(one, two) for one, two in pairs), name
            for key in range(every_type.ROWS):
                try:
                    expected = mine[key]
                except forebay.UsageError:
                    # Python's classes cannot hold this time.
                    with pytest.raises(forebay.UsageError):
                        other[key]
                    continue
                assert same(other[key], expected), key


def stored(column: pa.ChunkedArray) -> list:
    """Returns the values; a time is the number that is stored."""
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return [value for part in column.chunks for value in part.view(width).to_pylist()]
    return [str(value) if pa.types.is_nested(kind) else value.as_py() for value in column]


def same(one, two) -> bool:
    """Returns whether two values are equal, including NaN and the signs of zeros."""
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return one == two and math.copysign(1, one) == math.copysign(1, two)
    if isinstance(one, dict):
        return list(one) == list(two) and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return type(one) is type(two) and one == two


def test_live_tables_are_written_and_read(connection):
    kv, log, count = connection["kv"], connection["log"], connection["count"]
    kv.put("a", "Ada")
    kv.put("b", b"\xff", ttl=100)
    assert (kv["a"], kv["b"], kv.live, kv.version) == (b"Ada", b"\xff", True, None)
    assert log.put_many({f"{i:05}": str(i) for i in range(9000)}) == 9000
    assert [int(value) for _, value in log.scan("00100", "08900")] == list(range(100, 8900))
    assert pa.table(log.scan(reverse=True, limit=2)).to_pylist() == [
        {"key": "08999", "value": b"8999"},
        {"key": "08998", "value": b"8998"},
    ]
    kv.delete("a")
    assert kv.get_many(["a", "b"]) == [None, b"\xff"]
    count.put("x", 5)
    count.delta("x", -7)
    assert count["x"] == -2 and pa.table(count.scan()).to_pylist() == [{"key": "x", "value": -2}]
    sums, words = connection["sums"], connection["words"]
    sums.delta("x", 0.1)
    sums.delta("x", 2)
    assert sums["x"] == 2.1 and dict(sums.items()) == {"x": 2.1}
    words.delta("x", "one,")
    words.delta("x", b"two")
    assert words["x"] == b"one,two"


def test_rows_and_lists_are_read(server, connection):
    client = server.client()
    client.hset("people:1", "name", "Ada")
    client.rpush("lists:a", 1, 2)
    assert connection["people"][1] == {"name": "Ada", "age": None}
    assert connection["lists"]["a"] == [1, 2]
    assert pa.table(connection["people"].scan()).to_pylist() == [
        {"key": "1", "name": "Ada", "age": None}
    ]
    assert pa.table(connection["lists"].scan())["value"].to_pylist() == [[1, 2]]
    for name, words in (("people", "HSET"), ("lists", "RPUSH")):
        with pytest.raises(forebay.UsageError, match=words):
            connection[name].put("1", {"name": "Bob"})


def test_compare_and_set(connection):
    for name, first, second in (("kv", b"1", b"2"), ("count", 1, 2)):
        table = connection[name]
        seen = table.get_versioned("cas")
        assert seen.value is None
        version = table.put_versioned("cas", first, seen.version)
        assert table.get_versioned("cas") == (first, version)
        assert table.put_versioned("cas", second, seen.version) is None
        assert not table.delete_versioned("cas", seen.version) and table["cas"] == first
        assert table.delete_versioned("cas", version) and "cas" not in table
    expiring = connection["kv"].put_versioned("e", "1", seen.version, ttl=1000)
    plain = connection["kv"].put_versioned("e", "1", expiring)
    assert plain not in (None, expiring)
    with pytest.raises(forebay.UsageError, match="no version of a key"):
        connection["kv"].put_versioned("e", "1", "7")


def test_concurrent_increments_by_compare_and_set_are_not_lost(connection):
    log = connection["log"]

    def add():
        for _ in range(50):
            while True:
                seen = log.get_versioned("sum")
                if log.put_versioned("sum", str(int(seen.value or 0) + 1), seen.version):
                    break

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log["sum"] == b"300"
    log.delete("sum")


def test_invalid_writes_are_refused(connection):
    for run, kind, words in (
        (lambda: connection["none"], forebay.MissingError, "no table 'none'"),
        (lambda: connection["birds"].put("1", "x"), forebay.UsageError, "batch table"),
        (lambda: connection["birds"].delete("1"), forebay.UsageError, "batch table"),
        (lambda: connection["kv"].delta("1", "x"), forebay.UsageError, "without a kind"),
        (lambda: connection["count"].put("1", 1.5), TypeError, "whole number"),
        (lambda: connection["count"].put("1", 2**63), forebay.UsageError, "not an integer"),
        (lambda: connection["count"].put("1", 1, ttl=5), forebay.UsageError, "do not expire"),
        (lambda: connection["sums"].put("1", 2**60 + 1), forebay.UsageError, "no float"),
        (lambda: connection["sums"].put("1", 10**400), forebay.UsageError, "beyond the numbers"),
        (lambda: connection["kv"].put("1", 1), TypeError, "bytes or text"),
        (lambda: connection["kv"].put("", "x"), forebay.UsageError, "a key of 0 bytes"),
        (lambda: connection["kv"].put("1", "x", ttl=0), forebay.UsageError, "time to live"),
        (lambda: connection["kv"].put(1.5, "x"), TypeError, "a key is"),
    ):
        with pytest.raises(kind, match=words):
            run()


def test_a_scan_reads_one_version(tmp_path):
    files, path = Files(tmp_path / "store"), str(tmp_path / "store")
    for version in (1, 2):
        rows = {"id": list(range(10_000)), "n": [version] * 10_000}
        forebay.push(pa.table(rows), "t", key="{id:05}", order="ordered", store=path)
    wide = pa.table({"id": [1], "n": ["text"]})
    with files.serve() as server:
        with forebay.connect(f"redis://127.0.0.1:{server.port}") as connection:
            table = connection["t"]
            records = iter(table.scan())
            assert next(records)[1]["n"] == 2
            with forebay.open(path) as store:
                store["t"].rollback()
            client = server.client()
            while client.execute_command("KV.VERSION", "t") != 1:
                pass
            with pytest.raises(forebay.BusyError, match="swapped while it was scanned"):
                list(records)
            assert {row["n"] for _, row in table.scan()} == {1} and table.version == 1
            forebay.push(wide, "t", key="{id}", order="ordered", store=path, force=True)
            while client.execute_command("KV.VERSION", "t") != 3:
                pass
            assert table["1"] == {"id": 1, "n": "text"}
            assert pa.table(table.scan())["n"].to_pylist() == ["text"]


def test_reads_are_repeated_and_an_unsent_write_raises_busy(tmp_path):
    own = Files(tmp_path / "store")
    own.run("create", "count", "--delta", "i64")
    server = own.serve()
    with Relay(server.port) as relay:
        direct, relayed = (
            forebay.connect(f"redis://127.0.0.1:{port}", timeout=1)
            for port in (server.port, relay.port)
        )
        counts = [direct["count"], relayed["count"]]
        for count in counts:
            count.delta("x", 1)
        relay.drops = 2
        assert counts[1]["x"] == 2 and relay.drops == 0
        server.stop()
        for run in (lambda: counts[0].get("x"), lambda: counts[0].delta("x", 1)):
            with pytest.raises(forebay.BusyError):
                run()
        with own.serve() as again:
            relay.to = again.port
            assert counts[1]["x"] == 2
            counts[1].delta("x", 1)
            assert counts[1]["x"] == 3


def test_a_write_without_an_answer_is_uncertain(server):
    """A server reads a write and closes the connection, so the outcome is unknown."""
    with Relay(server.port) as relay:
        with forebay.connect(f"redis://127.0.0.1:{relay.port}", timeout=5) as connection:
            count = connection["count"]
            for word, write in (
                (b"KV.DELTA", lambda: count.delta("uncertain", 1)),
                (b"SET\r\n", lambda: count.put_many({"uncertain": 1, "second": 2})),
            ):
                relay.swallows = word
                with pytest.raises(forebay.UncertainError, match="not sent again"):
                    write()
                assert relay.swallows == b"", "once"
            assert count.get_many(["uncertain", "second"]) == [None, None]


def test_invalid_urls_are_refused():
    for url in ("localhost", "http://x", "redis://", "redis://a:b", "redis://u@h:1", "redis://h/x"):
        with pytest.raises(forebay.UsageError):
            forebay.connect(url)
    with pytest.raises(forebay.UsageError) as refused:
        forebay.connect("redis+x://user:secret@host")
    assert "secret" not in str(refused.value)


def test_users(files, tmp_path):
    password = "p@ss:word/1"
    user = {"name": "shop", "password_sha256": hashlib.sha256(password.encode()).hexdigest()}
    users = tmp_path / "users.json"
    own = Files(tmp_path / "store")
    own.run("create", "kv")
    own.run("create", "other")
    users.write_text(json.dumps({"users": [{**user, "tables": ["kv"], "verbs": ["read"]}]}))
    with own.serve("--users", users) as server:
        at = f"127.0.0.1:{server.port}"
        with forebay.connect(f"redis://shop:p%40ss%3Aword%2F1@{at}") as connection:
            assert connection["kv"].get("x") is None
            with pytest.raises(forebay.Error, match="may not write to"):
                connection["kv"].put("x", "1")
            with pytest.raises(forebay.Error, match="may not read"):
                connection["other"]
        with pytest.raises(forebay.Error) as refused:
            forebay.connect(f"redis://shop:wrong@{at}", timeout=1)["kv"]
        assert "wrong@" not in str(refused.value)


def test_tls(tmp_path):
    secured = Secured(tmp_path)
    own = Files(tmp_path / "store")
    own.run("create", "kv")
    with own.serve(*secured.words()) as server:
        url = f"rediss://seer:{quote(secured.password)}@localhost:{server.port}"
        with forebay.connect(url, ca_file=str(secured.certificate)) as connection:
            assert connection["kv"].get("x") is None
        with pytest.raises(forebay.BusyError, match="ertificate"):
            forebay.connect(url, timeout=1)["kv"]


def test_without_the_package_redis_the_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(forebay.UsageError, match=r"pip install 'forebay\[redis\]'"):
        forebay.connect("redis://127.0.0.1")


def test_the_examples_of_the_guide_hold(tmp_path):
    """Runs the Python blocks of docs/reference/python-servers.md in order, in one session."""
    own = Files(tmp_path / "store")
    path = str(own.path)
    birds = pa.table({"id": [1, 2, 3], "name": ["wren", "lark", "kite"]})
    prices = pa.table({"day": ["01", "02", "03"], "price": [3.5, 3.25, 4.0]})
    forebay.push(birds, "birds", key="{id}", store=path)
    forebay.push(prices, "prices", key="{day}", order="ordered", store=path)
    own.run("create", "sessions")
    own.run("create", "clicks", "--delta", "i64")
    page = Path(__file__).parents[2] / "docs" / "reference" / "python-servers.md"
    text = page.read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) > 3
    names = {"__name__": "guide"}
    with own.serve() as server:
        for block in blocks:
            block = block.replace("127.0.0.1:7379", f"127.0.0.1:{server.port}")
            test = doctest.DocTestParser().get_doctest(block, names, "python-servers.md", None, 0)
            runner = doctest.DocTestRunner()
            assert runner.run(test, clear_globs=False).failed == 0
            names.update(test.globs)
        names["connection"].close()


class Relay:
    """Forwards bytes to a port. It closes the connection of the next `drops` requests.

    It also closes the connection of the first request that contains `swallows`.
    """

    def __init__(self, to: int) -> None:
        self.to, self.drops, self.swallows = to, 0, b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _passes(self, data: bytes) -> bool:
        if self.swallows and self.swallows in data:
            self.swallows = b""
            return False
        if self.drops:
            self.drops -= 1
            return False
        return True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                client.close()
                continue
            for one, two, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass, args=(one, two, asks), daemon=True).start()

    def _pass(self, one, two, asks: bool) -> None:
        try:
            while data := one.recv(65536):
                if asks and not self._passes(data):
                    break
                two.sendall(data)
        except OSError:
            pass
        for end in (one, two):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


def test_a_table_that_was_just_made_is_found_by_the_next_command(files, server, connection):
    """The server checks for new tables five times a second."""
    made = iter(range(100))

    def new() -> str:
        name = f"made-{next(made)}"
        files.run("create", name, "--delta", "i64")
        return name

    client = server.client()
    assert connection[new()].get("a") is None
    assert client.execute_command("KV.DELTA", f"{new()}:a", 1) == b"OK"
    assert client.get(f"{new()}:a") is None
    assert client.incr(f"{new()}:a", 2) == 2
    both = new()
    assert client.pipeline().incr(f"{both}:a").incr(f"{both}:a").execute() == [1, 2]
    with forebay.open(files.path) as store:
        name = f"made-{next(made)}"
        store.create(name, delta="i64").close()
        connection[name].delta("a", 5)
        assert connection[name]["a"] == 5
    with pytest.raises(forebay.MissingError):
        connection["made-never"]
