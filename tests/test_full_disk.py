"""Commands on a disk without a free byte, and the commands that free space."""

import json
import os
import random
import signal
import threading
import time
import urllib.request

import pytest
import redis
from data import people, write
from disks import fill
from harness import Store, wait_for

TOKEN = "a token of more than sixteen characters"
NO_SPACE = "No space left on device"


def free_bytes(disk):
    stats = os.statvfs(disk)
    return stats.f_bavail * stats.f_frsize


@pytest.fixture
def full(small_disk, tmp_path):
    """Versions 1 and 2 of `people`, with 2 serving, a live table, and no free space."""
    store = Store(small_disk / "store")
    for version in (1, 2):
        store.push("people", write(people(200, version), tmp_path / f"v{version}.parquet"))
    store.run("create", "live", "--durability", "os")
    store.disk = small_disk
    fill(small_disk)
    assert free_bytes(small_disk) == 0
    return store


def serving(store):
    return [v["version"] for v in store.json("versions", "people") if v["serving"]]


def post(server, path, body):
    url = f"http://127.0.0.1:{server.http}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Authorization", f"Bearer {TOKEN}")
    with urllib.request.urlopen(request, timeout=30) as reply:
        return json.loads(reply.read())


def test_pointers_move_and_servers_follow(full, tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    with full.serve("--admin-token-file", tmp_path / "token") as server:
        client = server.client(decode_responses=True)
        for _ in range(4):
            fill(full.disk)
            assert full.json("rollback", "people")["version"] == 1
            wait_for(lambda: client.hget("people:7", "v1") == "1", "the rollback is seen")
            fill(full.disk)
            assert full.json("swap", "people", "2")["previous"] == 1
            wait_for(lambda: client.hget("people:7", "v1") == "2", "the swap is seen")
        fill(full.disk)
        assert post(server, "/v1/tables/people/rollback", {})["to"] == 1
        assert post(server, "/v1/tables/people/swap", {"version": 2})["to"] == 2
    assert serving(full) == [2]
    # With free space, pushes work again.
    (full.disk / "filler").unlink()
    assert full.push("people", tmp_path / "v1.parquet")["version"] == 3
    assert full.json("verify", "people")["rows"] == 200


def test_pointers_move_while_another_process_takes_every_free_byte(full):
    ended = threading.Event()

    def take():
        while not ended.is_set():
            fill(full.disk)

    filler = threading.Thread(target=take)
    filler.start()
    try:
        for _ in range(10):
            full.run("rollback", "people")
            full.run("swap", "people", "2")
    finally:
        ended.set()
        filler.join()
    full.run("drop", "people", "--yes")


def test_a_drop_frees_space(full):
    (full.disk / "filler").unlink()
    before = free_bytes(full.disk)
    fill(full.disk)
    for table in ("people", "live"):
        assert full.json("drop", table, "--yes")["dropped"] is True
        assert free_bytes(full.disk) > 0
        fill(full.disk)
    (full.disk / "filler").unlink()
    assert free_bytes(full.disk) > before
    assert full.json("tables") == []


def test_a_drop_frees_a_served_tables_space_once_the_server_has_seen_it(full, tmp_path):
    big = write(people(20_000), tmp_path / "big.parquet")
    (full.disk / "filler").unlink()
    full.push("people", big, args=["--force"])
    with full.serve() as server:
        assert server.client().hget("people:19999", "id") == b"19999"
        fill(full.disk)
        full.run("drop", "people", "--yes")
        wait_for(lambda: free_bytes(full.disk) > 1_000_000, "the server closes the files")
        assert server.client().dbsize() == 0


def test_a_command_killed_at_any_moment_leaves_a_pointer(full):
    rng = random.Random(11)
    for round_ in range(30):
        words = ["rollback", "people"] if serving(full) == [2] else ["swap", "people", "2"]
        process = full.start(*words)
        time.sleep(rng.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        full.finish(process)
        assert serving(full) in ([1], [2]), f"round {round_}"
        fill(full.disk)
    full.run("swap", "people", "1")
    full.run("swap", "people", "2")
    assert serving(full) == [2]
    known = {"current", "current.reserve", "pointer.lock", "push.lock", "runs", "versions"}
    assert set(os.listdir(full.disk / "store/tables/people")) == known


def test_failed_commands_leave_nothing(full, tmp_path):
    big = write(people(2000), tmp_path / "big.parquet")
    rejected = full.disk / "rejected.jsonl"

    def names():
        return {path for path in full.disk.rglob("*") if path.name != "filler"}

    before = names()
    bad_rows = ["--bad-rows", rejected]
    for words in (
        ["push", "other", big, "--key", "{id}", *bad_rows],
        ["push", "people", big, "--key", "{id}", *bad_rows],
        ["load", "live", big, "--key", "{id}", "--value", "name", *bad_rows],
        ["create", "another"],
        ["create", "another", "--order", "ordered", "--durability", "os"],
    ):
        fill(full.disk)
        assert NO_SPACE in full.refuse(*words)
        assert names() == before, words
    fill(full.disk)
    fresh = Store(full.disk / "fresh")
    assert NO_SPACE in fresh.refuse("push", "t", big, "--key", "{id}")
    assert NO_SPACE in fresh.refuse("create", "t")
    assert names() == before
    # With free space the same commands work, and their bad rows stay in the file.
    (full.disk / "filler").unlink()
    full.push("other", big, args=bad_rows)
    assert rejected.exists()


def test_a_push_ends_with_one_clear_error_on_a_full_disk(full, tmp_path):
    big = write(people(2000), tmp_path / "big.parquet")
    table = full.disk / "store/tables/people"
    commands = [
        ["push", "people", big, "--key", "{id}"],
        ["push", "people", big, "--key", "{id}", "--memory", "1M"],
        ["push", "other", big, "--key", "{id}"],
        ["load", "live", big, "--key", "{id}", "--value", "name"],
        ["create", "another"],
        ["swap", "people", "1"],
        ["rollback", "people"],
    ]
    for words in commands:
        if words[0] == "swap":
            # An older program leaves the table without the reserve.
            (table / "current.reserve").unlink()
        fill(full.disk)
        for json_flag in ([], ["--json"]):
            message = full.refuse(*words, *json_flag)
            assert message.count(NO_SPACE) == 1, message
            assert message.count(str(full.disk)) == 1, message
    assert serving(full) == [2]
    with full.serve() as server:
        client = server.client()
        fill(full.disk)
        with pytest.raises(redis.ResponseError, match=NO_SPACE) as refused:
            for number in range(1000):
                client.set(f"live:{number}", "x" * 10_000)
        message = str(refused.value)
        assert message.count(NO_SPACE) == 1 and message.count("table live") == 1, message
