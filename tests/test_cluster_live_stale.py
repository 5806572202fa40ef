"""Reads of replicas that follow, old by less than a stated bound."""

import signal
import time

import pytest
import redis
from harness import wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]
BOUND_S = 6
KEYS = 30


@pytest.fixture
def made(cluster):
    made = cluster(3, args=["--stale-reads", f"{BOUND_S}s"])
    assert made.store.json("create", "t", *TABLE)["led"] == 6
    return made


def led_elsewhere(client):
    """The keys that the node leads clients away for."""
    found = []
    for key in (f"t:{i}" for i in range(KEYS)):
        try:
            client.get(key)
        except redis.ResponseError as error:
            assert str(error).startswith("MOVED"), error
            found.append(key)
    return found


def test_who_follows_answers_within_the_bound_and_not_beyond_it(made):
    node, *others = made.nodes
    with node.through_gateway() as client:
        for i in range(KEYS):
            client.set(f"t:{i}", "old")
    with node.client(decode_responses=True) as client:
        keys = led_elsewhere(client)
        assert keys
        client.execute_command("READONLY")
        assert [client.get(key) for key in keys] == ["old"] * len(keys)
        confirmed = time.monotonic()
        for other in others:
            other.signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            assert [client.get(key) for key in keys] == ["old"] * len(keys)
            assert time.monotonic() - begun < 1, "nobody is asked"
            time.sleep(max(0, confirmed + BOUND_S - time.monotonic()))
            with pytest.raises(redis.RedisError, match="TRYAGAIN|CLUSTERDOWN|NOREPLICAS"):
                client.get(keys[0])
        finally:
            for other in others:
                other.signal(signal.SIGCONT)

        def takes_writes():
            try:
                with others[0].through_gateway() as writer:
                    return all(writer.set(key, "new") for key in keys)
            except redis.RedisError:
                return False

        wait_for(takes_writes, "the others go on", 60)
        written = time.monotonic()

        def sees_new():
            begun = time.monotonic()
            try:
                values = [client.get(key) for key in keys]
            except redis.RedisError:
                return False
            is_new = values == ["new"] * len(keys)
            assert is_new or begun < written + BOUND_S, values
            return is_new

        wait_for(sees_new, "the newest values", 60)
