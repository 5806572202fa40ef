"""Reads of replicas that follow, old by less than a stated bound."""

import signal
import threading
import time

import pytest
import redis
from harness import WAIT_S, wait_for
from redis.crc import key_slot

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]
BOUND_S = 2
# Of a fault: several bounds.
STRUCK_S = 3 * BOUND_S
KEYS = 30
# The library leaves out the first word of TRYAGAIN.
REFUSED = "no majority|reaches no majority|CLUSTERDOWN|NOREPLICAS"


@pytest.fixture
def made(lossy_cluster):
    return lossy_cluster(3, ["--max-staleness", f"{BOUND_S}s"])


def key_led_elsewhere(made, node):
    """A key that the node follows for."""
    led = made.leaders(node)
    place = next(place for place, leader in enumerate(led) if leader not in (None, node))
    return f"t:{{{made.tags[place]}}}stale", led[place]


class Recorded(threading.Thread):
    """Does something again and again; notes when each try began and ended, and what it gave."""

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
        assert not self.is_alive(), "a command that never ends"
        return [row for row in self.rows if row[2] is not None]

    def waits_for_more(self, seconds=60):
        """Until something that began after now was given."""
        now = time.monotonic()
        is_new = lambda: any(row[0] > now and row[2] is not None for row in self.rows[-5:])  # noqa: E731
        wait_for(is_new, "it goes on", seconds)


class Watched:
    """A key that is written all the time through one node, and read where it is followed."""

    def __init__(self, made, reads_at):
        self.key, self.leader = key_led_elsewhere(made, reads_at)
        self.reader_node = reads_at
        write = lambda client, n: n if client.set(self.key, n) else None  # noqa: E731
        read = lambda client, _: int(client.get(self.key))  # noqa: E731
        self.writer = Recorded(self.leader.through_gateway(socket_timeout=8), write, 0.01)
        self.writer.waits_for_more()
        self.readers = []
        for _ in range(4):
            client = reads_at.client()
            client.execute_command("READONLY")
            self.readers.append(Recorded(client, read, 0.001))
        for reader in self.readers:
            reader.waits_for_more()

    def end(self):
        """What was written, and read; none of it older than the bound."""
        reads = [row for reader in self.readers for row in reader.end()]
        writes = self.writer.end()
        behind_s = 0
        for begun, _, value in reads:
            # A command that came then has all that was acknowledged so long before.
            missed = [row for row in writes if row[2] > value and row[1] < begun]
            behind_s = max(behind_s, max((begun - row[1] for row in missed), default=0))
        assert reads and writes
        assert behind_s <= BOUND_S, f"an answer is older than the bound: {behind_s:.2f} s"
        return behind_s


def test_who_is_cut_off_answers_within_the_bound_and_not_beyond_it(made):
    node = made.nodes[0]
    watched = Watched(made, node)
    made.cut_off(node)
    time.sleep(STRUCK_S)
    with node.client() as client:
        client.execute_command("READONLY")
        # Where it knows a leader still, it leads there.
        with pytest.raises(redis.RedisError, match=f"{REFUSED}|^[0-9]+ 127.0.0.1:[0-9]+$"):
            client.get(watched.key)
    made.weather.heal()
    for reader in watched.readers:
        reader.waits_for_more()
    behind_s = watched.end()
    assert behind_s > BOUND_S / 4, "it answers while it is cut off"


def test_who_stood_still_answers_nothing_of_before(made):
    node = made.nodes[1]
    watched = Watched(made, node)
    for _ in range(3):
        node.signal(signal.SIGSTOP)
        time.sleep(STRUCK_S)
        node.signal(signal.SIGCONT)
        for reader in watched.readers:
            reader.waits_for_more()
    watched.end()


def test_who_follows_a_leader_that_stands_still_keeps_to_the_bound(made):
    node = made.nodes[2]
    watched = Watched(made, node)
    others = made.others(node)
    for other in others:
        other.signal(signal.SIGSTOP)
    time.sleep(STRUCK_S)
    with node.client(socket_timeout=30) as client:
        client.execute_command("READONLY")
        with pytest.raises(redis.RedisError, match=REFUSED):
            client.get(watched.key)
    for other in others:
        other.signal(signal.SIGCONT)
    for reader in watched.readers:
        reader.waits_for_more()
    watched.end()


def test_a_cut_makes_no_answer_older_than_the_bound(made):
    node = made.nodes[0]
    watched = Watched(made, node)
    slot = key_slot(watched.key.encode())
    # The key is in what is cut off; then in what is left.
    for at in (slot, slot + 1):
        made.split("t", at, "--slot")
        time.sleep(BOUND_S)
    for reader in watched.readers:
        reader.waits_for_more()
    with node.client() as client:
        client.execute_command("READONLY")
        assert client.get(watched.key) is not None, "the half that the key is in has a replica here"
    watched.end()


def test_nobody_is_asked_within_the_bound(made):
    node = made.nodes[0]
    key, leader = key_led_elsewhere(made, node)
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


def test_what_has_expired_is_not_answered_by_who_follows(made):
    made.store.run("create", "e", *TABLE, "--ttl", "per-key")
    node = made.nodes[0]
    names = [f"e:{i}" for i in range(KEYS)]
    with node.through_gateway() as client:
        for name in names:
            client.set(name, "old", px=2000 if name.endswith("1") else None)
    with node.client() as client:
        client.execute_command("READONLY")
        expires = [name for name in names if name.endswith("1")]
        gone = lambda: all(client.get(name) is None for name in expires)  # noqa: E731
        wait_for(gone, "they expire")
        assert {client.get(name) for name in set(names) - set(expires)} == {"old"}
