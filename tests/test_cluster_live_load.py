"""`forebay load` into live tables of a cluster. The store stages the runs, nodes fetch them, and
groups add them exactly once, even if a process dies."""

import os
import random
import threading
import time

import pyarrow
import pyarrow.parquet
import pytest
import redis
from harness import wait_for
from histories import is_refused

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 30)))
LIVE = ["--mode", "live", "--durability", "os"]
HASHED = [*LIVE, "--partitions", "6"]
ROWS = 200_000
# The fetch of these runs (about 0.8 MB) is slow, so that tests can act during it.
COUNTED = 40_000
SLOW = ["--pull-rate", "200K"]
# Pause between two counts of a thread, so that the nodes get processor time, too.
PAUSE_S = 0.005


def keys(count=COUNTED):
    return [f"k{number:06}" for number in range(count)]


def write(path, values, count=COUNTED):
    """A source of keys with values: one value per key, or one for all."""
    values = values if isinstance(values, list) else [values] * count
    table = pyarrow.table({"id": keys(count), "v": values})
    pyarrow.parquet.write_table(table, path)
    return path


def words(table, path, *more):
    return ["load", table, path, "--key", "{id}", *more]


def get_all(node, names, table="t"):
    parts = [names[at : at + 2000] for at in range(0, len(names), 2000)]
    got = []
    with node.through_gateway(socket_timeout=60) as client:
        end = time.monotonic() + 60
        while len(got) < len(parts):
            try:
                got.append(client.mget([f"{table}:{name}" for name in parts[len(got)]]))
            except redis.exceptions.TryAgainError:
                # On a busy machine another node may not answer in time.
                assert time.monotonic() < end
    return [value for part in got for value in part]


def answered(node, names, table="t"):
    """Like get_all, once the node answers."""
    got = []

    def answers():
        try:
            got[:] = [get_all(node, names, table)]
        except redis.RedisError:
            return False
        return True

    wait_for(answers, "reads are answered")
    return got[0]


def loads(cluster):
    """The loads under way, as the coordinator reports them."""
    status = cluster.ask_coordinator()
    return status.get("loads", []) if status else None


def staged(cluster, table="t"):
    return [file.name for file in cluster.store.runs(table) if file.name.startswith("load-")]


def reads_as_follower(node, names):
    """The values in a node's own replicas, or None."""
    with node.client(socket_timeout=5) as client:
        try:
            client.execute_command("READONLY")
            return {client.get(f"t:{name}") for name in names}
        except redis.RedisError:
            return None


def wait_under_way(cluster, stage="fetching"):
    """Waits until a load is at this stage, or has just passed it. Adding takes less than a tenth of
    a second."""
    status = cluster.wait_for(lambda status: status.get("loads"), "a load is under way")
    load = status["loads"][0]
    if stage == "adding":
        fetching = (load["request"], "fetching")
        cluster.wait_for(lambda status: fetching not in stages(status), "the load is adding")
    return load


def stages(status):
    return [(load["request"], load["stage"]) for load in status.get("loads", [])]


def wait_ended(cluster):
    cluster.wait_for(lambda status: not status.get("loads"), "the load has ended")


class Counting:
    """Threads that add 1 to random keys, and record certain and uncertain increments."""

    def __init__(self, nodes, names, table="t"):
        self.names, self.table, self.is_over = names, table, False
        self.certain = dict.fromkeys(names, 0)
        self.perhaps = dict.fromkeys(names, 0)
        self.done = 0
        chance = random.Random(SEED)
        self.threads = [
            threading.Thread(target=self.add, args=(node, chance.randrange(1 << 30)))
            for node in nodes
        ]
        self.lock = threading.Lock()

    def add(self, node, seed):
        chance = random.Random(seed)
        with node.through_gateway() as client:
            while not self.is_over:
                time.sleep(PAUSE_S)
                name = chance.choice(self.names)
                try:
                    client.incr(f"{self.table}:{name}")
                    with self.lock:
                        self.certain[name] += 1
                        self.done += 1
                except redis.RedisError as error:
                    if not is_refused(str(error), error):
                        with self.lock:
                            self.perhaps[name] += 1
                    time.sleep(0.01)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def wrong(self, values, more):
        """Keys with impossible values, given the counts and `more` from a load."""
        pairs = zip(self.names, values, strict=True)
        return [
            (name, value, self.certain[name], self.perhaps[name])
            for name, value in pairs
            if not 0 <= int(value or 0) - more - self.certain[name] <= self.perhaps[name]
        ]


