"""Walks through live tables of a cluster and deletion of their ranges, by real processes."""

import threading

import pytest
import redis
from harness import wait_for

LIVE = ["--mode", "live", "--replicas", "3", "--durability", "os"]
BOUNDARIES = ["--order", "ordered", "--boundary", "c", "--boundary", "f", "--boundary", "m"]
NAMES = [f"{letter}{number:02}" for letter in "abcdefghijklmnop" for number in range(10)]


@pytest.fixture
def made(shared):
    made = shared(3)
    made.store.json("create", "t", *LIVE, "--partitions", "6")
    made.store.json("create", "log", *LIVE, *BOUNDARIES)
    return made


def put(client, table, names):
    assert client.mset({f"{table}:{name}": name for name in names})


def leaders(client, table):
    """The nodes that lead partitions, by the map."""
    return [row[2][0] for row in client.execute_command("KV.MAP", table)]


def walked(client, **options):
    return list(client.scan_iter(**options))


def retry(call):
    """The result of a call, repeated until it is answered, because the leader may have died."""
    answers = []

    def is_answered():
        try:
            answers.append(call())
        except redis.RedisError:
            return False
        return True

    wait_for(is_answered, "the call is answered")
    return answers[0]


def test_walks_reach_batch_and_live_tables(made, source):
    made.store.push("people", source(500))
    with made["n1"].through_gateway() as client:
        put(client, "t", NAMES)
        put(client, "log", NAMES)
        wait_for(lambda: client.get("people:1") is not None, "the batch table is served")
        live = {f"{table}:{name}" for table in ("t", "log") for name in NAMES}
        for node in made.nodes:
            with node.through_gateway() as other:
                keys = walked(other, count=7)
                assert len(keys) == len(set(keys)) == 500 + len(live)
                assert live < set(keys)
                assert set(walked(other, match="t:a*", count=50)) == {
                    f"t:{name}" for name in NAMES if name[0] == "a"
                }
                assert sorted(other.keys("log:*")) == [f"log:{name}" for name in NAMES]
                assert other.dbsize() == 500 + len(live)
                assert walked(other, _type="list") == []
        drawn = {client.randomkey().split(":")[0] for _ in range(200)}
        assert drawn == {"people", "t", "log"}
    # A client that asks every primary gets each key once.
    with made["n2"].cluster_client() as client:
        keys = list(client.scan_iter(count=20))
        assert sorted(keys) == sorted(set(keys)) and len(keys) == 500 + len(live)
        assert client.dbsize(target_nodes=client.PRIMARIES) == 500 + len(live)
        assert sorted(client.keys("t:*", target_nodes=client.PRIMARIES)) == sorted(
            f"t:{name}" for name in NAMES
        )


def test_a_walk_continues_when_a_leader_dies(made):
    names = [f"{number:05}" for number in range(3000)]
    with made["n1"].through_gateway() as client:
        put(client, "t", names)
        put(client, "log", [f"{name[-1]}{name}" for name in names])
        found, cursor = [], 0
        for calls in range(10_000):
            if calls == 10:
                made["n3"].kill()
            at = cursor
            cursor, keys = retry(lambda at=at: client.scan(at, count=50))
            found += keys
            if cursor == 0:
                break
        assert cursor == 0 and calls > 50
        wanted = {f"t:{name}" for name in names} | {f"log:{name[-1]}{name}" for name in names}
        assert set(found) == wanted


def items(client, *words):
    """The keys of a paged KV.RANGE, and the number of replies."""
    start, end, *options = words
    keys, replies = [], 0
    while True:
        after, found = client.execute_command("KV.RANGE", start, end, *options, "KEYS")
        keys, replies = keys + found, replies + 1
        if after is None:
            return keys, replies
        start, end = (start, after) if "REV" in options else (after, end)


