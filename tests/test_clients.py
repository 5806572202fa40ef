"""Three real clients read the same data: redis-py, redis-cli and ioredis."""

import json
import subprocess
import urllib.request
from pathlib import Path

import pyarrow as pa
import pytest
import redis
from data import person, write
from harness import wait_for

NODE = Path(__file__).parent / "node"


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_py(served, protocol):
    client = served.client(protocol=protocol, decode_responses=True)
    assert client.ping()
    fields = client.hgetall("people:7")
    assert fields == {
        "id": "7",
        "name": "person 7",
        "score": "1.75",
        "v1": "2",
        "v2": "2",
        "v3": "2",
    }
    assert client.hget("people:7", "name") == "person 7"
    assert client.hmget("people:7", "id", "note", "nosuch") == ["7", None, None]
    assert client.hlen("people:9") == 7 and client.hexists("people:9", "note")
    assert set(client.hkeys("people:9")) == set(person(9))
    assert dict(client.hscan_iter("people:7")) == fields
    assert json.loads(client.get("people:7")) == person(7, 2)
    values = client.mget("people:1", "people:nosuch", "people:2")
    assert [value and json.loads(value)["id"] for value in values] == [1, None, 2]
    assert client.exists("people:1", "people:2", "people:x") == 2
    assert client.type("people:1") == "hash" and client.type("people:x") == "none"
    assert client.strlen("people:7") == len(client.get("people:7"))
    assert client.dbsize() == 1000
    keys = list(client.scan_iter(match="people:99*", count=50))
    assert sorted(keys) == sorted(["people:99", *(f"people:99{i}" for i in range(10))])
    with pytest.raises(redis.exceptions.ResponseError, match="nosuch"):
        client.get("nosuch:1")


def test_a_single_server_does_not_act_as_a_cluster(served):
    client = served.client(decode_responses=True)
    assert client.info("server")["redis_mode"] == "standalone"
    # Each key lies in another slot.
    values = client.mget([f"people:{i}" for i in range(100)])
    assert [json.loads(value)["id"] for value in values] == list(range(100))
    with pytest.raises(redis.exceptions.RedisClusterException, match="Cluster mode is not enabled"):
        redis.RedisCluster(host="127.0.0.1", port=served.port)


def test_writes_are_refused_clearly(served):
    client = served.client()
    for write_command in [
        ("SET", "people:1", "x"),
        ("DEL", "people:1"),
        ("HSET", "people:1", "a", "b"),
    ]:
        with pytest.raises(redis.exceptions.ReadOnlyError):
            client.execute_command(*write_command)
    with pytest.raises(redis.exceptions.ResponseError):
        client.execute_command("NOSUCHCOMMAND")
    assert client.ping()


def test_pipelines_keep_their_order(served):
    with served.client(decode_responses=True).pipeline(transaction=False) as pipe:
        for i in range(500):
            pipe.hget(f"people:{i}", "id")
        assert pipe.execute() == [str(i) for i in range(500)]


def test_redis_cli(served):
    def cli(*words, **options):
        command = ["redis-cli", "-p", str(served.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout

    assert cli("PING") == "PONG\n"
    assert json.loads(cli("GET", "people:3")) == person(3, 2)
    assert cli("HGET", "people:3", "name") == "person 3\n"
    assert "READONLY" in cli("SET", "people:3", "x")
    assert cli("-3", "HGET", "people:3", "id") == "3\n"
    assert len(cli("--scan", "--pattern", "people:1?").splitlines()) == 10
    assert cli(input="GET people:nosuch\nHLEN people:3\n").split() == ["7"]
    assert "7.2" in cli("INFO", "server")


def test_ioredis(served):
    done = subprocess.run(
        ["node", NODE / "read.mjs", str(served.port)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["hash"]["name"] == "person 7" and found["row"] == person(7, 2)
    assert found["absent"] is None and found["many"] == [str(i) for i in range(100)]
    assert found["refused"].startswith("READONLY") and found["scanned"] == 1000


def test_bytes_and_lists(store, tmp_path):
    table = pa.table(
        {"id": ["a", "b"], "raw": [b"\x00\xff", b"hello"], "items": [["x", "y", "z"], []]}
    )
    path = write(table, tmp_path / "values.parquet")
    store.push("raw", path, args=["--value", "raw"])
    store.push("items", path, args=["--value", "items"])
    with store.serve() as server:
        client = server.client()
        assert client.get("raw:a") == b"\x00\xff" and client.type("raw:a") == b"string"
        assert client.getrange("raw:b", 1, 3) == b"ell" and client.strlen("raw:b") == 5
        assert client.lrange("items:a", 0, -1) == [b"x", b"y", b"z"]
        assert client.lindex("items:a", -1) == b"z" and client.llen("items:a") == 3
        assert client.type("items:a") == b"list"
        with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
            client.hgetall("raw:a")


def test_ranges_of_an_ordered_table(store, source):
    store.push("o", source(100), key="{id:03}", args=["--order", "ordered"])
    with store.serve() as server:
        client = server.client(decode_responses=True)
        seen, start = [], "[o:010"
        while start:
            start, items = client.execute_command("KV.RANGE", start, "(o:030", "LIMIT", 7, "KEYS")
            seen += items
            start = start and (start if start[0] in "[(" else f"[{start}")
        assert seen == [f"o:{i:03}" for i in range(10, 30)]


def test_a_value_of_several_megabytes(store, tmp_path):
    table = pa.table({"id": [1, 2], "blob": ["x" * 5_000_000, "y"]})
    store.push("big", write(table, tmp_path / "big.parquet"), args=["--value", "blob"])
    with store.serve() as server:
        client = server.client()
        assert client.get("big:1") == b"x" * 5_000_000
        assert client.getrange("big:1", 4_999_990, -1) == b"x" * 10
        assert client.mget("big:2", "big:1", "big:2") == [b"y", b"x" * 5_000_000, b"y"]


def test_http(served):
    def fetch(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{served.http}{path}", timeout=30) as reply:
            return reply.status, reply.read().decode()

    assert fetch("/health")[0] == 200 and fetch("/ready")[0] == 200
    served.client().get("people:1")
    assert "forebay_" in fetch("/metrics")[1]
    assert "people" in fetch("/v1/tables")[1]


def test_a_server_follows_swaps_rollbacks_pushes_and_drops(served, source):
    client = served.client(decode_responses=True)
    store = served.store
    store.run("rollback", "people")
    wait_for(lambda: client.hget("people:1", "v1") == "1", "the rollback is seen")
    store.run("swap", "people", "2")
    wait_for(lambda: client.hget("people:1", "v1") == "2", "the swap is seen")
    store.push("fresh", source(5))
    wait_for(lambda: exists(client, "fresh:1"), "a new table is seen")
    store.run("drop", "fresh", "--yes")
    wait_for(lambda: not exists(client, "fresh:1"), "the drop is seen")


def exists(client, key):
    """Whether a key exists. A table that is not served has no keys."""
    try:
        return client.exists(key)
    except redis.exceptions.ResponseError as error:
        assert "no table" in str(error)
        return False


def test_addresses_other_than_loopback_need_tls_and_users(store, source):
    store.push("people", source(10))
    message = store.refuse("serve", "--listen", "0.0.0.0:0")
    assert "TLS" in message or "--tls-cert" in message
