"""Live tables of a cluster whose nodes are cut off, stall and die. The histories must be
linearizable."""

import signal

import pytest
import redis
from harness import wait_for
from histories import Clients, read_keys

KEYS = 6


@pytest.fixture
def made(lossy_cluster):
    return lossy_cluster(3)


def wait_writes(made, *faulty):
    """Waits until each partition takes a write through each healthy node."""
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
    """The indexes of the partitions that the node leads, once all nodes agree on all leaders."""
    seen = []

    def agree():
        seen[:] = [made.leaders(one) for one in made.nodes]
        return None not in seen[0] and all(one == seen[0] for one in seen)

    wait_for(agree, lambda: f"nodes agree who leads: {seen}")
    return [place for place, leader in enumerate(seen[0]) if leader is node]


def random_leader(made):
    """A random node that leads partitions, and their indexes."""
    led_by(made, None)
    faulty = made.rng.choice(made.leaders(made["n1"]))
    return faulty, led_by(made, faulty)


def wait_failed_over(made, clients, faulty, places):
    """Waits until other nodes lead and every partition takes writes."""
    wait_for(lambda: made.has_moved(faulty, places), "other nodes lead")
    wait_writes(made, faulty)
    clients.resume()


@pytest.mark.nightly
def test_histories_are_linearizable_while_leaders_fail(made):
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        made.faults.lost, made.faults.doubled, made.faults.delay_s = 0.05, 0.1, 0.1
        wait_writes(made)
        clients.resume()
        made.faults.heal()
        for directions in made.rng.sample([["from", "to"], ["from"], ["to"]], 3):
            faulty, places = random_leader(made)
            made.cut_off(faulty, directions=directions)
            # A leader that sends but does not receive steps down, too.
            wait_failed_over(made, clients, faulty, places)
            made.faults.heal()
            wait_writes(made)
        faulty, places = random_leader(made)
        faulty.signal(signal.SIGSTOP)
        wait_failed_over(made, clients, faulty, places)
        faulty.signal(signal.SIGCONT)
        wait_writes(made)
        faulty, places = random_leader(made)
        faulty.kill()
        wait_failed_over(made, clients, faulty, places)
        faulty.start().wait_listening()
        wait_writes(made)
    counts = made.faults.counts
    assert counts["lost"] and counts["doubled"] and counts["held"], counts
    assert sum(clients.count_failures()) > 0, "nothing was refused or uncertain"
    assert clients.check(made.seed, read_keys(made["n1"], KEYS)) > 500


def test_histories_are_linearizable_while_the_coordinator_and_then_all_nodes_die(made):
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        faulty = made.coordinator()
        places = led_by(made, faulty)
        faulty.kill()
        wait_failed_over(made, clients, faulty, places)
        faulty.start().wait_listening()
        wait_writes(made)
        for node in made.nodes:
            node.kill()
        for node in made.nodes:
            node.start()
        for node in made.nodes:
            node.wait_listening()
        wait_writes(made)
        clients.resume()
    assert sum(clients.count_failures()) > 0, "nothing was refused or uncertain"
    assert clients.check(made.seed, read_keys(made["n1"], KEYS)) > 100
