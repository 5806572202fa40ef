"""Live tables of a cluster of which one replica has a damaged run: it is repaired from a peer, and
never served."""

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
    wait_for(lambda: is_whole(made), "all have all")
    return made


def leads(node):
    return node.metric('forebay_cluster_led_partitions{table="t"}') == 1


def leader(made):
    found = []

    def is_there():
        found[:] = [node for node in made.alive() if leads(node)]
        return len(found) == 1

    wait_for(is_there, "one leads")
    return found[0]


def is_whole(made):
    """Whether the replicas are where they are to be, and all have what is decided."""
    names = ("unreachable_replicas", "replica_lag_entries", "unhealthy_replicas")
    metrics = [f'forebay_cluster_{name}{{table="t"}}' for name in names]
    if any(node.metric(name) != 0 for node in made.nodes for name in metrics):
        return False
    heard = made.heard()
    return bool(heard) and heard["healthy"] and heard["notes"] == []


def damage(node):
    """Stops a node in order, which has what is in memory written to runs, and changes a byte in the
    middle of the largest run."""
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
    """Whether nobody lacks what is decided."""
    names = ("unreachable_replicas", "replica_lag_entries")
    return all(
        node.metric(f'forebay_cluster_{name}{{table="t"}}') == 0
        for node in made.nodes
        for name in names
    )


def read_following(node, first):
    """Reads all keys of what the node has, whoever leads; as it does nothing else, MOVED leads to
    `first` alone."""
    with node.client(single_connection_client=True) as client:
        assert client.execute_command("READONLY")
        for name, value in KEYS.items():
            try:
                assert client.get(name) == value
            except redis.exceptions.MovedError as moved:
                assert moved.port in range(first.port, first.port + PORTS)


def test_a_leader_that_meets_damage_has_another_lead_and_gets_a_copy(made):
    first = leader(made)
    run = damage(first)
    first.start().comes_up()
    # It is the first of its list, and leads again once it has caught up.
    wait_for(lambda: leads(first), "it leads again")
    other = next(node for node in made.nodes if node is not first)
    with other.through_gateway() as client, first.through_gateway() as its:
        read_all(client)
        read_all(its)
        assert client.set("t:after", "x")
    wait_for(lambda: is_repaired(made, run), lambda: f"it is repaired: {made.heard()}")
    assert "a replica met damage" in first.logged()
    with first.through_gateway() as its:
        read_all(its)


def test_who_reads_a_follower_that_meets_damage_is_led_to_who_leads(made):
    first = leader(made)
    second = next(node for node in made.nodes if node is not first)
    run = damage(second)
    second.start().comes_up()
    wait_for(lambda: has_joined(made), "it follows")
    read_following(second, first)
    wait_for(lambda: is_repaired(made, run), lambda: f"it is repaired: {made.heard()}")
    assert leads(first), "the lead had not to move"
    assert "a replica met damage" in second.logged()
    read_following(second, first)


def test_a_leader_that_cannot_give_a_copy_has_another_give_it(made):
    first = leader(made)
    run = damage(first)
    first.start().comes_up()
    wait_for(lambda: leads(first), "it leads again")
    # Nobody has read of the leader when it is asked for a copy.
    second = next(node for node in made.nodes if node is not first)
    second.stop()
    shutil.rmtree(second.cache)
    second.start().comes_up()
    wait_for(lambda: is_repaired(made, run), lambda: f"all have copies: {made.heard()}")
    assert "a replica met damage" in first.logged()
    assert "a replica met damage" not in second.logged()
    for node in made.nodes:
        with node.through_gateway() as client:
            read_all(client)


def test_a_node_with_a_damaged_log_comes_back_as_a_new_peer(made):
    first = leader(made)
    second = next(node for node in made.nodes if node is not first)
    second.kill()
    state = second.cache / "tables" / "t" / "replicas.state"
    state.write_bytes(b"\x07" * state.stat().st_size)
    second.start().comes_up()
    # Until its replica votes again another restart could cost the majority.
    wait_for(second.is_ready, lambda: second.ask("/ready"))
    assert has_joined(made), made.heard()
    wait_for(lambda: is_whole(made), lambda: f"it is whole: {made.heard()}")
    assert "join their groups again as new peers" in second.logged()
    # With another one gone nothing is answered that it does not have.
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


def test_a_node_whose_caches_own_file_is_damaged_starts_all_the_same(made):
    node = made["n2"]
    assert node.stop() == 0
    file = node.cache / "forebay.json"
    whole = file.read_bytes()
    file.write_bytes(whole[:7])
    node.start().comes_up()
    wait_for(node.is_ready, lambda: node.ask("/ready"))
    assert "the file of the cache is rewritten" in node.logged()
    assert file.read_bytes() == whole
    assert node.stop() == 0
    file.unlink()
    node.start().comes_up()
    wait_for(node.is_ready, lambda: node.ask("/ready"))
    assert file.read_bytes() == whole
    with node.through_gateway() as client:
        read_all(client)


def test_a_replica_whose_log_lost_its_end_joins_as_a_new_peer(made):
    node = next(node for node in made.nodes if not leads(node))
    # Written one by one, so that the log is many records; none of it is in runs.
    with leader(made).through_gateway() as client:
        for number in range(500):
            client.set(f"t:later-{number}", number)
    wait_for(lambda: is_whole(made), "all have all")
    node.kill()
    [log] = (node.cache / "tables" / "t" / "replicas").glob("*.log")
    written = len(log.read_bytes().rstrip(b"\0"))
    with log.open("r+b") as file:
        file.truncate(written * 3 // 4)
    node.start().comes_up()
    left = "its log lost entries that it had acknowledged"
    wait_for(lambda: left in node.logged(), "it knows what it lost")
    wait_for(lambda: is_whole(made), lambda: made.heard())
    with node.client() as client:
        client.execute_command("READONLY")
        assert [client.get(f"t:later-{number}") for number in (0, 499)] == ["0", "499"]
