"""Mistaken requests to a cluster, or without one, are refused with a reason and change nothing."""

import pytest
from cluster import Cluster, ClusterNode
from data import people, write
from harness import WAIT_S, Store


@pytest.fixture(scope="module")
def made(shared_by_module):
    """One node with a table. No test here may change it."""
    made = shared_by_module(1)
    made.path = write(people(100), made.directory / "people.parquet")
    made.store.push("people", made.path)
    made.store.push("people", made.path)
    return made


def seen(made):
    """The status without parts that always change: refusals are recorded, too."""
    status = made.status()
    nodes = [(node["name"], node["state"], node["listen"]) for node in status["nodes"]]
    return nodes, status["tables"], status["problems"]


@pytest.fixture(autouse=True)
def unchanged(made):
    before = seen(made)
    yield
    assert seen(made) == before
    assert made.nodes[0].is_ready()


def refused_node(made, name, *args, words=None, store=None, code=1):
    """The error of a further node that the cluster does not accept."""
    node = ClusterNode(store or made.store, made.directory, name, "z1")
    words = words(node.words()) if words else node.words()
    try:
        return (store or made.store).refuse(*words, *args, code=code)
    finally:
        node.guard.close()


def replaced(option, value):
    """Replaces the value of an option of a node."""

    def words(all_words):
        place = all_words.index(option)
        return [*all_words[: place + 1], value, *all_words[place + 2 :]]

    return words


def test_a_plain_server_refuses_a_clusters_store(made):
    refused = made.store.refuse("serve", "--listen", "127.0.0.1:0", "--http", "off")
    assert "cluster" in refused and "--cluster" in refused


def test_a_live_table_with_a_wrong_replica_count_is_refused(made):
    refused = made.store.refuse("create", "counter")
    assert "3 replicas want as many nodes" in refused and "--replicas" in refused
    refused = made.store.refuse("create", "counter", "--replicas", "2", code=2)
    assert "choose 1, 3 or 5" in refused
    assert "there is no table counter" in made.store.refuse("get", "counter", "a")


def test_a_node_refuses_a_store_without_a_cluster(made, tmp_path):
    store = Store(tmp_path / "plain")
    store.push("people", made.path)
    refused = refused_node(made, "n9", store=store)
    assert "forebay cluster create" in refused
    assert store.json("versions", "people")[0]["version"] == 1


def test_a_node_refuses_a_cache_of_another_cluster(made, tmp_path):
    other = Cluster(Store(tmp_path / "store"), tmp_path, 1)
    try:
        other.start()
        other.nodes[0].stop()
        refused = refused_node(made, "n9", words=replaced("--cache", other.nodes[0].cache))
        assert str(other.nodes[0].cache) in refused and "cluster" in refused
    finally:
        other.end()
    cache = tmp_path / "mine"
    Store(cache).push("people", made.path)
    refused = refused_node(made, "n9", words=replaced("--cache", cache))
    assert str(cache) in refused


def test_addresses_that_other_nodes_cannot_use_are_refused(made):
    for option, address, word in [
        ("--listen", "0.0.0.0:7401", "--advertise"),
        ("--peer", "0.0.0.0:7401", "--advertise-peer"),
        ("--listen", "127.0.0.1:0", "port"),
        ("--peer", "127.0.0.1:0", "port"),
    ]:
        refused = refused_node(made, "n9", words=replaced(option, address), code=None)
        assert option in refused and word in refused, (option, address, refused)


def test_a_second_node_with_the_same_name_is_refused(made):
    first = made.nodes[0]
    other = ClusterNode(made.store, made.directory, first.name, "z2")
    other.start()
    try:
        out, _ = other.process.communicate(timeout=WAIT_S)
    finally:
        other.kill()
        other.guard.close()
    log = other.log.read_text()
    assert other.process.returncode == 1, log
    assert f"node {first.name} runs already" in log and "--node" in log


def test_ports_in_use_are_refused(made):
    first = made.nodes[0]
    for option, port in [("--gateway", first.gateway), ("--peer", first.peer)]:
        refused = refused_node(made, "n9", words=replaced(option, f"127.0.0.1:{port}"))
        assert f":{port}" in refused and "in use" in refused


def test_incomplete_options_are_refused(made):
    for words in [
        ["--cluster", "--node", "n9", "--zone", "z", "--peer", "127.0.0.1:7401"],
        ["--cluster", "--cache", "c", "--zone", "z", "--peer", "127.0.0.1:7401"],
        ["--node", "n9"],
        ["--gateway", "127.0.0.1:7403"],
        ["--class-ports", "7404-7408"],
    ]:
        made.store.refuse("serve", *words, code=2)


