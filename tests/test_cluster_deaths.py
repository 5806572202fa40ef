"""The coordinator is killed, and all nodes stop and start. Reads continue, and no node serves old
data."""

import json

import pyarrow as pa
import pytest
from cluster import PORTS, Reading, states_of
from data import write
from harness import wait_for

KEYS = 300
NAMES = [f"t:{i}" for i in range(KEYS)]


@pytest.fixture
def table(shared, tmp_path):
    """Five nodes in three zones; table `t` on two of them each."""
    made = shared(5)

    def source(version):
        values = pa.table({"id": range(KEYS), "version": [version] * KEYS})
        return write(values, tmp_path / f"t-{version}.parquet")

    def push(version, code=0, args=()):
        words = ["--replicas", "2", "--partitions", "12", *args]
        return made.store.push("t", source(version), args=words, code=code)

    made.source, made.push_version = source, push
    push(1)
    return made


def read_all(client):
    return {json.loads(row)["version"] for row in client.mget(NAMES)}


def versions_at(node):
    with node.through_gateway() as client:
        return read_all(client)


def serves(node, version):
    """Whether a node that may be starting serves this version. It never serves an older one."""
    try:
        seen = versions_at(node)
    except Exception:
        return False
    assert min(seen) >= version, f"{node.name} serves {seen}"
    return seen == {version}


def test_the_coordinator_is_killed(table):
    made = table
    lost = made.coordinator()
    others = [node for node in made.nodes if node is not lost]
    readers = [Reading(node.through_gateway(), read_all) for node in others]
    lost.kill()
    # Without a coordinator, each node answers from its own state.
    for node in others:
        status, text = node.ask("/v1/cluster")
        answer = json.loads(text)
        assert status == 200 and answer["coordinator"] != lost.name, answer
        assert len(answer["nodes"]) == len(made.nodes) and answer["tables"]
        assert answer["coordinator"] or "no coordinator" in answer["problems"][0]
    # Once the node is excluded, no node redirects to it, whichever node coordinates by then.
    ports = set(range(lost.port, lost.port + PORTS))
    redirecting = lambda: [n.name for n in others if ports & {p for row in n.slots() for p in row}]  # noqa: E731
    wait_for(lambda: not redirecting(), "no node redirects to it")
    redirected = []

    def watch(client):
        redirected.extend(redirecting())
        return {1}

    watcher = Reading(None, watch, 0.05)
    pushed = made.push_version(2, code=6)
    watcher.end()
    assert redirected == [] and watcher.failed == [], (redirected, watcher.failed)
    assert pushed["rollout"]["excluded"] == [lost.name]
    assert made.coordinator() is not lost
    for reader in readers:
        reader.wait_for(2)
        reader.end()
        assert (reader.failed, reader.mixed, reader.seen) == ([], [], [1, 2])
    lost.start().wait_listening()
    wait_for(lambda: serves(lost, 2), "the node serves version 2")


def test_nodes_end_on_sigterm_and_start_again_with_their_data(table):
    made = table
    paused = made.store.json("cluster", "pause", "n3", "--for", "5m")
    assert paused == {"node": "n3", "for_ms": 300_000}
    assert made["n3"].stop() == 0
    made.wait_for(lambda status: states_of(status)["n3"] in ("paused", "left"))
    for node in made.nodes:
        if node.alive():
            assert node.stop() == 0
    made.start()
    for node in made.nodes:
        assert serves(node, 1)
    assert made.push_version(2)["rollout"]["excluded"] == []
