"""Nodes die, stand still and come back: reads go on, pushes say what is, nobody serves old data."""

import json
import shutil
import signal
import time

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


def read_each(client):
    """By a client that splits what it asks: the versions of single keys, one after the other."""
    return {json.loads(client.get(NAMES[time.monotonic_ns() % KEYS]))["version"]}


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


def zone_without_the_coordinator(made):
    """Two nodes of one zone, and the three others."""
    zone = "z1" if made.coordinator().zone != "z1" else "z2"
    lost = [node for node in made.nodes if node.zone == zone]
    return lost, [node for node in made.nodes if node.zone != zone]


@pytest.mark.nightly
def test_of_a_zone_one_node_is_killed_and_one_stands_still(table):
    made = table
    (killed, still), others = zone_without_the_coordinator(made)
    names = sorted([killed.name, still.name])
    plain = [Reading(node.through_gateway(), read_all) for node in others]
    aware = Reading(others[0].cluster_client(socket_timeout=2), read_each)
    killed.kill()
    still.signal(signal.SIGSTOP)
    # Clients are led past them, whether or not a push leaves them out.
    ports = {port for node in (killed, still) for port in range(node.port, node.port + PORTS)}
    for node in others:
        told = lambda node=node: {port for row in node.slots() for port in row}  # noqa: E731
        wait_for(lambda told=told: not told() & ports, f"{node.name} leaves them out")
    pushed = made.push_version(2, code=6)
    assert pushed["swapped"] is True and sorted(pushed["rollout"]["left_out"]) == names
    status = made.status()
    assert status["healthy"] is False
    assert {name: states_of(status)[name] for name in names} == dict.fromkeys(names, "down")
    for name in names:
        assert any(name in problem for problem in status["problems"]), status["problems"]
    for node in others:
        assert versions_at(node) == {2}
    # One goes on where it stood, the other has lost its disk, too.
    still.signal(signal.SIGCONT)
    shutil.rmtree(killed.cache)
    killed.start().comes_up()
    wait_for(lambda: serves(killed, 2), f"version 2 at {killed.name}")
    wait_for(lambda: versions_at(still) == {2}, f"version 2 at {still.name}")
    made.wait_up()
    assert made.push_version(3)["rollout"]["left_out"] == []
    for node in made.nodes:
        assert versions_at(node) == {3}
    for reader in [*plain, aware]:
        reader.wait_for(3)
        reader.end()
        assert (reader.failed, reader.mixed) == ([], [])
    for reader in plain:
        assert reader.seen == [1, 2, 3]


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
    told = lambda: [n.name for n in others if ports & {p for row in n.slots() for p in row}]  # noqa: E731
    wait_for(lambda: not told(), "it is left out")
    led_back = []

    def watch(client):
        led_back.extend(told())
        return {1}

    watcher = Reading(None, watch, 0.05)
    pushed = made.push_version(2, code=6)
    watcher.end()
    assert led_back == [] and watcher.failed == [], (led_back, watcher.failed)
    assert pushed["rollout"]["left_out"] == [lost.name]
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
    made.wait_for(lambda told: states_of(told)["n3"] in ("paused", "left"))
    for node in made.nodes:
        if node.alive():
            assert node.stop() == 0
    made.start()
    for node in made.nodes:
        assert serves(node, 1)
    assert made.push_version(2)["rollout"]["left_out"] == []
