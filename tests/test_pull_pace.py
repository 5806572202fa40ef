"""Pulls beside serving: how fast, what is in memory before a swap, pointers that move meanwhile."""

import signal
import socket
import threading
import time

import pytest
from harness import wait_for
from nodes import MIB, drop_from_memory, metric, ranges, resident_bytes, wide


def asked(server, keys):
    """An MGET as it is sent, and the length of its reply in bytes."""
    strings = lambda words: "".join(f"${len(word)}\r\n{word}\r\n" for word in words)  # noqa: E731
    values = server.client(decode_responses=True).mget(keys)
    words = f"*{len(keys) + 1}\r\n{strings(['MGET', *keys])}"
    return words.encode(), len(f"*{len(keys)}\r\n{strings(values)}")


@pytest.mark.alone
def test_a_pull_gives_way_when_serving_becomes_slow(remote, node, source, tmp_path):
    remote.push("people", source(20_000, version=1))
    server = node("--pull-rate", "auto:12M")
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    assert metric(server, "forebay_pull_rate_bytes") == 12 * MIB
    stop, slow = threading.Event(), threading.Event()

    def load():
        """GETs of one key, and of two thousand once it is to look slow. The client does little by
        itself: so few commands in a look that they say nothing would count as none."""
        one, many = asked(server, ["people:7"]), asked(server, [f"people:{i}" for i in range(2000)])
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            while not stop.is_set():
                words, left = many if slow.is_set() else one
                connection.sendall(words)
                while left:
                    left -= len(connection.recv(left))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        served = metric(server, "forebay_pull_slowed_total")
        time.sleep(2)
        remote.push("wide", wide(tmp_path / "wide.parquet", rows=32), args=["--partitions", "1"])
        wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) > 0, "a start")
        slow.set()
        falls = lambda: metric(server, "forebay_pull_rate_bytes") < 12 * MIB  # noqa: E731
        wait_for(falls, "a lower rate")
        assert metric(server, "forebay_pull_slowed_total") > served
        assert metric(server, "forebay_pull_rate_bytes") >= 4 * MIB
        assert server.pulls()["rate_bytes"] >= 4 * MIB
        slow.clear()
        wait_for(lambda: not falls(), "the whole rate again")
        wait_for(lambda: server.value("wide:3", "id") == "3", "the table")
    finally:
        stop.set()
        thread.join()
    assert server.stop() == 0


def test_rates_that_are_none_are_refused(remote, tmp_path):
    for rate in ["auto:", "auto100M", "fast", "0", "auto:0"]:
        refused = remote.refuse("serve", "--cache", tmp_path / "c", "--pull-rate", rate, code=2)
        assert "--pull-rate" in refused


@pytest.mark.alone
def test_a_version_pushed_while_another_is_pulled_takes_its_place(remote, proxy, node, tmp_path):
    remote.push("wide", wide(tmp_path / "1.parquet"), args=["--partitions", "1"])
    server = node("--pull-rate", "6M", store=remote.through(proxy.url))
    wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) > 0, "a start")
    small = wide(tmp_path / "2.parquet", rows=1, seed=2)
    remote.push("wide", small, args=["--partitions", "1", "--force"])
    wait_for(lambda: server.value("wide:0", "id") == "0", "version 2")
    pull = server.pull("wide")
    assert (pull["wanted"], pull["pulled"], pull["problem"]) == (2, 1, None)
    assert server.value("wide:3", "id") is None, "the version that was given up serves"
    asked = len(ranges(proxy))
    assert asked < 12 + 2, "all of the version that was given up was brought"
    time.sleep(2)
    assert len(ranges(proxy)) == asked, "it is still brought"
    # What only the version had that was given up is gone, parts and notes too.
    assert all(path.stat().st_size > 0 for path in server.runs("wide"))
    left = [path.name for path in (server.cache / "tables/wide/runs").iterdir()]
    assert sorted(left) == sorted(path.name for path in server.runs("wide"))
    assert server.stop() == 0


@pytest.mark.alone
def test_a_rollback_while_another_version_is_pulled(remote, proxy, node, tmp_path):
    small = wide(tmp_path / "1.parquet", rows=1)
    remote.push("wide", small, args=["--partitions", "1"])
    server = node("--pull-rate", "6M", store=remote.through(proxy.url))
    wait_for(lambda: server.value("wide:0", "id") == "0", "version 1")
    begun = len(ranges(proxy))
    remote.push("wide", wide(tmp_path / "2.parquet", seed=2), args=["--partitions", "1"])
    wait_for(lambda: len(ranges(proxy)) >= begun + 6, "six ranges of version 2")
    remote.run("rollback", "wide")

    def state():
        pull = server.pull("wide")
        return pull["doing"], pull["wanted"], pull["pulled"], pull["problem"]

    wait_for(lambda: state() == (None, 1, 1, None), "that it is given up")
    stopped = len(ranges(proxy))
    time.sleep(2)
    # One may have been on its way.
    assert len(ranges(proxy)) <= stopped + 1
    assert server.value("wide:0", "id") == "0" and server.value("wide:3", "id") is None
    # It goes on where it was given up when the pointer comes back.
    remote.run("swap", "wide", 2)
    wait_for(lambda: server.value("wide:3", "id") == "3", "version 2")
    total = -(-6 * 8 // 4) + 2
    assert len(ranges(proxy)) - stopped <= total - 4, "what was here was asked for again"
    assert server.stop() == 0


def test_a_version_is_in_memory_before_it_serves(remote, node, tmp_path):
    remote.push("wide", wide(tmp_path / "wide.parquet"), args=["--partitions", "1"])
    server = node("--pull-rate", "16M")
    wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) >= 16 * MIB, "parts")
    server.stop(signal.SIGKILL)
    runs = server.cache / "tables/wide/runs"
    parts = [path for path in runs.iterdir() if path.suffix == ".part"]
    assert parts
    for path in parts:
        drop_from_memory(path)
        assert resident_bytes(path) < MIB, "the test's premise: it can be dropped"
    again = node()
    pointer = again.cache / "tables/wide/current"
    wait_for(pointer.exists, "the pointer")
    # But for a few pages: a kernel may take some back at any time.
    for path in again.runs("wide"):
        assert resident_bytes(path) > path.stat().st_size - MIB, path
    wait_for(lambda: again.value("wide:3", "id") == "3", "the table")
    assert again.stop() == 0
