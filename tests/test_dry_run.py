"""`push --dry-run`: nothing is written, and what it says is what the push then does."""

import json
import subprocess

import pyarrow as pa
import pytest
from data import people, write
from harness import BINARY, Store

ALIKE = ["version", "rows", "bytes", "rejected", "duplicates"]


def tree(path):
    """All that is in a directory: names, sizes, times."""
    entries = [path, *path.rglob("*")] if path.exists() else []
    return {
        str(entry): (entry.stat().st_size, entry.stat().st_mtime_ns, entry.stat().st_ino)
        for entry in entries
    }


@pytest.fixture
def dry(store):
    """Tries a push twice, as text and as JSON, and gives the object; nothing may be written."""

    def dry(*words, code=0, reads="--dry-run"):
        before = tree(store.path.parent)
        told = store.run("push", *words, reads, "--json", code=code)
        text = store.run("push", *words, reads, code=code).out
        assert tree(store.path.parent) == before
        told = told.json()
        assert told["dry_run"] is True and "nothing was written" in text.splitlines()[0]
        told["text"] = text
        return told

    return dry


def really(store, told, *words, code=0):
    """Pushes, and holds what was told against it."""
    pushed = store.json("push", *words, code=code)
    assert {name: told[name] for name in ALIKE} == {name: pushed[name] for name in ALIKE}
    assert told["gate"] == pushed["gate"]
    outlook = {(True, 0): "swap", (False, 0): "keep", (False, 3): "hold"}
    assert told["outlook"] == outlook[pushed["swapped"], code]
    table = f"{told['table']}@{pushed['version']}"
    manifest = store.path / "tables" / told["table"] / "versions" / f"{pushed['version']}.manifest"
    # The last line is its checksum.
    stored = json.loads(manifest.read_text().rsplit("\n", 2)[0])
    assert len(stored["partitions"]) == told["partitions"]
    assert stored["order"] == told["order"] and stored["key"] == told["key"]
    assert [c["name"] for c in stored["schema"]] == [c["name"] for c in told["columns"]]
    for example in told["examples"]:
        key = example["key"]
        if isinstance(key, str):
            assert store.run("get", table, key, "--json").json() == [example["value"]]
    runs = (store.path / "tables" / told["table"] / "runs").glob(f"{pushed['version']}-*")
    files = sum(run.stat().st_size for run in runs)
    assert files <= told["disk"]["needed_bytes"] * 1.1 + 4096
    return pushed


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "arrows"])
@pytest.mark.parametrize("reads", ["--dry-run", "--dry-run=sample", "--dry-run=all"])
def test_what_is_told_is_what_is_done(store, dry, tmp_path, kind, reads):
    path = write(people(1000), tmp_path / f"people.{kind}")
    words = ["people", path, "--key", "{id:04}"]
    told = dry(*words, reads=reads)
    assert not store.path.exists()
    assert told["exact"] and told["read"]["all"] and told["read"]["rows"] == 1000
    assert [example["key"] for example in told["examples"]] == [f"000{i}" for i in range(5)]
    assert told["gate"] == [] and told["compared_with"] is None
    really(store, told, *words)
    # And beside a version that serves.
    path = write(people(1010, version=2, start=50), tmp_path / f"next.{kind}")
    words = ["people", path, "--key", "{id:04}"]
    told = dry(*words, reads=reads)
    assert told["compared_with"] == 1 and told["version"] == 2
    really(store, told, *words)


def test_types_are_named_as_column_takes_them(dry, tmp_path):
    table = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "at": pa.array([0], pa.timestamp("ns")),
            "price": pa.array([{"net": 1, "tags": ["a"]}]),
        }
    )
    told = dry("t", write(table, tmp_path / "t.parquet"), "--key", "{id}")
    assert [(column["name"], column["type"]) for column in told["columns"]] == [
        ("id", "int64"),
        ("at", "timestamp(ns)"),
        ("price", "struct(net int64, tags list(text))"),
    ]
    assert "  price:struct(net int64, tags list(text))\n" in told["text"]
    source = tmp_path / "t.csv"
    source.write_text("id,n\n1,2\n")
    given = ["t", source, "--key", "{id}", "--column", "n:decimal(9,2)"]
    told = dry(*given)
    assert told["columns"][1] == {"name": "n", "type": "decimal(9,2)", "nullable": True}
    # Digits are as `get` has them.
    assert '"n":2.00}' in told["text"]
    # What is asked for to be lost is counted, too.
    source.write_text("id,n\n1,2.5\n2,3\n")
    told = dry("t", source, "--key", "{id}", "--column", "n:int64:round")
    assert told["lossy"] == [{"column": "n", "how": "round", "values": 1}]
    assert "n: 1 value rounded" in told["text"]


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
    told = dry(*words)
    assert told["value"] == value and len(told["examples"]) == 5
    really(store, told, *words)
    table = table.set_column(0, "id", pa.array(range(50, 550)))
    words[1] = write(table, tmp_path / "next.parquet")
    really(store, dry(*words), *words)


