"""Stale reads: followers answer with data of a bounded age."""

import signal
import threading
import time

import pytest
import redis
from harness import WAIT_S, wait_for
from redis.crc import key_slot

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]
BOUND_S = 2
# Duration of a fault: several bounds.
FAULT_S = 3 * BOUND_S
KEYS = 30
# The library strips the first word of TRYAGAIN.
REFUSED = "no majority|reaches no majority|CLUSTERDOWN|NOREPLICAS"


@pytest.fixture
def made(lossy_cluster):
    return lossy_cluster(3, ["--max-staleness", f"{BOUND_S}s"])


def key_of_another_leader(made, node):
    """A key of a partition that another node leads, and that node."""
    leaders = made.leaders(node)
    place = next(place for place, leader in enumerate(leaders) if leader not in (None, node))
    return f"t:{{{made.tags[place]}}}stale", leaders[place]


class Recorded(threading.Thread):
    """Repeats a command, and records the begin, end and result of each try."""

    def __init__(self, client, once, pause_s):
        super().__init__(daemon=True)
        self.client, self.once, self.pause_s = client, once, pause_s
        self.rows, self.over = [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(self.pause_s):
            begun = time.monotonic()
            try:
                given = self.once(self.client, len(self.rows))
            except redis.RedisError:
                given = None
            self.rows.append((begun, time.monotonic(), given))

    def end(self):
        self.over.set()
        self.join(WAIT_S)
        assert not self.is_alive(), "the command does not end"
        return [row for row in self.rows if row[2] is not None]

    def wait_for_more(self, seconds=60):
        """Waits for a result that began after this call."""
        now = time.monotonic()
        is_new = lambda: any(row[0] > now and row[2] is not None for row in self.rows[-5:])  # noqa: E731
        wait_for(is_new, "a new result", seconds)


class Watched:
    """A key that one node writes all the time, and that a follower reads."""

    def __init__(self, made, reads_at):
        self.key, self.leader = key_of_another_leader(made, reads_at)
        self.reader_node = reads_at
        write = lambda client, n: n if client.set(self.key, n) else None  # noqa: E731
        read = lambda client, _: int(client.get(self.key))  # noqa: E731
        self.writer = Recorded(self.leader.through_gateway(socket_timeout=8), write, 0.01)
        self.writer.wait_for_more()
        self.readers = []
        for _ in range(4):
            client = reads_at.client()
            client.execute_command("READONLY")
            self.readers.append(Recorded(client, read, 0.001))
        for reader in self.readers:
            reader.wait_for_more()

    def end(self):
        """Checks that no read is older than the bound. Returns the greatest age of a read."""
        reads = [row for reader in self.readers for row in reader.end()]
        writes = self.writer.end()
        staleness_s = 0
        for begun, _, value in reads:
            # A read misses the writes that were acknowledged before it began, and that it does not
            # contain.
            missed = [row for row in writes if row[2] > value and row[1] < begun]
            staleness_s = max(staleness_s, max((begun - row[1] for row in missed), default=0))
        assert reads and writes
        assert staleness_s <= BOUND_S, f"an answer is {staleness_s:.2f} s old"
        return staleness_s


def test_an_isolated_follower_answers_within_the_bound_and_not_beyond_it(made):
    node = made.nodes[0]
    watched = Watched(made, node)
    made.cut_off(node)
    time.sleep(FAULT_S)
    with node.client() as client:
        client.execute_command("READONLY")
        # If the node still knows a leader, it redirects there.
        with pytest.raises(redis.RedisError, match=f"{REFUSED}|^[0-9]+ 127.0.0.1:[0-9]+$"):
            client.get(watched.key)
    made.faults.heal()
    for reader in watched.readers:
        reader.wait_for_more()
    staleness_s = watched.end()
    assert staleness_s > BOUND_S / 4, "no stale answer was measured"


def test_a_follower_that_stalled_gives_no_older_answers(made):
    node = made.nodes[1]
    watched = Watched(made, node)
    for _ in range(3):
        node.signal(signal.SIGSTOP)
        time.sleep(FAULT_S)
        node.signal(signal.SIGCONT)
        for reader in watched.readers:
            reader.wait_for_more()
    watched.end()


def test_a_follower_of_a_stalled_leader_keeps_to_the_bound(made):
    node = made.nodes[2]
    watched = Watched(made, node)
    others = made.others(node)
    for other in others:
        other.signal(signal.SIGSTOP)
    time.sleep(FAULT_S)
    with node.client(socket_timeout=30) as client:
        client.execute_command("READONLY")
        with pytest.raises(redis.RedisError, match=REFUSED):
            client.get(watched.key)
    for other in others:
        other.signal(signal.SIGCONT)
    for reader in watched.readers:
        reader.wait_for_more()
    watched.end()


def test_a_split_makes_no_answer_older_than_the_bound(made):
    node = made.nodes[0]
    watched = Watched(made, node)
    slot = key_slot(watched.key.encode())
    # The key belongs to the new child of the first split, and to the remaining one of the second.
    for at in (slot, slot + 1):
        made.split("t", at, "--slot")
        time.sleep(BOUND_S)
    for reader in watched.readers:
        reader.wait_for_more()
    with node.client() as client:
        client.execute_command("READONLY")
        assert client.get(watched.key) is not None, "the child with the key has a replica here"
    watched.end()


def test_a_follower_asks_no_node_within_the_bound(made):
    node = made.nodes[0]
    key, leader = key_of_another_leader(made, node)
    with leader.through_gateway() as client:
        client.set(key, "set")
    with node.client() as client:
        client.execute_command("READONLY")
        assert client.get(key) == "set"
        for other in made.others(node):
            other.signal(signal.SIGSTOP)
        try:
            begun = time.monotonic()
            assert client.get(key) == "set"
            assert time.monotonic() - begun < BOUND_S / 2
        finally:
            for other in made.others(node):
                other.signal(signal.SIGCONT)


def test_a_follower_does_not_answer_expired_keys(made):
    made.store.run("create", "e", *TABLE, "--ttl", "per-key")
    node = made.nodes[0]
    names = [f"e:{i}" for i in range(KEYS)]
    with node.through_gateway() as client:
        for name in names:
            client.set(name, "old", px=2000 if name.endswith("1") else None)
    with node.client() as client:
        client.execute_command("READONLY")
        expires = [name for name in names if name.endswith("1")]
        are_expired = lambda: all(client.get(name) is None for name in expires)  # noqa: E731
        wait_for(are_expired, "the keys expire")
        assert {client.get(name) for name in set(names) - set(expires)} == {"old"}
