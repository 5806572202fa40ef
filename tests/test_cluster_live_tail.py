"""Replicas that were away catch up by the tail of the log, and by a copy where that is gone."""

import signal

import pytest
import redis
from harness import wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "1"]
VALUE_BYTES = 64 << 10
# 50 MB; what memory keeps for replicas that are behind is 4 MiB.
COUNT = 800
# Enough to fill it several times.
MEMORY = "32M"


def key(number):
    return f"t:{number % 200}"


def value(number):
    return f"{number:06}".encode() * (VALUE_BYTES // 6)


def parts(made):
    """The node that leads the only partition, and one that does not."""
    with made.nodes[0].through_gateway() as client:
        [[_, _, nodes]] = client.execute_command("KV.MAP", "t")
    leader = next(node for node in made.nodes if nodes[0].endswith(f":{node.port}"))
    return leader, next(node for node in made.nodes if node is not leader)


def write(node, numbers):
    with node.through_gateway() as client:
        for first in range(numbers.start, numbers.stop, 20):
            pipe = client.pipeline(transaction=False)
            for number in range(first, min(first + 20, numbers.stop)):
                pipe.set(key(number), value(number))
            assert all(pipe.execute())


def has_all(node, count):
    """Whether a replica that follows answers what was written last, having all that was decided."""
    try:
        with node.client(decode_responses=False) as client:
            client.execute_command("READONLY")
            wanted = range(count - 200, count)
            return all(client.get(key(number)) == value(number) for number in wanted)
    except redis.RedisError:
        return False


def wait_away(leader):
    silent = 'forebay_cluster_unreachable_replicas{table="t"}'
    wait_for(lambda: leader.metric(silent) == 1, "the leader misses it")


def wait_caught_up(made, node, count):
    """Until who leads has all replicas answer and none lack anything, and the node has all. Before
    that a node which has just started may have others answer."""
    of = '{table="t"}'

    def is_whole(one):
        names = ("led_partitions", "unreachable_replicas", "replica_lag_entries")
        return [one.metric(f"forebay_cluster_{name}{of}") for name in names] == [1, 0, 0]

    wait_for(lambda: any(map(is_whole, made.nodes)), "all replicas have all", 120, 0.1)
    wait_for(lambda: has_all(node, count), "it has all")


def log_bytes(node, what):
    return node.metric(f'forebay_cluster_log_bytes{{table="t",for="{what}"}}')


def tail_bytes(node):
    return node.metric("forebay_cluster_log_sent_bytes_total")


@pytest.mark.parametrize("how", ["killed", "stood still"])
def test_who_was_away_for_50_mb_is_sent_the_tail(shared, how):
    made = shared(3, args=["--memory", MEMORY])
    made.store.run("create", "t", *TABLE)
    leader, away = parts(made)
    write(leader, range(0, 200))
    wait_for(lambda: has_all(away, 200), "it follows")
    before = sum(tail_bytes(node) for node in made.nodes if node is not away)
    copies = 0 if how == "killed" else away.metric("forebay_cluster_copies_total")
    away.kill() if how == "killed" else away.signal(signal.SIGSTOP)
    write(leader, range(200, 200 + COUNT))
    # Most of it is in files alone.
    wait_for(lambda: log_bytes(leader, "kept") > 0, "it is kept for who is away")
    wait_away(leader)
    away.start().comes_up() if how == "killed" else away.signal(signal.SIGCONT)
    wait_caught_up(made, away, 200 + COUNT)
    assert away.metric("forebay_cluster_copies_total") == copies
    if how == "killed":
        read = sum(map(tail_bytes, made.nodes))
        assert read - before > 0.8 * COUNT * VALUE_BYTES, (read, before)


def test_who_was_away_for_longer_is_brought_a_copy(cluster):
    made = cluster(3, args=["--memory", MEMORY, "--log-retention", "1M"])
    made.store.run("create", "t", *TABLE)
    leader, away = parts(made)
    write(leader, range(0, 200))
    away.kill()
    write(leader, range(200, 200 + COUNT))
    # Segments of 16 MiB: the newest one stays, and one that it takes turns with.
    is_short = lambda: log_bytes(leader, "kept") < 34 << 20  # noqa: E731
    wait_for(is_short, lambda: f"the log is short: {log_bytes(leader, 'kept')}")
    wait_away(leader)
    away.start().comes_up()
    wait_caught_up(made, away, 200 + COUNT)
    assert away.metric("forebay_cluster_copies_total") == 1
    # It goes on by the log.
    write(leader, range(200 + COUNT, 400 + COUNT))
    wait_for(lambda: has_all(away, 400 + COUNT), "it follows")
