"""Standard input, directories that give columns, tables of files, damaged pages, and files with
misleading names."""

import gzip
import io
import json
import os
import random
import subprocess
import zipfile

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data import people, person, write
from harness import BINARY, LIMIT_S, Result


def pipe(store, content, *args, environment=()):
    """Runs a command with content on its standard input."""
    done = subprocess.run(
        [BINARY, *store.words(*map(str, args))],
        input=content,
        capture_output=True,
        env={**store.environment(), **dict(environment)},
        timeout=LIMIT_S,
    )
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "arrows"])
def test_every_format_works_on_standard_input(store, tmp_path, kind):
    content = (write(people(), tmp_path / f"people.{kind}")).read_bytes()
    text = ["--format", kind] if kind in ("csv", "jsonl") else []
    seen = pipe(store, content, "push", "people", "-", "--key", "{id}", *text)
    assert seen.code == 0, seen.err
    assert store.json("get", "people", "0", "999", "1000") == [person(0), person(999), None]
    assert store.json("versions", "people")[0]["rows"] == 1000


def test_empty_standard_input_and_a_missing_format_are_refused(store):
    push = ["push", "t", "-", "--key", "{id}"]
    seen = pipe(store, b"", *push, "--format", "csv")
    assert seen.code == 1 and "standard input: it is empty" in seen.err
    seen = pipe(store, b"id,n\n1,a\n", *push)
    assert seen.code == 1 and "give --format" in seen.err and "'id,n'" in seen.err


def test_a_full_disk_under_standard_input_is_reported(store, small_disk, tmp_path):
    line = b"1234567,some text that fills the disk\n"
    push = ["push", "t", "-", "--key", "{id}", "--format", "csv"]
    content = b"id,n\n" + line * 300_000
    seen = pipe(store, content, *push, environment={"TMPDIR": str(small_disk)})
    assert seen.code == 1 and "no room for it in" in seen.err and "--work-dir" in seen.err
    assert list(small_disk.iterdir()) == []
    roomy = tmp_path / "work"
    seen = pipe(
        store,
        b"id\n1\n",
        *[*push, "--work-dir", roomy],
        environment={"TMPDIR": "/nonexistent"},
    )
    assert seen.code == 0, seen.err
    assert not roomy.exists()


def test_directories_give_columns(store, tmp_path):
    root = tmp_path / "sales"
    table = pa.table(
        {
            "id": range(6),
            "year": [2023, 2023, 2024, 2024, None, 2024],
            "month": ["01", "02", "01", "12", "03", None],
            "city": ["São Paulo", "a/b", "a=b", "x", "y", "z"],
            "day": ["2024-01-31", "2024-02-01", "2024-02-02", "2024-02-03", "2024-02-04"] + [None],
        }
    )
    pq.write_to_dataset(table, root, partition_cols=["year", "month", "city", "day"])
    (root / "_SUCCESS").touch()
    store.push("sales", root)
    rows = store.json("get", "sales", *range(6))
    assert rows == table.to_pylist()
    schema = {c["name"]: c["type"] for c in schema_of(store, "sales")}
    assert (schema["year"], schema["month"], schema["day"]) == ("int64", "text", "date")

    key = "{month}/{id}"
    store.push("keyed", f"{root}/year=*/month=0*/*/*/*.parquet", key=key)
    assert store.json("get", "keyed", "01/0")[0]["year"] == 2023
    assert store.json("versions", "keyed")[0]["rows"] == 4
    store.push("part", f"{root}/year=2024", args=["--column", "month:int16"])
    row = store.json("get", "part", "3")[0]
    assert row["month"] == 12 and "year" not in row


def schema_of(store, table):
    """The names and types of the columns, from an export."""
    path = store.path / f"{table}.parquet"
    store.run("export", table, "--to", path)
    names = {"int64": "int64", "string": "text", "date32[day]": "date"}
    fields = pq.read_schema(path)
    return [{"name": field.name, "type": names.get(str(field.type))} for field in fields]


