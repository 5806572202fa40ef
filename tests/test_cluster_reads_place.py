"""`forebay plan place` of a batch table of a cluster. The most read partitions get more replicas,
and readers see no change."""

import binascii
import json
import random
import threading
import time

import pytest
import redis
from data import people, person, write
from harness import WAIT_S, wait_for
from redis.cluster import LoadBalancingStrategy
from secured import Secured

COUNT, PARTITIONS = 2000, 24
NAMES = [f"people:{i}" for i in range(COUNT)]
PUSH = ["--replicas", "2", "--partitions", PARTITIONS]
PLAN = ["plan", "place", "people", "--from-load", "1m"]


def slot(name):
    return binascii.crc_hqx(name.encode(), 0) % 16384


class Readers:
    """Reads at a fixed pace through all gateways. Four of five reads are of keys in some slots."""

    def __init__(self, made, first, last, pace=600):
        self.hot = [name for name in NAMES if first <= slot(name) <= last]
        self.failed, self.over = [], threading.Event()
        paced = pace / len(made.nodes)
        threads = [threading.Thread(target=self.read, args=(node, paced)) for node in made.nodes]
        self.threads = threads
        for thread in threads:
            thread.start()

    def read(self, node, pace):
        chance, begun, done = random.Random(node.port), time.monotonic(), 0
        with node.through_gateway() as client:
            while not self.over.is_set():
                name = chance.choice(self.hot if chance.random() < 0.8 else NAMES)
                try:
                    value = json.loads(client.get(name))
                    if value["id"] != int(name.split(":")[1]):
                        self.failed.append(f"{name}: {value}")
                except (redis.RedisError, OSError, TypeError) as error:
                    self.failed.append(f"{name}: {error!r}")
                done += 1
                ahead = done / pace - (time.monotonic() - begun)
                if ahead > 0:
                    time.sleep(ahead)

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(WAIT_S)
        assert self.failed == []


@pytest.fixture
def made(shared, tmp_path):
    made = shared(6)
    made.table_of = lambda version: write(people(COUNT, version), tmp_path / f"{version}.parquet")
    made.store.push("people", made.table_of(1), args=PUSH)
    made.store.push("other", made.table_of(1), args=["--replicas", "2", "--partitions", "6"])
    return made


def holders(made, table="people"):
    """The number of nodes of each range, from KV.MAP."""
    with made.nodes[0].client() as client:
        rows = client.execute_command("KV.MAP", table)
    return {int(row[0]): len(row[2]) for row in rows}


def has_reads(seen, least=4):
    reads = seen.get("reads") or {"nodes": {}, "hottest": []}
    return len(reads["nodes"]) >= least and reads["hottest"]


def ratio(seen):
    """The load of the busiest node, in multiples of the mean of all six."""
    nodes = (seen.get("reads") or {"nodes": {}})["nodes"]
    return max(nodes.values(), default=9) * 6 / max(sum(nodes.values()), 1)


def plan(made, *more):
    return made.store.run(*PLAN, "--json", *more).json()


def manifest(made):
    """The partitions of the serving version."""
    version = made.table("people")["version"]
    path = made.store.path / "tables" / "people" / "versions" / f"{version}.manifest"
    text = path.read_text()
    return json.loads(text[: text.rindex("}") + 1])["partitions"]


def hot_slots(made):
    """The slots of the sixth partition of PARTITIONS."""
    return 5 * 16384 // PARTITIONS, 6 * 16384 // PARTITIONS - 1


