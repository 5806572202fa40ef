"""`push --dry-run` writes nothing, and predicts what the push does."""

import json
import subprocess

import pyarrow as pa
import pytest
from data import people, write
from harness import BINARY, Store

ALIKE = ["version", "rows", "bytes", "rejected", "duplicates"]


def tree(path):
    """All entries of a directory: names, sizes and times."""
    entries = [path, *path.rglob("*")] if path.exists() else []
    return {
        str(entry): (entry.stat().st_size, entry.stat().st_mtime_ns, entry.stat().st_ino)
        for entry in entries
    }


@pytest.fixture
def dry(store):
    """Tries a push as text and as JSON, and returns the object. Neither may write."""

    def dry(*words, code=0, reads="--dry-run"):
        before = tree(store.path.parent)
        seen = store.run("push", *words, reads, "--json", code=code)
        text = store.run("push", *words, reads, code=code).out
        assert tree(store.path.parent) == before
        seen = seen.json()
        assert seen["dry_run"] is True and "nothing was written" in text.splitlines()[0]
        seen["text"] = text
        return seen

    return dry


def push_and_compare(store, seen, *words, code=0):
    """Pushes, and compares the result with the prediction."""
    pushed = store.json("push", *words, code=code)
    assert {name: seen[name] for name in ALIKE} == {name: pushed[name] for name in ALIKE}
    assert seen["gate"] == pushed["gate"]
    outlook = {(True, 0): "swap", (False, 0): "keep", (False, 3): "hold"}
    assert seen["outlook"] == outlook[pushed["swapped"], code]
    table = f"{seen['table']}@{pushed['version']}"
    manifest = store.path / "tables" / seen["table"] / "versions" / f"{pushed['version']}.manifest"
    # The file's last line is its checksum.
    stored = json.loads(manifest.read_text().rsplit("\n", 2)[0])
    assert len(stored["partitions"]) == seen["partitions"]
    assert stored["order"] == seen["order"] and stored["key"] == seen["key"]
    assert [c["name"] for c in stored["schema"]] == [c["name"] for c in seen["columns"]]
    for example in seen["examples"]:
        key = example["key"]
        if isinstance(key, str):
            assert store.run("get", table, key, "--json").json() == [example["value"]]
    runs = (store.path / "tables" / seen["table"] / "runs").glob(f"{pushed['version']}-*")
    files = sum(run.stat().st_size for run in runs)
    assert files <= seen["disk"]["needed_bytes"] * 1.1 + 4096
    return pushed


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "arrows"])
@pytest.mark.parametrize("reads", ["--dry-run", "--dry-run=sample", "--dry-run=all"])
def test_a_dry_run_predicts_the_push(store, dry, tmp_path, kind, reads):
    path = write(people(1000), tmp_path / f"people.{kind}")
    words = ["people", path, "--key", "{id:04}"]
    seen = dry(*words, reads=reads)
    assert not store.path.exists()
    assert seen["exact"] and seen["read"]["all"] and seen["read"]["rows"] == 1000
    assert [example["key"] for example in seen["examples"]] == [f"000{i}" for i in range(5)]
    assert seen["gate"] == [] and seen["compared_with"] is None
    push_and_compare(store, seen, *words)
    # The same beside a serving version.
    path = write(people(1010, version=2, start=50), tmp_path / f"next.{kind}")
    words = ["people", path, "--key", "{id:04}"]
    seen = dry(*words, reads=reads)
    assert seen["compared_with"] == 1 and seen["version"] == 2
    push_and_compare(store, seen, *words)


def test_types_have_the_names_that_column_accepts(dry, tmp_path):
    table = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "at": pa.array([0], pa.timestamp("ns")),
            "price": pa.array([{"net": 1, "tags": ["a"]}]),
        }
    )
    seen = dry("t", write(table, tmp_path / "t.parquet"), "--key", "{id}")
    assert [(column["name"], column["type"]) for column in seen["columns"]] == [
        ("id", "int64"),
        ("at", "timestamp(ns)"),
        ("price", "struct(net int64, tags list(text))"),
    ]
    assert "  price:struct(net int64, tags list(text))\n" in seen["text"]
    source = tmp_path / "t.csv"
    source.write_text("id,n\n1,2\n")
    given = ["t", source, "--key", "{id}", "--column", "n:decimal(9,2)"]
    seen = dry(*given)
    assert seen["columns"][1] == {"name": "n", "type": "decimal(9,2)", "nullable": True}
    # The digits are those that `get` prints.
    assert '"n":2.00}' in seen["text"]
    # Allowed losses are counted, too.
    source.write_text("id,n\n1,2.5\n2,3\n")
    seen = dry("t", source, "--key", "{id}", "--column", "n:int64:round")
    assert seen["lossy"] == [{"column": "n", "how": "round", "values": 1}]
    assert "n: 1 value rounded" in seen["text"]


