"""Live tables of a cluster with replicated partitions, by real processes."""

import itertools
import signal
import threading
import time

import pytest
import redis
from harness import Failed, wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]
# Pause between two writes of a thread, so that the nodes get processor time, too.
PAUSE_S = 0.002


class Writers:
    """Threads that write unique keys through gateways, and record the acknowledged ones."""

    def __init__(self, nodes):
        self.acknowledged, self.refused = {}, []
        self.is_over = False
        self.threads = [threading.Thread(target=self.write, args=(node,)) for node in nodes]

    def write(self, node):
        with node.through_gateway() as client:
            number = 0
            while not self.is_over:
                time.sleep(PAUSE_S)
                key, number = f"t:{node.name}-{number}", number + 1
                try:
                    client.set(key, key)
                    self.acknowledged[key] = time.monotonic()
                except redis.RedisError as error:
                    if "nothing was written" in str(error):
                        self.refused.append(key)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def resume(self):
        """Waits until many more writes are acknowledged."""
        seen = len(self.acknowledged)
        wait_for(lambda: len(self.acknowledged) > seen + 100, "writes are acknowledged")


@pytest.fixture
def made(shared):
    made = shared(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 6
    return made


def lost(node, keys):
    """The keys that the node does not answer with their values."""
    keys = sorted(keys)
    with node.through_gateway() as client:
        parts = [client.mget(keys[at : at + 500]) for at in range(0, len(keys), 500)]
    values = [value for part in parts for value in part]
    return [key for key, value in zip(keys, values, strict=True) if key != value]


def test_a_cluster_answers_commands_like_one_server(made):
    with made["n1"].through_gateway() as client:
        for i in range(50):
            assert client.set(f"t:{i}", f"v{i}")
        assert client.mget([f"t:{i}" for i in range(50)]) == [f"v{i}" for i in range(50)]
        assert [client.incr("t:n"), client.incrby("t:n", 5)] == [1, 6]
        assert client.mset({"t:a": 1, "t:b": 2, "t:c": 3})
        assert client.mget("t:a", "t:b", "t:c", "t:d") == ["1", "2", "3", None]
        assert client.delete("t:a", "t:b", "t:d") == 2
        assert client.set("t:a", "x", nx=True) and client.set("t:a", "y", nx=True) is None
        assert client.set("t:soon", 1, px=1) and client.append("t:q", "abc") == 3
        transaction = client.pipeline().set("t:{m}1", 1).incr("t:{m}1").get("t:{m}1")
        assert transaction.execute() == [True, 2, "2"]
        apart = client.pipeline().set("t:1", 1).set("t:2", 1)
        with pytest.raises(redis.RedisError, match="hashtag"):
            apart.execute()
        wait_for(lambda: client.get("t:soon") is None, "the key expires")
    with made["n2"].cluster_client() as client:
        assert client.get("t:7") == "v7" and client.set("t:7", "x") and client.get("t:7") == "x"


def test_no_acknowledged_write_is_lost_as_nodes_die_and_hang(made):
    third = made["n3"]
    with Writers([made["n1"], made["n2"]]) as writers:
        writers.resume()
        third.kill()
        writers.resume()
        third.start().wait_listening()
        writers.resume()
        third.signal(signal.SIGSTOP)
        writers.resume()
        third.signal(signal.SIGCONT)
        writers.resume()
    assert len(writers.acknowledged) > 100
    for node in made.nodes:
        wait_for(lambda node=node: node.is_ready(), f"{node.name} is ready")
        assert lost(node, writers.acknowledged) == []
        # Refused writes do not appear.
        assert sorted(lost(node, writers.refused)) == sorted(writers.refused)


def test_store_commands_handle_live_tables(made, source):
    run = made.store.run
    with pytest.raises(Failed, match="live table"):
        made.store.push("t", source())
    # These commands read a copy (test_backup.py).
    assert run("get", "t", "a").out == "(absent)\n" and run("verify", "t")
    for words in (["versions", "t"], ["compact", "t"]):
        with pytest.raises(Failed, match="is a live table of the cluster"):
            run(*words)
    with pytest.raises(Failed, match="choose 1, 3 or 5"):
        run("create", "u", "--replicas", "2")
    with pytest.raises(Failed, match="there is a table t already"):
        run("create", "t")
    assert [row["mode"] for row in made.store.json("tables")] == ["live"]
    assert made.store.json("drop", "t", "--yes")["dropped"]
    assert made.store.json("tables") == []
    with made["n1"].through_gateway() as client:
        wait_for(lambda: refuses(client), "the table is dropped")


def test_idle_replicas_are_not_reported_as_unreachable(made):
    made.wait_whole("t")
    # Heartbeats of idle groups are rare. A group is idle after 5 s without requests.
    idle, looks = time.monotonic() + 6, []
    while time.monotonic() < idle + 2 or len(looks) < 10:
        status = made.ask_coordinator(after=2**62)
        if status and time.monotonic() > idle:
            looks.append(status["live"]["tables"]["t"]["unreachable"])
    # On a busy machine one replica may answer late once.
    assert looks.count({}) > len(looks) * 3 / 4, looks


def test_a_missing_table_is_reported_at_once(made):
    with made["n1"].through_gateway() as client:
        took = []
        for _ in range(4):
            begun = time.monotonic()
            with pytest.raises(redis.ResponseError, match="no table 'nope'"):
                client.execute_command("KV.RANGE", "nope:", "+")
            took.append(time.monotonic() - begun)
        # A command on a partition without a leader would wait each time.
        assert min(took) < 1.5
    with pytest.raises(Failed, match="is in the directory of a store"):
        made.store.run("checkpoint", "t", str(made.store.path / "copy"))


def refuses(client):
    try:
        return client.get("t:1") and False
    except redis.RedisError as error:
        return "no table" in str(error)


def test_clients_are_not_redirected_in_circles_while_a_table_is_recreated(made):
    """Clients give up after about five MOVED in a row. A node that a redirect names must answer."""
    clients = {}
    stop, longest, answers = threading.Event(), [0], [0]

    def follow():
        for number in itertools.count():
            port, moved = made.nodes[number % 3].port, 0
            while not stop.is_set():
                if port not in clients:
                    clients[port] = made.nodes[0].client(port)
                try:
                    answers[0] += bool(clients[port].set(f"t:{number}", 1))
                    break
                except redis.exceptions.MovedError as error:
                    port, moved = error.port, moved + 1
                    longest[0] = max(longest[0], moved)
                except redis.ResponseError:
                    break
            if stop.is_set():
                return

    follower = threading.Thread(target=follow)
    follower.start()
    for _ in range(4):
        before = answers[0]
        wait_for(lambda before=before: answers[0] > before, "writes are answered")
        made.store.run("drop", "t", "--yes")
        made.store.run("create", "t", "--mode", "live", "--replicas", "3", "--durability", "os")
    stop.set()
    follower.join()
    assert longest[0] == 1, f"{longest[0]} MOVED in a row"


def test_a_pipeline_is_answered_in_order(made):
    with made["n1"].through_gateway() as client:
        pipeline = client.pipeline(transaction=False)
        for i in range(700):
            pipeline.set(f"t:{i}", i).incr("t:count").rpush("t:0", "x").set("t:last", i)
        pipeline.get("t:last").get("t:count").set("t:last", "end").get("t:last").get("t:nosuch")
        replies = pipeline.execute(raise_on_error=False)
        for i in range(700):
            done, count, wrong, last = replies[4 * i : 4 * i + 4]
            assert (done, count, last) == (True, i + 1, True)
            assert "WRONGTYPE" in str(wrong)
        assert replies[2800:] == ["699", "700", True, "end", None]
        assert client.mget([f"t:{i}" for i in range(700)]) == [str(i) for i in range(700)]
    with made["n2"].client() as client:
        # Keys with another leader get MOVED, each for its own slot.
        pipeline = client.pipeline(transaction=False)
        for i in range(60):
            pipeline.set(f"t:{i}", "new")
        replies = pipeline.execute(raise_on_error=False)
        moved = [reply for reply in replies if isinstance(reply, redis.exceptions.MovedError)]
        assert 0 < len(moved) < 60 and len(set(map(str, moved))) > 3
        assert all(reply is True for reply in replies if reply not in moved)