def test_many_rows_are_loaded_beside_writes(shared, tmp_path):
    made = shared(3)
    made.store.run("create", "t", *HASHED, "--replicas", "3")
    names = keys(ROWS)
    values = [f"{number:x}-{SEED % 97}" for number in range(ROWS)]
    with made["n1"].through_gateway() as client:
        client.mset({f"t:{name}": "old" for name in names[:1000]})
        client.mset({f"t:other-{number}": number for number in range(1000)})
    done = made.store.json(*words("t", write(tmp_path / "a.parquet", values, ROWS)))
    assert (done["rows"], done["updates"], done["deltas"]) == (ROWS, ROWS, 0)
    print(f"200,000 rows in {done['seconds']} s")
    with made["n2"].through_gateway() as client:
        client.mset({f"t:{name}": "new" for name in names[:500]})
        others = client.mget([f"t:other-{number}" for number in range(1000)])
        assert others == [str(number) for number in range(1000)]
        assert client.dbsize() >= ROWS + 1000
    for node in made.nodes:
        assert get_all(node, names) == ["new"] * 500 + values[500:]
    assert loads(made) == [] and staged(made) == []
    # All replicas keep the load after a restart, and none adds it again.
    for node in made.nodes:
        node.kill()
    made.start()
    assert answered(made["n3"], names) == ["new"] * 500 + values[500:]


@pytest.fixture
def counted(shared, tmp_path):
    """A cluster with a table of numbers, and a source that adds 1000 to each key."""
    made = shared(3, args=SLOW)
    made.store.run("create", "t", *HASHED, "--replicas", "3", "--delta", "i64")
    made.source = write(tmp_path / "more.parquet", 1000)
    return made


def adding(path, *more):
    return words("t", path, "--as", "delta", *more)


def kill_node(made, victim):
    """Kills a node, and returns it for a later restart."""
    coordinator = made.coordinator()
    others = [node for node in made.nodes if node is not coordinator]
    node = coordinator if victim == "coordinator" else others[0]
    node.kill()
    return node


def nightly(*values):
    """Cases that the simulator (sim_tests/live_loads.rs) repeats with every seed."""
    return pytest.param(*values, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("victim", "stage"),
    [
        ("coordinator", "adding"),
        ("node", "fetching"),
        nightly("command", "fetching"),
        nightly("coordinator", "fetching"),
        nightly("node", "adding"),
        nightly("command", "adding"),
    ],
)
def test_a_process_that_dies_doubles_and_loses_nothing(counted, victim, stage):
    made, names = counted, keys()
    counting = Counting(made.nodes, names[:40])
    with counting:
        command = made.store.start(*adding(made.source), "--json")
        wait_under_way(made, stage)
        if victim == "command":
            command.kill()
            command.communicate()
        else:
            node = kill_node(made, victim)
            before = counting.done
            wait_for(lambda: counting.done > before + 200, "counting continues")
            node.start().wait_listening()
            done = made.store.finish(command)
            assert (done.code, done.json()["rows"]) == (0, COUNTED), done.err
        wait_ended(made)
        made.wait_up()
        before = counting.done
        wait_for(lambda: counting.done > before + 200, "counting continues")
    for node in made.nodes:
        values = answered(node, names)
        assert counting.wrong(values[:40], 1000) == [], f"seed {SEED}"
        assert set(values[40:]) == {"1000"}
    # A second load adds again, and removes files of a killed command.
    made.store.run(*adding(made.source))
    assert set(answered(made["n1"], names[40:])) == {"2000"}
    assert staged(made) == []


def test_a_node_that_was_down_during_a_load_gets_it_after_its_restart(counted):
    made, names = counted, keys()
    command = made.store.start(*adding(made.source), "--json")
    wait_under_way(made)
    node = kill_node(made, "node")
    assert made.store.finish(command).json()["rows"] == COUNTED
    node.start().wait_listening()
    made.wait_up()
    wait_for(
        lambda: reads_as_follower(node, names[::500]) == {"1000"}, "its replicas have the load"
    )
    made.wait_whole("t")
    others = [other for other in made.nodes if other is not node]
    others[0].kill()
    assert set(answered(node, names)) == {"1000"}, "the node answers with one other node"


