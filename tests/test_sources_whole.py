"""Sources that other readers accept as whole, or misread, are refused with the reason."""

import subprocess

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from harness import BINARY

FAR = 253_402_300_799_000_000  # 9999-12-31T23:59:59 in microseconds


def old_parquet(path, column):
    table = pa.table({"id": [1, 2], "at": column})
    pyarrow.parquet.write_table(
        table, path, use_deprecated_int96_timestamps=True, store_schema=False
    )
    return path


def test_times_of_96_bits_beyond_nanoseconds_are_refused(store, tmp_path):
    near = pa.array([0, 1_700_000_000_000_001], pa.timestamp("us"))
    store.push("t", old_parquet(tmp_path / "near.parquet", near))
    assert store.json("get", "t", "2")[0]["at"] == "2023-11-14T22:13:20.000001000"
    for name, far in {
        "flat": pa.array([0, FAR], pa.timestamp("us")),
        "list": pa.array([[0], [0, FAR]], pa.list_(pa.timestamp("us"))),
        "struct": pa.array([{"x": 0}, {"x": FAR}], pa.struct({"x": pa.timestamp("us")})),
    }.items():
        path = old_parquet(tmp_path / f"{name}.parquet", far)
        message = store.refuse("push", "far", path, "--key", "{id}")
        assert "its column 'at' has a time of 96 bits" in message, message


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_two_columns_with_one_name_are_refused(store, tmp_path, ending):
    table = pa.Table.from_arrays([pa.array([1]), pa.array([10]), pa.array([99])], ["id", "p", "p"])
    path = tmp_path / f"join.{ending}"
    if ending == "parquet":
        pyarrow.parquet.write_table(table, path)
    else:
        with pyarrow.ipc.new_file(path, table.schema) as file:
            file.write_table(table)
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "two columns are named 'p'" in message


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_arrow_files_with_damaged_lengths_are_refused(store, tmp_path, codec):
    """A reader would allocate memory of each damaged length."""
    table = pa.table({"id": [i // 1000 for i in range(4321)]})
    path = tmp_path / "t.arrow"
    options = pyarrow.ipc.IpcWriteOptions(compression=codec)
    with pyarrow.ipc.new_file(path, table.schema, options=options) as file:
        file.write_table(table)
    good = path.read_bytes()
    length = (4321 * 8).to_bytes(8, "little")
    assert good.count(length) == 1
    path.write_bytes(good.replace(length, (1 << 46).to_bytes(8, "little")))
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "t.arrow: record batch 0 is damaged or cut off: a buffer of" in message
    path.write_bytes(good[:-10] + b"\xff\xff\xff\x7fARROW1")
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "its footer is damaged or cut off: its length is 2147483647 bytes" in message


def test_streams_that_are_truncated_or_followed_by_data_are_refused(store, tmp_path):
    table = pa.table({"id": list(range(100))})
    whole = tmp_path / "whole.arrows"
    with pyarrow.ipc.new_stream(whole, table.schema) as stream:
        for batch in table.to_batches(max_chunksize=50):
            stream.write_batch(batch)
    bytes_ = whole.read_bytes()
    store.push("t", whole)
    (tmp_path / "two.arrows").write_bytes(bytes_ * 2)
    (tmp_path / "cut.arrows").write_bytes(bytes_[:-8])
    message = store.refuse("push", "t", tmp_path / "two.arrows", "--key", "{id}")
    assert "follows the end of the stream" in message
    message = store.refuse("push", "t", tmp_path / "cut.arrows", "--key", "{id}")
    assert "it may be cut off" in message


@pytest.mark.parametrize(
    "line",
    [
        '{"id":2,"a":[1,,2]}',
        '{"id":2 "a":[2]}',
        '{"id":2,,"a":[2]}',
        '{"id":2,}',
        '{"id":2,"a":[1,]}',
        '{"id":2,"a":[007]}',
        '{"id":2,"id":3}',
        '{"id":2,"s":{"x":1,"x":1}}',
    ],
)
def test_invalid_json_is_a_bad_row(store, tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id":1,"a":[1],"s":{"x":1}}\n' + line + "\n")
    message = store.refuse("push", "t", path, "--key", "{id}")
    assert "line 2" in message, message


def test_a_file_that_changes_during_a_push_is_refused(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n1,a\n")
    options = ["--format", "csv", "--key", "{id}", "--create"]
    command = [BINARY, "--store", store.path, "push", "t", path, "-", *options]
    push = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    # Sources are opened in order. Once the second one accepts more than a pipe holds, the file is
    # open.
    lines = "".join(f"{number},a\n" for number in range(2, 100_000))
    push.stdin.write(("id,v\n" + lines).encode())
    with path.open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"b\n")
    _, error = push.communicate()
    assert push.returncode == 1 and b"was written to while it was read" in error, error


def test_a_push_succeeds_with_a_full_standard_error(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n1,a\n")
    with open("/dev/full", "wb") as full:
        command = [BINARY, "--store", store.path, "push", "t", path, "--key", "{id}", "--create"]
        words = [str(word) for word in command]
        done = subprocess.run(words, stderr=full, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert store.json("get", "t", "1") == [{"id": 1, "v": "a"}]
