"""Who holds what changes while clients read: nodes come, go and are replaced, replicas change."""

import json
import re
import signal
import time

import pyarrow as pa
import pytest
import redis
from cluster import Reading
from data import write
from harness import wait_for

KEYS = 300
HASHED = [f"t:{i}" for i in range(KEYS)]
ORDERED = [f"words:{i:04}" for i in range(KEYS)]
SMALL = [f"small:{i}" for i in range(20)]


@pytest.fixture
def holding(cluster, shared, tmp_path):
    """holding(4): so many nodes in three zones, a hashed, an ordered and a small table. Of a test's
    own where nodes come to hold nothing."""

    def push(made, version, code=0, args=()):
        columns = {"id": range(KEYS), "word": [f"{i:04}" for i in range(KEYS)]}
        values = pa.table({**columns, "version": [version] * KEYS})
        source = write(values, tmp_path / f"t-{version}.parquet")
        small = write(values.slice(0, 20), tmp_path / f"small-{version}.parquet")
        args = ["--partitions", "12", *args]
        first = made.store.push("t", source, args=["--replicas", "2", *args], code=code)
        words = ["--order", "ordered", "--replicas", "2", *args]
        made.store.push("words", source, key="{word}", args=words)
        made.store.push("small", small)
        return first

    def make(count=4, args=(), own=True):
        made = (cluster if own else shared)(count, args=args)
        made.push_all = lambda *words, **options: push(made, *words, **options)
        made.push_all(1)
        return made

    return make


def versions(client, names):
    return {json.loads(row)["version"] for row in client.mget(names)}


def read_all(client):
    """Of each table in one command."""
    seen = [versions(client, names) for names in (HASHED, ORDERED, SMALL)]
    assert all(len(one) == 1 for one in seen), seen
    return seen[0]


def read_one(client):
    name = HASHED[time.monotonic_ns() % KEYS]
    return {json.loads(client.get(name))["version"]}


def readers(made, nodes=None):
    nodes = nodes or made.alive()
    plain = [Reading(node.through_gateway(), read_all) for node in nodes]
    return [*plain, Reading(nodes[0].cluster_client(), read_one)]


def end(reading, versions_seen):
    for reader in reading:
        reader.end()
        assert (reader.failed, reader.mixed, reader.seen) == ([], [], versions_seen)
        assert reader.replies > 3


def runs_at(node, table):
    directory = node.cache / "tables" / table / "runs"
    return len(list(directory.glob("*.run"))) if directory.exists() else 0


def holding_of(said):
    return {node["name"] for node in said["nodes"] if node["holds"]}


def holders(made):
    return holding_of(made.status())


def move(made, *words, code=0, ended="done"):
    result = made.store.run("cluster", *words, "--yes", "--json", code=code)
    moved = result.json_lines()[-1]
    assert moved["ended"] == ended, moved
    return moved


def test_a_node_is_added_and_another_drained_under_readers(holding):
    made = holding(4)
    fifth = made.join("n5", "z2")
    assert holders(made) == {"n1", "n2", "n3", "n4"}
    assert any("cluster add n5" in note for note in made.status()["notes"])
    reading = readers(made)
    moved = move(made, "add")
    copied = {node["node"]: node["copied_bytes"] for node in moved["plan"]["nodes"]}
    assert copied["n5"] > 0 and moved["plan"]["goal"] == "add n5"
    assert holders(made) == {node.name for node in made.nodes}
    assert runs_at(fifth, "t") > 0 and runs_at(fifth, "words") > 0
    assert any(fifth.port <= row[0] < fifth.port + 8 for row in fifth.slots())
    # Once nothing of it is anywhere else, clients are led on.
    move(made, "drain", "n1")
    assert holders(made) == {"n2", "n3", "n4", "n5"}
    gone = made["n1"]
    for table in ("t", "words", "small"):
        wait_for(lambda table=table: runs_at(gone, table) == 0, f"{table} is gone at n1")
    assert any("n1 was drained" in note for note in made.status()["notes"])
    # What is pushed from now on goes to the others.
    made.push_all(2)
    assert [runs_at(gone, table) for table in ("t", "words", "small")] == [0, 0, 0]
    made.store.json("rollback", "t")
    made.store.json("swap", "t@2", "--force")
    for reader in reading:
        reader.wait_for(2)
        reader.end()
        assert (reader.failed, reader.mixed) == ([], [])
    assert gone.stop() == 0
    made.store.json("cluster", "remove", "n1")
    assert sorted(made.states()) == ["n2", "n3", "n4", "n5"]
    made.nodes.remove(gone)
    assert read_all(made["n2"].through_gateway()) == {2}
    gone.guard.close()


