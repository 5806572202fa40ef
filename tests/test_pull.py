"""Nodes that pull what serves in a real S3 server: swaps under readers, kills, outages, damage."""

import json
import os
import random
import signal
import threading
import time
import urllib.error
import urllib.request

import pyarrow as pa
import pytest
import redis
from data import people, write
from harness import Server, wait_for

MIB = 1 << 20


class Node(Server):
    """`forebay serve --store s3://... --cache DIR`."""

    def __init__(self, store, cache, *args):
        self.cache = cache
        super().__init__(store, "--cache", str(cache), *args)

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=10) as got:
                return got.status, got.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def pulls(self):
        return json.loads(self.ask("/v1/pulls")[1])["pulls"]

    def pull(self, table):
        found = [pull for pull in self.pulls()["tables"] if pull["table"] == table]
        return found[0] if found else None

    def value(self, key, field):
        """What a client reads; None while the table does not serve."""
        try:
            return self.reader.hget(key, field)
        except Exception:
            return None

    @property
    def reader(self):
        if not self.clients:
            self.client(decode_responses=True)
        return self.clients[0]

    def runs(self, table):
        directory = self.cache / "tables" / table / "runs"
        return sorted(path for path in directory.glob("*") if path.suffix in (".run", ".ext"))


@pytest.fixture
def node(remote, tmp_path):
    """Starts nodes: node(*arguments, store=...)."""
    running = []

    def start(*args, store=None, cache="cache"):
        running.append(Node(store or remote, tmp_path / cache, *args))
        return running[-1]

    yield start
    for server in running:
        if server.alive():
            server.stop(signal.SIGKILL)


def wide(path, rows=6, seed=1):
    chance = random.Random(seed)
    values = [chance.randbytes(8 * MIB) for _ in range(rows)]
    table = pa.table({"id": range(rows), "wide": pa.array(values, pa.binary())})
    return write(table, path)


def test_a_node_pulls_serves_and_swaps_within_a_second(remote, node, source):
    remote.push("people", source(2000, version=1), args=["--partitions", "2"])
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 20)
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
        wait_for(lambda: server.value("people:7", "v1") == "2", "version 2", 5)
        begun = time.monotonic()
        remote.run("rollback", "people")
        moved = time.monotonic()
        wait_for(lambda: server.value("people:7", "v1") == "1", "the rollback", 5)
        assert time.monotonic() - moved < 1.2, (moved - begun, time.monotonic() - moved)
    finally:
        stop.set()
        reader.join()
    assert errors == [] and seen == ["1", "2", "1"]
    pull = server.pull("people")
    assert (pull["wanted"], pull["pulled"], pull["problem"]) == (1, 2, None)
    metrics = server.ask("/metrics")[1]
    assert 'forebay_pulls_total{table="people"} 2' in metrics
    assert "forebay_pull_source_up 1" in metrics
    remote.run("drop", "people")
    wait_for(lambda: server.value("people:7", "v1") is None, "the drop", 15)


def test_the_cache_alone_serves_while_the_store_is_down(remote, node, source):
    remote.push("people", source(500, version=1))
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 20)
    remote.server.kill()
    try:
        time.sleep(2)
        assert server.value("people:8", "v1") == "1"
        assert server.stop() == 0
        again = node()
        assert again.value("people:9", "v1") == "1"
        wait_for(lambda: again.pulls()["problem"], "a word about the store", 30)
        assert again.ask("/ready")[0] == 200 and again.value("people:9", "v1") == "1"
    finally:
        remote.server.start()
    remote.push("people", source(500, version=2))
    wait_for(lambda: again.value("people:7", "v1") == "2", "version 2 after the outage", 40)
    assert again.stop() == 0


def test_a_node_without_anything_is_not_ready(remote, node):
    server = node(store=remote.through("http://127.0.0.1:9", "nowhere"))
    wait_for(lambda: server.pulls()["problem"], "a word about the store", 30)
    status, body = server.ask("/ready")
    assert status == 503 and "not reached" in body


def ranges(proxy, since=0):
    """The ranges of runs that were asked for and answered."""
    with proxy.lock:
        asked = proxy.exchanges[since:]
    return [
        one for one in asked if one.method == "GET" and "/runs/" in one.path and one.status == 206
    ]


