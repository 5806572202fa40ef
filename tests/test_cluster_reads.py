"""A table that is divided over nodes is read whole and unchanged through every node."""

import json
import subprocess
from pathlib import Path

import pytest
import redis
from data import people, person, write
from redis.cluster import LoadBalancingStrategy

NODE = Path(__file__).parent / "node"
COUNT = 2000
KEYS = [f"people:{i}" for i in range(COUNT)]


@pytest.fixture(scope="module")
def divided(shared_by_module, tmp_path_factory):
    """Five nodes in three zones. Table `people` is hashed, `ordered` is ordered, and each has two
    replicas."""
    made = shared_by_module(5)
    table = write(people(COUNT), tmp_path_factory.mktemp("source") / "people.parquet")
    cut = ["--replicas", "2", "--partitions"]
    pushed = made.store.push("people", table, args=[*cut, "16"])
    assert pushed["swapped"] and pushed["rollout"]["excluded"] == []
    made.store.push("ordered", table, key="{id:05}", args=[*cut, "6", "--order", "ordered"])
    return made


def rows(texts):
    return [text and json.loads(text) for text in texts]


def test_any_gateway_gives_every_key(divided):
    whole = [person(i) for i in range(COUNT)]
    for node in divided.nodes:
        with node.through_gateway() as client:
            assert client.info("server")["redis_mode"] == "standalone"
            assert rows(client.mget(KEYS)) == whole, node.name
            with client.pipeline(transaction=False) as pipe:
                for key in KEYS[:500]:
                    pipe.get(key)
                assert rows(pipe.execute()) == whole[:500], node.name
            assert client.hget("people:7", "name") == "person 7"
            assert client.hgetall("ordered:00007")["name"] == "person 7"
            assert client.exists("people:1", "people:2", "people:x") == 2
            assert client.get("people:nosuch") is None
            assert client.dbsize() == 2 * COUNT
        held = node.metric('forebay_commands_routed_total{outcome="answered"}')
        assert held > 0, f"{node.name} has all keys"


def test_a_gateway_walks_the_whole_cluster(divided):
    for node in divided.nodes[:2]:
        with node.through_gateway() as client:
            scanned = list(client.scan_iter(match="people:*", count=300))
            assert len(scanned) == COUNT and set(scanned) == set(KEYS)
            ordered = list(client.scan_iter(match="ordered:*", count=300))
            assert ordered == [f"ordered:{i:05}" for i in range(COUNT)]


def test_ranges_span_nodes_in_order(divided):
    for node in divided.nodes:
        for port in [node.gateway, node.port]:
            with node.client(port) as client:
                seen, start = [], "[ordered:00100"
                while start:
                    words = [start, "(ordered:01900", "LIMIT", 170, "KEYS"]
                    start, keys = client.execute_command("KV.RANGE", *words)
                    seen += keys
                assert seen == [f"ordered:{i:05}" for i in range(100, 1900)], node.name
    with divided.nodes[0].client() as client:
        ranges = client.execute_command("KV.MAP", "ordered")
    assert len({address for one in ranges for address in one[2]}) > 2
    assert (ranges[0][0], ranges[-1][1]) == ("", None)


@pytest.mark.parametrize("balancing", [None, LoadBalancingStrategy.ROUND_ROBIN])
def test_redis_py_as_a_cluster_client(divided, balancing):
    with divided.nodes[0].cluster_client(load_balancing_strategy=balancing) as client:
        assert [json.loads(client.get(key)) for key in KEYS[:600]] == [
            person(i) for i in range(600)
        ]
        assert rows(client.mget_nonatomic(KEYS)) == [person(i) for i in range(COUNT)]
        assert json.loads(client.get("ordered:01234")) == person(1234)
        assert client.dbsize(target_nodes="primaries") == 2 * COUNT
        scanned = list(client.scan_iter(match="people:*", count=500))
        assert len(scanned) == COUNT and set(scanned) == set(KEYS)
        with pytest.raises(redis.exceptions.ReadOnlyError):
            client.set("people:1", "x")


def test_ioredis_as_a_cluster_client(divided):
    words = ["node", NODE / "read_cluster.mjs", str(divided.nodes[1].port), str(COUNT)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["rows"] == [person(i) for i in range(COUNT)]
    assert result["many"] == [person(i) for i in range(100)]
    assert result["absent"] is None and result["hash"]["name"] == "person 7"
    assert result["refused"].startswith("READONLY") and result["scanned"] == COUNT


def test_redis_cli_follows_redirects(divided):
    for key in KEYS[:8]:
        words = ["redis-cli", "-c", "-p", str(divided.nodes[2].port), "GET", key]
        out = subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
        assert json.loads(out) == person(int(key.split(":")[1]))


def test_a_cluster_port_redirects_to_the_node_with_the_key(divided):
    first = divided.nodes[0]
    redirects = 0
    with first.client() as client:
        assert client.info("server")["redis_mode"] == "cluster"
        assert client.info("server")["availability_zone"] == "z1"
        for i in range(200):
            try:
                assert json.loads(client.get(f"people:{i}")) == person(i)
            except redis.exceptions.ResponseError as error:
                words = str(error).split()
                assert words[0] == "MOVED" or len(words) == 2, error
                port = int(words[-1].rsplit(":", 1)[1])
                with first.client(port) as target:
                    assert json.loads(target.get(f"people:{i}")) == person(i)
                redirects += 1
        assert 0 < redirects < 200
        # The node gathers keys of several slots, and does not refuse them.
        assert rows(client.mget(KEYS[:50])) == [person(i) for i in range(50)]
