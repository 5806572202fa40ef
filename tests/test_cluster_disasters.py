"""The catalog or the whole store is lost under running nodes. They remove nothing, and commands
restore it."""

import json
import os
import shutil

import pyarrow as pa
import pytest
from cluster import Cluster, ClusterNode, Reading
from data import people, write
from harness import Store, wait_for

ROWS = 400
NAMES = [f"people:{i}" for i in range(ROWS)]


@pytest.fixture
def served(shared, tmp_path):
    """Three nodes that each hold two thirds of a table. Two of its versions have served."""

    def push(version):
        source = write(people(ROWS, version), tmp_path / f"people-{version}.parquet")
        made.store.push("people", source, args=first if version == 1 else ["--partitions", "9"])

    first = ["--replicas", "2", "--partitions", "9"]
    made = shared(3)
    made.push = push
    push(1)
    push(2)
    return made


def read_all(client):
    return {json.loads(row)["v1"] for row in client.mget(NAMES)}


def readers(made):
    return [Reading(node.through_gateway(), read_all) for node in made.nodes]


def end(reading, seen):
    for reader in reading:
        reader.end()
        assert (reader.failed, reader.mixed, reader.seen) == ([], [], seen)


def caches(made, *names):
    return [word for name in names or "n1 n2 n3".split() for word in ("--cache", made[name].cache)]


def files(node):
    return sorted(path.name for path in (node.cache / "tables/people/runs").glob("*.run"))


def move_away(path, into):
    """Moves a file or folder out of the store in one step, because nodes may write into it
    meanwhile."""
    into.mkdir(exist_ok=True)
    path.rename(into / path.name)


def head(made):
    text = (made.store.path / "cluster/head").read_text()
    return json.loads(text.rsplit("xxh3", 1)[0])["content"]


def problems_of(node):
    """The problems that a node reports, or none if it does not answer."""
    status, text = node.ask("/v1/cluster")
    return json.loads(text)["problems"] if status == 200 else []


def lost(made):
    return [node.metric("forebay_cluster_catalog_lost") for node in made.alive()]


def wait_reported(made, words):
    def all_report():
        return all(any(words in problem for problem in problems_of(node)) for node in made.nodes)

    wait_for(all_report, lambda: [problems_of(node) for node in made.nodes])
    for node in made.nodes:
        assert any("forebay cluster restore" in problem for problem in problems_of(node))
    # The alert needs this: each node reports its own problem.
    wait_for(lambda: any(lost(made)), "the metric")


def wait_healthy(made):
    made.wait_for(lambda status: status["healthy"])
    wait_for(lambda: not any(lost(made)), "the metric")


def test_a_lost_catalog_is_restored_from_the_nodes(served, tmp_path):
    made = served
    before, held = head(made), [files(node) for node in made.nodes]
    reading = readers(made)
    assert "nothing to restore" in made.store.refuse("cluster", "restore", *caches(made), "--yes")
    move_away(made.store.path / "cluster", tmp_path / "gone")
    wait_reported(made, "catalog")
    refused = made.store.refuse("cluster", "status")
    assert "forebay cluster restore" in refused and "lost" in refused
    assert "already" in made.store.refuse("cluster", "create")
    other = ClusterNode(made.store, made.directory, "n9", "z1")
    other.guard.close()
    assert "no node has noted" in made.store.refuse(
        "cluster", "restore", "--cache", other.cache, "--yes"
    )
    assert [files(node) for node in made.nodes] == held

    shown = made.store.run("cluster", "restore", *caches(made), "--json", code=2)
    assert not shown.json()["restored"] and not (made.store.path / "cluster/head").exists()
    done = made.store.json("cluster", "restore", *caches(made), "--yes")
    assert done["restored"] and done["known_revision"] >= before["revision"]
    assert done["tables"] == [{"table": "people", "version": 2}]
    assert head(made)["cluster"] == before["cluster"]
    wait_healthy(made)
    assert head(made)["revision"] > done["revision"] > before["revision"]
    assert head(made)["term"] > done["term"] > before["term"] + 100
    made.wait_up()
    assert [files(node) for node in made.nodes] == held
    made.push(3)
    made.store.run("rollback", "people")
    for reader in reading:
        reader.wait_for(2)
    end(reading, [2, 3, 2])
    made.nodes[0].stop()
    made.nodes[0].start().wait_listening()
    made.wait_up()


def test_nodes_do_not_follow_an_old_copy_of_the_catalog(served, tmp_path):
    made = served
    # A temporary file may disappear before it is copied.
    unfinished = shutil.ignore_patterns(".*.new")
    shutil.copytree(made.store.path / "cluster", tmp_path / "copy", ignore=unfinished)
    made.push(3)
    made.push(4)

    def tidied():
        return all(name[0] in "34" for node in made.nodes for name in files(node))

    wait_for(tidied, lambda: [files(node) for node in made.nodes])
    held = [files(node) for node in made.nodes]
    reading = readers(made)
    move_away(made.store.path / "cluster", tmp_path / "gone")
    shutil.copytree(tmp_path / "copy", made.store.path / "cluster", dirs_exist_ok=True)
    wait_reported(made, "old copy")
    # A node that starts does not follow the copy either: it serves the version that it remembers.
    made["n3"].stop()
    made["n3"].start().wait_listening()
    wait_for(lambda: problems_of(made["n3"]), "the node reports a problem")
    assert any("old copy" in problem for problem in problems_of(made["n3"]))
    assert [files(node) for node in made.nodes] == held
    # Nodes answer: the state is known, and there is a problem.
    status = made.store.json("cluster", "status", "--check", code=1)
    assert status["source"] == "node" and status["catalog_lost"], status
    done = made.store.json("cluster", "restore", *caches(made), "--yes")
    assert done["found_revision"] < done["known_revision"] < done["revision"]
    assert done["tables"] == [{"table": "people", "version": 4}]
    wait_healthy(made)
    made.wait_up()
    assert [files(node) for node in made.nodes] == held
    for reader in reading[:2]:
        reader.end()
        assert (reader.mixed, reader.seen) == ([], [4])
    reading[2].end()