def test_a_column_of_both_directory_and_file_must_agree(store, tmp_path):
    for year in [2023, 2024]:
        directory = tmp_path / "t" / f"year={year}"
        directory.mkdir(parents=True)
        ids = [year * 10, year * 10 + 1]
        table = pa.table({"id": ids, "year": pa.array([year, year], pa.int16())})
        write(table, directory / "a.parquet")
    store.push("t", tmp_path / "t")
    assert store.json("get", "t", "20231")[0] == {"id": 20231, "year": 2023}
    wrong = tmp_path / "t" / "year=2025"
    wrong.mkdir()
    write(pa.table({"id": [1, 2], "year": pa.array([2025, 2026], pa.int16())}), wrong / "a.parquet")
    message = store.refuse("push", "t", tmp_path / "t", "--key", "{id}")
    assert "the directory year=2025 does not agree with the column 'year'" in message
    assert "--column" not in message, "the advice would not help"
    pushed = store.push("t", tmp_path / "t", args=["--bad-rows", "skip", "--force"])
    assert (pushed["rows"], pushed["rejected"]) == (5, 1)


def test_table_formats_are_never_read_file_by_file(store, tmp_path):
    for mark in ["_delta_log/0.json", "metadata/v1.metadata.json", ".hoodie/hoodie.properties"]:
        root = tmp_path / mark.split("/")[0].strip("._") / "table"
        data = root / "data" / "day=1"
        data.mkdir(parents=True)
        write(people(10), data / "a.parquet")
        write(people(10), root / "b.parquet")
        (root / mark).parent.mkdir()
        (root / mark).write_text("{}")
        sources = [
            *[root, root.parent, data, data / "a.parquet", root / "b.parquet"],
            *[f"{root}/*.parquet", f"{root.parent}/*/*.parquet", f"{root.parent}/**"],
            *[f"{root.parent}/t*/data/day=*/*.parquet", f"{data}/*"],
        ]
        for source in sources:
            message = store.refuse("push", "t", source, "--key", "{id}")
            assert f"{root} is a" in message and "not read one by one" in message, source
            assert "forebay.push(" in message or "forebay.spark.push(" in message
    assert not (store.path / "tables").exists()


def test_a_directory_called_metadata_is_no_table(store, tmp_path):
    (tmp_path / "d" / "metadata").mkdir(parents=True)
    (tmp_path / "d" / "metadata" / "notes.json").write_text('{"id": 7}\n')
    write(people(3), tmp_path / "d" / "a.parquet")
    assert store.push("t", f"{tmp_path}/d/*.parquet")["rows"] == 3
    assert store.push("t", tmp_path / "d", args=["--force"])["rows"] == 4


def test_files_with_misleading_names_are_refused(store, tmp_path):
    parquet = (write(people(5), tmp_path / "ok.parquet")).read_bytes()
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("a.csv", "id\n1\n")
    for name, content, expected in [
        ("a.parquet", b"id,name\n1,x\n", "should be parquet, but its content looks like text"),
        ("a.parquet", b'{"id": 1}\n', "should be parquet, but its content looks like JSON"),
        ("a.parquet", b"\x1f\x8b\x08\x00rest", "should be parquet, but it is compressed with gzip"),
        ("a.parquet", archive.getvalue(), "should be parquet, but it is a zip archive"),
        ("a.parquet", b"<html><body>404", "should be parquet, but it is an HTML page"),
        ("a.arrow", b"id\n1\n", "should be arrow, but its content looks like text"),
        ("a.pcap", parquet, "should be pcap, but it is Parquet"),
        ("a.csv", parquet, "should be csv, but it is Parquet; give --format parquet"),
        ("a.csv", archive.getvalue(), "should be csv, but it is a zip archive"),
        ("a.jsonl", b"<!DOCTYPE html>", "should be jsonl, but it is an HTML page"),
        ("a.csv.gz", b"id\n1\n", "should be compressed with gzip, but its content looks like text"),
        ("a.unknown", b"id,n\n1,2\n", "shows the format (its content looks like text: 'id,n')"),
        *[(f"a.{kind}", b"", "it is empty (0 bytes)") for kind in KINDS],
    ]:
        (tmp_path / name).write_bytes(content)
        message = store.refuse("push", "t", tmp_path / name, "--key", "{id}")
        assert expected in message and str(tmp_path / name) in message, message