@pytest.mark.parametrize(
    "value, args",
    [
        ("score", []),
        ("n", ["--delta", "i64"]),
        ("tags", []),
        ("row", ["--order", "ordered", "--partitions", "3"]),
        ("row", ["--partitions", "16", "--compression", "zstd"]),
        ("row", ["--boundaries", "[4096, 8192]"]),
        ("row", ["--ttl", "7d"]),
    ],
)
def test_every_kind_of_value(store, dry, tmp_path, value, args):
    table = people(500).append_column("n", pa.array(range(500)))
    table = table.append_column("tags", pa.array([[i, i] for i in range(500)]))
    words = ["t", write(table, tmp_path / "t.parquet"), "--key", "p{id}", "--value", value, *args]
    seen = dry(*words)
    assert seen["value"] == value and len(seen["examples"]) == 5
    push_and_compare(store, seen, *words)
    table = table.set_column(0, "id", pa.array(range(50, 550)))
    words[1] = write(table, tmp_path / "next.parquet")
    push_and_compare(store, dry(*words), *words)


def test_a_dry_run_predicts_the_gate(store, dry, tmp_path):
    store.push("t", write(people(1000), tmp_path / "t.parquet"))
    fewer = people(700, version=2, start=100).drop_columns(["note"])
    fewer = fewer.append_column("fresh", pa.array([None if i % 2 else i for i in range(700)]))
    words = ["t", write(fewer, tmp_path / "fewer.parquet"), "--key", "{id}"]
    seen = dry(*words, code=3)
    assert seen["outlook"] == "hold"
    assert "the gate would hold t version 2" in seen["text"]
    assert "HELD column-gone=hold: column note is gone (text)" in seen["text"]
    assert "also column fresh is new (int64)" in seen["text"]
    assert "--gate 'column-gone(note)=report'" in seen["text"]
    push_and_compare(store, seen, *words, code=3)
    words += ["--gate", "column-gone=report", "--gate", "rows>-40%", "--gate", "bytes>-60%"]
    words += ["--gate", "lost<40%", "--gate", "new<1%", "--gate", "changed<100.5%", "--no-swap"]
    seen = dry(*words)
    assert seen["outlook"] == "keep"
    push_and_compare(store, seen, *words)
    forced = [*words[:4], "--force"]
    push_and_compare(store, dry(*forced), *forced)


def test_changes_onto_a_version(store, dry, tmp_path):
    store.push("t", write(people(200), tmp_path / "t.parquet"))
    changes = tmp_path / "changes.csv"
    rows = [f"delete,{i},,,,,,\n" for i in range(10)]
    rows += [f"update,{i},p,1.5,n,2,2,2\n" for i in range(100, 130)]
    rows += [f"insert,{i},p,1.5,n,2,2,2\n" for i in range(195, 205)]
    changes.write_text("op,id,name,score,note,v1,v2,v3\n" + "".join(rows))
    words = ["t", changes, "--onto", "current", "--op", "op", "--gate", "changed<50%"]
    words += ["--gate", "new<50%"]
    seen = dry(*words)
    assert seen["examples"][0] == {"key": "0", "value": None}
    pushed = push_and_compare(store, seen, *words)
    for name in ["rows_least", "onto", "updates", "inserts", "deletes", "deltas"]:
        assert seen[name] == pushed[name], name
    store.refuse("push", "nothing", changes, "--onto", "current", "--dry-run")