def test_a_lost_store_is_rebuilt_from_the_caches(served, tmp_path):
    made = served
    reading = readers(made)
    for name in list(made.store.path.iterdir()):
        move_away(name, tmp_path / "gone")
    wait_reported(made, "catalog")
    assert "restore first" in made.store.refuse("cluster", "repair-store", *caches(made))
    made.store.run("cluster", "restore", *caches(made), "--yes")
    wait_healthy(made)

    # The command runs on each node's machine in turn.
    part = made.store.run("cluster", "repair-store", *caches(made, "n1"), "--json", code=1)
    first = part.json()
    assert first["files"] > 0 and first["manifests"] == 0 and first["problems"] == []
    assert {(lack["table"], lack["version"]) for lack in first["missing"]} == {
        ("people", 1),
        ("people", 2),
    }
    assert "other nodes" in part.err
    again = made.store.run("cluster", "repair-store", *caches(made, "n1"), "--json", code=1).json()
    assert again["files"] == 0 and again["missing"] == first["missing"]
    rest = made.store.json("cluster", "repair-store", *caches(made, "n2", "n3"))
    assert rest["manifests"] == 2 and rest["missing"] == []
    done = made.store.json("cluster", "repair-store", *caches(made))
    assert (done["files"], done["manifests"], done["missing"]) == (0, 0, [])
    for version in (1, 2):
        assert made.store.json("verify", f"people@{version}")["rows"] == ROWS

    made.push(3)
    made.store.run("rollback", "people")
    made.store.run("rollback", "people", "--from", 2)
    for reader in reading:
        reader.wait_for(1)
    end(reading, [2, 3, 2, 1])
    made.join("n4", "z2")
    made.store.run("cluster", "add", "--yes")
    assert read_all(made["n4"].through_gateway()) == {1}
    made["n1"].stop()
    shutil.rmtree(made["n1"].cache / "tables")
    made["n1"].start().wait_listening()
    made.wait_up()
    assert read_all(made["n1"].through_gateway()) == {1}


def test_a_damaged_file_of_a_cache_is_not_copied_to_the_store(served):
    made = served
    for node in made.nodes:
        node.stop()
    for cut in (made.store.path / "tables/people/runs").glob("*.run"):
        cut.unlink()
    bad = next((made["n1"].cache / "tables/people/runs").glob("*.run"))
    content = bytearray(bad.read_bytes())
    content[len(content) // 2] ^= 1
    bad.write_bytes(content)
    done = made.store.run("cluster", "repair-store", *caches(made, "n1"), "--json", code=1).json()
    assert any(bad.name in problem for problem in done["problems"])
    assert not (made.store.path / "tables/people/runs" / bad.name).exists()
    done = made.store.json("cluster", "repair-store", *caches(made, "n2", "n3"))
    assert done["missing"] == [] and done["manifests"] == 0
    for version in (1, 2):
        made.store.run("verify", f"people@{version}")


def test_caches_and_stores_of_other_clusters_are_refused(served, tmp_path):
    made = served
    other = Cluster(Store(tmp_path / "other"), tmp_path / "of-other", 1)
    try:
        other.directory.mkdir()
        other.start()
        for words in (["restore", "--yes"], ["repair-store"]):
            refused = other.store.refuse("cluster", *words, *caches(made, "n1"))
            assert "cluster" in refused, refused
        refused = made.store.refuse(
            "cluster", "restore", *caches(made, "n1"), "--cache", other.nodes[0].cache, "--yes"
        )
        assert "one cluster" in refused
    finally:
        other.end()
    plain = Store(tmp_path / "plain")
    plain.push("people", tmp_path / "people-1.parquet")
    for words in (["restore", "--yes"], ["repair-store"]):
        assert "no cluster" in plain.refuse("cluster", *words, *caches(made, "n1"))


def test_an_emptied_bucket_is_rebuilt_from_the_caches(cluster, remote, tmp_path):
    made = cluster(2, store=remote)
    # A run of more than one part.
    rows = pa.table({"id": range(60), "v1": [1] * 60, "bytes": [os.urandom(400_000)] * 60})
    large = write(rows, tmp_path / "large.parquet")
    made.store.push("large", large, args=["--replicas", "1"])
    source = write(people(ROWS, 1), tmp_path / "people.parquet")
    made.store.push("people", source, args=["--replicas", "2"])
    reading = [Reading(node.through_gateway(), read_all) for node in made.nodes]
    remote.empty()
    wait_reported(made, "catalog")
    made.store.run("cluster", "restore", *caches(made, "n1", "n2"), "--yes")
    done = made.store.json("cluster", "repair-store", *caches(made, "n1", "n2"))
    assert done["manifests"] == 2 and done["missing"] == [] and done["bytes"] > 16 << 20
    assert not made.store.unfinished_uploads()
    assert made.store.json("verify", "large")["rows"] == 60
    assert made.store.json("verify", "people")["rows"] == ROWS
    wait_healthy(made)
    made.store.push("people", write(people(ROWS, 2), tmp_path / "people-2.parquet"))
    for reader in reading:
        reader.wait_for(2)
    end(reading, [1, 2])
