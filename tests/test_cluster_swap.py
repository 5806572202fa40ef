"""Versions of one or several tables begin to serve on all nodes at one moment, also on rollback."""

import json

import pyarrow as pa
import pytest
from cluster import Reading
from data import write
from harness import wait_for

KEYS = 60
NAMES = [f"{table}:{i}" for i in range(KEYS) for table in ("a", "b")]


@pytest.fixture
def two_tables(shared, tmp_path):
    """Five nodes. Tables `a` and `b` have two replicas each. Each row holds its version."""
    made = shared(5)

    def push(table, version, *args, code=0, rows=KEYS):
        values = pa.table({"id": range(rows), "version": [version] * rows})
        path = write(values, tmp_path / f"{table}-{version}.parquet")
        words = ["--replicas", "2", "--partitions", "8", *args]
        return made.store.push(table, path, args=words, code=code)

    made.push = push
    for table in ("a", "b"):
        push(table, 1)
    return made


def read_both(client):
    """The versions in one reply."""
    return {json.loads(row)["version"] for row in client.mget(NAMES)}


def read_from(*tables):
    """Like read_both, for a client that asks several nodes: each read is one command for one
    key."""
    return lambda client: {
        json.loads(client.get(f"{table}:{i}"))["version"] for table in tables for i in (7,)
    }


def test_two_tables_swap_at_one_moment_under_readers(two_tables):
    made = two_tables
    readers = [Reading(node.through_gateway(), read_both) for node in made.nodes]
    readers += [Reading(node.client(), read_both) for node in made.nodes]
    aware = [Reading(made.nodes[0].cluster_client(), read_from(table)) for table in ("a", "b")]

    def all_see(version):
        for reader in [*readers, *aware]:
            reader.wait_for(version)

    all_see(1)
    for table in ("a", "b"):
        assert made.push(table, 2, "--no-swap")["swapped"] is False
    swapped = made.store.json("swap", "a@2", "b@2")
    # Every read after the command's end sees the new version.
    for node in made.nodes:
        with node.through_gateway() as client:
            assert read_both(client) == {2}
    assert [(one["table"], one["version"], one["previous"]) for one in swapped] == [
        ("a", 2, 1),
        ("b", 2, 1),
    ]
    all_see(2)
    made.store.run("rollback", "a", "b")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert read_both(client) == {1}
    all_see(1)
    made.store.run("swap", "a@2", "b@2", "--force")
    all_see(2)
    for reader in [*readers, *aware]:
        reader.end()
        assert (reader.failed, reader.mixed) == ([], [])
        assert reader.seen == [1, 2, 1, 2] and reader.replies > 20


def test_a_swap_to_a_version_that_was_rolled_back_needs_force(two_tables):
    made = two_tables
    made.push("a", 2)
    made.store.run("rollback", "a")
    refused = made.store.refuse("swap", "a", "2")
    assert "rolled back from" in refused and "--force" in refused and "table a" in refused
    assert made.table("a")["version"] == 1
    # A swap that includes another table is refused, too.
    made.push("b", 2, "--no-swap")
    made.store.refuse("swap", "a@2", "b@2")
    assert [made.table(table)["version"] for table in ("a", "b")] == [1, 1]
    made.store.run("swap", "a", "2", "--force")
    assert (made.table("a")["version"], made.table("a")["previous"]) == (2, 1)


def test_a_rollback_without_a_previous_version_changes_nothing(two_tables):
    made = two_tables
    made.push("a", 2)
    refused = made.store.refuse("rollback", "a", "b")
    assert "table b" in refused
    assert [made.table(table)["version"] for table in ("a", "b")] == [2, 1]


def test_the_gate_holds_a_swap_in_a_cluster_too(two_tables):
    made = two_tables
    held = made.push("a", 2, rows=10, code=3)
    assert held["swapped"] is False and made.table("a")["version"] == 1
    with made.nodes[1].through_gateway() as client:
        assert read_both(client) == {1}
    made.store.run("swap", "a", "2")
    assert made.table("a")["version"] == 2


def test_status_describes_nodes_and_tables(two_tables):
    made = two_tables
    made.push("a", 2)
    status = made.status()
    assert status["cluster"] == "forebay"
    assert status["healthy"] is True and status["problems"] == []
    entries = {node["name"]: node for node in status["nodes"]}
    for node in made.nodes:
        entry = entries.pop(node.name)
        assert entry["zone"] == node.zone and entry["state"] == "up"
        assert entry["listen"] == f"127.0.0.1:{node.port}"
    assert entries == {}
    tables = {table["table"]: table for table in status["tables"]}
    for table, version, previous in [("a", 2, 1), ("b", 1, None)]:
        entry = tables[table]
        assert (entry["version"], entry["previous"], entry["rollout"]) == (version, previous, None)
        assert entry["replicas"] == 2
    assert made.coordinator() in made.nodes

    made.wait_for(
        lambda status: {node["serves"] for node in status["nodes"]} == {status["revision"]}
    )
    text = made.store.run("cluster", "status").out
    assert all(node.name in text for node in made.nodes)


def test_nodes_verify_their_partitions(two_tables):
    pushed = two_tables.push("a", 2)
    verified = pushed["rollout"]["verified"]
    assert {one["node"] for one in verified} == {node.name for node in two_tables.nodes}
    # Each row has two replicas, and each node has read its partitions back. Partitions that lie
    # across class boundaries have more replicas.
    assert 2 * KEYS <= sum(one["rows"] for one in verified) < 4 * KEYS
    assert sum(one["partitions"] for one in verified) >= 2 * 8
    assert pushed["rollout"]["excluded"] == []


def test_dropped_tables_are_removed_from_all_nodes(two_tables):
    made = two_tables
    made.store.run("drop", "b", "--yes")
    assert [table["table"] for table in made.status()["tables"]] == ["a"]
    for node in made.nodes:
        with node.through_gateway() as client:
            # Nodes learn of the drop within a heartbeat.
            wait_for(lambda client=client: client.dbsize() == KEYS, client.dbsize)
    assert made.push("b", 5)["version"] >= 1
