"""Backups and restores of both kinds of tables, of single servers and of clusters."""

import base64
import hashlib
import json
import os
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime

import pytest
from harness import Store, wait_for

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


def scanned(store, table):
    rows = [json.loads(line) for line in store.run("scan", table, "--json").out.splitlines()]
    return {row["key"]: row["value"] for row in rows}


def tables_of(answer):
    return {table["table"]: (table["mode"], table["version"]) for table in answer["tables"]}


class Chain(threading.Thread):
    """Writes 0, 1, 2 … to keys of all partitions. Each write waits until the one before is
    acknowledged."""

    def __init__(self, client, table):
        super().__init__()
        self.client, self.table, self.number, self.is_over = client, table, 0, False

    def run(self):
        while not self.is_over:
            self.client.set(f"{self.table}:{self.number}", self.number)
            self.number += 1

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        self.join()

    def resume(self, count=100):
        wanted = self.number + count
        wait_for(lambda: self.number >= wanted, "some writes")


def is_a_prefix(values):
    return sorted(int(key) for key in values) == list(range(len(values)))


def test_tables_of_a_server_can_be_restored(live, source, tmp_path):
    store, place = live.store, tmp_path / "backups"
    store.push("flights", source())
    with Chain(live.client(), "kv") as chain:
        chain.resume()
        before = chain.number
        made = store.json("backup", "flights", "kv", "--to", place)
        assert tables_of(made) == {"flights": ("batch", 1), "kv": ("live", None)}
        assert made["copied_bytes"] > 0 and made["reused_bytes"] == 0
        chain.resume()
    # The second backup does not copy the batch table again.
    again = store.json("backup", "flights", "kv", "--to", place, "--keep", "1")
    assert again["reused_bytes"] > 0 and again["removed"] == [made["backup"]]
    store.json("backup", "kv", "--to", place)
    listed = store.json("restore", "--from", place, "--list")["backups"]
    assert [sorted(tables_of(backup)) for backup in listed] == [["flights", "kv"], ["kv"]]

    other = Store(tmp_path / "other")
    back = other.json("restore", "--from", place, "--backup", again["backup"])
    assert tables_of(back) == {"flights": ("batch", 1), "kv": ("live", None)}
    values = scanned(other, "kv")
    assert is_a_prefix(values) and len(values) >= before
    assert scanned(other, "flights") == scanned(store, "flights")
    other.run("verify", "kv")
    with other.serve() as server:
        assert server.client().set("kv:new", 1) and server.client().hgetall("flights:1")


