"""Pushes onto another version, merging, deltas and expiry, as users and Redis clients see them."""

import urllib.request

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from data import write
from harness import wait_for


def csv(path, *lines):
    path.write_text("".join(line + "\n" for line in lines))
    return path


@pytest.fixture
def counters(store, tmp_path):
    """A table of counters 0 to 999 that takes deltas. Each value is ten times its key."""
    rows = [f"{i},{i * 10}" for i in range(1000)]
    source = csv(tmp_path / "counters.csv", "id,n", *rows)
    args = ["--value", "n", "--delta", "i64-saturating"]
    store.push("counters", source, args=args)
    return store


def change(store, tmp_path, *rows, args=(), code=0):
    """Pushes rows of "op,id,n" onto the serving version."""
    source = csv(tmp_path / "changes.csv", "op,id,n", *rows)
    words = ["push", "counters", source, "--onto", "current", "--op", "op", *args]
    result = store.run(*words, "--json", code=code)
    return result.json_lines()[-1] if result.out.strip() else result


def test_operations_of_a_day_on_top_of_yesterday(counters, tmp_path):
    before = {path.name for path in counters.runs("counters")}
    pushed = change(
        counters,
        tmp_path,
        "delta,1,5",
        "delta,1,-7",
        "update,2,-1",
        "delete,3,",
        "insert,4,0",
        "insert,5000,50",
        "delta,6000,60",
        "delete,6000,",
        "insert,6000,61",
    )
    assert pushed["onto"] == 1 and pushed["swapped"] is True and pushed["duplicates"] == 3
    assert (pushed["deletes"], pushed["updates"]) == (1, 2)
    assert (pushed["rows_least"], pushed["rows"]) == (999, 1005)
    names = {path.name for path in counters.runs("counters")}
    assert before < names and len(names - before) == 1, "yesterday's runs and one more"
    with counters.serve() as server:
        client = server.client()
        assert client.mget([f"counters:{i}" for i in (1, 2, 3, 4, 5000, 6000)]) == [
            b"8",
            b"-1",
            None,
            b"40",
            b"50",
            b"61",
        ]
        assert client.type("counters:1") == b"string"
        assert client.strlen("counters:4") == 2
        # A rollback removes the day, and a swap restores it.
        assert counters.json("rollback", "counters")["version"] == 1
        wait_for(lambda: client.get("counters:3") == b"30", "the day before")
        counters.run("swap", "counters", "2")
        wait_for(lambda: client.get("counters:3") is None, "the day again")
    assert counters.json("get", "counters", "1", "3") == [8, None]
    assert counters.json("verify", "counters")["rows"] == 1001
    diff = counters.json("diff", "counters", "1", "2")
    assert (diff["added"], diff["removed"], diff["changed"]) == (2, 1, 2)
    versions = counters.json("versions", "counters")
    assert [v["checksum"] is None for v in versions] == [False, True]


def test_merging_does_not_change_reads(counters, tmp_path):
    for day in range(5):
        change(counters, tmp_path, f"delta,{day},1", "delta,999,1", f"delete,{500 + day},")
    scan = counters.run("scan", "counters").out
    with counters.serve() as server:
        client = server.client()
        assert client.get("counters:999") == b"9995"
        merged = counters.json("compact", "counters")
        assert (merged["from"], merged["version"]) == (6, 7) and merged["serves"] is True
        state = counters.json("versions", "counters")[-1]
        assert (state["rows"], state["rows_least"], state["runs"]) == (995, 995, 1)
        assert client.get("counters:999") == b"9995"
        wait_for(lambda: client.dbsize() == 995, "the merged version serves")
        assert client.get("counters:501") is None
    assert counters.run("scan", "counters").out == scan
    again = counters.json("compact", "counters")
    assert again["from"] == again["version"] == 7
    # The rollback returns to the day before, not to the same rows unmerged.
    assert counters.json("rollback", "counters")["version"] == 5
    assert counters.json("get", "counters", "999") == [9994]