@pytest.mark.nightly
def test_most_read_partitions_get_more_replicas(made, tmp_path):
    others = holders(made, "other")
    first, last = hot_slots(made)
    readers = Readers(made, first, last)
    made.wait_for(has_reads)

    def is_uneven():
        seen = plan(made)
        return seen["hottest_before"] > 1.7 * seen["mean"] and seen

    wait_for(is_uneven, lambda: plan(made), step=1)
    output, drawing = tmp_path / "plan.json", tmp_path / "plan.svg"
    seen = plan(made, "--output", output, "--draw", drawing)
    assert 0 < seen["copies"] <= 20 and seen["copied_bytes"] > 0 and seen["handed_over"] == 0
    assert seen["hottest_after"] < 1.2 * seen["mean"]
    assert drawing.read_text().startswith("<svg")
    hot = max(seen["partitions"], key=lambda one: one["reads_per_minute"])
    assert hot["partition"] == 5 and len(hot["after"]) > len(hot["before"]) == 2
    assert "replicas are copied" in made.store.run(*PLAN).out
    made.store.run("cluster", "apply", output, "--yes")
    counts = holders(made)
    assert counts[first] == len(hot["after"]) and min(counts.values()) == 2, counts
    assert holders(made, "other") == others
    # Each replica answers, and the load is even.
    made.wait_for(lambda seen: ratio(seen) < 1.35, "the load is even", 120)
    status = made.store.run("cluster", "status").out
    assert "batch tables on" in status and "read most: from slot" in status, status
    # The placement survives new versions, rollbacks and the loss of a node.
    pushed = made.store.push("people", made.table_of(2), args=["--partitions", PARTITIONS])
    assert pushed["rollout"]["excluded"] == []
    made.store.json("rollback", "people")
    assert holders(made) == counts
    # A small version is divided at the same starts, and reads of earlier versions do not count.
    made.store.push("people", made.table_of(3))
    assert holders(made) == counts
    made.wait_for(has_reads)
    seen = plan(made)
    starts = {int(lower) for lower in holders(made)}
    assert starts <= {one["bounds"]["lower"]["slot"] for one in manifest(made)}
    assert sum(one["reads_per_minute"] for one in seen["partitions"]) < 1.5 * 600 * 60
    gone = made["n6"]
    made.store.run("cluster", "drain", "n6", "--yes")
    after = holders(made)
    assert after[first] == min(counts[first], 5) and min(after.values()) == 2, after
    runs = gone.cache / "tables" / "people" / "runs"
    wait_for(lambda: not list(runs.glob("*.run")), "the drained node has no runs")
    made.store.run("cluster", "replicas", "people", "3", "--yes")
    assert set(holders(made).values()) == {3}
    readers.end()
    with made.nodes[1].through_gateway() as client:
        rows = client.mget(NAMES)
    assert [json.loads(row) for row in rows] == [person(i, 3) for i in range(COUNT)]


def test_clients_bound_to_the_table_see_its_own_layout(made, tmp_path):
    secured = Secured(tmp_path)
    users = json.loads(secured.users.read_text())
    users["users"].append({**users["users"][0], "name": "clerk", "tables": ["people"]})
    secured.users.write_text(json.dumps(users))
    for node in made.nodes:
        assert node.stop() == 0
        node.args = ["--users", secured.users]
        node.start().wait_listening()
    for node in made.nodes:
        wait_for(node.is_ready, f"{node.name} is ready")
    first, last = hot_slots(made)
    options = {"username": "seer", "password": secured.password}
    hot = [name for name in NAMES if first <= slot(name) <= last]
    seen = {}
    with made.nodes[0].through_gateway(**options) as client:

        def planned():
            until = time.monotonic() + 3
            while time.monotonic() < until:
                client.mget(hot)
            words = [*PLAN, "--json", "--output", tmp_path / "plan.json"]
            result = made.store.run(*words, code=None)
            seen.update(result.json() if result.code == 0 else {"copies": 0})
            return seen["copies"] > 0

        wait_for(planned, "reads are reported", 120)
    hottest = next(one for one in seen["partitions"] if one["partition"] == 5)
    made.store.run("cluster", "apply", tmp_path / "plan.json", "--yes")

    def rows(user):
        with made.nodes[0].client(username=user, password=secured.password) as client:
            return client.execute_command("CLUSTER SLOTS")

    def nodes_of(user):
        return next(row[2:] for row in rows(user) if row[0] <= first <= row[1])

    # The primary's node appears again as a replica, at another port.
    seen = {row[1] for row in nodes_of("clerk")}
    assert len(seen) == len(hottest["after"]) + 1 > len(nodes_of("seer"))
    # All rows of a primary have equally many nodes, because redis-py alternates over all of them.
    lengths = {(row[2][1], len(row)) for row in rows("clerk")}
    assert len(lengths) == len({primary for primary, _ in lengths})
    assert [row[0] for row in rows("clerk")][0] == 0 and rows("clerk")[-1][1] == 16383
    for user in ("clerk", "seer"):
        for balancing in (None, LoadBalancingStrategy.ROUND_ROBIN):
            with made.nodes[0].cluster_client(
                username=user, password=secured.password, load_balancing_strategy=balancing
            ) as client:
                assert [json.loads(client.get(name)) for name in NAMES[:400]] == [
                    person(i) for i in range(400)
                ]
                scanned = list(client.scan_iter(match="people:*", count=500))
                assert len(scanned) == COUNT and set(scanned) == set(NAMES)
                assert client.dbsize(target_nodes="primaries") == (
                    COUNT if user == "clerk" else 2 * COUNT
                )


def test_an_impossible_plan_is_refused_with_the_reason(made):
    made.store.push("whole", made.table_of(1), args=["--replicas", "2"])
    assert "push it with --partitions" in made.store.refuse(*PLAN[:2], "whole", *PLAN[3:])
    assert "no node reported reads" in made.store.refuse(*PLAN[:2], "other", *PLAN[3:])
    assert "has no table nosuch" in made.store.refuse(*PLAN[:2], "nosuch", *PLAN[3:], code=2)
    assert "0.25 is a quarter more" in made.store.refuse(*PLAN, "--spare", "much", code=2)