KINDS = ["parquet", "csv", "tsv", "jsonl", "arrow", "pcap", "csv.gz", "jsonl.zst"]


def test_content_gives_the_format_if_the_name_does_not(store, tmp_path):
    for kind in ["parquet", "arrow", "arrows"]:
        path = write(people(20), tmp_path / f"x.{kind}")
        path.rename(tmp_path / "part-00000")
        assert store.push(kind, tmp_path / "part-00000")["rows"] == 20
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(b"id\n1\n2\n"))
    assert store.push("packed", packed, args=["--format", "csv"])["rows"] == 2
    (tmp_path / "a.csv").write_bytes(packed.read_bytes())
    assert store.push("packed", tmp_path / "a.csv", args=["--force"])["rows"] == 2


def test_helper_files_of_spark_and_hadoop_are_ignored(store, tmp_path):
    root = tmp_path / "out"
    (root / "_temporary" / "0").mkdir(parents=True)
    write(people(7), root / "part-0.snappy.parquet")
    write(people(9), root / "_temporary" / "0" / "part-1.snappy.parquet")
    (root / "_SUCCESS").touch()
    (root / ".part-0.snappy.parquet.crc").write_bytes(b"crc\0")
    for source in [root, f"{root}/*.parquet", f"{root}/*", f"{root}/**/*.parquet"]:
        assert store.push("t", source, args=["--force"])["rows"] == 7


def test_a_mistyped_name_is_answered_with_a_similar_one(store, tmp_path):
    (tmp_path / "daily").mkdir()
    write(people(1), tmp_path / "daily" / "people.parquet")
    for wrong in ["daily/poeple.parquet", "daily/people.parqet"]:
        message = store.refuse("push", "t", tmp_path / wrong, "--key", "{id}")
        assert "did you mean 'people.parquet'?" in message
    message = store.refuse("push", "t", tmp_path / "dialy/people.parquet", "--key", "{id}")
    assert "did you mean 'daily'?" in message
    assert "did you mean" not in store.refuse("push", "t", tmp_path / "weather", "--key", "{id}")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "brotli", "lz4"])
def test_a_flipped_bit_in_a_page_gives_no_other_value(store, tmp_path, version, compression):
    rows = 400
    table = pa.table(
        {
            "id": range(rows),
            "some": pa.array([None if i % 7 == 0 else i * 3 for i in range(rows)], pa.int32()),
            "ratio": [i * 0.5 for i in range(rows)],
            "few": [f"v{i % 9}" for i in range(rows)],
            "list": [[i, i + 1] if i % 3 else None for i in range(rows)],
        }
    )
    path, damaged = tmp_path / "sound.parquet", tmp_path / "damaged.parquet"
    pq.write_table(
        table,
        path,
        data_page_version=version,
        compression=compression,
        write_page_checksum=True,
        use_dictionary=["few"],
        data_page_size=1000,
    )
    store.push("t", path)
    (sound,) = store.json("versions", "t")
    content = path.read_bytes()
    end = pq.read_metadata(path).row_group(0).column(4)
    end = end.data_page_offset + end.total_compressed_size
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    errors = 0
    for _ in range(12):
        at, mask = choose.randrange(4, min(end, len(content))), 1 << choose.randrange(8)
        changed = bytearray(content)
        changed[at] ^= mask
        damaged.write_bytes(changed)
        seen = store.run("push", "t", damaged, "--key", "{id}", "--force", "--json", code=None)
        assert "panicked at" not in seen.out
        if seen.code == 0:
            pushed = json.loads(seen.out)["version"]
            (now,) = [v for v in store.json("versions", "t") if v["version"] == pushed]
            assert now["checksum"] == sound["checksum"], (at, mask)
        else:
            errors += 1
            assert "damaged.parquet: row group 0 " in seen.err, seen.err
    assert errors > 0