def test_what_a_dead_node_held_is_on_others_after_a_drain(holding):
    made = holding(5)
    lost = next(node for node in made.nodes if node is not made.coordinator())
    others = [node for node in made.nodes if node is not lost]
    reading = readers(made, others)
    lost.kill()
    made.wait_states(**{lost.name: "down"})
    move(made, "drain", lost.name)
    assert lost.name not in holders(made)
    # With two replicas again everywhere, one more may go.
    second = next(node for node in others if node is not made.coordinator())
    rest = [node for node in others if node is not second]
    end(reading, [1])
    second.kill()
    for node in rest:
        assert read_all(node.through_gateway()) == {1}
    # The first one comes back: it holds nothing, and answers all the same.
    lost.start().comes_up()
    made.wait_states(**{lost.name: "up"})
    wait_for(lambda: lost.is_ready(), "it is ready")
    assert read_all(lost.through_gateway()) == {1}
    assert lost.name not in holders(made)
    # One that is down brings nothing.
    made.wait_states(**{second.name: "down"})
    moved = move(made, "replace", second.name, lost.name)
    assert moved["plan"]["goal"] == f"{lost.name} in the place of {second.name}"
    assert lost.name in holders(made) and second.name not in holders(made)


@pytest.mark.nightly
def test_what_a_node_held_that_stays_away_comes_to_others_by_itself(holding):
    made = holding(5, args=["--replace-after", "5s"])
    lost = next(node for node in made.nodes if node is not made.coordinator())
    others = [node for node in made.nodes if node is not lost]
    # One that is worked on is waited for.
    made.store.json("cluster", "pause", lost.name, "--for", "6s")
    reading = readers(made, others)
    lost.kill()
    names = {node.name for node in others}
    made.wait_for(lambda said: holding_of(said) == names and said["plan"] is None)
    end(reading, [1])
    lost.start().comes_up()
    made.wait_states(**{lost.name: "up"})
    assert any(f"{lost.name} was drained" in note for note in made.status()["notes"])
    assert holders(made) == names


def test_one_node_takes_the_place_of_another(holding):
    made = holding(3)
    fourth = made.join("n4", "z3")
    before = {node["node"]: node for node in planned(made, "drain", "n3")["nodes"]}
    reading = readers(made)
    moved = move(made, "replace", "n3", "n4")
    assert moved["plan"]["copied_bytes"] == before["n3"]["before_bytes"]
    assert holders(made) == {"n1", "n2", "n4"}
    assert made["n3"].stop() == 0
    made.store.json("cluster", "remove", "n3")
    assert read_all(fourth.through_gateway()) == {1}
    # That of the node which went lost its connection.
    gone = reading.pop(2)
    gone.over.set()
    end(reading, [1])


def planned(made, *words):
    return made.store.json("cluster", "plan", *words)


def wait_for_files(made, least, most):
    def files():
        return sum(runs_at(node, "t") for node in made.nodes)

    wait_for(lambda: least <= files() <= most, lambda: f"{files()} files")


def test_replicas_of_a_table_change(holding):
    made = holding(4, own=False)
    reading = readers(made)
    for count in (4, 1, 2):
        move(made, "replicas", "t", str(count))
        assert made.table("t")["replicas"] == count
        with made["n1"].through_gateway() as client:
            assert read_all(client) == {1}
        # Nodes share the partitions that the three boundaries of the layout cut, if they do: where
        # those are goes by the order in which the nodes came.
        wait_for_files(made, 12 * count, 15 * count)
    words = ["push", "t", "x.parquet", "--key", "{id}", "--replicas", "3"]
    refused = made.store.refuse(*words, code=2)
    assert "forebay cluster replicas t 3" in refused, refused
    end(reading, [1])


def test_a_plan_is_shown_drawn_kept_and_refused_when_it_is_old(holding, tmp_path):
    made = holding(4)
    file, drawing = tmp_path / "plan.json", tmp_path / "plan.svg"
    shown = planned(made, "drain", "n2", "--output", file, "--draw", drawing)
    assert shown["goal"] == "drain n2" and shown["copied_bytes"] > 0
    assert drawing.read_text().startswith("<svg")
    # Nothing was changed yet, and is not without --yes.
    assert holders(made) == {"n1", "n2", "n3", "n4"}
    refused = made.store.run("cluster", "drain", "n2", code=2)
    assert "bytes after" in refused.out and "--yes" in refused.err
    again = made.store.run("cluster", "apply", file, code=2)
    # How long it takes goes by how fast nodes brought things lately.
    untimed = [re.sub(r"about \d+ \w+", "", one.out) for one in (again, refused)]
    assert untimed[0] == untimed[1] and "iB" in again.out and "--yes" in again.err
    assert holders(made) == {"n1", "n2", "n3", "n4"}
    applied = made.store.json("cluster", "apply", file, "--yes")
    assert applied["ended"] == "done"
    # How long it is expected to take goes by that, too, and is not kept in the file.
    applied["plan"].pop("expected_s"), shown.pop("expected_s")
    assert applied["plan"] == shown
    assert holders(made) == {"n1", "n3", "n4"}
    old = made.store.refuse("cluster", "apply", file, "--yes")
    assert "plan was made" in old, old


