"""Damaged caches of nodes and damaged downloads are repaired, and never served."""

import os

import pyarrow as pa
import pytest
import redis
from data import write
from harness import wait_for


@pytest.mark.parametrize("how", ["cut", "changed", "removed"])
def test_a_damaged_cache_is_repaired_and_never_served(remote, node, source, how):
    remote.push("people", source(5000, version=1), args=["--partitions", "1"])
    server = node()
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")
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
    wait_for(lambda: (again.pull("people") or {}).get("repaired"), "the repair")
    wait_for(lambda: again.value("people:7", "v1") == "1", "the table")
    assert path.read_bytes() == content
    rows = [again.value(f"people:{i}", "name") for i in range(0, 5000, 50)]
    assert rows == [f"person {i}" for i in range(0, 5000, 50)]
    # A running node checks the lengths every few seconds, too.
    if how == "cut":
        os.truncate(path, 5000)
        wait_for(lambda: again.pull("people")["repaired"] == 2, "the second repair")
        wait_for(lambda: again.value("people:4999", "name") == "person 4999", "the table")
    assert again.stop() == 0


def test_a_version_with_damaged_downloads_does_not_serve(remote, proxy, node, source):
    remote.push("people", source(5000, version=1))
    server = node(store=remote.through(proxy.url))
    wait_for(lambda: server.value("people:7", "v1") == "1", "version 1")

    def change(exchange, status, body):
        if "/runs/" in exchange.path and exchange.method == "GET" and len(body) > 9000:
            body = body[:8000] + bytes([body[8000] ^ 8]) + body[8001:]
        return status, body

    proxy.after = change
    remote.push("people", source(5000, version=2))
    wait_for(lambda: server.pull("people")["problem"], "the damage is reported")
    assert "damaged" in server.pull("people")["problem"]
    assert server.value("people:7", "v1") == "1"
    proxy.after = lambda exchange, status, body: (status, body)
    wait_for(lambda: server.value("people:7", "v1") == "2", "version 2")
    assert server.stop() == 0


def sorted_people(rows):
    """A table in key order, so that the page of each row is known."""
    numbers = range(rows)
    return pa.table({"id": [f"{i:06}" for i in numbers], "name": [f"n{i}" for i in numbers]})


def test_bytes_flipped_under_a_running_node_are_repaired(remote, node, tmp_path):
    rows = 40_000
    args = ["--partitions", "1", "--order", "ordered"]
    remote.push("people", write(sorted_people(rows), tmp_path / "p.parquet"), args=args)
    server = node()
    wait_for(lambda: server.value("people:000007", "name") == "n7", "version 1")
    pull = server.pull("people")
    wait_for(lambda: server.pull("people")["doing"] is None, "the first check")
    (path,) = server.runs("people")
    content = path.read_bytes()
    assert len(content) > 200_000
    # Written in place with the same length, in pages that no read has touched.
    with path.open("r+b") as file:
        for at in range(len(content) // 4, len(content) * 3 // 4, 1000):
            file.seek(at)
            file.write(bytes([content[at] ^ 0x10]))
    errors, client = [], server.client(decode_responses=True)

    def sweep():
        """Reads all rows, and returns the number of errors. Other values must be correct."""
        failed = 0
        for i in range(0, rows, 97):
            try:
                assert client.hget(f"people:{i:06}", "name") == f"n{i}"
            except redis.ResponseError as error:
                errors.append(str(error))
                failed += 1
        return failed

    assert sweep() > 0
    wait_for(lambda: sweep() == 0, "the repair")
    assert all("damaged" in error for error in errors), errors[:3]
    assert server.pull("people")["repaired"] == 1 and pull["repaired"] == 0
    assert path.read_bytes() == content
    assert 'forebay_pull_repairs_total{table="people"} 1' in server.ask("/metrics")[1]
    assert server.stop() == 0


def test_damage_found_during_an_outage_is_repaired_afterwards(remote, node, tmp_path):
    args = ["--partitions", "1", "--order", "ordered"]
    remote.push("people", write(sorted_people(20_000), tmp_path / "p.parquet"), args=args)
    server = node()
    wait_for(lambda: server.value("people:000007", "name") == "n7", "version 1")
    wait_for(lambda: server.pull("people")["doing"] is None, "the first check")
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
        wait_for(lambda: server.pull("people")["problem"], "the problem is reported")
    finally:
        remote.server.start()
    wait_for(lambda: server.pull("people")["repaired"] == 1, "the repair")
    assert [i for i in missed if server.value(f"people:{i:06}", "name") != f"n{i}"] == []
    wait_for(lambda: server.pull("people")["problem"] is None, "no problem is reported")
    assert server.stop() == 0