def test_intervals_of_parquet_keep_their_months(store, tmp_path):
    # Parquet has one kind of interval: months, days and milliseconds. The decoder returns parts.
    duckdb = pytest.importorskip("duckdb")
    source = tmp_path / "intervals.parquet"
    columns = "interval '14 months' c, [interval '3 years', null] l"
    inner = "{'x': interval '1 month 2 days 1.234 seconds'} s"
    rows = f"select 1 id, {columns}, {inner} union all select 2, null, null, null"
    duckdb.sql(f"copy ({rows}) to '{source}'")
    seen = store.run("push", "t", source, "--key", "{id}")
    assert seen.code == 0, seen.err
    first, second = store.json("get", "t", "1", "2")
    assert first == {
        "id": 1,
        "c": "P14M",
        "l": ["P36M", None],
        "s": {"x": "P1M2DT1.234000000S"},
    }
    assert second == {"id": 2, "c": None, "l": None, "s": None}


def test_duplicate_names_in_maps_and_structs_are_refused(store, tmp_path):
    source = tmp_path / "maps.jsonl"
    source.write_text('{"id":1,"m":{"a":1,"b":2}}\n{"id":2,"m":{"a":1,"a":2}}\n')
    seen = store.run("push", "t", source, "--key", "{id}", "--column", "m:map(text,int8)", code=1)
    assert "the name 'a' occurs twice in one object" in seen.err, seen.err
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    pq.write_table(pa.table({"id": [1], "s": twice}), tmp_path / "twice.parquet")
    seen = store.run("push", "t", tmp_path / "twice.parquet", "--key", "{id}", code=1)
    assert "two columns are named 's.x'" in seen.err, seen.err


def test_a_zero_byte_in_a_text_is_kept(store, tmp_path):
    source = tmp_path / "zero.csv"
    source.write_bytes(b"id,a\n1,x\0y\n")
    assert store.run("push", "t", source, "--key", "{id}").code == 0
    assert store.json("get", "t", "1") == [{"id": 1, "a": "x\0y"}]


def test_json_that_nests_too_deep_is_refused_with_the_reason(store, tmp_path):
    source = tmp_path / "deep.jsonl"
    source.write_text('{"id":1,"a":' + "[" * 100 + "]" * 100 + "}\n")
    seen = store.run("push", "t", source, "--key", "{id}", code=1)
    assert "line 1: its values nest deeper than 32" in seen.err, seen.err


def test_a_pipe_in_a_directory_is_refused(store, tmp_path):
    days = tmp_path / "days"
    (days / "day=1").mkdir(parents=True)
    os.mkfifo(days / "day=1" / "b.csv")
    for more in (None, "a.csv", "notes.txt", ".hidden.csv"):
        if more:
            (days / more).write_text("id,v\n1,2\n")
        message = store.refuse("push", "t", days, "--key", "{id}")
        assert "b.csv: it is a pipe, not a file" in message, message
    (days / "day=1" / "b.csv").rename(days / "day=1" / "b.pipe")
    (days / "day=1" / "c.csv").write_text("id,v\n3,4\n")
    assert store.push("t", days)["rows"] == 2


