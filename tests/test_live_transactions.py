"""MULTI, WATCH and pipelines on live tables."""

import json
import threading
import urllib.request

import pytest
import redis
from harness import is_served, refused, wait_for


def test_transactions(live):
    client = live.client(decode_responses=True)
    with client.pipeline(transaction=True) as multi:
        multi.set("kv:{u}a", 1).incr("kv:{u}a").get("kv:{u}a").lpush("kv:{u}a", 1)
        multi.delete("kv:{u}b").append("kv:{u}a", "0").get("kv:{u}a")
        out = multi.execute(raise_on_error=False)
    assert out[:3] == [True, 2, "2"] and isinstance(out[3], redis.ResponseError)
    assert out[4:] == [0, 2, "20"]
    assert client.get("kv:{u}a") == "20"
    with client.pipeline(transaction=True) as multi:
        for i in range(100):
            multi.set(f"kv:{i}", i)
        refused(multi.execute, "different partitions", "hashtag")
    assert client.exists(*[f"kv:{i}" for i in range(100)]) == 0
    with client.pipeline(transaction=True) as multi:
        multi.set("kv:a", 1).incr("count:a")
        refused(multi.execute, "several tables")
    with client.pipeline(transaction=True) as multi:
        multi.set("kv:a", 1).keys("*")
        refused(multi.execute, "KEYS cannot be in a MULTI that writes")
    assert client.exists("kv:a") == 0


def test_counters_of_many_clients_by_compare_and_set_all_count(live):
    """Each client reads a value with its version, and sets it if the version is unchanged."""

    def add(client, key):
        while True:
            version, seen = client.execute_command("KV.GETV", key)
            next = str(int(seen or 0) + 1)
            if client.execute_command("KV.SETV", key, next, version, "EX", 1000) is not None:
                return

    def work():
        client = live.client(decode_responses=True)
        for _ in range(50):
            for key in ("kv:n", "log:z"):
                add(client, key)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = live.client(decode_responses=True)
    assert client.mget("kv:n", "log:z") == ["300", "300"] and client.ttl("kv:n") > 900
    version, _ = client.execute_command("KV.GETV", "kv:n")
    assert client.execute_command("KV.DELV", "kv:n", "1" * 32) == 0
    assert client.execute_command("KV.DELV", "kv:n", version) == 1 and not client.exists("kv:n")
    client.hset("people:1", "name", "Ada")
    version, row = client.execute_command("KV.GETV", "people:1")
    assert json.loads(row)["name"] == "Ada"
    refused(lambda: client.execute_command("KV.SETV", "people:1", "x", version), "WRONGTYPE")
    client.hset("people:1", "age", 36)
    assert client.execute_command("KV.DELV", "people:1", version) == 0
    categories = client.execute_command("COMMAND", "INFO", "KV.SETV", "KV.GETV")
    assert "write" in str(categories) and "readonly" in str(categories)


def test_watched_counters_of_many_clients_all_count(live):
    """Like redis-py's documentation of WATCH: read, then write if no other client wrote
    meanwhile."""

    def add(client):
        with client.pipeline() as pipe:
            while True:
                try:
                    pipe.watch("kv:{w}n")
                    seen = int(pipe.get("kv:{w}n") or 0)
                    pipe.multi()
                    pipe.set("kv:{w}n", seen + 1).set("kv:{w}last", seen + 1)
                    pipe.execute()
                    return
                except redis.WatchError:
                    continue

    def work():
        client = live.client(decode_responses=True)
        for _ in range(50):
            add(client)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client = live.client(decode_responses=True)
    assert client.mget("kv:{w}n", "kv:{w}last") == ["200", "200"]


def test_an_error_in_a_transaction_does_not_affect_other_commands(live):
    client = live.client(decode_responses=True)
    with client.pipeline(transaction=True) as multi:
        multi.set("kv:{u}a", 1).execute_command("KV.DELTA", "kv:{u}a", 1)
        multi.set("kv:", 2).execute_command("MSET", "kv:{u}b", 3, "kv:{u}c")
        multi.set("kv:{u}d", 4, ex=100).ttl("kv:{u}d")
        out = multi.execute(raise_on_error=False)
    errors = [str(part) if isinstance(part, redis.ResponseError) else None for part in out]
    assert "kind of deltas" in errors[1] and "0 bytes" in errors[2] and "wrong number" in errors[3]
    assert (out[0], out[4], out[5]) == (True, True, 100)
    assert client.mget("kv:{u}a", "kv:{u}b", "kv:{u}d") == ["1", None, "4"]
    # Numbers of several partitions. One is invalid, so nothing is written.
    pairs = {f"count:{i}": i for i in range(50)} | {"count:x": "many"}
    refused(lambda: client.mset(pairs), "not an integer")
    assert client.exists(*pairs) == 0
    pairs["count:x"] = 7
    assert client.mset(pairs) and client.mget(list(pairs)) == [str(n) for n in pairs.values()]


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py_pipelines_and_transactions(live, protocol):
    client = live.client(decode_responses=True, protocol=protocol)
    with client.pipeline(transaction=False) as pipe:
        for i in range(300):
            pipe.set(f"kv:{i}", i, ex=1000 + i).incr(f"kv:{i}").ttl(f"kv:{i}")
        out = pipe.execute()
    assert out[1::3] == list(range(1, 301))
    assert all(left - 1000 - i in (-1, 0) for i, left in enumerate(out[2::3]))
    with client.pipeline(transaction=True) as multi:
        multi.execute_command("SETEX", "kv:{m}a", 50, "x")
        multi.append("kv:{m}a", "y").getex("kv:{m}a", persist=True)
        multi.ttl("kv:{m}a").expire("kv:{m}a", 70, nx=True).expire("kv:{m}a", 60, gt=True)
        multi.ttl("kv:{m}a").pexpireat("kv:{m}a", 1).get("kv:{m}a")
        assert multi.execute() == [True, 2, "xy", -1, True, False, 70, True, None]


def test_appends_in_a_transaction_do_not_rewrite_the_value(live):
    live.store.run("create", "joined", "--delta", "append")
    client = live.client()
    wait_for(lambda: is_served(client, "joined"), "the new table")

    def log_bytes():
        with urllib.request.urlopen(f"http://127.0.0.1:{live.http}/v1/tables") as answer:
            tables = json.loads(answer.read())["tables"]
        return next(table["log_bytes"] for table in tables if table["table"] == "joined")

    client.set("joined:long", b"x" * (4 << 20))
    before = log_bytes()
    with client.pipeline(transaction=True) as multi:
        for _ in range(1000):
            multi.append("joined:long", b"1234567890")
        multi.strlen("joined:long")
        lengths = multi.execute()
    assert lengths[-1] == (4 << 20) + 10_000
    assert log_bytes() - before < 1 << 20
    # A value that the transaction sets is written once, with all appends.
    with client.pipeline(transaction=True) as multi:
        multi.set("text:short", "a")
        for _ in range(1000):
            multi.append("text:short", "b")
        multi.execute()
    assert client.get("text:short") == b"a" + b"b" * 1000


def test_a_deletion_of_all_keys_changes_watched_keys_that_existed(live):
    client = live.client()
    for key, is_changed in (("kv:present", True), ("kv:absent", False)):
        client.set("kv:present", "1")
        with client.pipeline() as pipe:
            pipe.watch(key)
            client.execute_command("FLUSHDB", "kv")
            pipe.multi()
            pipe.ping()
            if is_changed:
                with pytest.raises(redis.WatchError):
                    pipe.execute()
            else:
                assert pipe.execute() == [True]
