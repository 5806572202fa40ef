"""Bad input is refused with a message that names the problem and its place, and leaves nothing
behind."""

import json

import pyarrow as pa
import pytest
from data import people, write


def is_absent(store, table="t"):
    return (
        all(row["table"] != table for row in store.json("tables")) if store.path.exists() else True
    )


def test_duplicates_fail_or_the_first_or_last_wins(store, tmp_path):
    table = pa.table({"id": [1, 2, 1], "name": ["old", "two", "new"]})
    path = write(table, tmp_path / "twice.parquet")
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "1" in message and "--duplicates" in message
    assert is_absent(store)
    first = store.push("t", path, args=["--duplicates", "first"])
    assert (first["rows"], first["duplicates"]) == (2, 1)
    assert store.json("get", "t", "1")[0]["name"] == "old"
    store.push("t", path, args=["--duplicates", "last", "--force"])
    assert store.json("get", "t", "1")[0]["name"] == "new"


def test_the_order_of_files_decides_between_duplicates(store, tmp_path):
    paths = [
        write(pa.table({"id": list(range(500)), "n": [part] * 500}), tmp_path / f"{part}.parquet")
        for part in range(4)
    ]
    pushed = store.push("t", *paths, args=["--duplicates", "last", "--threads", "2"])
    assert (pushed["rows"], pushed["duplicates"]) == (500, 1500)
    assert [row["n"] for row in store.json("get", "t", "0", "250", "499")] == [3, 3, 3]


