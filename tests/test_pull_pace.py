"""Pulls beside reads: their pace, versions in memory before a swap, and pointers that move
meanwhile."""

import signal
import socket
import threading
import time

import pytest
from harness import wait_for
from nodes import MIB, drop_from_memory, metric, ranges, resident_bytes, wide


def mget_bytes(server, keys):
    """The bytes of an MGET, and the length of its reply."""
    strings = lambda words: "".join(f"${len(word)}\r\n{word}\r\n" for word in words)  # noqa: E731
    values = server.client(decode_responses=True).mget(keys)
    words = f"*{len(keys) + 1}\r\n{strings(['MGET', *keys])}"
    return words.encode(), len(f"*{len(keys)}\r\n{strings(values)}")


@pytest.mark.alone
def test_a_pull_slows_down_when_reads_become_slow(remote, node, source, tmp_path):
    remote.push("people", source(20_000, version=1))
    server = node("--pull-rate", "auto:12M")
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
    assert metric(server, "forebay_pull_rate_bytes") == 12 * MIB
    stop, slow = threading.Event(), threading.Event()

    def load():
        """Sends GETs of one key, and MGETs of two thousand keys once reads should become slow. The
        client needs little time: too few commands in an interval would not count."""
        one, many = (
            mget_bytes(server, ["people:7"]),
            mget_bytes(server, [f"people:{i}" for i in range(2000)]),
        )
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            while not stop.is_set():
                words, remaining = many if slow.is_set() else one
                connection.sendall(words)
                while remaining:
                    remaining -= len(connection.recv(remaining))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        served = metric(server, "forebay_pull_slowed_total")
        time.sleep(2)
        remote.push("wide", wide(tmp_path / "wide.parquet", rows=32), args=["--partitions", "1"])
        wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) > 0, "a start")
        slow.set()
        is_lower = lambda: metric(server, "forebay_pull_rate_bytes") < 12 * MIB  # noqa: E731
        wait_for(is_lower, "a lower rate")
        assert metric(server, "forebay_pull_slowed_total") > served
        assert metric(server, "forebay_pull_rate_bytes") >= 4 * MIB
        assert server.pulls()["rate_bytes"] >= 4 * MIB
        slow.clear()
        wait_for(lambda: not is_lower(), "the whole rate again")
        wait_for(lambda: server.value("wide:3", "id") == "3", "the table")
    finally:
        stop.set()
        thread.join()
    assert server.stop() == 0


def test_invalid_rates_are_refused(remote, tmp_path):
    for rate in ["auto:", "auto100M", "fast", "0", "auto:0"]:
        refused = remote.refuse("serve", "--cache", tmp_path / "c", "--pull-rate", rate, code=2)
        assert "--pull-rate" in refused


@pytest.mark.alone
def test_a_version_pushed_during_a_pull_replaces_the_pulled_one(remote, proxy, node, tmp_path):
    remote.push("wide", wide(tmp_path / "1.parquet"), args=["--partitions", "1"])
    server = node("--pull-rate", "6M", store=remote.through(proxy.url))
    wait_for(lambda: (server.pull("wide") or {}).get("done_bytes", 0) > 0, "a start")
    small = wide(tmp_path / "2.parquet", rows=1, seed=2)
    remote.push("wide", small, args=["--partitions", "1", "--force"])
    wait_for(lambda: server.value("wide:0", "id") == "0", "version 2")
    pull = server.pull("wide")
    assert (pull["wanted"], pull["pulled"], pull["problem"]) == (2, 1, None)
    assert server.value("wide:3", "id") is None, "the abandoned version serves"
    count = len(ranges(proxy))
    assert count < 12 + 2, "the abandoned version was pulled whole"
    time.sleep(2)
    assert len(ranges(proxy)) == count, "the abandoned version is still pulled"
    # Files of the abandoned version are removed, including parts and notes.
    assert all(path.stat().st_size > 0 for path in server.runs("wide"))
    remaining = [path.name for path in (server.cache / "tables/wide/runs").iterdir()]
    assert sorted(remaining) == sorted(path.name for path in server.runs("wide"))
    assert server.stop() == 0


@pytest.mark.alone
def test_a_rollback_during_a_pull_stops_it(remote, proxy, node, tmp_path):
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

    wait_for(lambda: state() == (None, 1, 1, None), "the pull is abandoned")
    stopped = len(ranges(proxy))
    time.sleep(2)
    # One range may have been under way.
    assert len(ranges(proxy)) <= stopped + 1
    assert server.value("wide:0", "id") == "0" and server.value("wide:3", "id") is None
    # The pull continues from its notes when the pointer returns.
    remote.run("swap", "wide", 2)
    wait_for(lambda: server.value("wide:3", "id") == "3", "version 2")
    total = -(-6 * 8 // 4) + 2
    assert len(ranges(proxy)) - stopped <= total - 4, "pulled ranges were requested again"
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
        assert resident_bytes(path) < MIB, "the kernel did not drop the pages"
    again = node()
    pointer = again.cache / "tables/wide/current"
    wait_for(pointer.exists, "the pointer")
    # Except for a few pages, which the kernel may drop at any time.
    for path in again.runs("wide"):
        assert resident_bytes(path) > path.stat().st_size - MIB, path
    wait_for(lambda: again.value("wide:3", "id") == "3", "the table")
    assert again.stop() == 0
