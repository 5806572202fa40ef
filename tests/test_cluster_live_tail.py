"""Replicas that were down catch up by the log's tail, or by a copy if the tail is gone."""

import signal

import pytest
import redis
from harness import wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "1"]
VALUE_BYTES = 64 << 10
# The writes take 50 MB. Memory keeps 4 MiB for lagging replicas.
COUNT = 800
# The writes fill this budget several times.
MEMORY = "32M"


def key(number):
    return f"t:{number % 200}"


def value(number):
    return f"{number:06}".encode() * (VALUE_BYTES // 6)


def parts(made):
    """The node that leads the only partition, and a follower."""
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
    """Whether a follower has all decided entries and answers the last writes."""
    try:
        with node.client(decode_responses=False) as client:
            client.execute_command("READONLY")
            wanted = range(count - 200, count)
            return all(client.get(key(number)) == value(number) for number in wanted)
    except redis.RedisError:
        return False


def wait_away(leader):
    silent = 'forebay_cluster_unreachable_replicas{table="t"}'
    wait_for(lambda: leader.metric(silent) == 1, "the leader reports the replica")


def wait_caught_up(made, node, count):
    """Waits until all replicas answer and have all entries, and the node has all values. Before
    that, a restarted node may forward reads."""
    of = '{table="t"}'

    def is_whole(one):
        names = ("led_partitions", "unreachable_replicas", "replica_lag_entries")
        return [one.metric(f"forebay_cluster_{name}{of}") for name in names] == [1, 0, 0]

    wait_for(lambda: any(map(is_whole, made.nodes)), "all replicas have all entries", 120, 0.1)
    wait_for(lambda: has_all(node, count), "the node has all values")


def log_bytes(node, reason):
    return node.metric(f'forebay_cluster_log_bytes{{table="t",for="{reason}"}}')


def tail_bytes(node):
    return node.metric("forebay_cluster_log_sent_bytes_total")


@pytest.mark.parametrize("how", ["killed", "stood still"])
def test_a_replica_that_missed_50_mb_gets_the_tail(shared, how):
    made = shared(3, args=["--memory", MEMORY])
    made.store.run("create", "t", *TABLE)
    leader, away = parts(made)
    write(leader, range(0, 200))
    wait_for(lambda: has_all(away, 200), "the node follows")
    before = sum(tail_bytes(node) for node in made.nodes if node is not away)
    copies = 0 if how == "killed" else away.metric("forebay_cluster_copies_total")
    away.kill() if how == "killed" else away.signal(signal.SIGSTOP)
    write(leader, range(200, 200 + COUNT))
    # Most of the tail is only in files.
    wait_for(lambda: log_bytes(leader, "kept") > 0, "the log is kept for the lagging replica")
    wait_away(leader)
    away.start().wait_listening() if how == "killed" else away.signal(signal.SIGCONT)
    wait_caught_up(made, away, 200 + COUNT)
    assert away.metric("forebay_cluster_copies_total") == copies
    if how == "killed":
        read = sum(map(tail_bytes, made.nodes))
        assert read - before > 0.8 * COUNT * VALUE_BYTES, (read, before)


def test_a_replica_that_missed_more_than_the_retention_gets_a_copy(cluster):
    made = cluster(3, args=["--memory", MEMORY, "--log-retention", "1M"])
    made.store.run("create", "t", *TABLE)
    leader, away = parts(made)
    write(leader, range(0, 200))
    away.kill()
    write(leader, range(200, 200 + COUNT))
    # The log keeps two segments of 16 MiB: the newest one, and the one that it alternates with.
    is_short = lambda: log_bytes(leader, "kept") < 34 << 20  # noqa: E731
    wait_for(is_short, lambda: f"the log is short: {log_bytes(leader, 'kept')}")
    wait_away(leader)
    away.start().wait_listening()
    wait_caught_up(made, away, 200 + COUNT)
    assert away.metric("forebay_cluster_copies_total") == 1
    # The replica continues by the log.
    write(leader, range(200 + COUNT, 400 + COUNT))
    wait_for(lambda: has_all(away, 400 + COUNT), "the node follows")
