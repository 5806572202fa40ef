"""A replica of a live table in a cluster has a damaged run. A peer repairs it, and no node serves
it."""

import shutil

import pytest
import redis
from cluster import PORTS
from harness import wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "1"]
KEYS = {f"t:{i}": f"{i}-" + f"{i * 7919:08x}" * 40 for i in range(3000)}


@pytest.fixture
def made(shared):
    made = shared(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 1
    with made["n1"].through_gateway() as client:
        assert client.mset(KEYS)
    wait_for(lambda: is_whole(made), "all replicas have all entries")
    return made


def leads(node):
    return node.metric('forebay_cluster_led_partitions{table="t"}') == 1


def leader(made):
    found = []

    def has_leader():
        found[:] = [node for node in made.alive() if leads(node)]
        return len(found) == 1

    wait_for(has_leader, "one node leads")
    return found[0]


def is_whole(made):
    """Whether all replicas are placed as desired and have all decided entries."""
    names = ("unreachable_replicas", "replica_lag_entries", "unhealthy_replicas")
    metrics = [f'forebay_cluster_{name}{{table="t"}}' for name in names]
    if any(node.metric(name) != 0 for node in made.nodes for name in metrics):
        return False
    status = made.ask_coordinator()
    return bool(status) and status["healthy"] and status["notes"] == []


def damage(node):
    """Stops a node cleanly, so that it flushes its memtables. Then changes a byte in the middle of
    the largest run."""
    assert node.stop() == 0
    runs = list((node.cache / "tables" / "t" / "runs").glob("*.run"))
    run = max(runs, key=lambda path: path.stat().st_size)
    with run.open("r+b") as file:
        file.seek(run.stat().st_size // 3)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
    return run


def read_all(client):
    names = list(KEYS)
    for at in range(0, len(names), 50):
        values = client.mget(names[at : at + 50])
        assert values == [KEYS[name] for name in names[at : at + 50]]
        assert client.get(names[at]) == KEYS[names[at]]


def is_repaired(made, run):
    return not run.exists() and is_whole(made)


def has_joined(made):
    """Whether all replicas have all decided entries."""
    names = ("unreachable_replicas", "replica_lag_entries")
    return all(
        node.metric(f'forebay_cluster_{name}{{table="t"}}') == 0
        for node in made.nodes
        for name in names
    )


def read_following(node, first):
    """Reads all keys from the node's own replicas. Every redirect must name `first`."""
    with node.client(single_connection_client=True) as client:
        assert client.execute_command("READONLY")
        for name, value in KEYS.items():
            try:
                assert client.get(name) == value
            except redis.exceptions.MovedError as moved:
                assert moved.port in range(first.port, first.port + PORTS)


def test_a_leader_with_a_damaged_run_hands_over_and_gets_a_copy(made):
    first = leader(made)
    run = damage(first)
    first.start().wait_listening()
    # The node is first in its preference list, and leads again once it has caught up.
    wait_for(lambda: leads(first), "the node leads again")
    other = next(node for node in made.nodes if node is not first)
    with other.through_gateway() as client, first.through_gateway() as repaired:
        read_all(client)
        read_all(repaired)
        assert client.set("t:after", "x")
    wait_for(
        lambda: is_repaired(made, run), lambda: f"the replica is repaired: {made.ask_coordinator()}"
    )
    assert "a replica met damage" in first.logged()
    with first.through_gateway() as client:
        read_all(client)


def test_a_follower_with_a_damaged_run_redirects_reads_to_the_leader(made):
    first = leader(made)
    second = next(node for node in made.nodes if node is not first)
    run = damage(second)
    second.start().wait_listening()
    wait_for(lambda: has_joined(made), "the replica follows")
    read_following(second, first)
    wait_for(
        lambda: is_repaired(made, run), lambda: f"the replica is repaired: {made.ask_coordinator()}"
    )
    assert leads(first), "the leader did not change"
    assert "a replica met damage" in second.logged()
    read_following(second, first)


def test_another_replica_gives_a_copy_if_the_leader_cannot(made):
    first = leader(made)
    run = damage(first)
    first.start().wait_listening()
    wait_for(lambda: leads(first), "the node leads again")
    # No client has read from the leader before it is asked for a copy.
    second = next(node for node in made.nodes if node is not first)
    second.stop()
    shutil.rmtree(second.cache)
    second.start().wait_listening()
    wait_for(lambda: is_repaired(made, run), lambda: f"all have copies: {made.ask_coordinator()}")
    assert "a replica met damage" in first.logged()
    assert "a replica met damage" not in second.logged()
    for node in made.nodes:
        with node.through_gateway() as client:
            read_all(client)


def test_a_node_with_a_damaged_log_rejoins_as_a_new_peer(made):
    first = leader(made)
    second = next(node for node in made.nodes if node is not first)
    second.kill()
    state = second.cache / "tables" / "t" / "replicas.state"
    state.write_bytes(b"\x07" * state.stat().st_size)
    second.start().wait_listening()
    # Until its replica votes again, another restart could cost the majority.
    wait_for(second.is_ready, lambda: second.ask("/ready"))
    assert has_joined(made), made.ask_coordinator()
    wait_for(lambda: is_whole(made), lambda: f"all replicas are repaired: {made.ask_coordinator()}")
    assert "join their groups again as new peers" in second.logged()
    # Another node is killed, so every answer needs this node's data.
    first.kill()
    third = next(node for node in made.nodes if node not in (first, second))

    def takes_writes():
        try:
            with third.through_gateway() as client:
                return client.set("t:after", "x")
        except redis.RedisError:
            return False

    wait_for(takes_writes, "writes are taken")
    with second.through_gateway() as client:
        read_all(client)


def test_a_node_with_a_damaged_cache_file_starts(made):
    node = made["n2"]
    assert node.stop() == 0
    file = node.cache / "forebay.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:7])
    node.start().wait_listening()
    wait_for(node.is_ready, lambda: node.ask("/ready"))
    assert "the file of the cache is rewritten" in node.logged()
    assert file.read_bytes() == whole
    assert node.stop() == 0
    file.unlink()
    node.start().wait_listening()
    wait_for(node.is_ready, lambda: node.ask("/ready"))
    assert file.read_bytes() == whole
    with node.through_gateway() as client:
        read_all(client)


def test_a_replica_with_a_truncated_log_rejoins_as_a_new_peer(made):
    node = next(node for node in made.nodes if not leads(node))
    # Single writes make many log records. No run holds them.
    with leader(made).through_gateway() as client:
        for number in range(500):
            client.set(f"t:later-{number}", number)
    wait_for(lambda: is_whole(made), "all replicas have all entries")
    node.kill()
    [log] = (node.cache / "tables" / "t" / "replicas").glob("*.log")
    written = len(log.read_bytes().rstrip(b"\0"))
    with log.open("r+b") as file:
        file.truncate(written * 3 // 4)
    node.start().wait_listening()
    lost_entries = "its log lost entries that it had acknowledged"
    wait_for(lambda: lost_entries in node.logged(), "the node reports lost entries")
    wait_for(lambda: is_whole(made), lambda: made.ask_coordinator())
    with node.client() as client:
        client.execute_command("READONLY")
        assert [client.get(f"t:later-{number}") for number in (0, 499)] == ["0", "499"]