def test_a_new_ordered_table_is_said_to_be_divided_so_for_good(holding, tmp_path):
    made = holding(3, own=False)
    path = write(pa.table({"id": [1, 2], "n": [1, 2]}), tmp_path / "names.parquet")
    push = ["push", "names", path, "--key", "{id}"]
    first = made.store.run(*push, "--order", "ordered")
    assert "1 range," in first.err and "forebay cluster rebalance" in first.err, first.err
    again = made.store.run(*push, "--order", "ordered", "--quiet")
    assert (again.out, again.err) == ("", "")
    assert "1 range" not in made.store.run(*push, "--order", "ordered").err
    # Its order is kept; changes on top of it have that order.
    for words in [[], ["--no-swap"], ["--no-swap", "--force"]]:
        refused = made.store.refuse(*push, *words, code=2)
        assert "--order ordered" in refused and "forebay drop names" in refused, refused
    onto = made.store.json("push", "names", path, "--onto", "current")
    assert (onto["onto"], onto["swapped"]) == (3, True)


def test_plans_that_cannot_be_are_refused_in_words(holding):
    made = holding(3, own=False)
    for words, says in [
        (["drain", "n9"], "no node n9"),
        (["drain", "n1", "n2", "n3"], "no node would be left"),
        (["add"], "all nodes hold something"),
        (["replace", "n1", "n2"], "n2 holds parts"),
        (["replicas", "t", "2"], "2 replicas already"),
        (["replicas", "none", "2"], "no table none"),
    ]:
        refused = made.store.refuse("cluster", *words, "--yes")
        assert says in refused, refused
    assert read_all(made["n1"].through_gateway()) == {1}


WIDE = 1 << 20


