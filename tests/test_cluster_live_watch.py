"""WATCH of keys of live tables of a cluster, by real processes."""

import threading

import pytest
import redis
from harness import wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


@pytest.fixture
def made(shared):
    made = shared(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 6
    return made


def is_changed(pipe):
    """Whether EXEC answers that a watched key was changed."""
    try:
        pipe.execute()
        return False
    except redis.WatchError:
        return True


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_write_by_another_client_breaks_a_watch(made, protocol):
    mine = made["n1"].through_gateway(protocol=protocol)
    with mine as client, made["n2"].through_gateway() as other:
        for key in [f"t:{{{number}}}" for number in range(8)]:
            for change in (
                lambda key: other.set(key + "w", "theirs"),
                lambda key: other.delete(key + "w"),
            ):
                for queue in (
                    lambda pipe, key: pipe.set(key + "x", "mine"),
                    lambda pipe, key: pipe.get(key + "x"),
                ):
                    client.mset({key + "w": "before", key + "x": "old"})
                    pipe = client.pipeline()
                    pipe.watch(key + "w", key + "none")
                    assert pipe.get(key + "w") == "before"
                    change(key)
                    pipe.multi()
                    queue(pipe, key)
                    assert is_changed(pipe)
                    assert client.get(key + "x") == "old"
                    # EXEC ended the watch.
                    queue(pipe, key)
                    assert len(pipe.execute()) == 1
            pipe = client.pipeline()
            pipe.watch(key + "w", key + "none")
            pipe.multi()
            pipe.set(key + "w", "mine")
            pipe.get(key + "w")
            assert pipe.execute() == [True, "mine"]


def test_a_watch_of_a_table_that_is_dropped_executes_nothing(made):
    with made["n1"].through_gateway() as client:
        client.set("t:a", "1")
        pipe = client.pipeline()
        pipe.watch("t:a")
        made.store.run("drop", "t", "--yes")
        assert made.store.json("create", "t", *TABLE)["led"] == 6
        pipe.multi()
        pipe.set("t:a", "2")
        with pytest.raises((redis.WatchError, redis.ResponseError)):
            pipe.execute()
        wait_for(lambda: client.set("t:b", "1"), "the new table takes writes")
        assert client.get("t:a") is None


def test_watches_of_other_partitions_are_refused_with_a_reason(made):
    with made["n1"].through_gateway() as client:
        keys = [f"t:{number}" for number in range(12)]
        refused = 0
        for key in keys[1:]:
            for read in (True, False):
                pipe = client.pipeline()
                pipe.watch(keys[0])
                pipe.multi()
                pipe.get(key) if read else pipe.set(key, "x")
                try:
                    pipe.execute()
                except redis.exceptions.ClusterCrossSlotError as error:
                    assert "WATCH" in str(error)
                    refused += 1
        assert 2 <= refused <= 22 and refused % 2 == 0


def test_a_watch_outlives_the_death_of_a_leader(made):
    with made["n1"].through_gateway() as client, made["n2"].through_gateway() as other:
        keys = [f"t:{{{number}}}" for number in range(12)]
        client.mset(dict.fromkeys(keys, "0"))
        kept, broken = [], []
        for key in keys:
            for pipes in (kept, broken):
                pipe = client.pipeline()
                pipe.watch(key)
                pipe.multi()
                pipe.set(key + "w", "mine" if pipes is kept else "never")
                pipes.append(pipe)
        made["n3"].kill()
        wait_for(lambda: written(other, [key + "v" for key in keys]), "other nodes lead")
        assert [is_changed(pipe) for pipe in kept] == [False] * 12
        for key in keys:
            other.set(key, "1")
        assert [is_changed(pipe) for pipe in broken] == [True] * 12
        assert client.mget([key + "w" for key in keys]) == ["mine"] * 12


def written(client, keys):
    try:
        return all([client.set(key, "x") for key in keys])
    except redis.RedisError:
        return False


def test_a_counter_incremented_through_three_nodes_counts_exactly(made):
    """Four threads read, then write if no other client wrote meanwhile."""
    failed, conflicts = [], []

    def add(node):
        with node.through_gateway() as client, client.pipeline() as pipe:
            for _ in range(25):
                while True:
                    pipe.watch("t:{c}n")
                    seen = int(pipe.get("t:{c}n") or 0)
                    pipe.multi()
                    pipe.set("t:{c}n", seen + 1).set("t:{c}last", seen + 1)
                    if not is_changed(pipe):
                        break
                    conflicts.append(seen)

    def work(node):
        try:
            add(node)
        except Exception as error:
            failed.append(error)
            raise

    nodes = [made["n1"], made["n2"], made["n3"], made["n1"]]
    threads = [threading.Thread(target=work, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    with made["n2"].through_gateway() as client:
        assert client.mget("t:{c}n", "t:{c}last") == ["100", "100"]
    assert conflicts


def test_a_multi_of_many_commands_works_at_each_node(made):
    count, most = 40_000, 0
    for node in made.nodes:
        with node.through_gateway(socket_timeout=60) as client:
            pipe = client.pipeline()
            for _ in range(count):
                pipe.incr("t:many")
            done = []
            while not done:
                most += count
                try:
                    done = pipe.execute()
                except redis.RedisError as error:
                    # On a busy machine the leader may change meanwhile. The transaction is done
                    # whole or not at all.
                    assert "nobody knows" in str(error) or "nothing was written" in str(error)
                    assert int(client.get("t:many") or 0) % count == 0
                    for _ in range(count):
                        pipe.incr("t:many")
            assert done[-1] % count == 0 and done[-1] - done[0] == count - 1
            assert done[-1] <= most