def test_a_node_killed_while_it_pulls_goes_on(remote, proxy, node, tmp_path):
    remote.push("wide", wide(tmp_path / "wide.parquet"), args=["--partitions", "1"])
    store = remote.through(proxy.url)
    server = node("--pull-rate", "16M", store=store)
    wait_for(lambda: len(ranges(proxy)) >= 9, "nine ranges", 30)
    assert 0 < server.pull("wide")["done_bytes"] < server.pull("wide")["total_bytes"]
    status, body = server.ask("/ready")
    assert status == 503 and "not pulled yet" in body
    server.stop(signal.SIGKILL)
    since = len(proxy.exchanges)
    again = node(store=store)
    wait_for(lambda: again.pull("wide") and again.pull("wide")["pulled"] == 1, "the pull", 40)
    # What was noted is all but the ranges under way and those since the last note.
    total = -(-6 * 8 // 4) + 2
    assert len(ranges(proxy, since)) <= total - 4, "what was here was asked for again"
    wait_for(lambda: again.value("wide:3", "id") == "3", "the table", 10)
    verify = {**os.environ, "FOREBAY_STORE": str(again.cache)}
    assert again.stop() == 0
    local = remote.through(remote.server.url)
    local.environment = lambda: verify
    assert local.json("verify", "wide")["rows"] == 6


def test_the_store_is_killed_and_restarted_while_a_node_pulls(remote, node, tmp_path):
    remote.push("wide", wide(tmp_path / "wide.parquet"), args=["--partitions", "1"])
    server = node("--pull-rate", "12M")
    wait_for(lambda: server.pull("wide") and server.pull("wide")["done_bytes"] > 0, "a start", 30)
    remote.server.kill()
    time.sleep(1)
    remote.server.start()
    wait_for(lambda: server.value("wide:3", "id") == "3", "the table", 60)
    assert server.stop() == 0


@pytest.mark.parametrize("how", ["cut", "changed", "removed"])
def test_a_damaged_cache_is_mended_and_never_served(remote, node, source, how):
    remote.push("people", source(5000, version=1), args=["--partitions", "1"])
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 20)
    assert server.stop() == 0
    (path,) = server.runs("people")
    content = path.read_bytes()
    if how == "cut":
        path.write_bytes(content[: len(content) // 3])
    elif how == "changed":
        path.write_bytes(content[:9000] + bytes([content[9000] ^ 1]) + content[9001:])
    else:
        path.unlink()
    again = node()
    wait_for(lambda: (again.pull("people") or {}).get("repaired"), "the repair", 20)
    wait_for(lambda: again.value("people:7", "v1") == "1", "the table", 10)
    assert path.read_bytes() == content
    rows = [again.value(f"people:{i}", "name") for i in range(0, 5000, 50)]
    assert rows == [f"person {i}" for i in range(0, 5000, 50)]
    # And while it runs: lengths are looked at every few seconds.
    if how == "cut":
        os.truncate(path, 5000)
        wait_for(lambda: again.pull("people")["repaired"] == 2, "the second repair", 20)
        wait_for(lambda: again.value("people:4999", "name") == "person 4999", "the table", 10)
    assert again.stop() == 0


def test_what_comes_damaged_does_not_serve(remote, proxy, node, source):
    remote.push("people", source(5000, version=1))
    server = node(store=remote.through(proxy.url))
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 20)

    def change(exchange, status, body):
        if "/runs/" in exchange.path and exchange.method == "GET" and len(body) > 9000:
            body = body[:8000] + bytes([body[8000] ^ 8]) + body[8001:]
        return status, body

    proxy.after = change
    remote.push("people", source(5000, version=2))
    wait_for(lambda: server.pull("people")["problem"], "a word about the damage", 30)
    assert "damaged" in server.pull("people")["problem"]
    assert server.value("people:7", "v1") == "1"
    proxy.after = lambda exchange, status, body: (status, body)
    wait_for(lambda: server.value("people:7", "v1") == "2", "version 2", 40)
    assert server.stop() == 0


def test_a_slow_store_that_answers_5xx(remote, proxy, node, source):
    chance = random.Random(3)

    def trouble(exchange):
        time.sleep(chance.choice([0, 0.05]))
        return 503 if chance.random() < 0.2 else None

    proxy.before = trouble
    remote.push("people", source(2000, version=1), args=["--partitions", "3"])
    server = node(store=remote.through(proxy.url))
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 40)
    assert server.stop() == 0


def test_pull_as_a_command_and_whose_a_directory_is(remote, source, tmp_path):
    remote.push("people", source(1000, version=1))
    done = remote.json("pull", "people", "--to", tmp_path / "copy")
    assert done["version"] == 1 and done["bytes"] > 10_000
    assert remote.json("pull", "people", "--to", tmp_path / "copy")["bytes"] == 0
    local = {**os.environ, "FOREBAY_STORE": str(tmp_path / "copy")}
    other = remote.through(remote.server.url)
    other.environment = lambda: local
    assert other.json("verify", "people")["rows"] == 1000
    own = tmp_path / "own"
    other.environment = lambda: {**os.environ, "FOREBAY_STORE": str(own)}
    write(people(10), tmp_path / "own.parquet")
    other.push("mine", tmp_path / "own.parquet")
    assert "of its own" in remote.refuse("pull", "people", "--to", own)
    assert "of its own" in remote.refuse("serve", "--cache", own)
    assert "nothing to pull" in other.refuse("pull", "people", "--to", tmp_path / "x")
    assert "no table" in remote.refuse("pull", "nobody", "--to", tmp_path / "copy")


