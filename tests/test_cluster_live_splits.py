"""Partitions of live tables of a cluster that are cut in two, by real processes."""

import random

import pytest
from harness import wait_for
from histories import Clients, gateway

KEYS = 6
ORDERED = ["--mode", "live", "--order", "ordered", "--replicas", "3", "--durability", "os"]


@pytest.fixture
def made(cluster):
    made = cluster(3)
    made.store.json("create", "t", *ORDERED)
    return made


def split(made, at):
    told = made.store.json("cluster", "split", "t", "--at", at)
    assert told["led"], told
    return told["partition"]


def held(made):
    """All keys of the clients, as a node answers them."""
    names = [f"t:{kind}{i}" for kind in "rn" for i in range(KEYS)]
    with gateway(made["n1"]) as client:
        return {name: client.get(name) for name in names}


def test_both_halves_have_what_the_whole_had(made):
    keys = [f"t:{i:03}" for i in range(300)]
    with gateway(made["n1"]) as client:
        for key in keys:
            client.set(key, key)
        assert split(made, "100") == 1
        assert split(made, "200") == 2
        assert split(made, "200") == 2, "it is there"
        for node in made.nodes:
            with gateway(node) as other:
                assert other.mget(keys) == keys
                assert sorted(other.scan_iter("t:*")) == keys
        assert client.mset({"t:099": "a", "t:100": "b", "t:250": "c"})
        assert client.mget("t:099", "t:100", "t:250") == ["a", "b", "c"]
    for node in made.nodes:
        node.stop()
    for node in made.nodes:
        node.start()
    made.wait_up()
    with gateway(made["n2"]) as client:
        wait_for(lambda: client.set("t:000", 1) and client.set("t:299", 1), "writes", 60)
        assert client.mget("t:099", "t:100", "t:250") == ["a", "b", "c"]


def test_clients_are_answered_rightly_while_partitions_are_cut(made, request):
    seed = random.randrange(1 << 30)
    with Clients(made.nodes, seed, KEYS) as clients:
        clients.resume()
        for at in ["p", "n3", "r2", "r4"]:
            split(made, at)
            print(at, clients.resume(), clients.troubled())
    clients.check(seed, held(made))
