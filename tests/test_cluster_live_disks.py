"""Live tables of a cluster in which one node's disk is full."""

import json
import re

import pytest
import redis
from cluster import Cluster
from disks import Disks, fill, make_room
from harness import Store, wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]
VALUE = "v" * (50 << 10)


@pytest.fixture
def made(tmp_path):
    disks = Disks(tmp_path, ["small"], 160)
    made = Cluster(Store(tmp_path / "store"), tmp_path)
    made.small = disks["small"]
    made["n3"].cache = made.small / "cache"
    try:
        made.start()
        assert made.store.json("create", "t", *TABLE)["led"] == 6
        yield made
    finally:
        made.end()
        disks.end()
    made.check_logs()


def put(node, key):
    """Writes until the write is acknowledged."""

    def is_written():
        try:
            with node.through_gateway() as client:
                return client.set(key, f"{key}{VALUE}")
        except redis.RedisError:
            return False

    wait_for(is_written, f"{key} is acknowledged")


def lagging(nodes):
    """The number of unreachable replicas, and of entries that reachable replicas lack."""
    names = ("unreachable_replicas", "replica_lag_entries")
    pages = [node.ask("/metrics")[1] for node in nodes]
    found = [
        int(number)
        for page in pages
        for name in names
        for number in re.findall(rf'^forebay_cluster_{name}{{table="t"}} (\d+)$', page, re.M)
    ]
    assert len(found) == len(names) * len(nodes), pages
    return sum(found)


def fill_up(made, keys):
    """Fills the disk, and writes until its replicas lag. The log first uses its reserved space."""
    first, second, _ = made.nodes
    fill(made.small)
    while lagging([first, second]) == 0 or len(keys) < 200:
        assert len(keys) < 5000, "the disk never lacks space"
        fill(made.small)
        keys.append(f"t:{len(keys)}")
        put(first, keys[-1])


def problems(node):
    """The problems of the node's tables."""
    status, text = node.ask("/ready/tables")
    assert status == (503 if json.loads(text)["problems"] else 200), text
    return json.loads(text)["problems"]


def names_the_disk(problem):
    return "live table t" in problem and "No space left" in problem and "cache/tables/t" in problem


def check_all(made, node, keys):
    def are_all_read():
        try:
            with node.through_gateway() as client:
                return all(client.get(key) == f"{key}{VALUE}" for key in keys)
        except redis.RedisError:
            return False

    wait_for(are_all_read, "all acknowledged writes are read")


def test_nodes_with_space_continue_and_a_full_one_catches_up_once_it_has_space(made):
    first, _, third = made.nodes
    keys = []
    fill_up(made, keys)
    wait_for(lambda: any(map(names_the_disk, problems(third))), lambda: problems(third))
    assert third.metric('forebay_cluster_replicas_with_problems{table="t"}') == 1
    wait_for(
        lambda: any("node n3: " in p and names_the_disk(p) for p in made.status()["problems"]),
        lambda: made.status()["problems"],
    )
    make_room(made.small)
    wait_for(
        lambda: lagging(made.nodes) == 0,
        lambda: f"all replicas have all entries: {lagging(made.nodes)}",
    )
    wait_for(lambda: problems(third) == [], lambda: problems(third))
    # The first node is killed, so every answer needs the third node's data.
    first.kill()
    check_all(made, third, keys)


def test_a_node_starts_on_a_full_disk_and_reports_it(made):
    first, _, third = made.nodes
    keys = []
    fill_up(made, keys)
    third.kill()
    fill(made.small)
    third.start().wait_listening()
    wait_for(lambda: any(map(names_the_disk, problems(third))), lambda: problems(third))
    # The node redirects to the others.
    check_all(made, third, keys)
    make_room(made.small)
    wait_for(lambda: problems(third) == [], lambda: problems(third))
    wait_for(
        lambda: lagging(made.nodes) == 0,
        lambda: f"all replicas have all entries: {lagging(made.nodes)}",
    )
    first.kill()
    check_all(made, third, keys)
