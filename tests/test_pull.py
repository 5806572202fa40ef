"""Nodes that pull versions from a real S3 server: swaps under readers, kills, outages."""

import os
import random
import signal
import threading
import time

from data import people, write
from harness import wait_for
from nodes import ranges, wide


def test_a_node_pulls_serves_and_swaps_within_a_second(remote, node, source):
    remote.push("people", source(2000, version=1), args=["--partitions", "2"])
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    assert server.ask("/ready")[0] == 200
    stop, seen, errors = threading.Event(), [], []

    def read():
        client = server.client(decode_responses=True)
        while not stop.is_set():
            row = client.hmget("people:9", "v1", "v2", "v3")
            if len(set(row)) != 1 or row[0] is None:
                errors.append(row)
            if not seen or seen[-1] != row[0]:
                seen.append(row[0])

    reader = threading.Thread(target=read)
    reader.start()
    try:
        remote.push("people", source(2000, version=2))
        wait_for(lambda: server.value("people:7", "v1") == "2", "version 2")
        took = []
        for words, version in [(["rollback", "people"], "1"), (["swap", "people", 2], "2")] * 2:
            remote.run(*words)
            took.append(wait_for(lambda v=version: server.value("people:7", "v1") == v, words))
        # On a busy machine some swaps take longer.
        assert min(took) < 1.2, took
        remote.run("rollback", "people")
        wait_for(lambda: server.value("people:7", "v1") == "1", "the rollback")
    finally:
        stop.set()
        reader.join()
    assert errors == [] and (seen[0], seen[-1], set(seen)) == ("1", "1", {"1", "2"})
    pull = server.pull("people")
    assert (pull["wanted"], pull["pulled"], pull["problem"]) == (1, 2, None)
    metrics = server.ask("/metrics")[1]
    assert 'forebay_pulls_total{table="people"} 2' in metrics
    assert "forebay_pull_source_up 1" in metrics
    remote.run("drop", "people", "--yes")
    wait_for(lambda: server.value("people:7", "v1") is None, "the drop")


def test_objects_and_files_that_are_no_tables_do_not_block_tables(remote, node, source, tmp_path):
    remote.push("people", source(500, version=1))
    remote.write("tables/README", b"mine")
    remote.write("tables/.DS_Store", b"mine")
    assert [info["table"] for info in remote.json("tables")] == ["people"]
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    wait_for(lambda: server.ask("/ready")[0] == 200, "the node is ready")
    (server.cache / "tables" / "README").write_text("mine")
    remote.push("people", source(500, version=2))
    wait_for(lambda: server.value("people:7", "v1") == "2", "version 2")
    assert server.ask("/ready")[0] == 200


def test_the_cache_serves_while_the_store_is_down(remote, node, source):
    remote.push("people", source(500, version=1))
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    remote.server.kill()
    try:
        time.sleep(2)
        assert server.value("people:8", "v1") == "1"
        assert server.stop() == 0
        again = node()
        assert again.value("people:9", "v1") == "1"
        wait_for(lambda: again.pulls()["problem"], "the problem is reported")
        assert again.ask("/ready")[0] == 200 and again.value("people:9", "v1") == "1"
    finally:
        remote.server.start()
    remote.push("people", source(500, version=2))
    wait_for(lambda: again.value("people:7", "v1") == "2", "version 2 after the outage")
    assert again.stop() == 0


def test_a_node_without_tables_is_not_ready(remote, node):
    server = node(store=remote.through("http://127.0.0.1:9", "nowhere"))
    wait_for(lambda: server.pulls()["problem"], "the problem is reported")
    status, body = server.ask("/ready")
    assert status == 503 and "not reached" in body


