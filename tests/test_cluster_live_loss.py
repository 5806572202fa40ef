"""Live tables of a cluster that lost the majority of their replicas for good, by real processes."""

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
    heard = made.heard()
    return heard and heard["live"]


def row(made):
    heard = made.heard()
    rows = heard["tables"] if heard else []
    return next((row for row in rows if row["table"] == "t"), None)


def all_lost(seen):
    lost = (seen["live"] or {}).get("lost", [])
    return len(lost) == 4 and all(len(one["remaining"]) == 1 for one in lost)


def test_a_table_goes_on_from_what_is_left_once_its_loss_is_accepted(made):
    store, first, others = made.store, made["n1"], [made["n2"], made["n3"]]
    keys = [f"t:{i}" for i in range(300)]
    with first.through_gateway() as client:
        assert client.mset({key: key for key in keys})
    assert row(made)["mode"] == "live" and row(made)["live"]["led"] == 4
    # Where a majority answers there is nothing to accept.
    assert store.json("cluster", "force-recover", "t", "--yes") == {
        "table": "t",
        "partitions": [],
        "accepted": False,
    }
    with pytest.raises(Failed, match="no live table"):
        store.run("cluster", "force-recover", "u")
    for node in others:
        node.kill()
    # Before it is known whether the majority is lost, nothing is said to be well.
    wait_for(lambda: row(made) and row(made)["live"]["led"] < 4, "leaders are missed")
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
    # Other tables are read there, so it gets traffic.
    status, why = first.ask("/ready/tables/t")
    assert status == 503 and "4 replicas here know no leader" in why, why
    status, why = first.ask("/ready")
    assert status == 200 and "4 replicas here know no leader" in why, why
    # One loses what it had; the other comes back with it, and must not count.
    shutil.rmtree(others[0].cache)
    assert store.json("cluster", "force-recover", "t", "--yes")["accepted"]
    wait_for(lambda: takes_writes(first, "t:new", "1"), "writes are taken again")
    with first.through_gateway() as client:
        wait_for(lambda: client.mget(keys) == keys, "all that was there is there")
        assert client.set("t:7", "later")
    for node in others:
        node.start().comes_up()
    made.wait_up()

    made.wait_whole("t")
    for node in made.nodes:
        with node.through_gateway() as client:
            assert client.get("t:7") == "later"
            assert client.mget([key for key in keys if key != "t:7"]).count(None) == 0
    # The group that was founded by one survives the death of that one.
    first.kill()
    wait_for(lambda: takes_writes(others[0], "t:8", "last"), "the others go on")
    with others[1].through_gateway() as client:
        wait_for(lambda: client.get("t:8") == "last", "it is read elsewhere")
        assert client.get("t:7") == "later"


def test_nodes_by_other_names_come_in_the_place_of_those_that_are_gone(cluster):
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
    # Some partitions would be left to dead nodes alone, which nobody could bring anything.
    refused = store.refuse("cluster", "replicas", "t", "1", "--yes")
    assert "nodes that are down" in refused
    for gone, node in zip(others, new, strict=True):
        moved = store.run("cluster", "replace", gone.name, node.name, "--yes", "--json")
        moved = moved.json_lines()[-1]
        assert moved["ended"] == "done", moved
    made.wait_whole("t")
    # Any one of them can die now.
    first.kill()
    wait_for(lambda: takes_writes(new[0], "t:new", "1"), "the new ones go on")
    with new[1].through_gateway() as client:
        wait_for(lambda: client.mget(keys) == keys, "all that was there is there")


def test_where_nodes_want_a_name_the_loss_is_told_by_way_of_the_catalog(made, tmp_path):
    store, others = made.store, [made["n2"], made["n3"]]
    secured = Secured(tmp_path)
    for node in made.nodes:
        node.stop()
        node.args = [*node.args, "--users", secured.users]
        node.start()
    for node in made.nodes:
        node.comes_up()
    assert made["n1"].ask("/v1/cluster")[0] == 401
    seen = []

    def lost():
        # By the command: the test is that it reads the catalog.
        seen[:] = [store.json("cluster", "status")]
        return (seen[0].get("live") or {}).get("lost")

    wait_for(lambda: lost() == [], "live tables are told of", step=0.5)
    for node in others:
        node.kill()
    wait_for(lambda: len(lost() or []) == 4, lambda: seen, step=0.5)
    assert not seen[0]["healthy"]
    assert "forebay cluster force-recover t" in "\n".join(seen[0]["problems"])

    def is_shown():
        shown = store.run("cluster", "force-recover", "t", code=None)
        return shown.code == 2 and "--yes" in shown.out

    wait_for(is_shown, "what is lost is shown", step=0.5)
    assert store.json("cluster", "force-recover", "t", "--yes")["accepted"]
    with made["n1"].through_gateway(username="seer", password=secured.password) as client:

        def answers():
            try:
                return client.get("t:1") is None
            except redis.RedisError:
                return False

        wait_for(answers, "it answers again")


def test_of_a_table_with_one_replica_whose_files_are_gone_only_a_drop_is_advised(made):
    store, first = made.store, made["n1"]
    store.run("create", "s", *TABLE[:2], "--replicas", "1", "--durability", "os")
    first.kill()
    shutil.rmtree(first.cache)
    first.start().comes_up()
    made.wait_for(lambda seen: any("can only be dropped" in line for line in seen["problems"]))
    shown = store.run("cluster", "force-recover", "s", code=2)
    assert "no replica is left to continue from" in shown.out and "forebay drop s" in shown.out

    # Until the replica of each partition has reported that it is empty, another answer is right.
    def refused():
        message = store.refuse("cluster", "force-recover", "s", "--yes")
        return "nothing to continue from" in message and "drop the table" in message

    wait_for(refused, "all partitions are refused", step=0.5)
    store.run("drop", "s", "--yes")
    made.wait_for(lambda seen: seen["healthy"], "the cluster is well")