def start_waiting_load(made, request, log):
    """Starts a second load, and waits until it reports that it waits for the first one."""
    with log.open("wb") as err:
        command = made.store.start(*adding(made.source), "--json", stderr=err)
    wait_for(lambda: "waits until it is over" in log.read_text(), f"the load waits for {request}")
    return command


def test_loads_wait_for_each_other_and_can_be_cancelled_until_they_are_added(counted, tmp_path):
    made, names = counted, keys()
    one = made.store.start(*adding(made.source), "--json")
    request = wait_under_way(made)["request"]
    assert f"({request})" in made.store.run("cluster", "status").out
    two = start_waiting_load(made, request, tmp_path / "two")
    made.store.run("cluster", "cancel", request)
    ended = made.store.finish(one)
    assert ended.code == 1 and "not added to table t: it was cancelled" in ended.err
    words = made.store.refuse("cluster", "cancel", request)
    assert "nothing of it was added: it was cancelled" in words
    ended = made.store.finish(two)
    assert ended.json()["rows"] == COUNTED and set(get_all(made["n1"], names)) == {"1000"}
    assert staged(made) == [] and loads(made) == []
    # A load whose command is killed continues, and others wait for it.
    three = made.store.start(*adding(made.source))
    request = wait_under_way(made)["request"]
    three.kill()
    three.communicate()
    four = start_waiting_load(made, request, tmp_path / "four")
    wait_under_way(made, "adding")
    words = made.store.refuse("cluster", "cancel", request)
    assert "added it already" in words or "all of it is added" in words
    assert made.store.finish(four).json()["rows"] == COUNTED
    assert set(get_all(made["n1"], names)) == {"3000"}
    # So does a load that waited while another was built: its runs are not removed as leftovers.
    lock = made.store.path / "tables/t/push.lock"
    five = made.store.start(*adding(made.source))
    wait_for(lambda: str(five.pid) in lock.read_text(), lock.read_text)
    six = made.store.start(*adding(made.source))
    wait_under_way(made)
    five.kill()
    five.communicate()
    made.store.finish(six)
    assert set(get_all(made["n1"], names)) == {"5000"}


def test_a_drop_removes_staged_runs_of_a_killed_load(counted):
    made = counted
    command = made.store.start(*adding(made.source))
    wait_under_way(made)
    command.kill()
    command.communicate()
    wait_ended(made)
    assert set(get_all(made["n1"], keys())) == {"1000"}
    assert staged(made) != []
    made.store.run("drop", "t", "--yes")
    assert staged(made) == []


