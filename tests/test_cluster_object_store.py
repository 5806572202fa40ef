"""A cluster over a bucket: pushes and swaps as over a directory, and how much an idle node asks."""

import json
import threading
import time

import pytest
import redis
from cluster import Reading
from harness import WAIT_S, wait_for

NAMES = [f"{table}:{i}" for i in range(100) for table in ("a", "b")]

# Of a node, the coordinator included, while nothing happens.
IDLE_REQUESTS_A_SECOND = 0.2
IDLE_S = 10


@pytest.fixture
def bucket(cluster, remote, proxy):
    """Three nodes over a bucket, asked through a proxy that counts. What they ask is documented for
    the default times."""
    return cluster(3, store=remote.through(proxy.url, "through"), node_timeout=None)


def read_both(client):
    return {json.loads(row)["v1"] for row in client.mget(NAMES)}


def test_pushes_and_swaps_over_a_bucket(bucket, source, proxy):
    made = bucket
    for table in ("a", "b"):
        pushed = made.store.push(
            table, source(100, 1), args=["--replicas", "2", "--partitions", "6"]
        )
        assert pushed["swapped"] and pushed["rollout"]["excluded"] == []
    readers = [Reading(node.through_gateway(), read_both) for node in made.nodes]
    for table in ("a", "b"):
        made.store.push(table, source(100, 2), args=["--no-swap"])
    made.store.run("swap", "a@2", "b@2")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert read_both(client) == {2}
    made.store.run("rollback", "a", "b")
    for reader in readers:
        reader.wait_for(1)
        reader.end()
        assert (reader.failed, reader.mixed, reader.seen) == ([], [], [1, 2, 1])
    idle_nodes_ask_little(made, proxy)
    # While the bucket is away the nodes serve on.
    proxy.before = lambda exchange: 503
    time.sleep(3)
    for node in made.nodes:
        assert node.is_ready()
        with node.through_gateway() as client:
            assert read_both(client) == {1}
    proxy.before = lambda exchange: None
    wait_for(lambda: made.heard() is not None, "the coordinator answers")
    assert made.store.push("a", source(100, 3))["rollout"]["excluded"] == []


def test_a_node_that_starts_while_the_bucket_never_answers_serves_what_it_has(
    bucket, source, proxy
):
    made = bucket
    for table in ("a", "b"):
        made.store.push(table, source(100, 1), args=["--replicas", "3"])
    for node in made.nodes:
        assert node.stop() == 0
    answers = threading.Event()
    proxy.before = lambda exchange: None if answers.wait(WAIT_S) else 503
    node = made.nodes[0].start().comes_up()
    try:
        wait_for(lambda: node.is_ready() and serves(node), "it serves without the bucket")
    finally:
        answers.set()


def serves(node):
    with node.through_gateway() as client:
        try:
            return read_both(client) == {1}
        except (redis.RedisError, TypeError):
            return False


def idle_nodes_ask_little(made, proxy):
    def asked():
        with proxy.lock:
            return len(proxy.exchanges)

    # What follows a rollout, such as the removal of old versions, is over when nobody asks.
    def quiet():
        before = asked()
        time.sleep(1)
        return asked() == before

    wait_for(quiet, "quiet")
    before = asked()
    time.sleep(IDLE_S)
    with proxy.lock:
        seen = [f"{one.method} {one.path}" for one in proxy.exchanges[before:]]
    # One each may lie on the bound of the time.
    assert len(seen) <= (IDLE_REQUESTS_A_SECOND * IDLE_S + 1) * len(made.nodes), seen
