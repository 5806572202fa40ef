"""Live tables that a server has open: other processes read, check, copy and drop them."""

import json
import os
import signal
import subprocess
import threading

import pytest
from harness import Store, wait_for


def scanned(store, table):
    rows = [json.loads(line) for line in store.run("scan", table, "--json").out.splitlines()]
    return {row["key"]: row["value"] for row in rows}


def test_a_read_of_a_served_table_sees_its_current_content(live, tmp_path):
    client = live.client(decode_responses=True)
    for number in range(500):
        client.set(f"kv:{number:03}", number)
    store = live.store
    assert store.run("get", "kv", "007").out == "7\n"
    assert scanned(store, "kv") == {f"{number:03}": str(number) for number in range(500)}
    seen = store.json("verify", "kv")
    assert seen["table"] == "kv" and seen["records"] >= 500
    file = tmp_path / "kv.jsonl"
    assert store.json("export", "kv", "--to", str(file))["rows"] == 500
    assert len(file.read_text().splitlines()) == 500
    assert client.get("kv:007") == "7" and client.set("kv:007", "8")
    assert store.run("get", "kv", "007").out == "8\n"
    left = list((store.path / "tables" / "kv" / "asks").iterdir())
    assert left == []


def test_a_checkpoint_under_writes_holds_one_moment(live, tmp_path):
    stop = threading.Event()

    def write():
        client = live.client()
        number = 0
        while not stop.is_set():
            # Keys of all partitions, one after the other.
            client.set(f"kv:{number}", "x" * 100)
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for attempt in range(4):
            wanted = 200 * (attempt + 1)
            wait_for(lambda wanted=wanted: live.client().dbsize() > wanted, "some writes")
            directory = tmp_path / f"copy-{attempt}"
            seen = live.store.json("checkpoint", "kv", str(directory))
            assert seen["store"] == str(directory) and seen["bytes"] == seen["linked_bytes"] > 0
            copy = Store(directory)
            keys = sorted(int(key) for key in scanned(copy, "kv"))
            assert keys == list(range(len(keys))) and len(keys) > 200 * attempt
            copy.run("verify", "kv")
    finally:
        stop.set()
        writer.join()
    with Store(tmp_path / "copy-0").serve() as other:
        assert other.client().set("kv:new", "1") and not live.client().exists("kv:new")


def test_a_table_without_its_manifest_is_not_overwritten(store, tmp_path):
    source, copy = tmp_path / "a.csv", Store(tmp_path / "copy")
    source.write_text("id,v\na,1\n")
    store.run("create", "kv")
    store.run("load", "kv", source, "--key", "{id}")
    store.run("checkpoint", "kv", copy.path)
    manifest = store.path / "tables" / "kv" / "live"
    kept = manifest.read_bytes()
    manifest.unlink()
    makers = [
        ["create", "kv"],
        ["push", "kv", source, "--key", "{id}"],
        ["push", "kv", source, "--key", "{id}", "--dry-run"],
    ]
    for words in makers:
        message = store.refuse(*words)
        assert str(manifest) in message and "forebay drop kv" in message, message
    back = copy.refuse("checkpoint", "kv", store.path)
    assert "forebay drop kv" in back, back
    manifest.write_bytes(kept)
    assert store.run("get", "kv", "a").out == "1\n"
    manifest.unlink()
    store.run("drop", "kv", "--yes")
    assert not manifest.parent.exists()
    copy.run("checkpoint", "kv", store.path)
    assert store.run("get", "kv", "a").out == "1\n"


def test_a_checkpoint_inside_a_store_is_refused(live, tmp_path):
    store, link = live.store, tmp_path / "link"
    link.symlink_to(store.path / "tables")
    inside = [store.path / "tables" / "kv", store.path / "copies" / "today", link / "copy", link]
    for directory in inside:
        message = store.refuse("checkpoint", "kv", directory)
        assert "in the directory of a store" in message, message
        assert not (directory / "forebay.json").exists()
    assert "exists already" in store.refuse("checkpoint", "kv", store.path)


