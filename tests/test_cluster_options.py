"""Options of a push for nodes that fail, full disks, and damaged caches."""

import json
import os
import signal
import time

import pyarrow as pa
import pytest
import redis
from cluster import STEP_S, ClusterNode, Reading, table_of
from data import write
from disks import fill, make_room
from fault_injection import Gate, held, is_of_run, phase_of, read_all, stalled, versions_at
from harness import wait_for

ROWS = 20_000


@pytest.fixture
def table(tables):
    """Table `t` on two of three nodes. A rollout succeeds without one of them."""
    table = tables.take()
    yield table
    # If all is well, the next test uses the table, too.
    table.made.heal()
    table.made.wait_up()
    table.version = table.push()["version"]
    for node in table.made.nodes:
        assert versions_at(node) == {table.version}
    tables.give_back(table)


def test_keep_on_failure_keeps_a_version_that_a_node_does_not_confirm(table):
    made = table.made
    _, hit, other = made.roles()
    reader = Reading(other.through_gateway(), read_all, 0.02)
    with stalled(made, table, hit, "committed") as wait:
        push = table.begin("--on-failure", "keep")
        wait()
        done = made.store.finish(push)
    assert done.code == 6, done.err
    result = json.loads(done.out.splitlines()[-1])
    assert result["rollout"]["excluded"] == [hit.name]
    assert made.table("t")["version"] == result["version"]
    for node in made.nodes:
        wait_for(lambda node=node: versions_at(node) == {result["version"]}, node.name)
    reader.wait_for(result["version"])
    reader.end()
    assert (reader.failed, reader.mixed) == ([], [])
    assert reader.seen == [table.version, result["version"]]


def test_a_push_waits_for_min_replicas_until_the_deadline(table):
    made = table.made
    _, hit, other = made.roles()
    hit.kill()
    refused = table.push("--min-replicas", "2", "--deadline", "3s", code=5)
    assert "has to be on 2" in refused and "in time" in refused
    for node in made.alive():
        assert versions_at(node) == {table.version}
    # With a longer deadline, the version serves once the node is back.
    push = table.begin("--min-replicas", "2", "--deadline", "100s")
    made.wait_for(lambda status: phase_of(status) == "preparing" and ready(status) == 2)
    assert push.poll() is None and versions_at(other) == {table.version}
    hit.start().wait_listening()
    done = made.store.finish(push)
    assert done.code == 0, done.err
    result = json.loads(done.out.splitlines()[-1])
    for node in made.nodes:
        assert versions_at(node) == {result["version"]}


def ready(status):
    return table_of(status, "t")["rollout"]["ready"]


def test_a_node_without_progress_is_excluded_at_the_deadline(table):
    made = table.made
    _, hit, _ = made.roles()
    gate = Gate()

    def watch(node, exchange, is_done):
        if node is hit and is_of_run(exchange) and not is_done:
            gate.hold()

    with held(made, watch, gate):
        result = table.push("--deadline", "3s", code=6)
        assert result["rollout"]["excluded"] == [hit.name]
        # The node knows which version serves, and forwards reads.
        for node in made.nodes:
            wait_for(lambda n=node: versions_at(n) == {result["version"]}, node.name)


def test_a_full_disk_of_one_node_ends_a_push(table):
    made = table.made
    _, hit, _ = made.roles()
    fill(hit.disk)
    refused = table.push(code=5)
    assert f"node {hit.name}" in refused and "bytes here" in refused and "make room" in refused
    for node in made.nodes:
        assert versions_at(node) == {table.version}
    make_room(hit.disk)


def values(version):
    numbers = range(ROWS)
    return pa.table(
        {"id": [f"{i:06}" for i in numbers], "name": [f"{version} {i}" for i in numbers]}
    )


def read_by_all_commands(asked, version):
    """Reads a table with each kind of command."""
    keys = [f"wide:{i:06}" for i in range(0, ROWS, 37)]
    wanted = [f"{version} {i}" for i in range(0, ROWS, 37)]
    with asked.through_gateway() as client:
        assert [client.hget(key, "name") for key in keys] == wanted
        gets = client.pipeline(transaction=False)
        for key in keys:
            gets.get(key)
        found = gets.execute() + client.mget(keys)
        for key in keys[:10]:
            found += client.pipeline().get(key).execute()
        assert [json.loads(text)["name"] for text in found] == wanted * 2 + wanted[:10]
        assert client.exists(*keys) == len(keys)
        assert len(list(client.scan_iter("wide:*", count=1000))) == ROWS