def test_invalid_names_are_refused(made, tmp_path):
    other = Store(tmp_path / "other")
    for name in ["", "\x1b[31mred", "two words", "-x", "x" * 65]:
        refused = other.refuse("cluster", "create", f"--name={name}", code=2)
        assert "1 to 64 of" in refused and "\x1b" not in refused, refused
        assert not other.path.exists()
        for option in ["--node", "--zone"]:
            refused_node(made, "n9", words=replaced(option, name), code=2)
        for words in [["drain"], ["pause"], ["remove"], ["cancel"], ["replace", "n1"], ["add"]]:
            refused = made.store.refuse("cluster", *words, "--", name, code=2)
            assert "\x1b" not in refused, refused


def test_unknown_names_are_refused_without_running_nodes(tmp_path):
    store = Store(tmp_path / "store")
    store.run("cluster", "create")
    for words in [["remove", "n7"], ["pause", "n7"], ["drain", "n7"]]:
        assert "no node n7" in store.refuse("cluster", *words), words
    assert "never begun" in store.refuse("cluster", "cancel", "00ff")


def test_numbers_out_of_range_are_refused(made):
    push = ["push", "people", made.path, "--key", "{id}"]
    for words, allowed in [
        ([*push, "--min-replicas", "4"], "1 to 3"),
        ([*push, "--min-replicas", "0"], "1 to 5"),
        ([*push, "--replicas", "9"], "1 to 5"),
        ([*push, "--deadline", "99999d"], "1s to 30d"),
        (["cluster", "replicas", "people", "0"], "1 to 5"),
        (["cluster", "rebalance", "--batch", "0"], "1 byte at least"),
        (["cluster", "plan", "rebalance", "--batch", "0"], "1 byte at least"),
        (["cluster", "pause", "n1", "--for", "99999d"], "1s to 30d"),
        (["cluster", "pause", "n1", "--for", "0s"], "1s to 30d"),
    ]:
        assert allowed in made.store.refuse(*words, code=2), words


def test_a_cluster_is_created_once(made):
    assert "already" in made.store.refuse("cluster", "create")
    assert "already" in made.store.refuse("cluster", "create", "--adopt")


def test_existing_tables_are_adopted_on_request(made, tmp_path):
    store = Store(tmp_path / "store")
    store.push("people", made.path)
    refused = store.refuse("cluster", "create")
    assert "--adopt" in refused and "people" in refused
    assert store.json("get", "people", "7")
    seen = store.json("cluster", "create", "--adopt")
    assert seen["tables"] == ["people@1"]
    refused = store.refuse("push", "people", made.path, "--key", "{id}")
    assert "forebay serve --cluster" in refused


def test_a_store_with_a_live_table_is_not_adopted(tmp_path):
    store = Store(tmp_path / "store")
    store.run("create", "live")
    assert "live" in store.refuse("cluster", "create", "--adopt")
    store.run("checkpoint", "live", tmp_path / "copy", code=None)
    with store.serve() as server:
        assert server.client().set("live:a", "b")


def test_commands_that_need_a_cluster_are_refused_without_one(made, tmp_path):
    store = Store(tmp_path / "plain")
    store.push("a", made.path)
    store.push("b", made.path)
    refused = store.refuse("swap", "a@1", "b@1", code=None)
    assert "cluster" in refused
    assert "cluster" in store.refuse("rollback", "a", "b", code=None)
    for words in [["--replicas", "2"], ["--on-failure", "keep"], ["--min-replicas", "1"]]:
        refused = store.refuse("push", "a", made.path, "--key", "{id}", *words, code=None)
        assert "cluster" in refused, refused
    assert store.json("versions", "a")[-1]["version"] == 1
    for words in [["status"], ["pause", "n1"], ["remove", "n1"], ["cancel", "x"]]:
        assert "forebay cluster create" in store.refuse("cluster", *words)


def test_missing_versions_and_tables_are_refused(made):
    for words, word, code in [
        (["swap", "people", "9"], "9", 1),
        (["swap", "people@1", "nosuch@1"], "nosuch", 1),
        (["rollback", "nosuch"], "nosuch", 1),
        (["drop", "nosuch", "--yes"], "nosuch", 1),
        (["swap", "people@1", "people@2"], "people", 2),
    ]:
        result = made.store.run(*words, code=None)
        assert result.code == code and word in result.err, (words, result.code, result.err)
