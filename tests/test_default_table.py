"""`forebay serve --default-table`, for keys without a table name."""

import subprocess

import pytest
import redis
from harness import wait_for

ROWS = ["--value", "row", "--column", "element:__rand_int__:text"]


@pytest.fixture
def default(store):
    """A server with the default table `kv`, and another table."""
    store.run("create", "kv")
    store.run("create", "other")
    with store.serve("--default-table", "kv") as server:
        server.store = store
        yield server


def test_keys_without_a_table(default):
    client = default.client(decode_responses=True)
    client.mset({"plain": "1", "user:1": "2", "kv:full": "3", "other:1": "4", ":x": "5"})
    # If a key begins with a table's name, it belongs to that table. The default table's name works
    # for all other keys.
    client.set("kv:other:1", "6")
    assert client.mget("kv:plain", "kv:user:1", "full", "other:1", "kv::x", "kv:other:1") == list(
        "123456"
    )
    assert client.get("user:1") == "2" and client.get("nosuch") is None
    assert client.exists("plain", "user:1", "full", "other:1", "kv:plain") == 5
    assert client.dbsize() == 6
    names = {"plain", "user:1", "full", "other:1", ":x", "kv:other:1"}
    assert set(client.scan_iter()) == set(client.keys("*")) == names
    assert client.randomkey() in names
    in_full = {f"kv:{key}" for key in ["plain", "user:1", "full", ":x", "other:1"]}
    assert set(client.keys("kv:*")) == set(client.scan_iter("kv:*")) == in_full
    assert client.keys("user:*") == ["user:1"] and client.keys("other:*") == ["other:1"]
    assert all(client.exists(name) for name in names)
    assert client.expire("user:1", 100) and client.ttl("kv:user:1") > 90
    assert client.type("plain") == "string" and client.memory_usage("plain") > 0
    assert client.object("encoding", "plain") == "raw"
    with client.pipeline(transaction=False) as pipe:
        for key in ["plain", "kv:plain", "other:1", "user:1", "gone"]:
            pipe.get(key)
        assert pipe.execute() == ["1", "1", "4", "2", None]
    with client.pipeline() as pipe:
        pipe.incr("plain")
        pipe.get("kv:plain")
        assert pipe.execute() == [2, "2"]
    assert client.delete("plain", "user:1", "nosuch") == 2
    assert client.flushdb() and client.keys("*") == ["other:1"]


def test_a_new_table_takes_the_keys_with_its_name(default):
    client = default.client(decode_responses=True)
    client.set("late:1", "of kv")
    default.store.run("create", "late")
    wait_for(lambda: client.get("late:1") is None, "the new table is served")
    assert client.get("kv:late:1") == "of kv" and client.keys("*late:1") == ["kv:late:1"]


def test_a_watched_key_that_a_new_table_takes_has_changed(default):
    client = default.client(decode_responses=True)
    client.set("late:1", "of kv")
    client.set("stays:1", "of kv")
    with client.pipeline() as pipe:
        pipe.watch("late:1", "stays:1")
        default.store.run("create", "late")
        wait_for(lambda: client.get("late:1") is None, "the new table is served")
        pipe.multi()
        pipe.set("kv:late:1", "no")
        with pytest.raises(redis.WatchError):
            pipe.execute()
        # The same keys, under their new names.
        pipe.watch("kv:late:1", "stays:1")
        pipe.multi()
        pipe.get("kv:late:1")
        assert pipe.execute() == ["of kv"]


def test_a_missing_default_table_is_logged(store):
    with store.serve("--default-table", "nosuch", "--create") as server:
        wait_for(
            lambda: "there is no such table yet" in server.log.read_text(),
            "the missing table is logged",
        )
        client = server.client()
        with pytest.raises(redis.ResponseError, match="no table 'nosuch'"):
            client.set("user:1", "x")
        store.run("create", "nosuch")
        wait_for(lambda: "table_nosuch" in client.info(), "the new table is served")
        assert client.set("user:1", "x") and client.get("nosuch:user:1") == b"x"


def test_keys_of_an_unreadable_table_do_not_reach_the_default_table(store):
    store.run("create", "kv")
    store.run("create", "broken")
    (store.path / "tables" / "broken" / "live").write_bytes(b"damaged")
    with store.serve("--default-table", "kv") as server:
        client = server.client()
        with pytest.raises(redis.ResponseError, match="no table 'broken'"):
            client.set("broken:1", "x")
        assert client.set("sound:1", "x")


def test_without_a_default_table_keys_must_name_a_table(live):
    with pytest.raises(redis.ResponseError, match="--default-table"):
        live.client().get("plain")


@pytest.mark.parametrize(
    ("made", "tests"),
    [
        ([], "ping,set,get,incr,mset"),
        (["--value", "list", "--item", "binary"], "lpush,rpush,lpop,rpop,lrange"),
        (ROWS, "hset"),
    ],
)
def test_redis_benchmark(store, made, tests):
    store.run("create", "bench", "--durability", "os", *made)
    with store.serve("--default-table", "bench") as server:
        words = ["redis-benchmark", "-p", str(server.port), "-n", "500", "-c", "5", "-P", "4"]
        done = subprocess.run(
            [*words, "-t", tests, "--csv"], capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0 and "rror" not in done.stdout + done.stderr, done
        assert len(done.stdout.splitlines()) > len(tests.split(",")), done.stdout
        asked = ["redis-cli", "-p", str(server.port), "INFO", "stats"]
        stats = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        assert "total_error_replies:0\n" in stats, stats