def test_the_gate_says_what_it_will_say(store, dry, tmp_path):
    store.push("t", write(people(1000), tmp_path / "t.parquet"))
    fewer = people(700, version=2, start=100).drop_columns(["note"])
    fewer = fewer.append_column("fresh", pa.array([None if i % 2 else i for i in range(700)]))
    words = ["t", write(fewer, tmp_path / "fewer.parquet"), "--key", "{id}"]
    told = dry(*words, code=3)
    assert told["outlook"] == "hold"
    assert "the gate would hold t version 2" in told["text"]
    assert "HELD column-gone=hold: column note is gone (text)" in told["text"]
    assert "also column fresh is new (int64)" in told["text"]
    assert "--gate 'column-gone(note)=report'" in told["text"]
    really(store, told, *words, code=3)
    words += ["--gate", "column-gone=report", "--gate", "rows>-40%", "--gate", "bytes>-60%"]
    words += ["--gate", "lost<40%", "--gate", "new<1%", "--gate", "changed<100.5%", "--no-swap"]
    told = dry(*words)
    assert told["outlook"] == "keep"
    really(store, told, *words)
    forced = [*words[:4], "--force"]
    really(store, dry(*forced), *forced)


def test_changes_onto_a_version(store, dry, tmp_path):
    store.push("t", write(people(200), tmp_path / "t.parquet"))
    changes = tmp_path / "changes.csv"
    rows = [f"delete,{i},,,,,,\n" for i in range(10)]
    rows += [f"update,{i},p,1.5,n,2,2,2\n" for i in range(100, 130)]
    rows += [f"insert,{i},p,1.5,n,2,2,2\n" for i in range(195, 205)]
    changes.write_text("op,id,name,score,note,v1,v2,v3\n" + "".join(rows))
    words = ["t", changes, "--onto", "current", "--op", "op", "--gate", "changed<50%"]
    words += ["--gate", "new<50%"]
    told = dry(*words)
    assert told["examples"][0] == {"key": "0", "value": None}
    pushed = really(store, told, *words)
    for name in ["rows_least", "onto", "updates", "inserts", "deletes", "deltas"]:
        assert told[name] == pushed[name], name
    store.refuse("push", "nothing", changes, "--onto", "current", "--dry-run")


def test_bad_rows_are_counted_and_told(store, dry, tmp_path):
    source = tmp_path / "bad.jsonl"
    good = [json.dumps({"id": i, "n": i}) for i in range(50)]
    source.write_text("\n".join([*good[:20], "no json", *good[20:], '{"id":null,"n":1}\n']))
    words = ["t", source, "--key", "{id}"]
    told = dry(*words, code=1)
    assert told["outlook"] == "fail" and told["rejected"] == 2
    assert [row["place"] for row in told["bad_rows"]] == ["line 21", "line 52"]
    assert told["problem"] in store.refuse("push", *words)
    assert "line 21" in told["text"].splitlines()[0] and "line 52" in told["text"]
    words += ["--bad-rows", "skip"]
    told = dry(*words)
    assert told["outlook"] == "swap" and told["rejected"] == 2 and told["rows"] == 50
    really(store, told, *words)
    rejects = tmp_path / "rejects.jsonl"
    dry(*words[:-1], rejects)
    assert not rejects.exists()
    rejects.write_text("")
    store.refuse("push", *words[:-1], rejects, "--dry-run")
    source.write_text('{"id":null,"n":1}\n' * 9)
    told = dry(*words, code=1)
    assert "every row" in told["problem"] and told["problem"] in store.refuse("push", *words)
    assert told["rejected"] == 9 and len(told["bad_rows"]) == 5 and told["examples"] == []


def test_types_that_the_first_rows_do_not_show(store, dry, tmp_path):
    """The rows are looked at once more, as in a push."""
    source = tmp_path / "late.csv"
    rows = [f"{i},{i}" for i in range(20_000)] + ["20000,many"]
    source.write_text("id,n\n" + "\n".join(rows) + "\n")
    words = ["t", source, "--key", "{id}"]
    told = dry(*words)
    assert told["columns"][1]["type"] == "text" and told["rejected"] == 0
    assert "looked at for their types" in store.run("push", *words, "--dry-run").err
    really(store, told, *words)


def test_duplicates_are_found(store, dry, tmp_path):
    table = pa.table({"id": [1, 2, 1, 3, 2, 1], "text": ["a", "bb", "ccc", "d", "e", "f"]})
    words = ["t", write(table, tmp_path / "t.parquet"), "--key", "{id}"]
    told = dry(*words, code=1)
    assert told["outlook"] == "fail" and told["duplicates"] == 3
    assert "occurs more than once" in told["problem"] and "--duplicates" in told["problem"]
    assert "occurs more than once" in store.refuse("push", *words)
    for choice in ["first", "last"]:
        chosen = [*words, "--duplicates", choice]
        told = dry(*chosen)
        assert (told["rows"], told["duplicates"]) == (3, 3)
        pushed = store.json("push", *chosen)
        assert [told[name] for name in ALIKE] == [pushed[name] for name in ALIKE]
        assert told["gate"] == pushed["gate"]


