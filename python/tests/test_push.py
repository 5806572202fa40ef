"""Pushes from everything that speaks Arrow, and from files."""

import inspect
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import forebay

KEY = "bird/{id:04}"


def kinds_of_input(birds, folder):
    parquet = folder / "birds.parquet"
    pq.write_table(birds, parquet, row_group_size=300)
    duck = duckdb.connect()
    duck.register("birds", birds)
    return {
        "pyarrow.Table": birds,
        "pyarrow.RecordBatchReader": birds.to_reader(max_chunksize=77),
        "pyarrow.RecordBatch": birds.combine_chunks().to_batches()[0],
        "pyarrow.Dataset": ds.dataset(parquet),
        "pandas.DataFrame": birds.to_pandas(),
        "polars.DataFrame": pl.DataFrame(birds),
        "duckdb relation": duck.sql("select * from birds order by id"),
        "path": parquet,
        "list of paths": [str(parquet)],
        "glob": str(folder / "*.parquet"),
    }


def test_every_kind_of_input_makes_the_same_table(birds, path, tmp_path):
    values = {}
    for number, (kind, data) in enumerate(kinds_of_input(birds, tmp_path).items(), start=1):
        result = forebay.push(data, "birds", key=KEY, store=path, keep=20)
        assert (result.version, result.rows, result.swapped) == (number, 1000, True), kind
        assert result.bytes > 10_000 and result.seconds > 0
        with forebay.open(path) as store:
            values[kind] = store["birds"].get_many(f"bird/{id:04}" for id in range(1000))
    wanted = birds.set_column(3, "colour", birds["colour"].cast(pa.string())).to_pylist()
    for kind, rows in values.items():
        if kind == "pandas.DataFrame":
            # pandas has NaN where a float is null.
            assert [row["name"] for row in rows] == [row["name"] for row in wanted]
        else:
            assert rows == wanted, kind


def test_a_stream_is_read_batch_by_batch(path):
    """A generator gives more rows than are in memory at any time."""
    schema = pa.schema({"n": pa.int64(), "square": pa.int64()})
    open_at_once = []

    def batches():
        for first in range(0, 200_000, 1000):
            numbers = range(first, first + 1000)
            columns = [pa.array(numbers), pa.array(n * n for n in numbers)]
            open_at_once.append(pa.total_allocated_bytes())
            yield pa.record_batch(columns, schema=schema)

    before = pa.total_allocated_bytes()
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    result = forebay.push(reader, "squares", key="{n}", value="square", store=path)
    assert result.rows == 200_000
    assert max(open_at_once) - before < 2_000_000, "the stream was collected"
    with forebay.open(path) as store:
        assert store["squares"][777] == b"603729"


def test_an_error_in_the_data_stops_the_push_and_keeps_its_message(path):
    def batches():
        yield pa.record_batch({"id": [1]})
        raise RuntimeError("the database hung up")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"id": pa.int64()}), batches())
    with pytest.raises(forebay.DataError, match="(?s)after row 1.*the database hung up"):
        forebay.push(reader, "t", key="{id}", store=path)
    with forebay.open(path) as store:
        assert store.tables() == []


def test_a_push_leaves_the_caller_its_priority(birds, path, tmp_path):
    parquet = tmp_path / "birds.parquet"
    pq.write_table(birds, parquet)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    for data in (parquet, birds):
        forebay.push(data, "birds", key=KEY, store=path)
        assert os.getpriority(os.PRIO_PROCESS, 0) == before
        assert {thread.read_text() for thread in Path("/proc/self/task").glob("*/comm")}.isdisjoint(
            {"forebay-turns\n", "forebay-behind\n"}
        )