def test_an_impossible_restore_ends_with_the_reason(live, source, tmp_path):
    store, place = live.store, tmp_path / "backups"
    store.push("flights", source())
    error = store.refuse("restore", "--from", place)
    assert "there are no backups at" in error
    name = store.json("backup", "kv", "flights", "--to", place)["backup"]
    assert "there is no backup x" in store.refuse("restore", "--from", place, "--backup", "x")
    refused = store.refuse("restore", "nope", "--from", place)
    assert "has no table nope; it has flights, kv" in refused
    # The live table exists already: nothing is copied, and the message names the other table.
    refused = store.refuse("restore", "--from", place)
    assert "nothing was restored" in refused and "forebay restore flights --from" in refused
    inside = store.refuse("backup", "--to", store.path / "tables" / "flights" / "backups")
    assert "is in the directory of a store" in inside
    other = Store(tmp_path / "other")
    other.push("flights", source(version=2))
    assert "another version 1" in other.refuse("restore", "flights", "--from", place)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("something")
    assert "holds other files" in store.refuse("backup", "--to", full)
    for path in (place / "tables" / "flights" / "runs").glob("*.run"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert ".run" in store.refuse("restore", "kv", "flights", "--from", place, "--check")
    third = Store(tmp_path / "third")
    error = third.refuse("restore", "flights", "--from", place, "--backup", name)
    assert f"{place}/tables/flights/runs/" in error and "restore another backup" in error
    assert third.json("tables") == []


def test_a_restore_names_the_damaged_file_of_the_backup(live, tmp_path):
    store, place = live.store, tmp_path / "backups"
    live.client().mset({f"kv:{number}": number for number in range(1000)})
    name = store.json("backup", "kv", "log", "--to", place)["backup"]
    whole = tmp_path / "whole"
    shutil.copytree(place, whole)

    def restored(*args):
        return Store(tmp_path / "other").refuse("restore", "--from", place, *args)

    run = next((place / "tables" / "kv" / "runs").glob("*.run"))
    content = bytearray(run.read_bytes())
    content[len(content) // 2] ^= 1
    run.write_bytes(content)
    for args in [["kv"], ["kv", "--check"]]:
        error = restored(*args)
        assert str(run) in error and "Remove that file" in error, error
    assert Store(tmp_path / "other").json("tables") == []
    run.write_bytes((whole / run.relative_to(place)).read_bytes())

    table = place / "tables" / "log" / "backups" / f"{name}.backup"
    for damage in [lambda: table.write_bytes(table.read_bytes()[:100]), table.unlink]:
        damage()
        for args in [["log"], ["log", "--check"]]:
            error = restored(*args)
            assert str(table) in error and f"remove its file backups/{name}.json" in error, error
            assert "Remove that file" not in error
    # The backup's other table is whole, and a directory is in the place of a document.
    Store(tmp_path / "third").run("restore", "kv", "--from", place)
    (place / "backups" / "junk.json").mkdir()
    listed = store.run("restore", "--from", place, "--list", "--json")
    assert [one["backup"] for one in json.loads(listed.out)["backups"]] == [name]
    assert "junk.json of a backup cannot be used: not a regular file" in listed.err
    shutil.rmtree(place / "backups" / "junk.json")
    os.mkfifo(place / "backups" / "junk.json")
    listed = store.run("restore", "--from", place, "--list")
    assert "junk.json of a backup cannot be used" in listed.err
    (place / "backups" / "junk.json").unlink()
    # An older backup under the name of a newer one.
    newer = store.json("backup", "kv", "--to", place)["backup"]
    document = place / "backups" / f"{newer}.json"
    shutil.copy(place / "backups" / f"{name}.json", document)
    assert f"it is the document of backup {name}" in restored("kv")
    document.unlink()
    document.symlink_to("nowhere")
    assert store.json("backup", "kv", "--to", place)["damaged"] == [newer]
    marker = place / "forebay-backup.json"
    later = '{"forebay_backup_place": 2}'
    for content, problem in [(later, "use a newer forebay"), ("{", "marks no place")]:
        marker.write_text(content)
        assert problem in restored() and problem in store.refuse("backup", "--to", place)
    marker.unlink()
    for error in [restored(), store.refuse("backup", "--to", place)]:
        assert "has backups, but no file forebay-backup.json" in error


def test_a_file_that_cannot_be_removed_is_reported_and_the_rest_is_removed(live, tmp_path):
    store, place = live.store, tmp_path / "backups"
    first = store.json("backup", "kv", "log", "people", "--to", place)["backup"]
    # A directory is in the place of one table's document, and a plain file is among the tables.
    blocked = place / "tables" / "kv" / "backups" / f"{first}.backup"
    blocked.unlink()
    blocked.mkdir()
    (place / "tables" / "aaa").write_text("stray")
    made = store.json("backup", "kv", "log", "people", "--to", place, "--keep", "1")
    assert made["removed"] == [first]
    assert any(str(blocked) in text for text in made["unremoved"]), made
    for table in ("log", "people"):
        left = [path.name for path in (place / "tables" / table / "backups").iterdir()]
        assert left == [f"{made['backup']}.backup"]
    error = store.run("backup", "kv", "--to", place, "--keep", "1").err
    assert "could not be removed" in error and str(blocked) in error


def test_a_restore_without_a_document_restores_nothing(live, tmp_path):
    store, place = live.store, tmp_path / "backups"
    live.client().set("kv:key", 1)
    name = store.json("backup", "kv", "log", "people", "--to", place)["backup"]
    (place / "tables" / "log" / "backups" / f"{name}.backup").unlink()
    other = Store(tmp_path / "other")
    error = other.refuse("restore", "--from", place)
    assert "nothing was restored" in error and "it is missing" in error
    assert f"forebay restore kv people --from {place} --backup {name}" in error
    other.run("restore", "kv", "people", "--from", place)
    run = next((place / "tables" / "kv" / "runs").glob("*.run"))
    run.unlink()
    for args in [["kv"], ["kv", "--check"]]:
        error = Store(tmp_path / "third").refuse("restore", *args, "--from", place)
        assert str(run) in error and "Remove that file" in error, error


def test_a_pipe_in_the_place_of_backups_json_blocks_nothing(live):
    os.mkfifo(live.store.path / "backups.json")
    assert live.store.json("tables")
    url = f"http://127.0.0.1:{live.http}/metrics"
    with urllib.request.urlopen(url, timeout=30) as page:
        assert page.status == 200


def test_only_a_checked_status_ends_with_3(store, tmp_path):
    store.refuse("restore", "--from", tmp_path, "--check", "--bogus", code=2)
    store.refuse("restore", "--from", tmp_path, "--check", "--list", code=2)
    store.refuse("cluster", "status", "--check", "--bogus", code=3)


def test_a_rate_limits_copied_bytes_only(live, tmp_path):
    store, place = live.store, tmp_path / "backups"
    live.client().mset({f"kv:{number}": "x" * 1000 for number in range(2000)})
    store.run("backup", "kv", "--to", place)
    begun = time.monotonic()
    again = store.json("backup", "kv", "--to", place, "--rate", "100K")
    # A copy of all data would take 20 s.
    assert again["copied_bytes"] == 0 and time.monotonic() - begun < 15


def test_a_restore_refuses_a_table_of_the_other_kind_before_it_copies(store, source, tmp_path):
    store.push("a", source(10))
    store.run("create", "b")
    store.push("c", source(10))
    place = tmp_path / "backups"
    assert "WARN" not in store.run("backup", "--to", place).err
    other = Store(tmp_path / "other")
    other.push("b", source(5))
    other.run("create", "c")
    error = other.refuse("restore", "--from", place)
    assert "of the other kind: b, c" in error and "forebay restore a --from" in error
    assert {row["table"] for row in other.json("tables")} == {"b", "c"}


def test_a_killed_backup_does_not_count(live, source, tmp_path):
    store, place = live.store, tmp_path / "backups"
    for number in range(2000):
        live.client().set(f"kv:{number}", "x" * 1000)
    process = store.start("backup", "kv", "--to", place, "--rate", "200K")
    runs = place / "tables" / "kv" / "runs"
    wait_for(lambda: runs.exists() and any(runs.iterdir()), "a file that is copied")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "there is no backup yet" in store.refuse("restore", "--from", place)
    # The checkpoint ends with the process, and the next backup removes the copied files.
    left = set(runs.iterdir())
    made = store.json("backup", "--to", place)
    assert {"kv", "log", "count", "people", "list"} <= set(tables_of(made))
    assert made["reused_bytes"] == 0 and made["copied_bytes"] > 2_000_000
    asks = store.path / "tables" / "kv" / "asks"
    wait_for(lambda: not asks.exists() or not any(asks.iterdir()), "the checkpoint is removed")
    assert left
    # Of two backups at once, one is refused.
    other = tmp_path / "elsewhere"
    process = store.start("backup", "kv", "--to", other, "--rate", "200K")
    wait_for((other / "tables" / "kv" / "runs").exists, "the backup copies")
    refused = store.refuse("backup", "log", "--to", other, code=4)
    assert "another backup is being made there" in refused
    process.kill()
    process.wait()


class BesideBucket(Store):
    """A local store, with commands that may reach the bucket."""

    def __init__(self, path, remote):
        super().__init__(path)
        self.remote = remote

    def environment(self):
        return {**self.remote.environment(), "FOREBAY_STORE": str(self.path)}


def test_a_bucket_can_hold_backups(remote, live, source, tmp_path):
    store = BesideBucket(live.store.path, remote)
    place = f"{remote.environment()['FOREBAY_STORE']}-backups"
    store.push("flights", source())
    live.client().mset({f"kv:{number}": number for number in range(500)})
    store.json("backup", "flights", "kv", "--to", place)
    live.client().set("kv:500", 500)
    second = store.json("backup", "flights", "kv", "--to", place, "--keep", "1")
    assert second["reused_bytes"] > 0 and len(second["removed"]) == 1
    other = BesideBucket(tmp_path / "other", remote)
    other.json("restore", "--from", place)
    values = scanned(other, "kv")
    assert is_a_prefix(values) and len(values) == 501
    assert scanned(other, "flights") == scanned(store, "flights")


@pytest.fixture
def made(shared):
    made = shared(3)
    assert made.store.json("create", "t", *TABLE)["led"] == 6
    return made


def test_live_tables_are_not_restored_into_too_few_nodes(cluster, source, tmp_path):
    place, single = tmp_path / "backups", Store(tmp_path / "single")
    single.run("create", "kv")
    single.push("flights", source())
    single.json("backup", "kv", "flights", "--to", place)
    small = cluster(2)
    refused = small.store.refuse("restore", "--from", place)
    assert "nothing was restored" in refused and "only 2 nodes can have them now" in refused
    assert "forebay restore flights --from" in refused
    assert small.store.json("tables") == []
    small.store.json("restore", "flights", "--from", place)
    assert [table["table"] for table in small.store.json("tables")] == ["flights"]


def test_a_live_table_of_a_cluster_is_read_and_copied_at_one_moment(made, tmp_path):
    store = made.store
    with made["n1"].through_gateway() as client, Chain(client, "t") as chain:
        chain.resume()
        before = chain.number
        values = scanned(store, "t")
        assert is_a_prefix(values) and len(values) >= before
        assert store.run("get", "t", "7", "nope").out == "7\n(absent)\n"
        assert store.json("verify", "t")["records"] >= before
        file = tmp_path / "t.jsonl"
        assert store.json("export", "t", "--to", file)["rows"] >= before
        copied = store.json("checkpoint", "t", tmp_path / "copy")
        assert copied["records"] >= before and copied["linked_bytes"] == 0
        assert is_a_prefix(scanned(Store(tmp_path / "copy"), "t"))
        chain.resume()
    place = tmp_path / "backups"
    assert store.json("backup", "t", "--to", place)["copied_bytes"] > 0
    # Another leader has other files, so some are copied once more.
    again = lambda: store.json("backup", "t", "--to", place)  # noqa: E731
    wait_for(lambda: again()["copied_bytes"] == 0, "nothing remains to copy")
    began = {table["table"]: table["backup"] for table in store.json("tables")}["t"]
    noted = store.json("cluster", "status")["tables"][0]["backup_unix_ms"]
    assert began == datetime.fromtimestamp(noted // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert began in store.run("cluster", "status").out
    values = scanned(store, "t")
    store.json("drop", "t", "--yes")
    back = store.json("restore", "t", "--from", place)
    assert tables_of(back) == {"t": ("live", None)}
    assert scanned(store, "t") == values
    with made["n2"].through_gateway() as client:
        assert client.get("t:7") == "7" and client.set("t:new", 1)
    assert "or of the other kind: t" in store.refuse("restore", "t", "--from", place)
    assert store.json("restore", "t", "--from", place, "--check")["tables"]
    # A single server restores it, too.
    other = Store(tmp_path / "other")
    other.json("restore", "--from", place)
    assert scanned(other, "t") == values


def test_a_backup_restores_a_cluster_without_its_store_and_caches(cluster, source, tmp_path):
    first = cluster(3)
    assert first.store.json("create", "t", *TABLE)["led"] == 6
    first.store.push("flights", source())
    with first["n1"].through_gateway() as client:
        client.mset({f"t:{number}": number for number in range(300)})
    place = tmp_path / "backups"
    made = first.store.json("backup", "--to", place)
    assert tables_of(made) == {"flights": ("batch", 1), "t": ("live", None)}
    rows = scanned(first.store, "flights")
    for node in first.nodes:
        node.kill()
    for node in first.nodes:
        shutil.rmtree(node.cache)
    os.rename(first.store.path, tmp_path / "gone")
    second = cluster(3)
    second.store.json("restore", "--from", place)
    assert scanned(second.store, "flights") == rows
    with second["n2"].through_gateway() as client:
        values = client.mget([f"t:{number}" for number in range(300)])
        assert values == [str(number) for number in range(300)]
        assert client.hgetall("flights:1")


def users_file(path, users):
    """A users file with these names and tables. Each password is "secret"."""
    digest = hashlib.sha256(b"secret").hexdigest()
    verbs = ["read", "write"]
    listed = [
        {"name": name, "password_sha256": digest, "tables": tables, "verbs": verbs}
        for name, tables in users.items()
    ]
    path.write_text(json.dumps({"users": listed}))


def asked(node, user, method, path):
    """The status code that a user gets."""
    url = f"http://127.0.0.1:{node.http}/v1/tables/{path}"
    request = urllib.request.Request(url, method=method)
    pair = base64.b64encode(f"{user}:secret".encode()).decode()
    request.add_header("Authorization", f"Basic {pair}")
    try:
        with urllib.request.urlopen(request, timeout=30) as got:
            return got.status
    except urllib.error.HTTPError as error:
        return error.code


def test_users_back_up_tables_that_they_may_read_and_write(cluster, tmp_path):
    users_file(tmp_path / "users.json", {"all": ["*"], "one": ["t"], "other": ["u"]})
    made = cluster(3)
    made.restart("--users", tmp_path / "users.json")
    login = tmp_path / "login"
    login.write_text("all:secret\n")
    asks, store = ["--login", login], made.store
    for table in ("t", "u"):
        store.json("create", table, *TABLE)
    with made["n1"].through_gateway(username="all", password="secret") as client:
        client.mset({f"t:{number}": number for number in range(50)})
    place = tmp_path / "backups"
    refused = store.refuse("backup", "--to", place)
    assert "--login FILE" in refused
    assert any(f"node 127.0.0.1:{node.http}" in refused for node in made.nodes), refused
    assert set(tables_of(store.json("backup", "--to", place, *asks))) == {"t", "u"}
    assert store.run("get", "t", "7", *asks).out == "7\n"
    assert store.run("doctor", *asks, code=None).code == 0
    # Only users of a table reach its checkpoints.
    node = made["n1"]
    for step in ("flush", "hold", "take"):
        assert asked(node, "one", "POST", f"t/checkpoints/c1/{step}") == 200
    assert asked(node, "one", "GET", "t/checkpoints/c1") == 200
    assert asked(node, "other", "GET", "t/checkpoints/c1") == 403
    for method, path in (("GET", "u/checkpoints/c1"), ("POST", "u/checkpoints/c1/hold")):
        assert asked(node, "other", method, path) == 404
    assert asked(node, "other", "DELETE", "u/checkpoints/c1") == 200
    assert asked(node, "one", "GET", "t/checkpoints/c1") == 200