@pytest.fixture
def slow(cluster, tmp_path):
    """Four nodes that bring 2 MiB a second; `t` of 12 MiB is on two of them each."""
    made = cluster(4, args=["--pull-rate", "2M"])
    values = [bytes([i]) * 16 + bytes(range(256)) * (WIDE // 256) for i in range(12)]
    wide = pa.table({"id": range(12), "wide": pa.array(values), "version": [1] * 12})
    source = write(wide, tmp_path / "wide.parquet")
    made.wide = ["push", "t", source, "--key", "{id}", "--replicas", "2", "--partitions", "12"]
    made.store.run(*made.wide)
    return made


def begin(made, *words):
    """Starts a plan and waits until nodes copy."""
    process = made.store.start("cluster", *words, "--yes", "--json")
    made.wait_for(lambda said: "copying" in ((said["plan"] or {}).get("stage") or {}))
    return process


def wide_reader(node):
    def read(client):
        return {client.hget(f"t:{time.monotonic_ns() % 12}", "version")}

    return Reading(node.through_gateway(), read)


def test_a_plan_is_ended_while_nodes_copy(slow):
    made = slow
    # It would copy for minutes.
    fifth = made.join("n5", "z2", args=["--pull-rate", "20K"])
    reader, before = wide_reader(made["n1"]), fifth.slots()
    process = begin(made, "add", "n5")
    plan = made.heard()["plan"]
    assert plan["goal"] == "add n5" and plan["copied_bytes"] > 0, plan
    assert plan["request"] in made.store.run("cluster", "status").out
    # One plan at a time.
    words = made.store.refuse("cluster", "drain", "n1", "--yes", code=4)
    assert "is carried out: wait for it" in words
    made.store.json("cluster", "cancel", plan["request"])
    ended = made.store.finish(process)
    assert ended.code == 5, ended.err
    assert ended.json_lines()[-1]["ended"] == "stopped"
    assert holders(made) == {"n1", "n2", "n3", "n4"} and fifth.slots() == before
    wait_for(lambda: runs_at(fifth, "t") == 0, "what came is removed")
    reader.end()
    assert (reader.failed, reader.seen) == ([], ["1"])
    fifth.stop()
    fifth.args = []
    fifth.start().comes_up()
    made.wait_up()
    move(made, "add", "n5")
    assert "n5" in holders(made)


def test_a_plan_goes_on_after_its_client_the_coordinator_and_a_copying_node_died(slow):
    made = slow
    fifth = made.join("n5", "z2")
    readers = [wide_reader(node) for node in made.nodes[:4]]
    process = begin(made, "drain", "n4")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    coordinator = made.coordinator()
    bringing = [node for node in made.nodes if node not in (coordinator, fifth)]
    bringing[0].kill()
    coordinator.kill()
    bringing[0].start().comes_up()
    coordinator.start().comes_up()
    moved = lambda said: holding_of(said) == {"n1", "n2", "n3"} and said["plan"] is None  # noqa: E731
    made.wait_for(moved, seconds=120)
    for reader in readers:
        reader.end()
        # Two of four were away for a moment.
        assert reader.mixed == [] and reader.seen == ["1"]
    wait_for(lambda: runs_at(made["n4"], "t") == 0, "it is gone at n4")


def test_pushes_go_before_a_plan_and_a_rollback_finds_what_moved(slow, tmp_path):
    made = slow
    made.join("n5", "z2")
    process = begin(made, "add", "n5")
    second = pa.table({"id": range(12), "wide": [b"x"] * 12, "version": [2] * 12})
    source = write(second, tmp_path / "second.parquet")
    words = ["push", "t", source, *made.wide[3:], "--force", "--json"]
    pushed = made.store.run(*words)
    assert pushed.json_lines()[-1]["version"] == 2
    done = made.store.finish(process)
    assert done.code == 0, done.err
    assert "n5" in holders(made)
    # The version before has moved, too: it serves again as quickly as anywhere.
    runs = made["n5"].cache / "tables" / "t" / "runs"
    of = lambda version: len(list(runs.glob(f"{version}-*.run")))  # noqa: E731
    wait_for(lambda: of(1) == of(2) > 0, "version 1 is here, too")
    made.store.json("rollback", "t")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert {client.hget(f"t:{i}", "version") for i in range(12)} == {"1"}


def test_a_node_without_room_is_refused_before_the_first_byte(holding, small_disk):
    made = holding(3, own=False)
    node = made.join("n4", "z1", cache=small_disk / "cache")
    refused = made.store.refuse("cluster", "add", "n4", "--yes")
    assert "node n4" in refused and "make room" in refused
    assert made.status()["plan"] is None and runs_at(node, "t") == 0


def test_a_node_that_starts_tells_all_keys_or_none(holding):
    made = holding(3, own=False)
    node = made["n2"]
    with made["n1"].through_gateway() as client:
        whole = client.dbsize()
    assert whole == 2 * KEYS + 20
    for _ in range(2):
        assert node.stop() == 0
        node.start()
        seen = []

        def asked(node=node, seen=seen):
            try:
                with node.through_gateway() as client:
                    seen.append(client.dbsize())
                    seen.append(len(list(client.scan_iter(count=1000))))
                    rows = client.execute_command("KV.RANGE", "[words:0", "[words:9", "LIMIT", KEYS)
                    seen.append(whole if rows[1] else 0)
            except redis.ConnectionError:
                # It does not listen yet, or says -LOADING.
                pass
            return node.is_ready()

        wait_for(asked, "it is ready", step=0.001)
        assert set(seen) <= {whole}, seen
        node.comes_up()


def test_what_is_no_request_is_passed_over_and_a_cache_has_one_node(holding):
    made = holding(3, own=False)
    requests = made.store.path / "cluster" / "requests"
    (requests / "adir").mkdir(parents=True)
    (requests / "noise").write_bytes(bytes(range(256)))
    made.push_all(2)
    assert read_all(made["n1"].through_gateway()) == {2}
    # Another node does not take a cache, whether its node runs or not.
    other = ["serve", "--cluster", "--cache", made["n1"].cache, "--node", "x", "--zone", "z1"]
    other += ["--listen", "127.0.0.1:9", "--peer", "127.0.0.1:10"]
    refused = made.store.refuse(*other)
    assert "node n1" in refused, refused
    for name in ("adir", "noise"):
        path = requests / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def test_a_node_that_comes_back_in_another_zone_is_told_of_and_moved_around(holding):
    """Two copies of a part are in two zones again after `rebalance`."""
    made = holding(3)
    node = made["n3"]
    node.stop()
    node.zone = "z1"
    node.start()
    made.wait_up()
    assert any("two copies in one zone" in note for note in made.status()["notes"])
    shown = made.store.run("cluster", "rebalance", code=2)
    assert "--yes carries this plan out" in shown.err, shown.err
    made.store.run("cluster", "rebalance", "--yes")
    assert not any("zone" in note for note in made.status()["notes"])
    shown = made.store.run("cluster", "rebalance")
    assert "there is nothing to do" in shown.err, shown.err