@pytest.mark.parametrize(
    ("command", "function", "apart"),
    [
        ("push", forebay.push, "data table progress"),
        ("load", forebay.load, "data table progress"),
        ("create", forebay.Store.create, "self table"),
    ],
)
def test_options_equal_those_of_the_command_line(command, function, apart):
    """Every flag of a command is a parameter, and every parameter is a flag."""
    line = [sys.executable, "-m", "forebay", command, "--help"]
    text = subprocess.run(line, capture_output=True, text=True, check=True).stdout
    flags = set(re.findall(r"^ +(?:-\w, )?--([a-z][a-z-]*)", text, re.M))
    # The caller sets the priority of its own process.
    flags -= {"help", "json", "quiet", "nice", "create"}
    if command != "load":
        # Only a load connects to nodes.
        flags -= {"login", "tls-ca", "tls-cert", "tls-key"}
    if command == "create":
        # The store is the object, and boundaries of bytes need no flag.
        flags -= {"store", "work-dir", "mode", "hex"}
    names = inspect.signature(function).parameters
    given = {name.rstrip("_").replace("_", "-") for name in names}
    assert given == flags | set(apart.split()), f"name it in {function.__qualname__}"


def test_all_options_reach_the_loader(birds, path):
    result = forebay.push(
        birds,
        "birds",
        key="{id}",
        store=path,
        order="ordered",
        partitions=3,
        value="name",
        duplicates="last",
        bad_rows="skip",
        ttl="7d",
        column={"id": "int32"},
        version=40,
        compression="zstd",
        page_size="8k",
        memory="64M",
        threads=1,
        rate="1G",
        gate=["rows>-1%", "changed<5%"],
        keep=2,
        no_swap=True,
        progress=False,
    )
    assert (result.version, result.swapped) == (40, False)
    with forebay.open(path) as store:
        table = store["birds@40"]
        assert table.order == "ordered" and table["17"] == b"bird 17"
        with pytest.raises(forebay.MissingError, match="serves no version yet"):
            store["birds"]


def test_wrong_options_are_reported_by_their_names_in_python(birds, path):
    def wrong(match, error=forebay.UsageError, **options):
        with pytest.raises(error, match=match):
            forebay.push(birds, options.pop("table", "t"), store=path, **options)

    wrong("invalid value 'sideways' for order\n.*hashed, ordered", key="{id}", order="sideways")
    wrong("required arguments were not provided:\n  key", key=None)
    wrong("not a limit: write rows>-20%", key="{id}", gate="rows>many")
    wrong("required arguments were not provided:\n  onto", key="{id}", op="what")
    wrong("invalid value 'a/b' for table", table="a/b", key="{id}")
    wrong(
        "names the column 'nr', which the source does not have; it has: id,",
        error=forebay.DataError,
        key="{nr}",
    )
    with pytest.raises(TypeError, match="neither a path nor does it speak Arrow"):
        forebay.push(7, "t", key="{id}", store=path)  # pyright: ignore
    with pytest.raises(forebay.MissingError, match="nowhere.parquet: there is no such file"):
        forebay.push("nowhere.parquet", "t", key="{id}", store=path)


def test_messages_name_options_and_methods_as_python_has_them(path):
    rows = pa.table({"id": [1, 1], "n": ["a", "b"]})

    def reported(error, **options):
        with pytest.raises(error) as raised:
            forebay.push(rows, "t", key="{id}", store=path, **options)
        assert "--" not in str(raised.value)
        return str(raised.value)

    assert 'choose one of them by duplicates="first" or' in reported(forebay.DataError)
    given = {"duplicates": "last", "column": {"n": "int64"}}
    words = reported(forebay.DataError, **given)
    assert 'as by column={"n": "text"}, or leave such rows out by bad_rows="skip"' in words
    forebay.push(rows, "t", key="{id}", duplicates="last", store=path)
    rows = rows.slice(0, 0)
    words = reported(forebay.GateHeld)
    assert 'store["t"].swap(2)' in words and "push again:            with force=True" in words
    result = forebay.push(rows, "t", key="{id}", store=path, dry_run=True)
    assert "--" not in " ".join(result.messages)


