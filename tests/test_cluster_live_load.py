"""forebay load into live tables of a cluster: staged in the store, brought by the nodes, added by
the partitions' groups, once, whatever dies meanwhile."""

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
# So slow that what is done meanwhile is done before the runs have come: they have some 0.8 MB.
COUNTED = 40_000
SLOW = ["--pull-rate", "200K"]
# Between two counts of a thread: the processors are for the nodes, too.
PAUSE_S = 0.005


def keys(count=COUNTED):
    return [f"k{number:06}" for number in range(count)]


def write(path, values, count=COUNTED):
    """A source of keys with values: a list, or one for all."""
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
                # Where the machine is busy another node may not answer in time.
                assert time.monotonic() < end
    return [value for part in got for value in part]


def answered(node, names, table="t"):
    """The same, once the node answers."""
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
    """The loads that are under way, as the coordinator tells."""
    heard = cluster.heard()
    return heard.get("loads", []) if heard else None


def staged(cluster, table="t"):
    return [file.name for file in cluster.store.runs(table) if file.name.startswith("load-")]


def reads_as_follower(node, names):
    """The values that a node's own replicas have, or None."""
    with node.client(socket_timeout=5) as client:
        try:
            client.execute_command("READONLY")
            return {client.get(f"t:{name}") for name in names}
        except redis.RedisError:
            return None


def wait_under_way(cluster, stage="fetching"):
    """The load, once it is at that stage, or just was: it is added within a tenth of a second."""
    status = cluster.wait_for(lambda status: status.get("loads"), "a load is under way")
    load = status["loads"][0]
    if stage == "adding":
        brings = (load["request"], "fetching")
        cluster.wait_for(lambda status: brings not in stages(status), "it is adding")
    return load


def stages(status):
    return [(load["request"], load["stage"]) for load in status.get("loads", [])]


def wait_ended(cluster):
    cluster.wait_for(lambda says: not says.get("loads"), "the load has ended")


class Counting:
    """Threads that add 1 to keys again and again, and note how often for certain and perhaps."""

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
        """Keys whose values cannot be: with what was counted, and `more` of a load."""
        pairs = zip(self.names, values, strict=True)
        return [
            (name, value, self.certain[name], self.perhaps[name])
            for name, value in pairs
            if not 0 <= int(value or 0) - more - self.certain[name] <= self.perhaps[name]
        ]


def test_many_rows_are_loaded_between_writes(shared, tmp_path):
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
    # All replicas have it, and nothing is added again, when all come back.
    for node in made.nodes:
        node.kill()
    made.start()
    assert answered(made["n3"], names) == ["new"] * 500 + values[500:]


@pytest.fixture
def counted(shared, tmp_path):
    """A cluster with a table of numbers, and a source that adds 1000 to each of its keys."""
    made = shared(3, args=SLOW)
    made.store.run("create", "t", *HASHED, "--replicas", "3", "--delta", "i64")
    made.source = write(tmp_path / "more.parquet", 1000)
    return made


def adding(path, *more):
    return words("t", path, "--as", "delta", *more)


def strike(made, who):
    """Kills a node, or the command; gives the node, which is started again later."""
    coordinator = made.coordinator()
    others = [node for node in made.nodes if node is not coordinator]
    node = coordinator if who == "coordinator" else others[0]
    node.kill()
    return node


def repeated(*values):
    """What the simulator (sim_tests/live_loads.rs) does with every seed."""
    return pytest.param(*values, marks=pytest.mark.nightly)


@pytest.mark.parametrize(
    ("who", "stage"),
    [
        ("coordinator", "adding"),
        ("node", "fetching"),
        repeated("command", "fetching"),
        repeated("coordinator", "fetching"),
        repeated("node", "adding"),
        repeated("command", "adding"),
    ],
)
def test_what_dies_doubles_and_loses_nothing(counted, who, stage):
    made, names = counted, keys()
    counting = Counting(made.nodes, names[:40])
    with counting:
        command = made.store.start(*adding(made.source), "--json")
        wait_under_way(made, stage)
        if who == "command":
            command.kill()
            command.communicate()
        else:
            node = strike(made, who)
            before = counting.done
            wait_for(lambda: counting.done > before + 200, "counting goes on")
            node.start().comes_up()
            done = made.store.finish(command)
            assert (done.code, done.json()["rows"]) == (0, COUNTED), done.err
        wait_ended(made)
        made.wait_up()
        before = counting.done
        wait_for(lambda: counting.done > before + 200, "counting goes on")
    for node in made.nodes:
        values = answered(node, names)
        assert counting.wrong(values[:40], 1000) == [], f"seed {SEED}"
        assert set(values[40:]) == {"1000"}
    # Another load is another one, and takes what a command left along.
    made.store.run(*adding(made.source))
    assert set(answered(made["n1"], names[40:])) == {"2000"}
    assert staged(made) == []


def test_a_node_that_is_away_during_a_load_gets_it_when_it_comes_back(counted):
    made, names = counted, keys()
    command = made.store.start(*adding(made.source), "--json")
    wait_under_way(made)
    node = strike(made, "node")
    assert made.store.finish(command).json()["rows"] == COUNTED
    node.start().comes_up()
    made.wait_up()
    wait_for(lambda: reads_as_follower(node, names[::500]) == {"1000"}, "its replicas have it")
    made.wait_whole("t")
    others = [other for other in made.nodes if other is not node]
    others[0].kill()
    assert set(answered(node, names)) == {"1000"}, "it has it, as it answers with one other"


