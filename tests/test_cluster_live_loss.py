"""Live tables of a cluster that lost a majority of their replicas for good, by real processes."""

import shutil

import pytest
import redis
from harness import Failed, wait_for
from secured import Secured

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "4"]


@pytest.fixture
def made(shared):
    made = shared(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 4
    return made


def takes_writes(node, key, value):
    try:
        with node.through_gateway() as client:
            return client.set(key, value)
    except redis.RedisError:
        return False


def live(made):
    status = made.ask_coordinator()
    return status and status["live"]


def row(made):
    status = made.ask_coordinator()
    rows = status["tables"] if status else []
    return next((row for row in rows if row["table"] == "t"), None)


def all_lost(seen):
    lost = (seen["live"] or {}).get("lost", [])
    return len(lost) == 4 and all(len(one["remaining"]) == 1 for one in lost)


def test_a_table_continues_from_one_replica_after_force_recover(made):
    store, first, others = made.store, made["n1"], [made["n2"], made["n3"]]
    keys = [f"t:{i}" for i in range(300)]
    with first.through_gateway() as client:
        assert client.mset({key: key for key in keys})
    assert row(made)["mode"] == "live" and row(made)["live"]["led"] == 4
    # With a majority, there is nothing to recover.
    assert store.json("cluster", "force-recover", "t", "--yes") == {
        "table": "t",
        "partitions": [],
        "accepted": False,
    }
    with pytest.raises(Failed, match="no live table"):
        store.run("cluster", "force-recover", "u")
    for node in others:
        node.kill()
    # Until the loss is certain, the command does not report that all is well.
    wait_for(lambda: row(made) and row(made)["live"]["led"] < 4, "leaders are missing")
    shown = store.run("cluster", "force-recover", "t", code=None)
    assert shown.code == 2 or "have no leader now" in shown.err, shown.err

    problems = "\n".join(made.wait_for(all_lost, "all partitions are lost")["problems"])
    assert "forebay cluster force-recover t" in problems and "n2, n3" in problems
    shown = store.json("cluster", "force-recover", "t", code=2)
    assert shown["accepted"] is False and len(shown["partitions"]) == 4
    for lost in shown["partitions"]:
        assert {gone["node"] for gone in lost["gone"]} == {"n2", "n3"}
        assert [one["node"] for one in lost["remaining"]] == ["n1"]
    assert not takes_writes(first, "t:new", "1")
    # The node still serves reads of other tables, so /ready is 200.
    status, why = first.ask("/ready/tables/t")
    assert status == 503 and "4 replicas here know no leader" in why, why
    status, why = first.ask("/ready")
    assert status == 200 and "4 replicas here know no leader" in why, why
    # One node loses its data. The other returns with its data, which must not count.
    shutil.rmtree(others[0].cache)
    assert store.json("cluster", "force-recover", "t", "--yes")["accepted"]
    wait_for(lambda: takes_writes(first, "t:new", "1"), "writes are taken again")
    with first.through_gateway() as client:
        wait_for(lambda: client.mget(keys) == keys, "all earlier rows are read")
        assert client.set("t:7", "later")
    for node in others:
        node.start().wait_listening()
    made.wait_up()

    made.wait_whole("t")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert client.get("t:7") == "later"
            assert client.mget([key for key in keys if key != "t:7"]).count(None) == 0
    # The group was restored from one node, and survives that node's death.
    first.kill()
    wait_for(lambda: takes_writes(others[0], "t:8", "last"), "the other nodes take writes")
    with others[1].through_gateway() as client:
        wait_for(lambda: client.get("t:8") == "last", "another node reads it")
        assert client.get("t:7") == "later"


def test_nodes_with_new_names_replace_lost_nodes(cluster):
    made = cluster(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 4
    store, first, others = made.store, made["n1"], [made["n2"], made["n3"]]
    keys = [f"t:{i}" for i in range(300)]
    with first.through_gateway() as client:
        assert client.mset({key: key for key in keys})
    new = [made.join("n4", "z2"), made.join("n5", "z3")]
    for node in others:
        node.kill()
        shutil.rmtree(node.cache)
    made.wait_for(all_lost, "all partitions are lost")
    assert store.json("cluster", "force-recover", "t", "--yes")["accepted"]
    # Some partitions would remain on dead nodes only, and could not be copied.
    refused = store.refuse("cluster", "replicas", "t", "1", "--yes")
    assert "nodes that are down" in refused
    for gone, node in zip(others, new, strict=True):
        moved = store.run("cluster", "replace", gone.name, node.name, "--yes", "--json")
        moved = moved.json_lines()[-1]
        assert moved["ended"] == "done", moved
    made.wait_whole("t")
    # Now any single node may die.
    first.kill()
    wait_for(lambda: takes_writes(new[0], "t:new", "1"), "the new nodes take writes")
    with new[1].through_gateway() as client:
        wait_for(lambda: client.mget(keys) == keys, "all earlier rows are read")


def test_a_loss_is_read_from_the_catalog_if_nodes_require_a_login(made, tmp_path):
    store, others = made.store, [made["n2"], made["n3"]]
    secured = Secured(tmp_path)
    for node in made.nodes:
        node.stop()
        node.args = [*node.args, "--users", secured.users]
        node.start()
    for node in made.nodes:
        node.wait_listening()
    assert made["n1"].ask("/v1/cluster")[0] == 401
    seen = []

    def lost():
        # The test uses the command because that reads the catalog.
        seen[:] = [store.json("cluster", "status")]
        return (seen[0].get("live") or {}).get("lost")

    wait_for(lambda: lost() == [], "the status has live tables", step=0.5)
    for node in others:
        node.kill()
    wait_for(lambda: len(lost() or []) == 4, lambda: seen, step=0.5)
    assert not seen[0]["healthy"]
    assert "forebay cluster force-recover t" in "\n".join(seen[0]["problems"])

    def is_shown():
        shown = store.run("cluster", "force-recover", "t", code=None)
        return shown.code == 2 and "--yes" in shown.out

    wait_for(is_shown, "the loss is shown", step=0.5)
    assert store.json("cluster", "force-recover", "t", "--yes")["accepted"]
    with made["n1"].through_gateway(username="seer", password=secured.password) as client:

        def answers():
            try:
                return client.get("t:1") is None
            except redis.RedisError:
                return False

        wait_for(answers, "the node answers again")


def test_a_table_that_lost_its_only_replica_can_only_be_dropped(made):
    store, first = made.store, made["n1"]
    store.run("create", "s", *TABLE[:2], "--replicas", "1", "--durability", "os")
    first.kill()
    shutil.rmtree(first.cache)
    first.start().wait_listening()
    made.wait_for(lambda seen: any("can only be dropped" in line for line in seen["problems"]))
    shown = store.run("cluster", "force-recover", "s", code=2)
    assert "no replica is left to continue from" in shown.out and "forebay drop s" in shown.out

    # Until each partition's replica has reported that it is empty, another answer is correct.
    def refused():
        message = store.refuse("cluster", "force-recover", "s", "--yes")
        return "nothing to continue from" in message and "drop the table" in message

    wait_for(refused, "all partitions are refused", step=0.5)
    store.run("drop", "s", "--yes")
    made.wait_for(lambda seen: seen["healthy"], "the cluster is healthy")