def test_a_node_killed_during_a_pull_continues_it(remote, proxy, node, tmp_path):
    remote.push("wide", wide(tmp_path / "wide.parquet"), args=["--partitions", "1"])
    store = remote.through(proxy.url)
    server = node("--pull-rate", "16M", store=store)
    wait_for(lambda: len(ranges(proxy)) >= 9, "nine ranges")
    assert 0 < server.pull("wide")["done_bytes"] < server.pull("wide")["total_bytes"]
    status, body = server.ask("/ready")
    assert status == 503 and "not pulled yet" in body
    server.stop(signal.SIGKILL)
    since = len(proxy.exchanges)
    again = node(store=store)
    wait_for(lambda: again.pull("wide") and again.pull("wide")["pulled"] == 1, "the pull")
    # Noted are all ranges except those under way and those since the last note.
    total = -(-6 * 8 // 4) + 2
    assert len(ranges(proxy, since)) <= total - 4, "pulled ranges were requested again"
    wait_for(lambda: again.value("wide:3", "id") == "3", "the table")
    verify = {**os.environ, "FOREBAY_STORE": str(again.cache)}
    assert again.stop() == 0
    local = remote.through(remote.server.url)
    local.environment = lambda: verify
    assert local.json("verify", "wide")["rows"] == 6


def test_the_store_is_killed_and_restarted_while_a_node_pulls(remote, node, tmp_path):
    remote.push("wide", wide(tmp_path / "wide.parquet"), args=["--partitions", "1"])
    server = node("--pull-rate", "12M")
    wait_for(lambda: server.pull("wide") and server.pull("wide")["done_bytes"] > 0, "a start")
    remote.server.kill()
    time.sleep(1)
    remote.server.start()
    wait_for(lambda: server.value("wide:3", "id") == "3", "the table")
    assert server.stop() == 0


def test_a_slow_store_that_answers_5xx(remote, proxy, node, source):
    chance = random.Random(3)

    def trouble(exchange):
        time.sleep(chance.choice([0, 0.05]))
        return 503 if chance.random() < 0.2 else None

    proxy.before = trouble
    remote.push("people", source(2000, version=1), args=["--partitions", "3"])
    server = node(store=remote.through(proxy.url))
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    assert server.stop() == 0


def test_the_pull_command_keeps_to_its_own_directories(remote, source, tmp_path):
    remote.push("people", source(1000, version=1))
    done = remote.json("pull", "people", "--to", tmp_path / "copy")
    assert done["version"] == 1 and done["bytes"] > 10_000
    assert remote.json("pull", "people", "--to", tmp_path / "copy")["bytes"] == 0
    remote.push("others", source(500, version=1))
    remote.push("people", source(1200, version=2))
    several = ("pull", "people", "others")
    error = remote.refuse(*several, "nobody", "--to", tmp_path / "copy")
    assert "no table nobody" in error
    local = {**os.environ, "FOREBAY_STORE": str(tmp_path / "copy")}
    other = remote.through(remote.server.url)
    other.environment = lambda: local
    serving = {table["table"]: table["serving"] for table in other.json("tables")}
    assert serving.get("people") == 1 and serving.get("others") is None, (
        "a pull of several tables changes all or none"
    )
    done = remote.run(*several, "--to", tmp_path / "copy", "--json").json_lines()
    assert [(one["table"], one["version"]) for one in done] == [("people", 2), ("others", 1)]
    remote.run("rollback", "people")
    assert remote.json("pull", "people", "--to", tmp_path / "copy")["version"] == 1
    other.environment = lambda: local
    assert other.json("verify", "people")["rows"] == 1000
    local_store = tmp_path / "own"
    other.environment = lambda: {**os.environ, "FOREBAY_STORE": str(local_store)}
    write(people(10), tmp_path / "own.parquet")
    other.push("mine", tmp_path / "own.parquet")
    assert "of its own" in remote.refuse("pull", "people", "--to", local_store)
    assert "of its own" in remote.refuse("serve", "--cache", local_store)
    assert "nothing to pull" in other.refuse("pull", "people", "--to", tmp_path / "x", code=2)
    assert "no table" in remote.refuse("pull", "nobody", "--to", tmp_path / "copy")
