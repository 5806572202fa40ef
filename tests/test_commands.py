"""What the commands print, in the forms that docs/reference/commands*.md describe."""

import json
import os
import re
import socket
import stat
import subprocess

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from data import people, person, write
from harness import BINARY, Store, is_served, wait_for

ISO = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")


@pytest.fixture
def two(store, source):
    store.push("people", source(version=1))
    store.push("people", source(count=999, version=2, start=1))
    return store


def test_push_ends_with_one_object(store, source):
    result = store.run("push", "people", source(), "--key", "{id}", "--json")
    pushed = json.loads(result.out)
    assert list(pushed) == [
        "table",
        "version",
        "rows",
        "bytes",
        "rejected",
        "lossy",
        "duplicates",
        "seconds",
        "swapped",
        "store_created",
        "gate",
        "statistics",
        "warnings",
    ]
    assert pushed["table"] == "people" and pushed["version"] == 1 and pushed["rows"] == 1000
    assert pushed["bytes"] > 10_000 and pushed["seconds"] > 0 and pushed["swapped"] is True
    for line in result.err.splitlines():
        assert "event" in json.loads(line)


def test_errors_have_their_kind(store, tmp_path):
    def kind(*words, code):
        result = store.run(*words, "--json", code=code)
        events = [json.loads(line) for line in result.err.splitlines()]
        return next(event["kind"] for event in events if event["event"] == "error")

    assert kind("push", "t", tmp_path / "none.parquet", "--key", "{id}", code=1) == "missing"
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id": 1}\n{"id": 1}\n')
    assert kind("push", "t", rows, "--key", "{id}", code=1) == "data"
    wrong = ["--boundaries", "[9999999]"]
    assert kind("push", "t", rows, "--key", "{id}", *wrong, code=2) == "usage"


def test_versions(two):
    versions = two.json("versions", "people")
    assert [set(v) for v in versions] == [
        {"version", "rows", "rows_least", "bytes", "created", "serving", "checksum", "runs"}
    ] * 2
    assert all(v["rows_least"] == v["rows"] and v["runs"] == 1 for v in versions)
    assert [(v["version"], v["rows"], v["serving"]) for v in versions] == [
        (1, 1000, False),
        (2, 999, True),
    ]
    assert all(ISO.match(v["created"]) for v in versions)
    assert all(re.fullmatch(r"[0-9a-f]{16}", v["checksum"]) for v in versions)


def test_get(two):
    assert two.json("get", "people", "1", "0", "999") == [person(1, 2), None, person(999, 2)]
    assert two.json("get", "people@1", "0") == [person(0, 1)]
    lines = two.run("get", "people", "1", "0").out.splitlines()
    assert json.loads(lines[0]) == person(1, 2) and lines[1] == "(absent)"


def test_partitions_begin_at_given_boundaries(store, source, tmp_path):
    def lowers(table, *words):
        store.push(table, source(100), key="{id:03}", args=words)
        manifest = next((store.path / "tables" / table / "versions").glob("*.manifest"))
        text = manifest.read_text().rsplit("xxh3", 1)[0]
        return [part["bounds"]["lower"] for part in json.loads(text)["partitions"]]

    slots = lowers("h", "--boundaries", "[100, 9000]")
    assert slots == [{"slot": 0}, {"slot": 100}, {"slot": 9000}]
    keys = lowers("o", "--order", "ordered", "--boundaries", '["040", {"key_hex": "ff"}]')
    assert keys == [{"key": ""}, {"key": "040"}, {"key_hex": "ff"}]
    # The boundaries of one version divide another one equally.
    (tmp_path / "places.json").write_text(json.dumps(keys))
    again = ("--order", "ordered", "--boundaries", tmp_path / "places.json")
    assert lowers("again", *again) == keys
    assert len(store.run("scan", "again", "--json").json_lines()) == 100
    words = ("push", "x", source(5), "--key", "{id}", "--boundaries")
    for places, problem in {
        "[5, 5]": "do not rise",
        '["a"]': "hashed",
        "[5": "cannot be read",
        "nowhere.json": "nowhere.json",
    }.items():
        code = 2 if places.startswith("[") else 1
        assert problem in store.refuse(*words, places, code=code)
    store.refuse(*words, "[5]", "--partitions", "3", code=2)


