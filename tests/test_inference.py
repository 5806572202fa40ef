"""Types of text files follow all rows, however late a row shows them.

The user gives no option.
"""

import gzip
import json
import os
import signal
import time

import pytest


def json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def message_of(store, *words, code=0):
    return store.run("push", *words, "--key", "{id}", code=code).err


def package(number):
    """A package of Debian's list. Most fields are in all packages, some in few, and one only in the
    last."""
    row = {"id": f"package-{number}", "Version": f"{number}.0", "Size": str(number * 100)}
    if number % 7 == 0:
        row["Multi-Arch"] = "same"
    if number % 500 == 3:
        row["Replaces"] = [f"package-{number - 1}"]
    if number == 8_700:
        row["Python-Version"] = "3.12"
        row["Checks"] = {"sha256": "00ff", "of": {"bytes": 2**64}}
    return row


def test_a_field_that_only_later_records_have(store, tmp_path):
    path = json_lines(tmp_path / "packages.jsonl", [package(n) for n in range(30_000)][::-1])
    result = store.run("push", "t", path, "--key", "{id}")
    assert "there is the field 'Python-Version'" in result.err
    assert "looking at all rows for their types" in result.err
    got = store.json("get", "t", "package-8700", "package-14", "package-3", "package-1")
    assert got[0]["Python-Version"] == "3.12"
    assert got[0]["Checks"] == {"sha256": "00ff", "of": {"bytes": 2**64}}
    assert got[1]["Multi-Arch"] == "same" and got[1]["Checks"] is None
    assert got[2]["Replaces"] == ["package-2"]
    assert got[3] == {**dict.fromkeys(got[0]), **package(1)}


@pytest.mark.parametrize("packed, count", [(False, 1_000_000), (True, 100_000)])
def test_a_type_that_changes_at_the_end_of_a_million_rows(store, tmp_path, packed, count):
    lines = "".join(f"{n},{n % 100}\n" for n in range(count))
    text = f"id,zip\n{lines}last,01234\n".encode()
    path = tmp_path / ("rows.csv.gz" if packed else "rows.csv")
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    words = ["push", "t", path, "--key", "{id}", "--memory", "8M"]
    result = store.run(*words)
    assert f"{path.name}: line {count + 2}: the column 'id' holds 'last'" in result.err
    assert result.err.count("all rows are looked at") == 1
    assert store.json("get", "t", "7", "last") == [
        {"id": "7", "zip": "7"},
        {"id": "last", "zip": "01234"},
    ]
    assert store.json("verify", "t")["rows"] == count + 1
    left = [path.name for path in store.path.rglob("*") if "spill" in path.name]
    assert left == []