def sorted_people(rows):
    """A table in key order, so that it is known which page has what."""
    table = pa.table({"id": [f"{i:06}" for i in range(rows)], "name": [f"n{i}" for i in range(rows)]})
    return table


def test_bytes_flipped_under_a_running_node_are_repaired(remote, node, tmp_path):
    rows = 40_000
    args = ["--partitions", "1", "--order", "ordered"]
    remote.push("people", write(sorted_people(rows), tmp_path / "p.parquet"), args=args)
    server = node()
    wait_for(lambda: server.value("people:000007", "name") == "n7", "version 1", 20)
    pull = server.pull("people")
    wait_for(lambda: server.pull("people")["doing"] is None, "the first check", 20)
    (path,) = server.runs("people")
    content = path.read_bytes()
    assert len(content) > 200_000
    # In place and of the same length, in pages that nobody has read yet.
    with path.open("r+b") as file:
        for at in range(len(content) // 4, len(content) * 3 // 4, 1000):
            file.seek(at)
            file.write(bytes([content[at] ^ 0x10]))
    errors, client = [], server.client(decode_responses=True)

    def sweep():
        """Reads all; a value is right, or there is an error."""
        failed = 0
        for i in range(0, rows, 97):
            try:
                assert client.hget(f"people:{i:06}", "name") == f"n{i}"
            except redis.ResponseError as error:
                errors.append(str(error))
                failed += 1
        return failed

    assert sweep() > 0
    wait_for(lambda: sweep() == 0, "the repair", 20)
    assert all("damaged" in error for error in errors), errors[:3]
    assert server.pull("people")["repaired"] == 1 and pull["repaired"] == 0
    assert path.read_bytes() == content
    assert 'forebay_pull_repairs_total{table="people"} 1' in server.ask("/metrics")[1]
    assert server.stop() == 0


def test_damage_met_while_the_store_is_down_is_mended_when_it_is_back(remote, node, tmp_path):
    args = ["--partitions", "1", "--order", "ordered"]
    remote.push("people", write(sorted_people(20_000), tmp_path / "p.parquet"), args=args)
    server = node()
    wait_for(lambda: server.value("people:000007", "name") == "n7", "version 1", 20)
    wait_for(lambda: server.pull("people")["doing"] is None, "the first check", 20)
    (path,) = server.runs("people")
    content = path.read_bytes()
    remote.server.kill()
    try:
        with path.open("r+b") as file:
            file.seek(len(content) // 2)
            file.write(bytes(byte ^ 1 for byte in content[len(content) // 2 :][:64]))
        keys = range(0, 20_000, 10)
        missed = [i for i in keys if server.value(f"people:{i:06}", "name") != f"n{i}"]
        assert missed and len(missed) < 200
        wait_for(lambda: server.pull("people")["problem"], "a word about it", 40)
    finally:
        remote.server.start()
    wait_for(lambda: server.pull("people")["repaired"] == 1, "the repair", 60)
    assert [i for i in missed if server.value(f"people:{i:06}", "name") != f"n{i}"] == []
    wait_for(lambda: server.pull("people")["problem"] is None, "that it is well", 10)
    assert server.stop() == 0


def metric(server, name):
    lines = server.ask("/metrics")[1].splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def test_a_pull_gives_way_when_serving_becomes_slow(remote, node, source, tmp_path):
    remote.push("people", source(20_000, version=1))
    server = node("--pull-rate", "auto:12M")
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1", 20)
    assert metric(server, "forebay_pull_rate_bytes") == 12 * MIB
    client, stop = server.client(), threading.Event()
    slow = threading.Event()

    def load():
        """GETs of one key, and of thousands once it is to look slow."""
        many = [f"people:{i}" for i in range(4000)]
        while not stop.is_set():
            client.mget(many) if slow.is_set() else client.get("people:7")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        served = metric(server, "forebay_pull_slowed_total")
        time.sleep(2)
        remote.push("wide", wide(tmp_path / "wide.parquet", rows=16), args=["--partitions", "1"])
        wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) > 0, "a start", 20)
        slow.set()
        falls = lambda: metric(server, "forebay_pull_rate_bytes") < 12 * MIB  # noqa: E731
        wait_for(falls, "a lower rate", 20)
        assert metric(server, "forebay_pull_slowed_total") > served
        assert metric(server, "forebay_pull_rate_bytes") >= 4 * MIB
        assert server.pulls()["rate_bytes"] >= 4 * MIB
        slow.clear()
        wait_for(lambda: not falls(), "the whole rate again", 60)
        wait_for(lambda: server.value("wide:3", "id") == "3", "the table", 60)
    finally:
        stop.set()
        thread.join()
    assert server.stop() == 0


def test_rates_that_are_none_are_refused(remote, tmp_path):
    for rate in ["auto:", "auto100M", "fast", "0", "auto:0"]:
        refused = remote.refuse("serve", "--cache", tmp_path / "c", "--pull-rate", rate, code=2)
        assert "--pull-rate" in refused
