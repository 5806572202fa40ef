"""Splits of live tables' partitions in a cluster, by real processes."""

import signal
import threading

import pytest
import redis
from beside_redis import seeded_rng
from harness import WAIT_S, wait_for
from histories import Clients, gateway, read_keys
from redis.crc import key_slot

KEYS = 6
ORDERED = ["--mode", "live", "--order", "ordered", "--replicas", "3", "--durability", "os"]


@pytest.fixture
def made(shared):
    made = shared(3)
    made.store.json("create", "t", *ORDERED)
    return made


def test_both_children_keep_all_keys_of_the_split_partition(made):
    keys = [f"t:{i:03}" for i in range(300)]
    with gateway(made["n1"]) as client:
        for key in keys:
            client.set(key, key)
        assert made.split("t", "100") == 1
        assert made.split("t", "200") == 2
        assert made.split("t", "200") == 2, "a repeated split changes nothing"
        for node in made.nodes:
            with gateway(node) as other:
                assert other.mget(keys) == keys
                assert sorted(other.scan_iter("t:*")) == keys
        assert client.mset({"t:099": "a", "t:100": "b", "t:250": "c"})
        assert client.mget("t:099", "t:100", "t:250") == ["a", "b", "c"]
    for node in made.nodes:
        node.stop()
    made.start()
    with gateway(made["n2"]) as client:
        wait_for(lambda: client.set("t:000", 1) and client.set("t:299", 1), "writes")
        assert client.mget("t:099", "t:100", "t:250") == ["a", "b", "c"]


class Walker(threading.Thread):
    """Walks over all keys in a loop. Each walk must find all permanent keys, once each and in order
    in ranges."""

    def __init__(self, node, keys):
        super().__init__(daemon=True)
        self.node, self.keys = node, keys
        self.walks, self.refused, self.wrong, self.is_over = 0, 0, [], False

    def run(self):
        while not self.is_over:
            try:
                with gateway(self.node) as client:
                    scanned = {key for key in client.scan_iter("t:k*", count=20)}
                    ranged = in_range(client)
                    back = in_range(client, "REV")
            except redis.RedisError:
                self.refused += 1
                continue
            if scanned != set(self.keys):
                self.wrong.append(("scan", sorted(set(self.keys) ^ scanned)))
            if ranged != self.keys or back != self.keys[::-1]:
                self.wrong.append(("range", len(ranged), len(back)))
            self.walks += 1

    def end(self):
        self.is_over = True
        self.join(WAIT_S)
        assert self.wrong == []
        assert self.walks > self.refused, (self.walks, self.refused)


def in_range(client, *reverse):
    """The keys t:k..., page by page."""
    found, ends = [], ["t:k", "*t:k"]
    while True:
        words = ["KV.RANGE", *ends, "LIMIT", 30, *reverse, "KEYS"]
        following, keys = client.execute_command(*words)
        found += keys
        if following is None:
            return found
        ends[1 if reverse else 0] = following


def leader(made, at):
    """The node that leads the partition of that key."""
    ports = {str(one.port): one for one in made.nodes}
    found = []

    def known():
        with gateway(made["n1"]) as client:
            rows = client.execute_command("KV.MAP", "t")
        row = [row for row in rows if row[0] <= at][-1]
        found[:] = [ports.get(str(row[2][0]).rsplit(":", 1)[-1])]
        return found[0] is not None

    wait_for(known, "a leader")
    return found[0]


def begin_split(made, at):
    """Starts a split, and returns a function that waits for its end."""
    seen = []
    thread = threading.Thread(target=lambda: seen.append(made.split("t", at)))
    thread.start()

    def end():
        thread.join(120)
        assert seen, f"{at} is not split"

    return end


def test_clients_get_correct_answers_during_splits(made):
    seed, _ = seeded_rng()
    keys = [f"t:k{i:03}" for i in range(200)]
    with gateway(made["n1"]) as client:
        client.mset(dict.fromkeys(keys, 1))
    walker = Walker(made["n2"], keys)
    walker.start()
    with Clients(made.nodes, seed, KEYS) as clients:
        clients.resume()
        for at in ["p", "n3", "r2", "k100", "k050", "r4"]:
            made.split("t", at)
            clients.resume()
    walker.end()
    uncertain, _ = clients.count_failures()
    assert uncertain == 0, "no node died"
    clients.check(seed, read_keys(made["n1"], KEYS))


@pytest.mark.nightly
def test_histories_are_linearizable_while_nodes_die_during_splits(made):
    seed, rng = seeded_rng()
    with Clients(made.nodes, seed, KEYS) as clients:
        clients.resume()
        for at, victim in [("p", "leader"), ("n3", "coordinator"), ("r2", "leader"), ("r4", "all")]:
            wait_split = begin_split(made, at)
            threading.Event().wait(rng.uniform(0, 1.5))
            faulty = {"leader": [leader(made, at)], "coordinator": [made.coordinator()]}
            faulty = faulty.get(victim, made.nodes)
            for node in faulty:
                node.kill()
            for node in faulty:
                node.start()
            for node in faulty:
                node.wait_listening()
            wait_split()
            clients.resume()
    clients.check(seed, read_keys(made["n1"], KEYS))