def test_a_checkpoint_on_a_full_disk_leaves_nothing(live, small_disk):
    client = live.client()
    for number in range(100):
        client.set(f"kv:{number}", os.urandom(100_000))
    (small_disk / "empty").mkdir()
    for name in ("new", "empty"):
        message = live.store.refuse("checkpoint", "kv", small_disk / name)
        assert "space" in message.lower(), message
    assert [path.name for path in small_disk.rglob("*")] == ["empty"]


def test_a_checkpoint_can_be_restored_into_its_store(live, tmp_path):
    client, store, backup = live.client(), live.store, Store(tmp_path / "backup")
    client.mset({"kv:{u}a": 1, "kv:{u}b": 2})
    client.rpush("list:l", 5)
    for table in ("kv", "list"):
        store.run("checkpoint", table, str(backup.path))
    client.set("kv:{u}a", "wrong")
    message = store.refuse("checkpoint", "kv", str(backup.path))
    assert "exists already" in message, message
    store.run("drop", "kv", "--yes")
    wait_for(lambda: isinstance(probe(client), Exception), "the drop")
    backup.run("checkpoint", "kv", str(store.path))
    wait_for(lambda: not isinstance(probe(client), Exception), "the table back")
    assert client.mget("kv:{u}a", "kv:{u}b") == [b"1", b"2"]


def test_a_served_table_can_be_dropped_and_created_again(live):
    client, store = live.client(), live.store
    for _ in range(3):
        client.set("kv:a", "1")
        assert store.json("drop", "kv", "--yes") == {"table": "kv", "dropped": True}
        with pytest.raises(Exception, match="no table 'kv'"):
            client.get("kv:a")
        assert not (store.path / "tables" / "kv").exists()
        store.run("create", "kv")
        wait_for(lambda: not isinstance(probe(client), Exception), "the new table")
        assert client.get("kv:a") is None


def probe(client):
    try:
        return client.get("kv:a")
    except Exception as error:
        return error


def test_an_error_names_the_process_that_does_not_answer(live, tmp_path):
    live.client().set("kv:a", "1")
    os.kill(live.process.pid, signal.SIGSTOP)
    try:
        message = live.store.refuse("checkpoint", "kv", str(tmp_path / "copy"), code=4)
        assert "in use" in message and str(live.process.pid) in message, message
        assert "in use" in live.store.refuse("drop", "kv", "--yes", code=4)
    finally:
        os.kill(live.process.pid, signal.SIGCONT)
    assert live.client().get("kv:a") == b"1"


def test_files_of_a_killed_command_are_removed(live):
    store = live.store
    client = live.client()
    for number in range(2000):
        client.set(f"kv:{number}", "x" * 1000)
    process = store.start("scan", "kv", "--json", stdout=subprocess.PIPE)
    process.stdout.readline()
    process.kill()
    process.wait()
    asks = store.path / "tables" / "kv" / "asks"
    wait_for(lambda: not list(asks.iterdir()), "the server to clean up")
    assert client.get("kv:7") == b"x" * 1000


def test_batch_tables_have_no_checkpoints(served, tmp_path):
    store = served.store
    assert "batch table" in store.refuse("checkpoint", "people", str(tmp_path / "copy"))
    assert "no live table" in store.refuse("checkpoint", "none", str(tmp_path / "copy"))


def test_a_refused_command_leaves_nothing(store):
    store.run("create", "t")
    store.refuse("checkpoint", "nosuch", str(store.path.parent / "copy"))
    assert [path.name for path in (store.path / "tables").iterdir()] == ["t"]


def test_of_two_drops_at_once_one_fails(live):
    for _ in range(3):
        both = [live.store.start("drop", "kv", "--yes") for _ in range(2)]
        done = [live.store.finish(process) for process in both]
        assert sorted(result.code for result in done)[0] == 0
        for result in done:
            seen = result.err
            assert result.code == 0 or "no table" in seen or "in use" in seen, seen
        live.store.run("create", "kv")