def test_what_a_push_refuses_is_refused_in_its_words(store, source, tmp_path):
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


def test_a_push_is_not_kept_waiting(store, source, tmp_path):
    """A dry run takes no lock, and needs none."""
    store.push("t", source(10))
    words = ["push", "t", source(60_000), "--key", "{id}", "--rate", "400k"]
    pushing = store.start(*words, "--gate", "rows>-20%")
    try:
        lock = store.path / "tables" / "t"
        while not any("push" in path.name for path in lock.iterdir()):
            assert pushing.poll() is None
        told = store.json("push", "t", source(10), "--key", "{id}", "--dry-run")
        assert told["version"] == 2 and pushing.poll() is None
    finally:
        pushing.kill()
        pushing.communicate()


def test_a_sample_estimates_a_large_source(store, dry, tmp_path):
    """300,000 rows whose values get longer, in many row groups."""
    count = 300_000
    table = pa.table({"id": range(count), "text": ["x" * (i // 3000) for i in range(count)]})
    words = ["t", write(table, tmp_path / "large.parquet"), "--key", "{id}"]
    told = dry(*words)
    assert not told["exact"] and not told["read"]["all"]
    assert 50_000 < told["read"]["rows"] < 200_000
    pushed = store.json("push", *words)
    assert told["rows"] == pushed["rows"]
    assert told["bytes"] == pytest.approx(pushed["bytes"], rel=0.02)
    assert told["disk"]["free_bytes"] > told["disk"]["needed_bytes"] > told["bytes"]
    assert told["push_seconds"] > 0
    assert "by what was read" in told["text"] and "--dry-run=all" in told["text"]
    # The keys of a sample stand for all.
    told = dry(*words, "--gate", "new<50%", "--gate", "changed<50%")
    shares = {finding["limit"]: finding["seen"] for finding in told["gate"]}
    assert shares["new<50%"].startswith("0% ") and shares["changed<50%"].startswith("0% ")
    assert shares["rows>-20%"] == "rows, estimated, 300000 to 300000 (0%)"
    told = dry(*words, reads="--dry-run=all")
    assert told["exact"] and told["rows"] == pushed["rows"] and told["bytes"] == pushed["bytes"]
    runs = (store.path / "tables/t/runs").iterdir()
    assert told["disk"]["needed_bytes"] == pytest.approx(
        sum(run.stat().st_size for run in runs), rel=0.1
    )


def test_rows_of_text_are_told_by_their_bytes(store, tmp_path):
    """24 MB of lines, of which parts of 8 MB are read."""
    source = tmp_path / "large.csv"
    note = "x" * 200
    source.write_text("id,note\n" + "".join(f"{i:06},{note}\n" for i in range(120_000)))
    words = ["t", source, "--key", "{id}", "--threads", "1", "--json", "--dry-run"]
    told = store.run("push", *words).json()
    if not told["read"]["all"]:
        assert told["rows"] == pytest.approx(120_000, rel=0.01) and not told["exact"]
        assert told["bytes"] == pytest.approx(120_000 * 210, rel=0.05)
    assert told["examples"][0] == {"key": "000000", "value": {"id": "000000", "note": note}}


def test_a_disk_without_room_is_told(store, small_disk, tmp_path):
    table = pa.table({"id": range(100), "text": ["x" * 100_000] * 100})
    path = write(table, tmp_path / "t.parquet")
    small = Store(small_disk / "store")
    told = small.json("push", "t", path, "--key", "{id}", "--dry-run", code=1)
    assert told["outlook"] == "fail" and "room" in told["problem"]
    assert told["disk"]["free_bytes"] <= 6 << 20 < told["disk"]["needed_bytes"]
    assert not small.path.exists()


def test_what_comes_from_a_pipe_leaves_no_directory(store, tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("id\n" + "".join(f"{i}\n" for i in range(1000)))
    words = [BINARY, "push", "t", "-", "--format", "csv", "--key", "{id}", "--dry-run", "--json"]
    words.append("--create")
    work_dir = ["--work-dir", tmp_path / "a/work"]
    for more, temporary in (work_dir, tmp_path), ([], tmp_path / "b/tmp"):
        before = tree(tmp_path)
        environment = {**store.environment(), "TMPDIR": str(temporary)}
        with rows.open() as pipe:
            told = subprocess.run(
                [*words, *more], stdin=pipe, env=environment, capture_output=True, check=True
            )
        assert json.loads(told.stdout)["rows"] == 1000
        after = tree(tmp_path)
        assert after.keys() == before.keys()


def test_a_store_in_object_storage(remote, source):
    told = remote.json("push", "people", source(100), "--key", "{id}", "--dry-run")
    assert not remote.work.exists()
    assert told["version"] == 1 and told["disk"]["free_bytes"] is None
    assert remote.keys("") == []
    remote.push("people", source(1000))
    before = remote.keys("")
    told = remote.json("push", "people", source(100), "--key", "{id}", "--dry-run", code=3)
    assert told["outlook"] == "hold" and told["compared_with"] == 1
    assert remote.keys("") == before
    held = remote.push("people", source(100), code=3)
    assert told["gate"] == held["gate"]
