"""Live tables of a cluster whose nodes are cut off, hang and die: histories are checked."""

import signal

import pytest
import redis
from beside_redis import dice_of_test
from cluster import Cluster
from harness import Store, wait_for
from histories import Clients, gateway
from relays import FrameRelay, Weather

KEYS = 6
TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


@pytest.fixture
def made(tmp_path):
    seed, dice = dice_of_test()
    made = Cluster(Store(tmp_path / "store"), tmp_path)
    made.weather, made.seed, made.dice = Weather(seed), seed, dice
    relays = [FrameRelay(made, node) for node in made.nodes]
    for node, relay in zip(made.nodes, relays, strict=True):
        node.args = ["--advertise-peer", relay.address]
    try:
        made.start()
        made.store.run("create", "t", *TABLE)
        yield made
    finally:
        made.end()
        made.weather.heal()
        for relay in relays:
            relay.end()
    made.check_logs()


def held(made):
    """All keys, as a node answers them once it does."""
    names = [f"t:{kind}{i}" for kind in "rn" for i in range(KEYS)]
    found = {}

    def answers():
        with gateway(made["n1"]) as client:
            try:
                found.update((name, client.get(name)) for name in names)
            except redis.RedisError:
                return False
        return True

    wait_for(answers, "all keys are answered", 60)
    return found


def test_histories_hold_as_nodes_are_struck(made):
    struck = made.dice.choice(made.nodes)
    others = [node.name for node in made.nodes if node is not struck]
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        made.weather.lost, made.weather.doubled, made.weather.delay_s = 0.05, 0.1, 0.1
        clients.resume()
        made.weather.heal()
        for ways in (["from", "to"], ["from"], ["to"]):
            made.weather.cut_off(struck.name, others, ways)
            clients.resume()
            made.weather.heal()
            clients.resume()
        struck.signal(signal.SIGSTOP)
        clients.resume()
        struck.signal(signal.SIGCONT)
        struck.kill()
        clients.resume()
        struck.start().comes_up()
        clients.resume()
    counts = made.weather.counts
    assert counts["lost"] and counts["doubled"] and counts["held"], counts
    assert clients.check(made.seed, held(made)) > 500