def waits_for_turn(made, request, log):
    """A second load, once it has said that it waits: for the request, or for who builds it."""
    with log.open("wb") as err:
        command = made.store.start(*adding(made.source), "--json", stderr=err)
    wait_for(lambda: "waits until it is over" in log.read_text(), f"it waits for {request}")
    return command


def test_loads_wait_for_each_other_and_are_cancelled_until_they_are_added(counted, tmp_path):
    made, names = counted, keys()
    one = made.store.start(*adding(made.source), "--json")
    request = wait_under_way(made)["request"]
    assert f"({request})" in made.store.run("cluster", "status").out
    two = waits_for_turn(made, request, tmp_path / "two")
    made.store.run("cluster", "cancel", request)
    ended = made.store.finish(one)
    assert ended.code == 1 and "not added to table t: it was cancelled" in ended.err
    words = made.store.refuse("cluster", "cancel", request)
    assert "nothing of it was added: it was cancelled" in words
    ended = made.store.finish(two)
    assert ended.json()["rows"] == COUNTED and set(get_all(made["n1"], names)) == {"1000"}
    assert staged(made) == [] and loads(made) == []
    # One whose command is killed goes on, and others wait for it.
    three = made.store.start(*adding(made.source))
    request = wait_under_way(made)["request"]
    three.kill()
    three.communicate()
    four = waits_for_turn(made, request, tmp_path / "four")
    wait_under_way(made, "adding")
    words = made.store.refuse("cluster", "cancel", request)
    assert "added it already" in words or "all of it is added" in words
    assert made.store.finish(four).json()["rows"] == COUNTED
    assert set(get_all(made["n1"], names)) == {"3000"}
    # So does one that another waits for while it is built: its runs are not taken for leftovers.
    lock = made.store.path / "tables/t/push.lock"
    five = made.store.start(*adding(made.source))
    wait_for(lambda: str(five.pid) in lock.read_text(), lock.read_text)
    six = made.store.start(*adding(made.source))
    wait_under_way(made)
    five.kill()
    five.communicate()
    made.store.finish(six)
    assert set(get_all(made["n1"], names)) == {"5000"}


def test_what_a_killed_command_staged_goes_with_the_table(counted):
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


def test_what_is_damaged_or_has_no_majority_is_added_nowhere(counted, tmp_path):
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


def test_a_load_shows_at_one_moment_in_a_partition(shared, tmp_path):
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
    # Rows without a key or with two are told of as on one node.
    twice = tmp_path / "twice.csv"
    twice.write_text("id,v\na,1\na,2\n")
    done = made.store.json("load", "t", twice, "--key", "{id}")
    assert (done["rows"], done["duplicates"]) == (1, 1)
    assert get_all(made["n1"], ["a"]) == ["2"]


def test_what_is_refused_on_one_node_is_refused_here(shared, tmp_path):
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


def test_a_load_by_way_of_object_storage(cluster, remote, tmp_path):
    made = cluster(3, store=remote)
    made.store.run("create", "t", *HASHED, "--replicas", "3", "--delta", "i64")
    source = write(tmp_path / "a.parquet", 1000, 20_000)
    for times in (1, 2):
        assert made.store.json(*adding(source))["deltas"] == 20_000
        for node in made.nodes:
            assert set(get_all(node, keys(20_000))) == {str(1000 * times)}

    def left():
        return [name for name in remote.keys("tables/t/") if "load-" in name]

    assert (loads(made), left()) == ([], [])
    # What a command that is killed leaves, the next one removes, once that one's lease is over.
    command = made.store.start(*adding(source))
    wait_for(left, "runs are there")
    command.kill()
    command.communicate()
    wait_ended(made)
    wait_for(lambda: made.store.run(*adding(source), code=None).code == 0, "another load", step=1)
    assert left() == []


def run_bytes(node, table="t"):
    """What a node has of a table in files of runs."""
    files = node.cache.rglob("*.run")
    return sum(file.stat().st_size for file in files if table in file.parts)


def test_a_drain_waits_until_others_have_what_was_loaded(cluster, tmp_path):
    """A load is one entry of the log: who lacks it lacks nearly everything."""
    made = cluster(4, zones=1, args=["--pull-rate", "2M"])
    made.store.run("create", "t", *HASHED, "--replicas", "3")
    values = [f"{number:x}-{number * 7919:x}" * 4 for number in range(ROWS)]
    made.store.json(*words("t", write(tmp_path / "a.parquet", values, ROWS)))
    made.wait_whole("t")
    before = sum(map(run_bytes, made.nodes))
    says = made.store.run("cluster", "drain", "n4", "--yes", "--json").json_lines()[-1]
    here = [run_bytes(node) for node in made.nodes[:3]]
    # Each has all of it now, however it is compressed with its neighbours.
    assert min(here) > 0.9 * before / 3, (here, before, says)
    assert says["plan"]["expected_s"] and says["seconds"] > 1
    made["n4"].kill()
    made["n3"].kill()
    for node in made.nodes[:2]:
        assert answered(node, keys(2000)) == values[:2000]