def test_a_type_that_fits_from_the_start_needs_no_second_read(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,n\n" + "".join(f"{n},{n}.5\n" for n in range(20_000)))
    assert "looking at" not in message_of(store, "t", path)


def test_several_files_with_different_late_fields(store, tmp_path):
    for part in range(3):
        rows = [{"id": part * 20_000 + n, "at": {"x": n}} for n in range(12_000)]
        rows[11_000 + part]["at"][f"y{part}"] = part + 0.5
        rows[11_999][f"late{part}"] = [{"z": part}]
        json_lines(tmp_path / f"{part}.jsonl", rows)
    assert store.push("t", f"{tmp_path}/*.jsonl")["rows"] == 36_000
    got = store.json("get", "t", "11000", "31001", "51999")
    assert got[0]["at"] == {"x": 11_000, "y0": 0.5, "y1": None, "y2": None}
    assert got[1]["at"] == {"x": 11_001, "y0": None, "y1": 1.5, "y2": None}
    assert got[2]["late2"] == [{"z": 2}] and got[2]["late0"] is None


def test_bad_rows_are_written_once_after_a_second_read(store, tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [json.dumps({"id": n}) for n in range(40_000)]
    rows[10] = '{"id": 10'
    rows[35_000] = '{"id": 35000, "late": true}'
    rows[39_999] = '{"id": null}'
    path.write_text("\n".join(rows) + "\n")
    rejects = tmp_path / "rejects.jsonl"
    pushed = store.push("t", path, args=["--bad-rows", rejects, "--threads", "2"])
    assert (pushed["rows"], pushed["rejected"]) == (39_998, 2)
    lines = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert sorted(line["line"] for line in lines) == [11, 40_000]
    assert store.json("get", "t", "35000") == [{"id": 35_000, "late": True}]


def test_changes_onto_a_version_read_all_rows_for_their_types(store, tmp_path):
    store.push("t", json_lines(tmp_path / "first.jsonl", [{"id": "a", "n": 1}]))
    rows = [{"id": f"k{n}", "n": n} for n in range(12_000)]
    late = [*rows, {"id": "late", "n": 1, "new": 2}]
    path = json_lines(tmp_path / "late.jsonl", late)
    message = store.refuse("push", "t", path, "--onto", "current", code=None)
    assert "'new'" in message and "--bad-rows" not in message
    wrong = [*rows, {"id": "late", "n": "many"}]
    path = json_lines(tmp_path / "wrong.jsonl", wrong)
    message = store.refuse("push", "t", path, "--onto", "current")
    # The table has the type, so the message proposes none.
    assert "wrong.jsonl: line 12001" in message and "many" in message
    assert "looking at" not in message and ":text'" not in message
    assert "--bad-rows skip" in message


def test_a_load_infers_types_of_columns_that_the_table_lacks(store, tmp_path):
    store.run("create", "seen", "--mode", "live", "--value", "row", "--column", "n:int64")
    path = tmp_path / "seen.csv"
    path.write_text("user,n\n" + "".join(f"{n},{n}\n" for n in range(12_000)) + "007,7\n")
    result = store.run("load", "seen", path, "--key", "{user}")
    assert "the column 'user' holds '007'" in result.err
    assert store.json("get", "seen", "7", "007") == [{"n": 7}, {"n": 7}]


def test_a_value_of_another_type_than_given_proposes_a_type(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,price\n1,2\n2,much\n")
    message = store.refuse("push", "t", path, "--key", "{id}", "--column", "price:int64")
    assert "rows.csv: line 3: the column 'price'" in message
    assert '"much" (text), which does not read as int64' in message
    assert message.index("--column 'price:text'") < message.index("--bad-rows skip")


def test_a_column_without_values_can_be_given(store, tmp_path):
    path = json_lines(tmp_path / "rows.jsonl", [{"id": 1}, {"id": 2}])
    store.push("t", path, args=["--column", "seen:date", "--column", "id:text"])
    assert store.json("get", "t", "2") == [{"id": "2", "seen": None}]


def test_a_misspelt_key_column_is_explained(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("carrier,flight\nUA,1\n")
    message = store.refuse("push", "t", path, "--key", "{carier}")
    assert "did you mean 'carrier'?" in message and "carrier, flight" in message


def test_an_array_of_objects_over_many_lines(store, tmp_path):
    path = tmp_path / "rows.json"
    rows = [{"id": n, "tags": ["a", "}"], "at": {"x": [n, None]}} for n in range(1000)]
    path.write_text(json.dumps(rows, indent=2))
    assert store.push("t", path)["rows"] == 1000
    assert store.json("get", "t", "999") == [rows[999]]
    path.write_text(json.dumps([*rows, {"id": None}], indent=2))
    assert "rows.json: element 1001: the key column 'id' is null" in message_of(
        store, "u", path, code=1
    )
    objects = tmp_path / "objects.json"
    objects.write_text("".join(json.dumps(row, indent=2) + "\n" for row in rows))
    message = message_of(store, "u", objects, code=1)
    assert "objects.json: line 1" in message and "elements of one array" in message


def test_csv_with_several_texts_for_null(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,n\n1,NA\n2,-\n3,4\n")
    store.push("t", path, args=["--csv-null", "NA", "--csv-null", "-"])
    assert [row["n"] for row in store.json("get", "t", "1", "2", "3")] == [None, None, 4]


def test_a_kill_during_type_inference_leaves_nothing(store, tmp_path):
    path = tmp_path / "rows.csv"
    lines = "".join(f"{n},{'x' * 100}\n" for n in range(60_000))
    path.write_text(f"id,t\n{lines}last,x\n")
    # The rate makes the second read last. It counts text as well as records.
    words = ["push", "t", path, "--key", "{id}", "--memory", "8M", "--rate", "3M", "--threads", "1"]
    process = store.start(*words)
    os.set_blocking(process.stderr.fileno(), False)
    seen, end = b"", time.monotonic() + 60
    while b"all rows are looked at" not in seen:
        assert process.poll() is None and time.monotonic() < end, seen
        seen += process.stderr.read() or b""
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert store.json("tables") == []
    store.push("t", path)
    assert store.json("verify", "t")["rows"] == 60_001
    assert [path for path in store.path.rglob("*") if "spill" in path.name] == []
