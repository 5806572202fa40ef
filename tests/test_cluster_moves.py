"""Partitions move while clients read: nodes are added, drained and replaced, and replica counts
change."""

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
    """holding(4) starts that many nodes in three zones, with a hashed, an ordered and a small
    table. A test that empties nodes gets a cluster for itself."""

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

    def make(count=4, args=(), is_own=True):
        made = (cluster if is_own else shared)(count, args=args)
        made.push_all = lambda *words, **options: push(made, *words, **options)
        made.push_all(1)
        return made

    return make


def versions(client, names):
    return {json.loads(row)["version"] for row in client.mget(names)}


def read_all(client):
    """Reads each table in one command."""
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


def holding_of(status):
    return {node["name"] for node in status["nodes"] if node["holds"]}


def holders(made):
    return holding_of(made.status())


def move(made, *words, code=0, ended="done"):
    result = made.store.run("cluster", *words, "--yes", "--json", code=code)
    moved = result.json_lines()[-1]
    assert moved["ended"] == ended, moved
    return moved


def test_a_node_is_added_and_another_is_drained_under_reads(holding):
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
    # Once no table names the drained node, clients are redirected.
    move(made, "drain", "n1")
    assert holders(made) == {"n2", "n3", "n4", "n5"}
    gone = made["n1"]
    for table in ("t", "words", "small"):
        wait_for(lambda table=table: runs_at(gone, table) == 0, f"{table} is removed at n1")
    assert any("n1 was drained" in note for note in made.status()["notes"])
    # A new push goes to the other nodes.
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


def test_a_drain_of_a_dead_node_copies_its_partitions_to_others(holding):
    made = holding(5)
    lost = next(node for node in made.nodes if node is not made.coordinator())
    others = [node for node in made.nodes if node is not lost]
    reading = readers(made, others)
    lost.kill()
    made.wait_states(**{lost.name: "down"})
    move(made, "drain", lost.name)
    assert lost.name not in holders(made)
    # All partitions have two replicas again, so another node may fail.
    second = next(node for node in others if node is not made.coordinator())
    rest = [node for node in others if node is not second]
    end(reading, [1])
    second.kill()
    for node in rest:
        assert read_all(node.through_gateway()) == {1}
    # The first node restarts. It has no partition, and forwards all reads.
    lost.start().wait_listening()
    made.wait_states(**{lost.name: "up"})
    wait_for(lambda: lost.is_ready(), "the node is ready")
    assert read_all(lost.through_gateway()) == {1}
    assert lost.name not in holders(made)
    # The plan copies nothing from the node that is down.
    made.wait_states(**{second.name: "down"})
    moved = move(made, "replace", second.name, lost.name)
    assert moved["plan"]["goal"] == f"{lost.name} in the place of {second.name}"
    assert lost.name in holders(made) and second.name not in holders(made)


@pytest.mark.nightly
def test_partitions_of_a_node_that_stays_down_are_copied_automatically(holding):
    made = holding(5, args=["--replace-after", "5s"])
    lost = next(node for node in made.nodes if node is not made.coordinator())
    others = [node for node in made.nodes if node is not lost]
    # The coordinator waits for a paused node.
    made.store.json("cluster", "pause", lost.name, "--for", "6s")
    reading = readers(made, others)
    lost.kill()
    names = {node.name for node in others}
    made.wait_for(lambda status: holding_of(status) == names and status["plan"] is None)
    end(reading, [1])
    lost.start().wait_listening()
    made.wait_states(**{lost.name: "up"})
    assert any(f"{lost.name} was drained" in note for note in made.status()["notes"])
    assert holders(made) == names


def test_one_node_replaces_another(holding):
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
    # The reader of the replaced node lost its connection.
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
    made = holding(4, is_own=False)
    reading = readers(made)
    for count in (4, 1, 2):
        move(made, "replicas", "t", str(count))
        assert made.table("t")["replicas"] == count
        with made["n1"].through_gateway() as client:
            assert read_all(client) == {1}
        # The layout's three boundaries may lie within partitions, which two nodes then share. The
        # boundaries depend on the order in which nodes joined.
        wait_for_files(made, 12 * count, 15 * count)
    words = ["push", "t", "x.parquet", "--key", "{id}", "--replicas", "3"]
    refused = made.store.refuse(*words, code=2)
    assert "forebay cluster replicas t 3" in refused, refused
    end(reading, [1])