def test_many_small_pushes_are_merged_and_old_runs_removed(counters, tmp_path):
    for day in range(20):
        change(counters, tmp_path, "delta,7,1", f"delete,{100 + day},")
    newest = counters.json("versions", "counters")[-1]
    assert newest["runs"] <= 8
    assert counters.json("get", "counters", "7", "119", "120") == [90, None, 1200]
    assert len(counters.runs("counters")) <= 3 * 8
    assert counters.json("verify", "counters")["rows"] == 980


def test_the_gate_checks_changes(counters, tmp_path):
    deletes = [f"delete,{i}," for i in range(300)]
    held = change(counters, tmp_path, *deletes, code=3)
    assert held["swapped"] is False
    message = counters.run(
        "push", "counters", tmp_path / "changes.csv", "--onto", "current", "--op", "op", code=3
    ).err
    assert "rows>-20%" in message and "1000 to 700" in message and "lost<20%" in message
    assert change(counters, tmp_path, "delete,1,")["swapped"] is True


def test_bad_rows_are_named_with_their_line(counters, tmp_path):
    source = csv(
        tmp_path / "bad.csv", "op,id,n", "update,1,1", "upsert,2,2", "delta,3,x", "delta,4,4"
    )
    words = ["push", "counters", source, "--onto", "current", "--op", "op"]
    message = counters.refuse(*words)
    assert "line 3" in message or "line 4" in message
    rejects = tmp_path / "rejects.jsonl"
    pushed = counters.json(*words, "--bad-rows", rejects)
    assert pushed["rejected"] == 2 and pushed["deltas"] == 1
    text = rejects.read_text()
    assert '"line":3' in text and "'upsert'" in text and '"line":4' in text


def test_deltas_need_a_kind_and_a_column(store, source, tmp_path):
    assert "--value" in store.refuse("push", "t", source(10), "--key", "{id}", "--delta", "i64")
    store.push("t", source(10))
    row = csv(tmp_path / "delta.csv", "op,id,name,score,note,v1,v2,v3", "delta,1,a,1,b,1,1,1")
    message = store.refuse("push", "t", row, "--onto", "current", "--op", "op")
    assert "--delta" in message and "line 2" in message
    assert "no table" in store.refuse("push", "other", row, "--onto", "current")
    assert "version 9" in store.refuse("push", "t", row, "--onto", "9")
    for wrong in (["--order", "ordered"], ["--partitions", "3"], ["--value", "v1"]):
        store.run("push", "t", row, "--onto", "current", *wrong, code=2)


def test_rows_of_a_table_of_rows_change(store, source, tmp_path):
    store.push("people", source(100), args=["--order", "ordered"])
    store.push("more", source(100))
    changes = csv(
        tmp_path / "people.csv",
        "what,id,name,score,note,v1,v2,v3",
        "update,7,new name,1.5,,9,9,9",
        "delete,8,,,,,,",
        "insert,200,somebody,2,x,9,9,9",
    )
    for table in ("people", "more"):
        store.run("push", table, changes, "--onto", "current", "--op", "what")
    with store.serve() as server:
        client = server.client()
        for table in ("people", "more"):
            assert client.hget(f"{table}:7", "name") == b"new name"
            assert client.hexists(f"{table}:8", "name") is False
            assert client.hget(f"{table}:200", "v1") == b"9"
            assert client.hget(f"{table}:9", "name") == b"person 9"
        _, keys = client.execute_command(
            "KV.RANGE", "[people:7", "[people:9", "LIMIT", 1000, "KEYS"
        )
        assert b"people:7" in keys and b"people:8" not in keys and b"people:9" in keys
        found = {key for key in client.scan_iter(match="more:*", count=10)}
        assert len(found) == 100
    exported = tmp_path / "people.jsonl"
    assert store.json("export", "people", "--to", exported)["rows"] == 100
    assert "new name" in exported.read_text()