def test_bad_rows_are_counted_and_shown(store, dry, tmp_path):
    source = tmp_path / "bad.jsonl"
    good = [json.dumps({"id": i, "n": i}) for i in range(50)]
    source.write_text("\n".join([*good[:20], "no json", *good[20:], '{"id":null,"n":1}\n']))
    words = ["t", source, "--key", "{id}"]
    seen = dry(*words, code=1)
    assert seen["outlook"] == "fail" and seen["rejected"] == 2
    assert [row["place"] for row in seen["bad_rows"]] == ["line 21", "line 52"]
    assert seen["problem"] in store.refuse("push", *words)
    assert "line 21" in seen["text"].splitlines()[0] and "line 52" in seen["text"]
    words += ["--bad-rows", "skip"]
    seen = dry(*words)
    assert seen["outlook"] == "swap" and seen["rejected"] == 2 and seen["rows"] == 50
    push_and_compare(store, seen, *words)
    rejects = tmp_path / "rejects.jsonl"
    dry(*words[:-1], rejects)
    assert not rejects.exists()
    rejects.write_text("")
    store.refuse("push", *words[:-1], rejects, "--dry-run")
    source.write_text('{"id":null,"n":1}\n' * 9)
    seen = dry(*words, code=1)
    assert "every row" in seen["problem"] and seen["problem"] in store.refuse("push", *words)
    assert seen["rejected"] == 9 and len(seen["bad_rows"]) == 5 and seen["examples"] == []


def test_types_that_the_first_rows_do_not_show(store, dry, tmp_path):
    """A dry run reads the rows a second time, like a push."""
    source = tmp_path / "late.csv"
    rows = [f"{i},{i}" for i in range(20_000)] + ["20000,many"]
    source.write_text("id,n\n" + "\n".join(rows) + "\n")
    words = ["t", source, "--key", "{id}"]
    seen = dry(*words)
    assert seen["columns"][1]["type"] == "text" and seen["rejected"] == 0
    assert "looked at for their types" in store.run("push", *words, "--dry-run").err
    push_and_compare(store, seen, *words)


def test_duplicates_are_found(store, dry, tmp_path):
    table = pa.table({"id": [1, 2, 1, 3, 2, 1], "text": ["a", "bb", "ccc", "d", "e", "f"]})
    words = ["t", write(table, tmp_path / "t.parquet"), "--key", "{id}"]
    seen = dry(*words, code=1)
    assert seen["outlook"] == "fail" and seen["duplicates"] == 3
    assert "occurs more than once" in seen["problem"] and "--duplicates" in seen["problem"]
    assert "occurs more than once" in store.refuse("push", *words)
    for choice in ["first", "last"]:
        chosen = [*words, "--duplicates", choice]
        seen = dry(*chosen)
        assert (seen["rows"], seen["duplicates"]) == (3, 3)
        pushed = store.json("push", *chosen)
        assert [seen[name] for name in ALIKE] == [pushed[name] for name in ALIKE]
        assert seen["gate"] == pushed["gate"]


def test_a_dry_run_refuses_with_the_message_of_the_push(store, source, tmp_path):
    store.push("t", source(10))
    store.run("create", "live")
    for words in [
        ["t", source(10), "--key", "{nothing}"],
        ["t", source(10), "--key", "{id}", "--value", "nothing"],
        ["t", tmp_path / "nothing.parquet", "--key", "{id}"],
        ["t", source(10), "--key", "{id}", "--version", "1"],
        ["t", source(10), "--key", "{id}", "--boundaries", '["a"]'],
        ["t", source(10), "--onto", "7"],
        ["live", source(10), "--key", "{id}"],
    ]:
        before = tree(store.path)
        code = 2 if "--boundaries" in words else 1
        tried = store.refuse("push", *words, "--dry-run", "--quiet", code=code)
        assert tree(store.path) == before
        assert tried == store.refuse("push", *words, "--quiet", code=code)
    other = Store(tmp_path / "other")
    other.path.mkdir()
    (other.path / "notes.txt").write_text("mine")
    assert "notes" not in other.refuse("push", "t", source(10), "--key", "{id}", "--dry-run")
    assert [path.name for path in other.path.iterdir()] == ["notes.txt"]


def test_a_dry_run_does_not_wait_for_a_push(store, source, tmp_path):
    """A dry run takes no lock and needs none."""
    store.push("t", source(10))
    words = ["push", "t", source(60_000), "--key", "{id}", "--rate", "400k"]
    pushing = store.start(*words, "--gate", "rows>-20%")
    try:
        lock = store.path / "tables" / "t"
        while not any("push" in path.name for path in lock.iterdir()):
            assert pushing.poll() is None
        seen = store.json("push", "t", source(10), "--key", "{id}", "--dry-run")
        assert seen["version"] == 2 and pushing.poll() is None
    finally:
        pushing.kill()
        pushing.communicate()