def test_scan_of_an_ordered_table(store, source):
    store.push("o", source(100), key="{id:03}", args=["--order", "ordered", "--partitions", "3"])

    def keys(*args):
        lines = store.run("scan", "o", "--json", *args).json_lines()
        assert all(set(line) == {"key", "value"} for line in lines)
        return [line["key"] for line in lines]

    everything = [f"{i:03}" for i in range(100)]
    assert keys() == everything
    assert keys("--reverse") == everything[::-1]
    assert keys("--from", "010", "--to", "013") == ["010", "011", "012"]
    assert keys("--from", "010", "--limit", "2") == ["010", "011"]
    assert keys("--from", "010", "--to", "013", "--reverse", "--limit", "2") == ["012", "011"]
    assert keys("--from", "05") == everything[50:]
    assert keys("--from", "x") == []
    line = store.run("scan", "o", "--limit", "1").out
    assert line.startswith("000\t{") and json.loads(line.split("\t")[1])["id"] == 0


def test_scan_of_a_hashed_table_gives_each_record_once(two):
    lines = two.run("scan", "people", "--json").json_lines()
    assert sorted(int(line["key"]) for line in lines) == list(range(1, 1000))
    assert lines[0]["value"] == person(int(lines[0]["key"]), 2)
    assert "ordered" in two.refuse("scan", "people", "--from", "1")


def test_tables_swap_rollback_drop(two, source):
    two.push("other", source(10), args=["--no-swap"])
    tables = {row["table"]: row for row in two.json("tables")}
    assert tables["people"]["serving"] == 2 and tables["people"]["rows"] == 999
    assert tables["other"]["serving"] is None
    assert "swap" in two.refuse("get", "other", "1")
    assert two.json("swap", "other", "1") == {"table": "other", "version": 1, "previous": None}
    assert two.json("rollback", "people") == {"table": "people", "version": 1, "previous": 2}
    assert two.json("get", "people", "0") == [person(0, 1)]
    assert "people" in two.refuse("rollback", "people")
    assert two.json("drop", "people", "--yes") == {"table": "people", "dropped": True}
    assert [row["table"] for row in two.json("tables")] == ["other"]


def test_verify_and_diff(two):
    verified = two.json("verify", "people@1")
    checksum = two.json("versions", "people")[0]["checksum"]
    assert (verified["version"], verified["rows"], verified["checksum"]) == (1, 1000, checksum)
    diff = two.json("diff", "people", "1", "2")
    counts = {name: diff[name] for name in ["added", "removed", "changed", "unchanged"]}
    assert counts == {"added": 0, "removed": 1, "changed": 999, "unchanged": 0}
    assert diff["columns"]["v1"] == 999 and diff["columns"]["name"] == 0
    changes = [difference["change"] for difference in diff["differences"]]
    assert changes.count("changed") == 10 and changes.count("removed") == 1
    changed = next(d for d in diff["differences"] if d["change"] == "changed")
    assert changed["columns"][0] == {"column": "v1", "before": "1", "after": "2"}
    assert "999 changed" in two.run("diff", "people", "1", "2").out
    back = two.json("diff", "people", "2", "1", "--limit", "1")
    (added,) = [d for d in back["differences"] if d["change"] == "added"]
    assert added == {"key": "0", "change": "added", "columns": []}