def test_a_killed_push_keeps_the_version_before(counters, tmp_path):
    rows = [f"delta,{i % 1000},1" for i in range(200_000)]
    source = csv(tmp_path / "large.csv", "op,id,n", *rows)
    words = ["push", "counters", source, "--onto", "current", "--op", "op", "--rate", "500k"]
    process = counters.start(*words)
    scratch = counters.path / "tables" / "counters" / "push.lock"
    wait_for(lambda: scratch.exists() and scratch.stat().st_size > 0, "the push holds its lock")
    process.kill()
    process.communicate()
    assert counters.json("get", "counters", "1") == [10]
    pushed = counters.json(*words[:-2])
    assert pushed["duplicates"] == 199_000 and pushed["deltas"] == 1000
    assert counters.json("get", "counters", "1") == [210]


def test_rows_expire_while_they_are_served(store, tmp_path):
    source = csv(tmp_path / "short.csv", "id,n,seconds", "1,10,2", "2,20,", "3,30,100000")
    store.push("short", source, args=["--value", "n", "--ttl-column", "seconds"])
    with store.serve() as server:
        client = server.client()
        assert client.mget("short:2", "short:3") == [b"20", b"30"]
        assert client.ttl("short:2") == -1 and client.ttl("short:4") == -2
        assert 99_000 < client.ttl("short:3") <= 100_000
        assert 99_000_000 < client.pttl("short:3") <= 100_000_000
        assert client.expiretime("short:3") > 1_700_000_000
        wait_for(lambda: client.get("short:1") is None, "the row expires")
        assert client.exists("short:1", "short:2") == 1
        assert sorted(client.scan_iter(match="short:*")) == [b"short:2", b"short:3"]
    assert store.json("get", "short", "1", "2") == [None, "20"]
    assert len(store.run("scan", "short").out.splitlines()) == 2
    exported = tmp_path / "short.csv.out.csv"
    assert store.json("export", "short", "--to", exported)["rows"] == 2


def test_a_ttl_of_a_table_works_and_wrong_times_are_refused(store, source):
    store.push("people", source(10), args=["--ttl", "7d"])
    with store.serve() as server:
        assert 6 * 86_400 < server.client().ttl("people:1") <= 7 * 86_400
    assert store.json("verify", "people")["rows"] == 10
    path = source(10)
    for wrong in ("7", "soon", "-1d", "0s", "0ms"):
        for command in (["push", "t", path, "--key", "{id}"], ["create", "t"]):
            message = store.run(*command, f"--ttl={wrong}", code=2).err
            assert f"'{wrong}'" in message and "7d" in message
    store.run("create", "live")
    words = ["load", "live", path, "--key", "{id}", "--value", "name"]
    assert "'0s'" in store.run(*words, "--ttl", "0s", code=2).err
    message = store.refuse("push", "t", path, "--key", "{id}", "--ttl-column", "name")
    assert "'name'" in message


def test_numbers_read_by_redis_http_and_export_are_equal(counters, tmp_path):
    with counters.serve() as server:
        client = server.client()
        assert client.get("counters:12") == b"120"
        assert client.getrange("counters:12", 0, 1) == b"12"
        url = f"http://127.0.0.1:{server.http}/v1/tables/counters/rows/12"
        with urllib.request.urlopen(url, timeout=30) as reply:
            assert reply.read() == b"120"
    exported = tmp_path / "counters.parquet"
    counters.run("export", "counters", "--to", exported)
    table = parquet.read_table(exported)
    assert str(table.schema.field("value").type) == "int64"
    assert sum(table["value"].to_pylist()) == sum(i * 10 for i in range(1000))


def test_deltas_on_a_column_without_numbers_name_its_type(store, tmp_path):
    table = pa.table({"id": [1], "n": pa.array([7], pa.date64())})
    path = write(table, tmp_path / "times.parquet")
    args = ["--key", "{id}", "--value", "n", "--delta", "i64-saturating"]
    message = store.refuse("push", "t", path, *args)
    assert "the column 'n' holds date64, and deltas of this kind add whole" in message