def test_ranges_are_in_order_in_both_directions(made):
    with made["n1"].through_gateway() as client:
        put(client, "log", NAMES)
        assert len(set(leaders(client, "log"))) == 3
        keys = [f"log:{name}" for name in NAMES]
        for node in made.nodes:
            with node.through_gateway() as other, node.client() as ordinary:
                for asked in (other, ordinary):
                    for limit in ("1000", "7", "1"):
                        found, replies = items(asked, "log:", "+", "LIMIT", limit)
                        assert found == keys and replies == -(-len(keys) // int(limit))
                        back, _ = items(asked, "log:", "+", "LIMIT", limit, "REV")
                        assert back == keys[::-1]
        part, _ = items(client, "(log:b05", "[log:n03", "LIMIT", "50", "REV")
        assert part == keys[keys.index("log:n03") : keys.index("log:b05") : -1]
        _, pairs = client.execute_command("KV.RANGE", "log:e09", "log:f00")
        assert pairs == ["log:e09", "e09", "log:f00", "f00"]
        assert client.execute_command("KV.RANGE", "log:z", "log:a") == [None, []]
        with pytest.raises(redis.RedisError, match="no key order"):
            client.execute_command("KV.RANGE", "t:", "+")


def test_a_range_is_answered_when_a_leader_dies(made):
    with made["n1"].through_gateway() as client:
        put(client, "log", NAMES)
        made["n2"].kill()
        found, _ = retry(lambda: items(client, "log:", "+", "LIMIT", "9", "REV"))
        assert found == [f"log:{name}" for name in reversed(NAMES)]


def test_ranges_are_deleted_in_all_partitions(made):
    with made["n2"].through_gateway() as client, made["n3"].through_gateway() as other:
        put(client, "log", NAMES)
        put(client, "t", NAMES)
        deleted = [name for name in NAMES if "b05" <= name < "n03"]
        assert client.execute_command("KV.DELRANGE", "log:b05", "(log:n03") == len(deleted)
        remaining = [f"log:{name}" for name in NAMES if name not in deleted]
        assert items(other, "log:", "+")[0] == remaining
        assert client.execute_command("KV.DELRANGE", "log:b05", "(log:n03") == 0
        assert client.execute_command("KV.DELRANGE", "log:a00", "log:a04", "NOCOUNT") == "OK"
        assert items(other, "log:", "+")[0] == remaining[5:]
        with pytest.raises(redis.RedisError, match="no key order"):
            client.execute_command("KV.DELRANGE", "t:", "+")
        assert client.execute_command("FLUSHDB", "t")
        assert walked(other, match="t:*") == [] and items(other, "log:", "+")[0] == remaining[5:]
        assert client.execute_command("FLUSHDB", "log", "ASYNC")
        assert walked(other) == [] and other.dbsize() == 0 and other.randomkey() is None
        put(client, "t", NAMES[:5])
        assert len(walked(other)) == 5


def test_ranges_are_deleted_beside_writers(made):
    acknowledged, is_over = {}, threading.Event()

    def write(node, letter):
        with node.through_gateway() as client:
            number = 0
            while not is_over.is_set():
                key, number = f"log:{letter}{number:06}", number + 1
                client.set(key, number)
                acknowledged.setdefault(letter, []).append(key)

    threads = [
        threading.Thread(target=write, args=(node, letter))
        for node, letter in zip(made.nodes, "bgp", strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        with made["n1"].through_gateway() as client:
            for rounds in range(1, 6):
                wanted = 30 * rounds
                wait_for(
                    lambda wanted=wanted: (
                        len(acknowledged) == 3 and min(map(len, acknowledged.values())) > wanted
                    ),
                    "all have written",
                )
                before = {letter: list(keys) for letter, keys in acknowledged.items()}
                assert client.execute_command("KV.DELRANGE", "log:a", "(log:h") >= 0
                deleted = client.mget(before["b"] + before["g"])
                assert set(deleted) == {None}
                # Keys beyond the range stay.
                assert None not in client.mget(before["p"])
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    for node in made.nodes:
        with node.through_gateway() as client:
            assert None not in client.mget(acknowledged["p"])