def test_diff_as_text_and_as_json_agree(store, tmp_path):
    rows = tmp_path / "rows.csv"

    def push(text, *words):
        rows.write_text(text)
        store.run("push", "t", rows, "--key", "{id}", "--force", "--keep", "9", *words)

    def diff(before, after):
        return store.json("diff", "t", before, after), store.run("diff", "t", before, after).out

    push("id,n,gone\n1,1,x\n2,2,y\n")
    push("id,n,fresh\n1,1.0,x\n2,2.5,y\n")
    push("id,fresh\n1,x\n2,y\n")
    result, text = diff(1, 2)
    assert (result["changed"], result["columns"]) == (2, {"id": 0, "n": 2})
    schema = result["schema"]
    assert (schema["removed"], schema["added"], schema["retyped"]) == (["gone"], ["fresh"], ["n"])
    assert text.splitlines() == [
        "t version 1 to 2: 0 added, 0 removed, 2 changed, 0 unchanged, by what both versions have",
        *(change["text"] for change in schema["changes"]),
        "column n changed in 2 rows",
        "values of n: mean 1.5 -> 1.75, std 0.5 -> 0.75, "
        "median 2 -> 2.5, 95% 2 -> 2.5, max 2 -> 2.5",
        '~ "1": n 1 -> 1.0',
        '~ "2": n 2 -> 2.5',
    ]
    result, text = diff(2, 3)
    assert (result["changed"], result["unchanged"], result["columns"]) == (
        0,
        2,
        {"id": 0, "fresh": 0},
    )
    assert text.splitlines()[1:] == ["column n is gone (float64)"]
    # The value of one column as bytes, as a number and of another column; then rows.
    push("id,n,m\n1,1,7\n2,2,2\n", "--value", "n")
    push("id,n,m\n1,1,7\n2,3,2\n", "--value", "n", "--delta", "i64")
    push("id,n,m\n1,1,7\n2,3,2\n", "--value", "m")
    push("id,n\n1,1\n2,3\n")
    for before, after, changes in (
        (4, 5, ['~ "2": value 2 -> 3']),
        (5, 6, ['~ "1": value 1 -> 7', '~ "2": value 3 -> 2']),
        (6, 7, ['~ "1": value 7 -> {"id":1,"n":1}', '~ "2": value 2 -> {"id":2,"n":3}']),
    ):
        result, text = diff(before, after)
        assert text.splitlines()[-len(changes) :] == changes
        assert result["columns"] == {"value": len(changes)} == {"value": result["changed"]}
        seen = [
            f'~ "{d["key"]}": value {d["columns"][0]["before"]} -> {d["columns"][0]["after"]}'
            for d in result["differences"]
        ]
        assert seen == changes
        assert [change["text"] for change in result["schema"]["changes"]] == text.splitlines()[1:2]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_an_export_equals_its_source(two, tmp_path, kind):
    path = tmp_path / f"out.{kind}"
    result = two.json("export", "people@1", "--to", path)
    assert (result["table"], result["version"], result["rows"]) == ("people", 1, 1000)
    if kind == "parquet":
        table = pyarrow.parquet.read_table(path).select(people().column_names)
        assert table.sort_by("id").to_pylist() == people().to_pylist()
    elif kind == "csv":
        assert pyarrow.csv.read_csv(path).num_rows == 1000
    else:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert sorted(row["id"] for row in rows) == list(range(1000))
    two.push("again", path)
    assert two.json("get", "again", "7") == [person(7, 1)]