def test_a_plan_is_shown_drawn_saved_and_refused_once_outdated(holding, tmp_path):
    made = holding(4)
    file, drawing = tmp_path / "plan.json", tmp_path / "plan.svg"
    shown = planned(made, "drain", "n2", "--output", file, "--draw", drawing)
    assert shown["goal"] == "drain n2" and shown["copied_bytes"] > 0
    assert drawing.read_text().startswith("<svg")
    # Nothing changes without --yes.
    assert holders(made) == {"n1", "n2", "n3", "n4"}
    refused = made.store.run("cluster", "drain", "n2", code=2)
    assert "bytes after" in refused.out and "--yes" in refused.err
    again = made.store.run("cluster", "apply", file, code=2)
    # The expected time depends on recent copy rates.
    untimed = [re.sub(r"about \d+ \w+", "", one.out) for one in (again, refused)]
    assert untimed[0] == untimed[1] and "iB" in again.out and "--yes" in again.err
    assert holders(made) == {"n1", "n2", "n3", "n4"}
    applied = made.store.json("cluster", "apply", file, "--yes")
    assert applied["ended"] == "done"
    # The expected time is not kept in the file for the same reason.
    applied["plan"].pop("expected_s"), shown.pop("expected_s")
    assert applied["plan"] == shown
    assert holders(made) == {"n1", "n3", "n4"}
    old = made.store.refuse("cluster", "apply", file, "--yes")
    assert "plan was made" in old, old


def test_a_push_warns_that_a_new_ordered_table_keeps_its_order(holding, tmp_path):
    made = holding(3, is_own=False)
    path = write(pa.table({"id": [1, 2], "n": [1, 2]}), tmp_path / "names.parquet")
    push = ["push", "names", path, "--key", "{id}"]
    first = made.store.run(*push, "--order", "ordered")
    assert "1 range," in first.err and "forebay cluster rebalance" in first.err, first.err
    again = made.store.run(*push, "--order", "ordered", "--quiet")
    assert (again.out, again.err) == ("", "")
    assert "1 range" not in made.store.run(*push, "--order", "ordered").err
    # The table keeps its order, and so do changes onto it.
    for words in [[], ["--no-swap"], ["--no-swap", "--force"]]:
        refused = made.store.refuse(*push, *words, code=2)
        assert "--order ordered" in refused and "forebay drop names" in refused, refused
    onto = made.store.json("push", "names", path, "--onto", "current")
    assert (onto["onto"], onto["swapped"]) == (3, True)


def test_impossible_plans_are_refused_with_a_reason(holding):
    made = holding(3, is_own=False)
    for words, reason in [
        (["drain", "n9"], "no node n9"),
        (["drain", "n1", "n2", "n3"], "no node would be left"),
        (["add"], "all nodes hold something"),
        (["replace", "n1", "n2"], "n2 holds parts"),
        (["replicas", "t", "2"], "2 replicas already"),
        (["replicas", "none", "2"], "no table none"),
    ]:
        refused = made.store.refuse("cluster", *words, "--yes")
        assert reason in refused, refused
    assert read_all(made["n1"].through_gateway()) == {1}


WIDE = 1 << 20


@pytest.fixture
def slow(cluster, tmp_path):
    """Four nodes that copy 2 MiB a second. Table `t` of 12 MiB has two replicas."""
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
    made.wait_for(lambda status: "copying" in ((status["plan"] or {}).get("stage") or {}))
    return process


def wide_reader(node):
    def read(client):
        return {client.hget(f"t:{time.monotonic_ns() % 12}", "version")}

    return Reading(node.through_gateway(), read)