def test_a_pandas_range_index_is_reported_as_not_stored(store, tmp_path):
    frame = pd.DataFrame({"x": [7, 8, 9]}, index=pd.RangeIndex(3, name="id"))
    path = tmp_path / "ranged.parquet"
    frame.to_parquet(path)
    pushed = store.run("push", "t", path, "--key", "{x}")
    store.run("create", "live", "--value", "row", "--column", "x:int64")
    loaded = store.run("load", "live", path, "--key", "{x}")
    for text in (pushed.err, loaded.err):
        assert f"{path}: the index 'id' is a range" in text and "reset_index()" in text, text
    for words in (["push", "t"], ["load", "live"]):
        message = store.refuse(*words, path, "--key", "{id}")
        assert "names the column 'id'" in message and "reset_index()" in message, message
    frame.reset_index().to_parquet(path)
    assert "reset_index" not in store.run("push", "u", path, "--key", "{id}").err


@pytest.mark.parametrize("ending", ["parquet", "arrow", "arrows"])
def test_integers_of_128_bits_are_refused_with_their_column(store, tmp_path, ending):
    path = tmp_path / f"wide.{ending}"
    wide = pl.Series([1, 1 << 100], dtype=pl.Int128)
    frame = pl.DataFrame({"id": [1, 2], "in": pl.DataFrame({"big": wide}).to_struct()})
    writers = {"parquet": "write_parquet", "arrow": "write_ipc", "arrows": "write_ipc_stream"}
    getattr(frame, writers[ending])(path)
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "the column 'in.big'" in message and "decimal(38,0)" in message, message


def test_names_with_control_characters_are_kept_and_not_proposed(store, tmp_path):
    path = tmp_path / "odd.csv"
    path.write_bytes(b'id,"a\nb",n\0l,it\'s\n1,2,3,4\n')
    store.push("t", path)
    assert store.run("get", "t", "1").json() == {"id": 1, "a\nb": 2, "n\0l": 3, "it's": 4}
    path.write_bytes(b'id,"a\nb"\n1,2\n')
    held = store.run("push", "t", path, "--key", "{id}", code=3).err
    assert r"column a\nb" not in held and "--gate" not in held, held
    path.write_bytes(b"id,it's\n1,2\n2,x\n")
    message = store.refuse("push", "u", path, "--key", "{id}", "--column", "it's:int64")
    assert r"--column 'it'\''s:text'" in message, message


def test_an_unwritable_store_is_refused_with_advice(store, tmp_path, source):
    store.push("t", source())
    file = tmp_path / "file"
    file.touch()
    push = [BINARY, "push", "t", source(), "--key", "{id}", "--store"]
    alone = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--user", "--map-root-user"])]
    mount = f"mount --bind {store.path} {store.path} && mount -o remount,ro,bind {store.path}"
    read_only = [*alone, "sh", "-c", f'{mount} && exec "$@"', "sh", *push, store.path]
    for words, part in ((read_only, "mount the file system"), ([*push, file], "a file is where")):
        words = [str(word) for word in words]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1 and part in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("h.csv", b'a,"b\n1,2\n3,4\n', "its header: a quote is not closed before the file ends"),
        ("t.json", b'[{"a":1}]\n{"a":2}', "line 2: '{\"a\":2}' follows the ] that ends the JSON"),
        ("s.json", b'{"a":1,"b":"\\ud800"}\n', "s.json: line 1: "),
    ],
)
def test_text_that_parsing_would_lose_is_refused(store, tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_bytes(content)
    refused = store.run("push", "t", path, "--key", "{a}", "--bad-rows", "skip", code=1)
    assert expected in refused.err


def test_stray_carriage_returns_cost_no_other_row(store, tmp_path):
    path = tmp_path / "p.csv"
    path.write_bytes(b"a,b\n\r\r\n\r3,4\n5,6\n\r\r\n7,8\n")
    bad = tmp_path / "bad.jsonl"
    store.run("push", "t", path, "--key", "{a}", "--bad-rows", bad)
    assert [json.loads(line)["line"] for line in bad.read_text().splitlines()] == [2, 3, 5]
    assert store.json("get", "t", "5", "7") == [{"a": 5, "b": 6}, {"a": 7, "b": 8}]
