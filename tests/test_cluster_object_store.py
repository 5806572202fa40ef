"""A cluster over a bucket: pushes and swaps as over a directory, and the requests of an idle
node."""

import json
import threading
import time

import pytest
import redis
from cluster import Reading
from harness import WAIT_S, wait_for

NAMES = [f"{table}:{i}" for i in range(100) for table in ("a", "b")]

# Per node, the coordinator included, while nothing happens.
IDLE_REQUESTS_A_SECOND = 0.2
IDLE_S = 10


@pytest.fixture
def bucket(cluster, remote, proxy):
    """Three nodes over a bucket behind a counting proxy. The documented request counts are for the
    default times."""
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
    check_idle_requests(made, proxy)
    # While the bucket is away, the nodes continue to serve.
    proxy.before = lambda exchange: 503
    time.sleep(3)
    for node in made.nodes:
        assert node.is_ready()
        with node.through_gateway() as client:
            assert read_both(client) == {1}
    proxy.before = lambda exchange: None
    wait_for(lambda: made.ask_coordinator() is not None, "the coordinator answers")
    assert made.store.push("a", source(100, 3))["rollout"]["excluded"] == []


def test_a_node_that_starts_without_the_bucket_serves_its_cache(bucket, source, proxy):
    made = bucket
    for table in ("a", "b"):
        made.store.push(table, source(100, 1), args=["--replicas", "3"])
    for node in made.nodes:
        assert node.stop() == 0
    answers = threading.Event()
    proxy.before = lambda exchange: None if answers.wait(WAIT_S) else 503
    node = made.nodes[0].start().wait_listening()
    try:
        wait_for(lambda: node.is_ready() and serves(node), "the node serves without the bucket")
    finally:
        answers.set()


def serves(node):
    with node.through_gateway() as client:
        try:
            return read_both(client) == {1}
        except (redis.RedisError, TypeError):
            return False


def check_idle_requests(made, proxy):
    def asked():
        with proxy.lock:
            return len(proxy.exchanges)

    # Work after a rollout, such as the removal of old versions, has ended once no node sends
    # requests.
    def quiet():
        before = asked()
        time.sleep(1)
        return asked() == before

    wait_for(quiet, "quiet")
    before = asked()
    time.sleep(IDLE_S)
    with proxy.lock:
        seen = [f"{one.method} {one.path}" for one in proxy.exchanges[before:]]
    # One request per node may fall on the boundary of the interval.
    assert len(seen) <= (IDLE_REQUESTS_A_SECOND * IDLE_S + 1) * len(made.nodes), seen