def test_a_load_with_a_damaged_run_or_without_a_majority_adds_nothing(counted, tmp_path):
    made, names = counted, keys()
    made.store.run("create", "small", *HASHED, "--replicas", "3", "--delta", "i64")
    command = made.store.start(*adding(made.source))
    wait_under_way(made)
    for run in made.store.runs("t"):
        content = bytearray(run.read_bytes())
        content[len(content) // 2] ^= 1
        run.write_bytes(content)
    ended = made.store.finish(command)
    assert ended.code == 1 and "damaged" in ended.err and "node n" in ended.err, ended.err
    assert set(get_all(made["n1"], names[:100])) == {None} and loads(made) == []
    made.store.run(*adding(made.source))
    assert set(get_all(made["n1"], names)) == {"1000"}
    coordinator = made.coordinator()
    for node in made.nodes:
        if node is not coordinator:
            node.stop()
    source = write(tmp_path / "few.parquet", 1, 100)
    words = made.store.refuse("load", "small", source, "--key", "{id}", "--as", "delta")
    assert "no majority" in words and "not added" in words
    assert staged(made, "small") == []


def test_a_load_becomes_visible_at_one_moment_in_a_partition(shared, tmp_path):
    made = shared(3)
    made.store.run("create", "t", *LIVE, "--replicas", "1", "--order", "ordered", "--boundary", "m")
    names = keys(1000)
    seen, is_over = [], threading.Event()

    def look():
        with made["n1"].through_gateway() as client:
            while not is_over.is_set():
                seen.append(frozenset(client.mget([f"t:{name}" for name in names[:50]])))

    reader = threading.Thread(target=look)
    reader.start()
    for value in ["one", "two", "three"]:
        made.store.run(*words("t", write(tmp_path / "a.parquet", value, 1000)))
    is_over.set()
    reader.join()
    moments = [{value} for value in (None, "one", "two", "three")]
    assert all(values in moments for values in seen) and frozenset(["three"]) in seen
    # Missing and duplicate keys are reported as on one node.
    twice = tmp_path / "twice.csv"
    twice.write_text("id,v\na,1\na,2\n")
    done = made.store.json("load", "t", twice, "--key", "{id}")
    assert (done["rows"], done["duplicates"]) == (1, 1)
    assert get_all(made["n1"], ["a"]) == ["2"]


def test_a_cluster_refuses_the_loads_that_one_node_refuses(shared, tmp_path):
    made = shared(3)
    rows = ["--value", "row", "--column", "v:int64"]
    made.store.run("create", "t", *LIVE, "--replicas", "1", *rows)
    path = tmp_path / "a.csv"
    path.write_text("id,v,more\na,1,2\n")
    refused = made.store.refuse
    assert "column 'more'" in refused("load", "t", path, "--key", "{id}")
    path.write_text("id,v\na,x\n")
    refused("load", "t", path, "--key", "{id}")
    path.write_text("id,v\na,1\n")
    assert "--delta" in refused("load", "t", path, "--key", "{id}", "--as", "delta")
    assert "insert" in refused("load", "t", path, "--key", "{id}", "--as", "insert")
    assert "none" in refused("load", "none", path, "--key", "{id}")
    words = refused("load", "none", path, "--key", "{id}", "--deadline", "1m", code=2)
    assert "--deadline" in words
    assert staged(made) == []
    assert made.store.json("load", "t", path, "--key", "{id}", "--deadline", "1m")["rows"] == 1
    empty = tmp_path / "empty.csv"
    empty.write_text("id,v\n")
    assert made.store.json("load", "t", empty, "--key", "{id}")["rows"] == 0
    names = [table["table"] for table in made.store.json("tables")]
    assert "t" not in names or names.count("t") == 1


def test_a_load_through_object_storage(cluster, remote, tmp_path):
    made = cluster(3, store=remote)
    made.store.run("create", "t", *HASHED, "--replicas", "3", "--delta", "i64")
    source = write(tmp_path / "a.parquet", 1000, 20_000)
    for times in (1, 2):
        assert made.store.json(*adding(source))["deltas"] == 20_000
        for node in made.nodes:
            assert set(get_all(node, keys(20_000))) == {str(1000 * times)}

    def staged_keys():
        return [name for name in remote.keys("tables/t/") if "load-" in name]

    assert (loads(made), staged_keys()) == ([], [])
    # The next command removes the files of a killed one, once its lease has ended.
    command = made.store.start(*adding(source))
    wait_for(staged_keys, "runs are staged")
    command.kill()
    command.communicate()
    wait_ended(made)
    wait_for(lambda: made.store.run(*adding(source), code=None).code == 0, "another load", step=1)
    assert staged_keys() == []


def run_bytes(node, table="t"):
    """The bytes that a node has in a table's run files."""
    files = node.cache.rglob("*.run")
    return sum(file.stat().st_size for file in files if table in file.parts)


def test_a_drain_waits_until_other_nodes_have_the_load(cluster, tmp_path):
    """A load is one log entry: a replica without it lacks nearly everything."""
    made = cluster(4, zones=1, args=["--pull-rate", "2M"])
    made.store.run("create", "t", *HASHED, "--replicas", "3")
    values = [f"{number:x}-{number * 7919:x}" * 4 for number in range(ROWS)]
    made.store.json(*words("t", write(tmp_path / "a.parquet", values, ROWS)))
    made.wait_whole("t")
    before = sum(map(run_bytes, made.nodes))
    result = made.store.run("cluster", "drain", "n4", "--yes", "--json").json_lines()[-1]
    bytes_per_node = [run_bytes(node) for node in made.nodes[:3]]
    # Each node has all data now. Compression depends on neighbouring values.
    assert min(bytes_per_node) > 0.9 * before / 3, (bytes_per_node, before, result)
    assert result["plan"]["expected_s"] and result["seconds"] > 1
    made["n4"].kill()
    made["n3"].kill()
    for node in made.nodes[:2]:
        assert answered(node, keys(2000)) == values[:2000]