def read_ranges(asked):
    with asked.through_gateway() as client:
        for start in range(0, ROWS, ROWS // 20):
            ends = f"[wide:{start:06}", f"(wide:{start + 1000:06}"
            _, found = client.execute_command("KV.RANGE", *ends, "LIMIT", 2000, "KEYS")
            assert found == [f"wide:{i:06}" for i in range(start, min(start + 1000, ROWS))]


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_a_damaged_cache_of_a_running_node_is_repaired_and_never_served(order, shared, tmp_path):
    made = shared(3)
    path = write(values(1), tmp_path / "wide.parquet")
    args = ["--replicas", "2", "--partitions", "6", "--order", order]
    made.store.push("wide", path, args=args)
    node = made.nodes[0]
    runs = sorted((node.cache / "tables/wide/runs").glob("*.run"))
    sound = {path: path.read_bytes() for path in runs}
    assert len(runs) >= 3

    def flip(path):
        # Written in place, because the node has the file open. The ends were read at the open.
        content = sound[path]
        with path.open("r+b") as file:
            for at in range(len(content) // 4, len(content) * 3 // 4, 1000):
                file.seek(at)
                file.write(bytes([content[at] ^ 0x10]))

    def is_repaired():
        # Nodes with sound replicas answer meanwhile.
        for asked in made.nodes:
            read_by_all_commands(asked, 1)
            if order == "ordered":
                read_ranges(asked)
        return all(path.exists() and path.read_bytes() == sound[path] for path in runs)

    # The last truncation is within a memory page, so zeros follow.
    within = lambda path: os.truncate(path, len(sound[path]) // 2 // 4096 * 4096 + 1700)  # noqa: E731
    for damage in (flip, lambda path: os.truncate(path, 100), within):
        for path in runs:
            damage(path)
        wait_for(is_repaired, "sound files")


def test_a_rollback_to_a_truncated_version_serves_without_errors(shared, tmp_path):
    made = shared(3)
    node = made.nodes[0]
    for version in (1, 2):
        path = write(values(version), tmp_path / "wide.parquet")
        made.store.push("wide", path, args=["--replicas", "2", "--partitions", "6"])
        if version == 1:
            runs = list((node.cache / "tables/wide/runs").glob("*.run"))
    assert len(runs) >= 3
    for run in runs:
        os.truncate(run, 100)
    made.store.run("rollback", "wide")
    for asked in made.nodes * 3:
        read_by_all_commands(asked, 1)


def test_deleted_files_of_a_running_nodes_cache_are_fetched_again(shared, tmp_path):
    made = shared(3)
    path = write(values(1), tmp_path / "wide.parquet")
    made.store.push("wide", path, args=["--replicas", "2", "--partitions", "6"])
    node = made.nodes[0]
    runs = list((node.cache / "tables/wide/runs").glob("*.run"))
    assert len(runs) >= 3
    for run in runs:
        run.unlink()

    def are_back():
        # Open files serve on meanwhile.
        with node.through_gateway() as client:
            assert client.hget("wide:000007", "name") == "1 7"
        return all(run.exists() for run in runs)

    wait_for(are_back, "the runs")
    path = write(values(2), tmp_path / "wide.parquet")
    pushed = made.store.push("wide", path, args=["--force"])
    assert pushed["rollout"]["excluded"] == []


def test_a_rollback_repairs_a_version_damaged_while_its_node_was_down(shared, tmp_path):
    made = shared(3)
    for version in (1, 2):
        path = write(values(version), tmp_path / f"{version}.parquet")
        made.store.push("wide", path, args=["--replicas", "2", "--partitions", "6"])
    node = made.nodes[0]
    node.stop()
    runs = (node.cache / "tables/wide/runs").glob("*.run")
    runs = sorted(runs, key=lambda run: run.stat().st_mtime)
    for path in runs[: len(runs) // 2]:
        content = bytearray(path.read_bytes())
        # The end is read when a version is opened, and rows are read on request.
        for at in (len(content) // 2, len(content) - 200):
            content[at] ^= 0x10
        path.write_bytes(content)
    node.start()
    made.wait_up()
    made.store.run("rollback", "wide")

    def is_sound():
        with node.through_gateway() as client:
            try:
                found = {client.hget(f"wide:{i:06}", "name").split()[0] for i in range(0, ROWS, 37)}
            except redis.ResponseError as error:
                assert "damaged" in str(error), error
                return False
        assert found == {"1"}
        return True

    wait_for(is_sound, "all rows are sound")


def test_a_table_that_is_dropped_and_pushed_again_serves_its_new_rows(shared, tmp_path):
    made = shared(3)
    paths = [write(values(k), tmp_path / f"{k}.parquet") for k in (1, 2)]
    for k in range(8):
        # The new version has the number of the old one.
        assert made.store.push("wide", paths[k % 2])["version"] == 1
        for node in made.nodes:
            with node.through_gateway() as client:
                assert client.hget("wide:000007", "name") == f"{k % 2 + 1} 7"
        made.store.run("drop", "wide", "--yes")


def test_a_node_that_stalled_while_its_table_was_replaced_serves_the_new_one(shared, tmp_path):
    made = shared(3)
    first, second = (write(values(k), tmp_path / f"{k}.parquet") for k in (1, 2))
    made.store.push("wide", first)
    sleeper = next(node for node in made.nodes if node is not made.coordinator())
    sleeper.signal(signal.SIGSTOP)
    made.store.run("drop", "wide", "--yes")
    # The rollout excludes the stopped node.
    made.store.push("wide", second, code=6)
    sleeper.signal(signal.SIGCONT)

    def serves():
        with sleeper.client() as client:
            try:
                return client.hget("wide:000007", "name") == "2 7"
            except redis.RedisError:
                return False

    wait_for(serves, "the new table")


def test_a_lost_manifest_of_a_cache_is_restored_without_fetching_runs(shared, tmp_path):
    made = shared(3)
    for version in (1, 2):
        path = write(values(version), tmp_path / f"{version}.parquet")
        made.store.push("wide", path, args=["--partitions", "6"])
    node = made.nodes[0]
    directory = node.cache / "tables/wide"
    runs = sorted((directory / "runs").glob("*.run"))
    manifest = directory / "versions/2.manifest"
    sound = manifest.read_bytes()
    for damage in (manifest.unlink, lambda: manifest.write_bytes(sound[:50] + b"x" + sound[51:])):
        damage()
        wait_for(
            lambda: manifest.exists() and manifest.read_bytes() == sound, "a manifest"
        )
        assert sorted((directory / "runs").glob("*.run")) == runs
        with node.through_gateway() as client:
            assert client.hget("wide:000007", "name") == "2 7"


def test_a_process_whose_node_name_was_taken_over_serves_no_old_rows(cluster, tmp_path):
    made = cluster(3)
    made.store.push("wide", write(values(1), tmp_path / "1.parquet"))
    old = next(node for node in made.nodes if node is not made.coordinator())
    old.signal(signal.SIGSTOP)
    made.wait_states(**{old.name: "down"})
    (tmp_path / "new").mkdir()
    new = ClusterNode(made.store, tmp_path / "new", old.name, old.zone)
    new.start().wait_listening()
    made.nodes[made.nodes.index(old)] = new
    try:
        made.wait_up()
        old.signal(signal.SIGCONT)
        wait_for(lambda: "does not take" in old.log.read_text(), "the process logs that it stops")
        made.store.push("wide", write(values(2), tmp_path / "2.parquet"))
        for _ in range(20):
            for client in (old.client(), old.through_gateway()):
                with client:
                    try:
                        # It may forward to the others, but has no data itself.
                        assert client.hget("wide:000007", "name") == "2 7"
                    except redis.RedisError as error:
                        assert str(error), error
            time.sleep(STEP_S)
        assert old.alive()
    finally:
        old.kill()
        old.guard.close()


def test_a_damaged_coordinator_lease_is_reported_and_replaced(shared):
    made = shared(3)
    lease = made.store.path / "cluster/lease"
    for node in made.nodes:
        node.kill()
    lease.write_bytes(b"no lease")
    status = made.store.json("cluster", "status")
    assert not status["healthy"]
    assert any("no coordinator" in problem for problem in status["problems"])
    made.start()
    assert made.store.json("cluster", "status")["healthy"]