def test_messages_hold_no_control_characters(store, tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text('id,v\n"a\x1b[31m\nb",1\n"a\x1b[31m\nb",2\n')
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert r"key a\u{1b}[31m\nb occurs" in message, message
    missing = tmp_path / "no\x1b[31mthing.json"
    message = store.refuse("plan", "insert", "--input", missing)
    assert r"no\u{1b}[31mthing.json" in message, message
    path.write_bytes(b'id,v\n1,2\n2,"\x1b\n\xff"\n')
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert r"""after '2,"\u{1b}\n' is not UTF-8""" in message, message


def test_null_keys_are_bad_rows(store, tmp_path):
    table = pa.table({"id": ["a", None, "c"], "n": [1, 2, 3]})
    path = write(table, tmp_path / "nulls.parquet")
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "nulls.parquet" in message and "2" in message and "null" in message
    assert is_absent(store)
    pushed = store.push("t", path, args=["--bad-rows", "skip"])
    assert (pushed["rows"], pushed["rejected"]) == (2, 1)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_bad_lines_are_written_to_a_file_with_line_and_reason(store, tmp_path, kind):
    lines = {
        "csv": ["id,n", "1,10", ",20", "3,30"],
        "jsonl": ['{"id": 1, "n": 10}', '{"id": null, "n": 20}', '{"id": 3, "n": 30}'],
    }[kind]
    path = tmp_path / f"rows.{kind}"
    path.write_text("\n".join(lines) + "\n")
    rejected = tmp_path / "rejected.jsonl"
    pushed = store.push("t", path, args=["--bad-rows", rejected])
    assert (pushed["rows"], pushed["rejected"]) == (2, 1)
    (entry,) = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert f"rows.{kind}" in json.dumps(entry) and "null" in json.dumps(entry)
    line = 3 if kind == "csv" else 2
    assert line in entry.values()
    again = store.refuse("push", "t", path, "--key", "{id}", "--bad-rows", rejected)
    assert "exists" in again and "rejected.jsonl" in again


def test_a_line_that_does_not_parse_is_named(store, tmp_path):
    path = tmp_path / "broken.jsonl"
    path.write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "broken.jsonl" in message and "2" in message
    assert is_absent(store)


@pytest.mark.parametrize(
    "key, word",
    [
        ("{nosuch}", "nosuch"),
        ("{id", "{id"),
        ("constant", "column"),
        ("{id:xx}", "xx"),
    ],
)
def test_a_wrong_template_is_explained(store, source, key, word):
    result = store.run("push", "t", source(), "--key", key, code=None)
    assert result.code in (1, 2) and word in result.err
    assert is_absent(store)


def test_a_missing_column_for_the_value_is_explained(store, source):
    message = store.refuse("push", "t", source(), "--key", "{id}", "--value", "nosuch")
    assert "nosuch" in message and "name" in message, "the message names the columns"


def test_missing_sources_and_sources_of_another_format_are_refused(store, tmp_path):
    assert "missing.parquet" in store.refuse(
        "push", "t", tmp_path / "missing.parquet", "--key", "{id}"
    )
    assert "no-*.csv" in store.refuse("push", "t", f"{tmp_path}/no-*.csv", "--key", "{id}")
    fake = tmp_path / "fake.parquet"
    fake.write_bytes(b"this is no parquet file at all")
    assert "fake.parquet" in store.refuse("push", "t", fake, "--key", "{id}")
    odd = tmp_path / "data.xyz"
    odd.write_text("1\n")
    assert "parquet, csv" in store.refuse("push", "t", odd, "--key", "{id}")
    assert is_absent(store)


def test_a_truncated_source_does_not_change_the_serving_version(store, source, tmp_path):
    store.push("t", source(version=1))
    whole = source(version=2).read_bytes()
    cut = tmp_path / "cut.parquet"
    for length in [len(whole) // 2, len(whole) - 1, 4, 0]:
        cut.write_bytes(whole[:length])
        assert "cut.parquet" in store.refuse("push", "t", cut, "--key", "{id}")
    assert [v["version"] for v in store.json("versions", "t")] == [1]
    assert store.json("get", "t", "5")[0]["v1"] == 1


def test_wrong_names_of_tables_and_stores_are_refused(store, source, tmp_path):
    for name in ["a:b", "{a}", "../x", ".hidden", "a/b", "x" * 65]:
        store.refuse("push", name, source(10), "--key", "{id}", code=2)
    assert "no forebay store" in store.refuse("tables").lower()
    store.push("t", source(10))
    assert "nosuch" in store.refuse("get", "nosuch", "1")
    assert "7" in store.refuse("swap", "t", "7")
    assert "s3" in store.refuse("tables", "--store", "s3://bucket/x")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    store.refuse("push", "t", source(10), "--key", "{id}", "--store", tmp_path / "other")


def test_a_missing_source_creates_no_store(store, tmp_path):
    error = store.refuse("push", "t", tmp_path / "none.parquet", "--key", "{id}")
    assert "there is no such file" in error and not store.path.exists()


def test_an_empty_source_gives_a_table_without_rows_and_a_warning(store, tmp_path):
    pushed = store.push("t", write(people(0), tmp_path / "empty.parquet"))
    assert pushed["rows"] == 0
    warning = "the sources have no rows: the version has no rows"
    assert pushed["warnings"] == [warning]
    header = tmp_path / "header.csv"
    header.write_text("id,name\n")
    seen = store.run("push", "header", header, "--key", "{id}")
    assert f"warning: {warning}" in seen.err
    (tmp_path / "one.csv").write_text("id,name\n1,a\n")
    assert store.push("header", tmp_path / "one.csv", args=["--force"])["warnings"] == []
    onto = store.run("push", "header", header, "--onto", "current", "--json").json_lines()[-1]
    assert onto["warnings"] == ["the sources have no rows: nothing is changed"]
    assert store.json("get", "t", "1") == [None]
    assert store.run("scan", "t", "--json").out == ""


def test_names_and_values_from_data_do_not_reach_the_terminal_raw(store, tmp_path):
    red, turned, unseen = "a\x1b[31m", "b\u202e", "c\u200b"
    path = tmp_path / "odd.jsonl"

    def row(value):
        return json.dumps({"id": 1, red: value, turned: value, unseen: f"\x1b]0;{value}\x07"})

    path.write_text(row(1) + "\n")
    store.push("t", path)
    path.write_text(row(2) + "\n")
    dry = store.run("push", "t", path, "--key", "{id}", "--dry-run").out
    pushed = store.run("push", "t", path, "--key", "{id}", "--gate", "changed<101%")
    shown = store.run("diff", "t", 1, 2).out
    for text in (dry, shown, pushed.out, pushed.err):
        assert not set("\x1b\x07\u202e\u200b") & set(text), text
    for name in (r"a\u{1b}[31m", r"b\u{202e}", r"c\u{200b}"):
        assert name in dry and name in shown, shown
    assert r"\u{1b}]0;1\u{7} -> \u{1b}]0;2\u{7}" in shown, shown
    message = store.refuse("push", "t", path, "--key", "{b}")
    assert "\u202e" not in message and r"b\u{202e}" in message, message


def test_wrong_options_with_json_give_an_object(store):
    for words in (["push", "--nope"], ["get"], ["rollback", "t", "--keep=x"]):
        done = store.run(*words, "--json", code=2)
        error = json.loads(done.err)
        assert (error["event"], error["kind"]) == ("error", "usage") and error["text"], error
    assert "Usage:" in store.run("get", code=2).err
    assert "Usage:" in store.run("get", "--json", "--help").out
    # After --, it is an argument like others.
    assert "Usage:" in store.run("get", "--nope", "--", "--json", code=2).err


def test_a_file_in_the_place_of_a_store_is_explained(store, source):
    store.path.touch()
    for words in (["tables"], ["push", "t", source(), "--key", "{id}"], ["serve", "--create"]):
        message = store.refuse(*words)
        assert "a file is where a directory has to be" in message, message
        assert "catalog" not in message, message


def test_a_rollback_reports_that_older_versions_may_be_removed(store, source):
    for version in range(3):
        store.run("push", "t", source(version=version), "--key", "{id}", "--keep", 2, "--force")
    store.run("rollback", "t")
    message = store.refuse("rollback", "t", "--from", 2)
    assert "no version served before version 2, or a push removed those that did" in message
    assert "--keep" in message
