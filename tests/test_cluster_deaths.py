"""The coordinator is killed, all nodes end and start: reads go on, and nobody serves old data."""

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
    """Whether a node that may be on its way up serves a version. Never an older one."""
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
    # Without a coordinator each tells what it knows.
    for node in others:
        status, text = node.ask("/v1/cluster")
        heard = json.loads(text)
        assert status == 200 and heard["coordinator"] != lost.name, heard
        assert len(heard["nodes"]) == len(made.nodes) and heard["tables"]
        assert heard["coordinator"] or "no coordinator" in heard["problems"][0]
    # Once it is left out nobody is led there again, whoever is the coordinator by then.
    ports = set(range(lost.port, lost.port + PORTS))
    says = lambda: [n.name for n in others if ports & {p for row in n.slots() for p in row}]  # noqa: E731
    wait_for(lambda: not says(), "it is left out")
    led_back = []

    def watch(client):
        led_back.extend(says())
        return {1}

    watcher = Reading(None, watch, 0.05)
    pushed = made.push_version(2, code=6)
    watcher.end()
    assert led_back == [] and watcher.failed == [], (led_back, watcher.failed)
    assert pushed["rollout"]["excluded"] == [lost.name]
    assert made.coordinator() is not lost
    for reader in readers:
        reader.wait_for(2)
        reader.end()
        assert (reader.failed, reader.mixed, reader.seen) == ([], [], [1, 2])
    lost.start().comes_up()
    wait_for(lambda: serves(lost, 2), "it serves version 2")


def test_nodes_end_on_sigterm_and_start_again_with_what_they_had(table):
    made = table
    paused = made.store.json("cluster", "pause", "n3", "--for", "5m")
    assert paused == {"node": "n3", "for_ms": 300_000}
    assert made["n3"].stop() == 0
    made.wait_for(lambda says: states_of(says)["n3"] in ("paused", "left"))
    for node in made.nodes:
        if node.alive():
            assert node.stop() == 0
    made.start()
    for node in made.nodes:
        assert serves(node, 1)
    assert made.push_version(2)["rollout"]["excluded"] == []