@pytest.mark.nightly
def test_histories_are_linearizable_over_a_lossy_network_during_splits(lossy_cluster):
    made = lossy_cluster(3)
    with Clients(made.nodes, made.seed, KEYS) as clients:
        clients.resume()
        made.faults.lost, made.faults.doubled, made.faults.delay_s = 0.02, 0.1, 0.05
        slots = {key_slot(f"t:{kind}{i}".encode()) for kind in "rn" for i in range(KEYS)}
        for slot in made.rng.sample(sorted(slots), 3):
            made.split("t", slot, "--slot")
            clients.resume()
        made.faults.heal()
        clients.resume()
        rows = len(made.map(made.nodes[0]))
    clients.check(made.seed, read_keys(made["n1"], KEYS))
    assert rows == len(made.tags) + 3


def test_an_impossible_split_is_refused(made):
    def seen(table, *words):
        return made.store.run("cluster", "split", table, *words, code=1).err

    assert "no live table u" in seen("u", "--at", "m")
    assert "is split at a key" in seen("t", "--slot", 7)
    assert "keys have up to 8192" in seen("t", "--at", "k" * 8193)
    made.store.json("create", "h", "--mode", "live", "--replicas", "1", "--durability", "os")
    assert "is split at a slot" in seen("h", "--at", "m")
    wrong = made.store.run("cluster", "split", "h", "--slot", 16384, code=2)
    assert "from 1 to 16383" in wrong.err
    made.store.run("cluster", "split", "t", code=2)
    with gateway(made["n1"]) as client:
        both = client.pipeline().set("t:a", 1).set("t:z", 1)
        assert both.execute() == [True, True]
        made.split("t", "m")
        with pytest.raises(redis.RedisError, match="atomic within one partition"):
            client.pipeline().set("t:a", 2).set("t:z", 2).execute()
        assert client.mget("t:a", "t:z") == ["1", "1"]
        # A watch from before the split still sees changes.
        with client.pipeline() as watching:
            watching.watch("t:z")
            made.split("t", "q")
            client.set("t:z", 3)
            watching.multi()
            watching.set("t:z", 4)
            with pytest.raises(redis.WatchError):
                watching.execute()
        assert client.get("t:z") == "3"


def test_a_follower_that_was_down_gets_both_children(made):
    seed, _ = seeded_rng()
    long = "x" * (200 << 10)
    with Clients(made.nodes[:2], seed, KEYS) as clients:
        clients.resume()
        away = next(node for node in made.nodes if node is not leader(made, "r1"))
        for at, writes in [("r2", 1), ("n3", 60)]:
            away.kill()
            made.split("t", at)
            with gateway(next(node for node in made.nodes if node is not away)) as client:
                # This is more than the log keeps in memory, so the stopped node gets a copy.
                for i in range(writes):
                    wait_for(lambda i=i: is_set(client, f"t:a{i}", long), "a write")
                    wait_for(lambda i=i: is_set(client, f"t:z{i}", long), "a write")
            away.start().wait_listening()
            clients.resume()
            made.wait_whole("t")
        # One of the two complete nodes stops: each child continues with the restarted node.
        other = next(node for node in made.nodes if node is not away)
        other.signal(signal.SIGSTOP)
        clients.resume()
        other.signal(signal.SIGCONT)
        clients.resume()
    clients.check(seed, read_keys(made["n1"], KEYS))


def is_set(client, key, value):
    try:
        return client.set(key, value)
    except redis.RedisError:
        return False


def test_loads_and_splits_wait_for_each_other(made, tmp_path):
    def rows(name, value):
        source = tmp_path / f"{name}.csv"
        source.write_text("id,v\n" + "".join(f"{i:05},{value}\n" for i in range(20_000)))
        return ["load", "t", source, "--key", "{id}", "--value", "v"]

    keys = [f"t:{i:05}" for i in range(20_000)]
    made.store.run(*rows("first", "a"))
    loading = made.store.start(*rows("second", "b"))
    splits, busy = [], 0
    for at in ("05000", "10000", "15000"):
        result = made.store.run("cluster", "split", "t", "--at", at, "--json", code=None)
        splits += [at] * (result.code == 0)
        busy += "is under way" in result.err
        assert result.code == 0 or "then ask again" in result.err, result.err
    ended = made.store.finish(loading)
    assert ended.code in (0, 4), ended.err
    assert splits or busy
    for at in ("05000", "10000", "15000"):
        made.split("t", at)
    made.store.run(*rows("third", "c"))
    with gateway(made["n3"]) as client:
        assert client.dbsize() >= len(keys)
        for start in range(0, len(keys), 2000):
            assert set(client.mget(keys[start : start + 2000])) == {"c"}