def test_every_stage_ends_at_its_total(path, tmp_path):
    rows = pa.table({"id": [*range(20_000), *range(500)], "n": 20_500 * [1]})
    pyarrow.csv.write_csv(rows, tmp_path / "rows.csv")
    last = {}

    def note(reported):
        last[reported.stage] = reported

    for data in (rows, iter(rows.to_batches(1000)), tmp_path / "rows.csv"):
        last.clear()
        given = {"key": "{id}", "duplicates": "first", "store": path}
        forebay.push(data, "t", progress=note, **given)
        assert set(last) >= {"reading", "building"}
        assert all(one.done == one.total for one in last.values() if one.total is not None)
        assert all(one.done > 0 for one in last.values())
    assert last["comparing"].done > 1000
    with forebay.open(path) as store:
        store["t"].verify(progress=note)
    assert last["verifying"].done == last["verifying"].total > 0


def test_bad_rows_and_duplicates_are_named(path, tmp_path):
    rows = pa.table({"id": [1, None, 2, 2], "n": [1, 2, 3, 4]})
    with pytest.raises(forebay.DataError, match="pyarrow.Table: row 2: .*'id' is null"):
        forebay.push(rows, "t", key="{id}", store=path)
    with pytest.raises(forebay.DataError, match="key 2 occurs more than once"):
        forebay.push(rows, "t", key="{id}", bad_rows="skip", store=path)
    rejects = tmp_path / "rejects.jsonl"
    result = forebay.push(
        rows, "t", key="{id}", bad_rows=rejects, duplicates="last", value="n", store=path
    )
    assert (result.rows, result.rejected, result.duplicates) == (2, 1, 1)
    assert "'id' is null" in rejects.read_text()
    assert "1 bad row rejected; 1 duplicate left out" in str(result)


def test_the_gate_holds_and_the_version_is_kept(birds, path):
    forebay.push(birds, "birds", key=KEY, store=path)
    with pytest.raises(forebay.GateHeld, match="rows>-20%") as held:
        forebay.push(birds.slice(0, 500), "birds", key=KEY, store=path)
    assert held.value.result.version == 2 and not held.value.result.swapped
    with forebay.open(path) as store:
        table = store["birds"]
        assert [v.serving for v in table.versions()] == [True, False]
        assert "bird/0700" in table
        table.swap(2)
        assert "bird/0700" not in table
    assert forebay.push(birds.slice(0, 9), "birds", key=KEY, store=path, force=True).swapped


def test_changes_onto_the_serving_version(path):
    forebay.push(
        pa.table({"id": [1, 2], "n": [10, 20]}), "t", key="{id}", value="n", delta="i64", store=path
    )
    changes = pa.table({"id": [1, 2, 3], "n": [5, None, 7], "what": ["delta", "delete", "insert"]})
    result = forebay.push(changes, "t", onto="current", op="what", store=path, force=True)
    assert result.onto == 1
    assert result.applied == forebay.Applied(updates=0, inserts=1, deletes=1, deltas=1)
    with forebay.open(path) as store:
        assert store["t"].get_many([1, 2, 3]) == [15, None, 7]
        assert store["t"].kind == "number"
        assert store["t"].compact().table == "t"
        assert store["t"].versions()[-1].runs == 1


def test_progress_is_reported_to_a_function_and_drawn_by_tqdm(birds, path, capsys):
    updates = []
    forebay.push(birds, "birds", key=KEY, store=path, progress=updates.append)
    assert {p.stage for p in updates} >= {"reading", "building"}
    reading = [p for p in updates if p.stage == "reading"]
    assert reading[-1].done == reading[-1].total == 1000 and reading[-1].unit == "rows"
    forebay.push(birds, "birds", key=KEY, store=path, progress=True)
    drawn = capsys.readouterr().err
    assert "birds: reading" in drawn and "100%" in drawn
    forebay.push(birds, "birds", key=KEY, store=path, progress=False)
    assert capsys.readouterr().err == ""


def test_an_exception_in_the_progress_function_ends_the_push(path):
    def refuse(progress):
        raise ZeroDivisionError("no more")

    with pytest.raises(ZeroDivisionError, match="no more"):
        forebay.push(pa.table({"id": range(100_000)}), "t", key="{id}", store=path, progress=refuse)
    with forebay.open(path) as store:
        assert store.tables() == []