def test_an_export_keeps_modes_links_and_devices(two, tmp_path):
    def export(to, *words, code=0):
        return two.run("export", "people", "--to", to, "--format", "csv", *words, code=code)

    def lines(path):
        return len(path.read_text().splitlines())

    out = tmp_path / "out.csv"
    export(out)
    for mode in (0o600, 0o644, 0o660):
        out.chmod(mode)
        out.write_text("before")
        export(out)
        assert (out.stat().st_mode & 0o7777, lines(out)) == (mode, 1000)
    away = tmp_path / "away"
    away.mkdir()
    for name, target in {"link": out, "relative": "out.csv", "new": "away/new.csv"}.items():
        link = tmp_path / name
        link.symlink_to(target)
        out.write_text("before")
        export(link)
        assert link.is_symlink() and lines(link) == 1000
    assert lines(away / "new.csv") == 1000
    (tmp_path / "round").symlink_to("round")
    assert "levels of symbolic links" in export(tmp_path / "round", code=1).err
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        export(pipe)
        assert len(reader.communicate()[0].splitlines()) == 1000
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    export("/dev/null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert "No space left" in export("/dev/full", code=1).err
    assert len(export("/dev/stdout", "--quiet").out.splitlines()) == 1000
    assert "is a directory" in export(away, code=1).err
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert "no file, pipe or character device" in export(tmp_path / "socket", code=1).err
    # A failed export keeps the previous content.
    broken = two.run("export", "people@7", "--to", out, code=1)
    assert "version 7" in broken.err and out.read_text() == "before"
    names = {"away", "link", "new", "out.csv", "pipe", "relative", "round", "socket", "store"}
    assert {path.name for path in tmp_path.iterdir()} >= names
    assert not [path for path in tmp_path.rglob("*.part")]


def test_columns_can_be_added_removed_and_widened(store, tmp_path):
    old = pa.table({"id": [1, 2], "n": pa.array([1, 2], pa.int32()), "gone": ["x", "y"]})
    new = pa.table({"id": [1, 2], "n": pa.array([1, 2**40], pa.int64()), "fresh": [True, None]})
    store.push("t", write(old, tmp_path / "old.parquet"))
    store.push("t", write(new, tmp_path / "new.parquet"), args=["--gate", "column-gone=report"])
    assert store.json("get", "t", "2") == [{"id": 2, "n": 2**40, "fresh": None}]
    diff = store.json("diff", "t", "1", "2")
    assert (diff["changed"], diff["unchanged"]) == (1, 1)
    schema = diff["schema"]
    assert (schema["added"], schema["removed"], schema["retyped"]) == (["fresh"], ["gone"], ["n"])
    store.run("rollback", "t")
    assert store.json("get", "t", "2") == [{"id": 2, "n": 2, "gone": "y"}]


def test_commands_print_log_lines_unless_quiet(store, source):
    assert "rows" in store.run("push", "a", source(), "--key", "{id}").err
    quiet = store.run("push", "b", source(), "--key", "{id}", "--quiet")
    assert (quiet.err, quiet.out) == ("", "")
    assert store.run("swap", "b", "1", "-q").out == ""
    assert store.json("push", "b", source(), "--key", "{id}", "--quiet")["version"] == 2
    assert len(store.run("get", "b", "1", "-q").out.splitlines()) == 1


def test_a_new_store_is_reported_and_no_create_forbids_it(store, source, tmp_path):
    push = ["push", "t", source(), "--key", "{id}"]
    empty = Store(tmp_path / "mount")
    empty.path.mkdir()
    for place in [store, empty]:
        for words in [[], ["--quiet"], ["--dry-run"], ["--json"]]:
            refused = place.refuse(*push, "--no-create", *words)
            assert "there is no forebay store" in refused, refused
    assert not store.path.exists() and not list(empty.path.iterdir())
    assert str(store.path) in store.run(*push).err
    result = empty.run(*push, "--json")
    assert json.loads(result.out)["store_created"] is True
    texts = [event.get("text", "") for event in map(json.loads, result.err.splitlines())]
    assert any("made a new one" in text and "--no-create" in text for text in texts), texts
    again = store.run(*push, "--no-create", "--json")
    assert "store_created" not in json.loads(again.out) and "made a new" not in again.err


def test_a_named_store_that_does_not_exist_needs_create(source, tmp_path):
    def run(*words, named=None, code=0):
        environment = {name: os.environ[name] for name in os.environ if name != "FOREBAY_STORE"}
        if named is not None:
            environment["FOREBAY_STORE"] = named
        done = subprocess.run(
            [BINARY, *map(str, words)],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done

    push = ["push", "t", source(), "--key", "{id}"]
    for line in [push, [*push, "--dry-run"], ["create", "clicks"]]:
        for words, named in [(["--store", "nowhere"], None), ([], "nowhere")]:
            refused = run(*line, *words, named=named, code=1)
            assert "no forebay store at nowhere" in refused.stderr, refused.stderr
            assert "--create" in refused.stderr, refused.stderr
    assert not (tmp_path / "nowhere").exists()
    made = json.loads(run(*push, "--create", "--json", named="nowhere").stdout)
    assert made["store_created"] is True
    made = run("create", "clicks", "--create", "--json", "--store", "other")
    assert json.loads(made.stdout)["store_created"] is True and "made a new one" in made.stderr
    # Without a name, the store is ./forebay-data.
    assert "made a new one" in run(*push).stderr
    assert (tmp_path / "forebay-data").is_dir()
    run(*push, "--create", "--no-create", code=2)


def test_an_empty_variable_counts_as_unset(two, monkeypatch):
    for name in ("LOGIN", "TLS_CA", "WORK_DIR"):
        monkeypatch.setenv(f"FOREBAY_{name}", "")
    assert two.json("get", "people", "7") == [person(7, 2)]


def test_drop_needs_yes_and_can_be_undone(two):
    refused = two.refuse("drop", "people", code=2)
    assert "forebay drop people --yes" in refused, refused
    assert two.json("tables", "--dropped") == []
    done = two.json("drop", "people", "--yes", "--keep-dropped", "7d")
    assert done["dropped"] is True and done["kept_until"].endswith("Z")
    assert two.json("tables") == []
    (kept,) = two.json("tables", "--dropped")
    assert (kept["table"], kept["kept_until"]) == ("people", done["kept_until"])
    # The time selects one of several drops. Nothing was dropped at this time.
    two.refuse("undrop", "people", "--dropped", "2001-01-01T00:00:00Z")
    back = two.json("undrop", "people", "--dropped", kept["dropped"])
    assert (back["table"], back["undropped"]) == ("people", True) and back["dropped"]
    assert two.json("get", "people", "7") == [person(7, 2)]
    assert "no dropped table people" in two.refuse("undrop", "people")
    two.run("rollback", "people")


def test_a_server_sees_a_drop_and_an_undrop(two):
    two.run("create", "clicks", "--durability", "os")
    with two.serve() as server:
        client = server.client(decode_responses=True)
        wait_for(lambda: is_served(client, "clicks"), "the live table is served")
        client.set("clicks:a", "1")
        for table, key in [("people", "people:7"), ("clicks", "clicks:a")]:
            two.run("drop", table, "--yes", "--keep-dropped", "1h")
            wait_for(lambda table=table: not is_served(client, table), "the drop is seen")
            two.run("undrop", table)
            wait_for(lambda table=table: is_served(client, table), "the table is back")
            assert client.exists(key) == 1
        assert client.get("clicks:a") == "1"


def test_a_second_rollback_needs_its_version(store, source):
    for version in range(1, 5):
        store.push("people", source(10, version=version))
    assert "serves version 4, not version 3" in store.refuse("rollback", "people", "--from", 3)
    assert store.json("rollback", "people")["version"] == 3
    refused = store.refuse("rollback", "people")
    assert "from version 4 to version 3" in refused, refused
    assert "forebay rollback people --from 3" in refused, refused
    back = store.json("rollback", "people", "--from", 3)
    assert back == {"table": "people", "version": 2, "previous": 3}


def test_completions_and_man_page_know_every_flag(store):
    page = store.run("man").out
    for word in ["FOREBAY", "bad\\-rows", "rollback", "\\-\\-store", "Exit codes"]:
        assert word in page, word
    for shell in ["bash", "zsh", "fish"]:
        assert "duplicates" in store.run("completions", shell).out
    script = store.run("completions", "bash").out
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_commands_take_effect_if_their_output_cannot_be_written(store, source, tmp_path, flags):
    def with_output(to, words, code):
        result = store.run(*words, *flags, stdout=to, code=code)
        assert "panicked" not in result.err
        return result.err

    def closed(*words, code=0):
        read, write_end = os.pipe()
        os.close(read)
        with open(write_end, "wb") as pipe:
            return with_output(pipe, [*words, "--quiet"], code)

    def full(*words):
        with open("/dev/full", "wb") as device:
            message = with_output(device, words, 1)
        assert message.count("No space left on device") == 1 and "This is done" in message
        return message

    push = ("push", "t", source(), "--key", "{id}")
    assert closed(*push) == ""
    assert "t version 2" in full(*push)
    held = closed(*push, "--gate", "rows>1%", code=3)
    assert "the gate holds version 3" in held, "--quiet keeps the reason"
    assert [v["version"] for v in store.json("versions", "t")] == [1, 2, 3]
    assert closed("rollback", "t") == ""
    assert "t serves version 2; before it served 1" in full("swap", "t", "2")
    assert "t serves version 1; before it served 2" in full("rollback", "t")
    assert closed("swap", "t", "2") == ""
    assert store.json("tables")[0]["serving"] == 2
    assert "1,000 rows" in full("export", "t", "--to", tmp_path / "x.csv")
    assert (tmp_path / "x.csv").stat().st_size > 10_000
    assert "t is dropped" in full("drop", "t", "--yes")
    assert store.json("tables") == []
    assert "live is made" in full("create", "live")


def test_help_and_a_closed_pipe_work(two):
    assert "rollback" in two.run("--help").out
    assert "--bad-rows" in two.run("push", "--help").out
    piped = subprocess.run(
        f"{BINARY} scan people | head -n 1", shell=True, env=two.environment(), capture_output=True
    )
    assert piped.stdout and b"panicked" not in piped.stderr
