"""Clients of Redis Cluster and of HTTP at live tables of a cluster, by real processes."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redis
from harness import wait_for
from redis.cluster import LoadBalancingStrategy, RedisCluster
from secured import Secured

NODE = Path(__file__).parent / "node"
LIVE = ["--mode", "live", "--replicas", "3", "--durability", "os"]
COUNT = 400


@pytest.fixture(scope="module")
def two(shared_by_module):
    """Two partitions over three slot classes, so that some keys' class primary is not their
    leader."""
    made = shared_by_module(3)
    made.store.json("create", "ab", *LIVE, "--partitions", "2")
    wait_for(lambda: len(set(leaders(made))) == 2, "the first nodes of the lists lead")
    return made


def leaders(made):
    """The client ports of the nodes that lead the partitions, by the map."""
    with made["n1"].through_gateway() as client:
        rows = client.execute_command("KV.MAP", "ab")
    return [int(row[2][0].rsplit(":", 1)[1]) for row in rows]


def key_of(made, partition, name):
    """A key of a partition."""
    with made["n1"].client() as client:
        keys = (f"ab:{name}{number}" for number in range(1000))
        keys_of_partition = (
            key for key in keys if client.cluster("keyslot", key) // 8192 == partition
        )
        return next(keys_of_partition)


@pytest.mark.parametrize("strategy", [None, LoadBalancingStrategy.ROUND_ROBIN])
@pytest.mark.parametrize("of_class", [0, 1])
def test_walks_of_redis_py_find_each_key_once(two, strategy, of_class):
    """redis-py treats the target of MOVED as a primary, and walks through it."""
    node, prefix = two["n2"], f"ab:c{of_class}{strategy is None}"
    keys = [f"{prefix}-{i}" for i in range(COUNT)]
    options = {"load_balancing_strategy": strategy, "decode_responses": True, "socket_timeout": 10}
    with RedisCluster(host="127.0.0.1", port=node.port + 4 * of_class, **options) as client:
        for key in keys:
            assert client.set(key, key)
        assert [client.get(key) for key in keys] == keys
        primaries = {primary.port for primary in client.get_primaries()}
        assert primaries == {row[0] for row in node.slots()}
        for count in (100, 7):
            walked = list(client.scan_iter(match=f"{prefix}-*", count=count))
            assert sorted(walked) == sorted(keys)
        with two["n1"].through_gateway() as gateway:
            assert client.dbsize(target_nodes=client.PRIMARIES) == gateway.dbsize() >= COUNT


def test_walks_of_ioredis_find_each_key_once(two):
    for port in (two["n3"].port, two["n3"].port + 4):
        words = ["node", NODE / "scan_live.mjs", str(port), str(COUNT)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)
        with two["n1"].through_gateway() as gateway:
            assert counts.pop("size") == gateway.dbsize()
        assert counts == dict.fromkeys(["set", "read", "scanned", "different"], COUNT)


def test_clients_are_redirected_once_and_only_to_primaries(two):
    primaries = {row[0] for row in two["n1"].slots()}
    redirected = set()
    for partition in (0, 1):
        key = key_of(two, partition, "led")
        for node in two.nodes:
            with node.client() as client:
                try:
                    assert client.set(key, 1)
                except redis.exceptions.MovedError as moved:
                    redirected.add(moved.port)
                    with node.client(moved.port) as target:
                        assert target.set(key, 1)
            for port in sorted(primaries & set(range(node.port, node.port + 9))):
                with node.client(port) as client:
                    assert client.incr(key) == 2 and client.set(key, 1)
    assert redirected and redirected <= primaries


def test_a_multi_runs_whole_at_the_leader(two):
    for partition in (0, 1):
        key = key_of(two, partition, "multi")
        for node in two.nodes:
            lines = ["MULTI", f"SET {key} 1", f"INCR {key}", "EXEC", f"GET {key}", f"DEL {key}"]
            words = ["redis-cli", "-c", "-p", str(node.port)]
            text = "\n".join([*lines, ""])
            done = subprocess.run(words, input=text, capture_output=True, text=True, timeout=30)
            assert done.stdout.split()[:5] == ["OK", "QUEUED", "QUEUED", "OK", "2"], done.stdout
            assert done.stdout.splitlines()[-2:] == ["2", "1"], done.stdout
            with node.client() as client:
                transaction = client.pipeline().set(key, 5).incrby(key, 2).get(key)
                assert transaction.execute() == [True, 7, "7"]
                assert client.pipeline().get(key).exists(key).execute() == ["7", 1]


def test_http_reports_that_a_live_table_has_no_versions(two):
    token = two.directory / "token"
    token.write_text("a token of the tests\n")
    node = two["n3"]
    node.stop()
    node.args = ["--admin-token-file", token]
    node.start().wait_listening()
    two.wait_up()

    def ask(path, body=None):
        url = f"http://127.0.0.1:{node.http}/v1/tables/{path}"
        headers = {"Authorization": "Bearer a token of the tests"}
        try:
            request = urllib.request.Request(url, body, headers)
            return urllib.request.urlopen(request, timeout=30).status, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    for path, body in [("ab/versions", None), ("ab/swap", b'{"version": 1}'), ("ab/rollback", b"")]:
        status, text = ask(path, body)
        assert (status, "is a live table: it has no versions" in text) == (409, True), text
    assert ask("none/versions")[0] == 404


def test_http_gives_the_reason_for_a_refused_row(two):
    key = key_of(two, 0, "row")
    path = f"/v1/tables/ab/rows/{key.split(':')[1]}"

    def answers():
        return {node: node.ask(path) for node in two.nodes}

    with two["n1"].through_gateway() as client:
        assert client.set(key, "x")
        # Another node may become the leader meanwhile.
        wait_for(lambda: list(answers().values()).count((200, '"x"')) == 1, answers)
        found = answers()
        (leader,) = (node for node, answer in found.items() if answer == (200, '"x"'))
        for status, text in (answer for node, answer in found.items() if node is not leader):
            assert status == 421 and "is not the leader: KV.MAP ab" in text
            assert "expired" not in text
        assert client.set(key, "x", px=1)
        wait_for(lambda: "has expired by the clock" in leader.ask(path)[1], "it has expired")
        assert leader.ask(path)[0] == 421
        assert client.get(key) is None
        assert leader.ask(path)[0] == 404


@pytest.fixture
def guarded(shared, tmp_path):
    """Two live tables with users, of which one may read only `shop`. Nodes n1 and n2 run; n3 is
    killed."""
    made = shared(3)
    made.secured = Secured(tmp_path)
    users = json.loads(made.secured.users.read_text())
    users["users"].append({**users["users"][0], "name": "clerk", "tables": ["shop"]})
    made.secured.users.write_text(json.dumps(users))
    for table in ("pay", "shop"):
        made.store.json("create", table, *LIVE, "--partitions", "3")
    for node in made.nodes[:2]:
        assert node.stop() == 0
        node.args = ["--users", made.secured.users]
        node.start().wait_listening()
        wait_for(node.is_ready, "the node is ready")
    made["n3"].kill()
    return made


def test_users_see_only_tables_that_they_may_read(guarded):
    url = f"http://127.0.0.1:{guarded['n1'].http}/v1/cluster"

    def status_for(user):
        status, text = guarded.secured.ask(url, user)
        return json.loads(text) if status == 200 else {"problems": []}

    def has_problems():
        lines = status_for("seer")["problems"]
        return all(any(f"{table} on n3" in line for line in lines) for table in ("pay", "shop"))

    wait_for(has_problems, lambda: f"problems of both tables: {status_for('seer')}")
    seen = status_for("clerk")
    assert [table["table"] for table in seen["tables"]] == ["shop"]
    assert list(seen["live"]["tables"]) == ["shop"]
    assert any("shop on n3" in line for line in seen["problems"])
    assert any("more problem" in line for line in seen["problems"]), seen["problems"]
    assert "pay" not in json.dumps(seen)
    assert {table["table"] for table in status_for("seer")["tables"]} == {"pay", "shop"}
    blind = status_for("blind")
    assert blind["tables"] == [] and blind["live"]["tables"] == {}
    assert "pay" not in json.dumps(blind) and "shop" not in json.dumps(blind)


def test_a_write_without_a_majority_ends_with_a_clear_error(shared):
    made = shared(3)
    made.store.json("create", "ab", *LIVE, "--partitions", "2")
    made["n2"].kill()
    made["n3"].kill()
    errors = []

    def has_no_leader():
        with made["n1"].through_gateway() as client:
            try:
                client.set("ab:1", 1)
            except redis.RedisError as error:
                errors.append(f"{type(error).__name__}: {error}")
        return any("no replica of the partition leads" in words for words in errors)

    wait_for(has_no_leader, lambda: f"no replica leads: {errors}")
    for words in errors:
        # redis-py has an own exception for TRYAGAIN.
        is_known = "NOREPLICAS " in words or "UNCERTAIN " in words
        assert is_known or words.startswith("TryAgainError: nothing was written: "), errors
        assert "within 0 ms" not in words