def test_other_threads_run_during_a_push(path):
    """A thread counts while the main one pushes. It would stop if the push kept the lock."""
    numbers = pa.table({"id": pa.array(range(400_000))})
    count, begun, over = 0, threading.Event(), threading.Event()

    def work():
        nonlocal count
        while not over.is_set():
            count += 1
            begun.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    before = count
    forebay.push(numbers, "t", key="{id}", store=path, progress=False)
    counted = count - before
    over.set()
    thread.join()
    assert counted > 100_000


SLOW = """
    import sys, pyarrow as pa, pyarrow.parquet, forebay
    def progress(p):
        print("going", flush=True)
    rows = pa.table({{"id": pa.array(range(3_000_000))}})
    file = {file!r}
    pa.parquet.write_table(rows, file)
    forebay.push({source}, "t", key="{{id}}", store={path!r}, rate="2M", progress=progress)
"""


@pytest.mark.parametrize(
    ("how", "source"),
    [(signal.SIGINT, "rows"), (signal.SIGINT, "file"), (signal.SIGKILL, "rows")],
)
def test_a_push_that_is_interrupted_or_killed_leaves_nothing(birds, path, tmp_path, how, source):
    forebay.push(birds, "t", key="{id}", value="name", store=path)
    code = SLOW.format(path=path, source=source, file=str(tmp_path / "rows.parquet"))
    code = textwrap.dedent(code)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "going\n"
    with pytest.raises(forebay.BusyError, match="another push to table t is under way"):
        forebay.push(birds, "t", key="{id}", store=path)
    process.send_signal(how)
    _, errors = process.communicate(timeout=90)
    assert process.returncode != 0
    if how == signal.SIGINT:
        assert errors.rstrip().endswith("KeyboardInterrupt")
    with forebay.open(path) as store:
        assert store["t"][5] == b"bird 5" and len(store["t"].versions()) == 1
    assert forebay.push(birds, "t", key="{id}", value="name", store=path).version == 2


def test_a_named_index_and_times_of_pandas_are_kept(path):
    frame = pd.DataFrame({"n": [1.5, 2.5], "day": pd.to_datetime(["2026-01-02", "2026-03-04"])})
    frame.index = pd.Index(["a", "b"], name="code")
    forebay.push(frame, "t", key="{code}", store=path)
    with forebay.open(path) as store:
        row = store["t"]["b"]
    assert row["n"] == 2.5 and row["day"] == pd.Timestamp("2026-03-04").to_pydatetime()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("threads", True, "threads is int, not True"),
        ("threads", "2", "threads is int, not '2'"),
        ("store", 5, "store is path, not 5"),
        ("force", "yes", "force is bool, not 'yes'"),
        ("gate", 3, r"gate is str \| Sequence\[str\], not 3"),
        ("column", "n:int64", r"column is Mapping\[str, str\] \| Sequence\[str\], not 'n:int64'"),
        ("order", 1, r"order is \"hashed\" \| \"ordered\", not 1"),
        ("progress", "x", r"progress is bool \| function, not 'x'"),
        ("boundaries", [1.5], "boundaries are of str or bytes, or slots of int, not 1.5"),
    ],
)
def test_options_of_other_classes_are_refused(path, option, value, words):
    given = {"store": path, option: value}
    with pytest.raises(TypeError, match=words):
        forebay.push({"id": [1]}, "t", key="{id}", **given)


def test_numbers_of_numpy_are_options(path):
    options = {"partitions": np.int64(3), "boundaries": None, "threads": np.int8(1)}
    result = forebay.push({"id": [1]}, "t", key="{id}", store=path, **options)
    assert result.version == 1
    slots = np.array([1000, 2000])
    assert forebay.push({"id": [2]}, "u", key="{id}", store=path, boundaries=slots).rows == 1


def test_numbers_below_zero_are_refused(path):
    for option in ["keep", "version"]:
        with pytest.raises(forebay.UsageError, match="'-1' is not a whole number of 0 or more"):
            forebay.push({"id": [1]}, "t", key="{id}", store=path, **{option: -1})
