"""Live tables of a cluster whose nodes are cut off, hang and die: histories are checked."""

import signal

import pytest
import redis
from harness import wait_for
from histories import Clients, held

KEYS = 6


@pytest.fixture
def made(lossy_cluster):
    return lossy_cluster(3)


def wait_writes(made, *faulty):
    """Waits until each partition takes a write through each node that is not struck."""
    for node in made.others(*faulty):
        for tag in made.tags:
            wait_for(lambda node=node, tag=tag: is_set(node, f"t:{{{tag}}}probe"), tag)


def is_set(node, key):
    try:
        with node.through_gateway(socket_timeout=8) as client:
            return client.set(key, 1)
    except redis.RedisError:
        return False


def led_by(made, node):
    """The places of the partitions that the node leads; all are led, as all nodes know it."""
    seen = []

    def agree():
        seen[:] = [made.leaders(one) for one in made.nodes]
        return None not in seen[0] and all(one == seen[0] for one in seen)

    wait_for(agree, lambda: f"nodes agree who leads: {seen}")
    return [place for place, leader in enumerate(seen[0]) if leader is node]


def a_leader(made):
    """Some node that leads partitions, and which."""
    led_by(made, None)
    faulty = made.rng.choice(made.leaders(made["n1"]))
    return faulty, led_by(made, faulty)


def falls_over(made, clients, faulty, places):
    """Holds a fault until others lead and every partition takes writes."""
    wait_for(lambda: made.has_moved(faulty, places), "others lead")
    wait_writes(made, faulty)
    clients.resume()


@pytest.mark.nightly
def test_histories_hold_as_leaders_are_struck(made):
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        made.weather.lost, made.weather.doubled, made.weather.delay_s = 0.05, 0.1, 0.1
        wait_writes(made)
        clients.resume()
        made.weather.heal()
        for ways in made.rng.sample([["from", "to"], ["from"], ["to"]], 3):
            faulty, places = a_leader(made)
            made.cut_off(faulty, ways=ways)
            # Who is heard and does not hear steps down, too.
            falls_over(made, clients, faulty, places)
            made.weather.heal()
            wait_writes(made)
        faulty, places = a_leader(made)
        faulty.signal(signal.SIGSTOP)
        falls_over(made, clients, faulty, places)
        faulty.signal(signal.SIGCONT)
        wait_writes(made)
        faulty, places = a_leader(made)
        faulty.kill()
        falls_over(made, clients, faulty, places)
        faulty.start().comes_up()
        wait_writes(made)
    counts = made.weather.counts
    assert counts["lost"] and counts["doubled"] and counts["held"], counts
    assert sum(clients.troubled()) > 0, "nothing was refused or uncertain"
    assert clients.check(made.seed, held(made["n1"], KEYS)) > 500


def test_histories_hold_as_the_coordinator_dies_and_as_all_nodes_die(made):
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        faulty = made.coordinator()
        places = led_by(made, faulty)
        faulty.kill()
        falls_over(made, clients, faulty, places)
        faulty.start().comes_up()
        wait_writes(made)
        for node in made.nodes:
            node.kill()
        for node in made.nodes:
            node.start()
        for node in made.nodes:
            node.comes_up()
        wait_writes(made)
        clients.resume()
    assert sum(clients.troubled()) > 0, "nothing was refused or uncertain"
    assert clients.check(made.seed, held(made["n1"], KEYS)) > 100