def test_a_plan_is_cancelled_while_nodes_copy(slow):
    made = slow
    # At this rate the copy would take minutes.
    fifth = made.join("n5", "z2", args=["--pull-rate", "20K"])
    reader, before = wide_reader(made["n1"]), fifth.slots()
    process = begin(made, "add", "n5")
    plan = made.ask_coordinator()["plan"]
    assert plan["goal"] == "add n5" and plan["copied_bytes"] > 0, plan
    assert plan["request"] in made.store.run("cluster", "status").out
    # Only one plan runs at a time.
    words = made.store.refuse("cluster", "drain", "n1", "--yes", code=4)
    assert "is carried out: wait for it" in words
    made.store.json("cluster", "cancel", plan["request"])
    ended = made.store.finish(process)
    assert ended.code == 5, ended.err
    assert ended.json_lines()[-1]["ended"] == "stopped"
    assert holders(made) == {"n1", "n2", "n3", "n4"} and fifth.slots() == before
    wait_for(lambda: runs_at(fifth, "t") == 0, "the copied runs are removed")
    reader.end()
    assert (reader.failed, reader.seen) == ([], ["1"])
    fifth.stop()
    fifth.args = []
    fifth.start().wait_listening()
    made.wait_up()
    move(made, "add", "n5")
    assert "n5" in holders(made)


def test_a_plan_continues_after_its_client_the_coordinator_and_a_copying_node_die(slow):
    made = slow
    fifth = made.join("n5", "z2")
    readers = [wide_reader(node) for node in made.nodes[:4]]
    process = begin(made, "drain", "n4")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    coordinator = made.coordinator()
    copying = [node for node in made.nodes if node not in (coordinator, fifth)]
    copying[0].kill()
    coordinator.kill()
    copying[0].start().wait_listening()
    coordinator.start().wait_listening()
    moved = lambda status: holding_of(status) == {"n1", "n2", "n3"} and status["plan"] is None  # noqa: E731
    made.wait_for(moved, seconds=120)
    for reader in readers:
        reader.end()
        # Two of four nodes were down for a moment.
        assert reader.mixed == [] and reader.seen == ["1"]
    wait_for(lambda: runs_at(made["n4"], "t") == 0, "the table is removed at n4")


def test_pushes_precede_a_plan_and_a_rollback_uses_moved_runs(slow, tmp_path):
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
    # The previous version has moved, too, so it serves again at once.
    runs = made["n5"].cache / "tables" / "t" / "runs"
    of = lambda version: len(list(runs.glob(f"{version}-*.run")))  # noqa: E731
    wait_for(lambda: of(1) == of(2) > 0, "version 1 is copied, too")
    made.store.json("rollback", "t")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert {client.hget(f"t:{i}", "version") for i in range(12)} == {"1"}


def test_a_node_without_space_is_refused_before_any_copy(holding, small_disk):
    made = holding(3, is_own=False)
    node = made.join("n4", "z1", cache=small_disk / "cache")
    refused = made.store.refuse("cluster", "add", "n4", "--yes")
    assert "node n4" in refused and "make room" in refused
    assert made.status()["plan"] is None and runs_at(node, "t") == 0


def test_a_starting_node_answers_with_all_keys_or_none(holding):
    made = holding(3, is_own=False)
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
                # The node does not listen yet, or answers -LOADING.
                pass
            return node.is_ready()

        wait_for(asked, "the node is ready", step=0.001)
        assert set(seen) <= {whole}, seen
        node.wait_listening()


def test_files_that_are_no_requests_are_ignored_and_a_cache_has_one_node(holding):
    made = holding(3, is_own=False)
    requests = made.store.path / "cluster" / "requests"
    (requests / "adir").mkdir(parents=True)
    (requests / "noise").write_bytes(bytes(range(256)))
    made.push_all(2)
    assert read_all(made["n1"].through_gateway()) == {2}
    # Another node does not accept a cache, whether its node runs or not.
    other = ["serve", "--cluster", "--cache", made["n1"].cache, "--node", "x", "--zone", "z1"]
    other += ["--listen", "127.0.0.1:9", "--peer", "127.0.0.1:10"]
    refused = made.store.refuse(*other)
    assert "node n1" in refused, refused
    for name in ("adir", "noise"):
        path = requests / name
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


def test_a_node_that_restarts_in_another_zone_is_noted_and_rebalanced(holding):
    """After `rebalance`, the two replicas of a partition are in two zones again."""
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