def test_a_sample_estimates_a_large_source(store, dry, tmp_path):
    """300,000 rows whose values get longer, in many row groups."""
    count = 300_000
    table = pa.table({"id": range(count), "text": ["x" * (i // 3000) for i in range(count)]})
    words = ["t", write(table, tmp_path / "large.parquet"), "--key", "{id}"]
    seen = dry(*words)
    assert not seen["exact"] and not seen["read"]["all"]
    assert 50_000 < seen["read"]["rows"] < 200_000
    pushed = store.json("push", *words)
    assert seen["rows"] == pushed["rows"]
    assert seen["bytes"] == pytest.approx(pushed["bytes"], rel=0.02)
    assert seen["disk"]["free_bytes"] > seen["disk"]["needed_bytes"] > seen["bytes"]
    assert seen["push_seconds"] > 0
    assert "by what was read" in seen["text"] and "--dry-run=all" in seen["text"]
    # The keys of a sample represent all keys.
    seen = dry(*words, "--gate", "new<50%", "--gate", "changed<50%")
    shares = {finding["limit"]: finding["seen"] for finding in seen["gate"]}
    assert shares["new<50%"].startswith("0% ") and shares["changed<50%"].startswith("0% ")
    assert shares["rows>-20%"] == "rows, estimated, 300000 to 300000 (0%)"
    seen = dry(*words, reads="--dry-run=all")
    assert seen["exact"] and seen["rows"] == pushed["rows"] and seen["bytes"] == pushed["bytes"]
    runs = (store.path / "tables/t/runs").iterdir()
    assert seen["disk"]["needed_bytes"] == pytest.approx(
        sum(run.stat().st_size for run in runs), rel=0.1
    )


def test_rows_of_text_are_estimated_by_their_bytes(store, tmp_path):
    """24 MB of lines, of which parts of 8 MB are read."""
    source = tmp_path / "large.csv"
    note = "x" * 200
    source.write_text("id,note\n" + "".join(f"{i:06},{note}\n" for i in range(120_000)))
    words = ["t", source, "--key", "{id}", "--threads", "1", "--json", "--dry-run"]
    seen = store.run("push", *words).json()
    if not seen["read"]["all"]:
        assert seen["rows"] == pytest.approx(120_000, rel=0.01) and not seen["exact"]
        assert seen["bytes"] == pytest.approx(120_000 * 210, rel=0.05)
    assert seen["examples"][0] == {"key": "000000", "value": {"id": "000000", "note": note}}


def test_a_disk_without_space_is_predicted(store, small_disk, tmp_path):
    table = pa.table({"id": range(100), "text": ["x" * 100_000] * 100})
    path = write(table, tmp_path / "t.parquet")
    small = Store(small_disk / "store")
    seen = small.json("push", "t", path, "--key", "{id}", "--dry-run", code=1)
    assert seen["outlook"] == "fail" and "room" in seen["problem"]
    assert seen["disk"]["free_bytes"] <= 6 << 20 < seen["disk"]["needed_bytes"]
    assert not small.path.exists()


def test_a_dry_run_from_a_pipe_leaves_no_directory(store, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n" + "".join(f"{i}\n" for i in range(1000)))
    words = [BINARY, "push", "t", "-", "--format", "csv", "--key", "{id}", "--dry-run", "--json"]
    words.append("--create")
    work_dir = ["--work-dir", tmp_path / "a/work"]
    for more, temporary in (work_dir, tmp_path), ([], tmp_path / "b/tmp"):
        before = tree(tmp_path)
        environment = {**store.environment(), "TMPDIR": str(temporary)}
        with rows.open() as pipe:
            seen = subprocess.run(
                [*words, *more], stdin=pipe, env=environment, capture_output=True, check=True
            )
        assert json.loads(seen.stdout)["rows"] == 1000
        after = tree(tmp_path)
        assert after.keys() == before.keys()


def test_a_store_in_object_storage(remote, source):
    seen = remote.json("push", "people", source(100), "--key", "{id}", "--dry-run")
    assert not remote.work.exists()
    assert seen["version"] == 1 and seen["disk"]["free_bytes"] is None
    assert remote.keys("") == []
    remote.push("people", source(1000))
    before = remote.keys("")
    seen = remote.json("push", "people", source(100), "--key", "{id}", "--dry-run", code=3)
    assert seen["outlook"] == "hold" and seen["compared_with"] == 1
    assert remote.keys("") == before
    held = remote.push("people", source(100), code=3)
    assert seen["gate"] == held["gate"]
