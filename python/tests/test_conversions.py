"""Conversions of data in memory to other types, compared with tests/oracle.

The oracle is the model of docs/reference/conversions.md.

FOREBAY_TEST_SEED=n repeats a run, FOREBAY_TEST_ROUNDS=n makes it n times as long.
"""

import random

import polars as pl
import pyarrow as pa
import pytest
from oracle import types
from oracle.convert import Refused, check
from oracle.edges import nested
from oracle.trial import ROUNDS, SEED, Trial, fail_on, reasons

import forebay

COLUMNS = 150
REFUSED = 120
PLAIN = [t for t in types.SCALARS if types.plain(t) == t]
NAMED = [t for t in types.SCALARS if types.word(t)]


def converts(a, b):
    try:
        check(a, b)
        return True
    except Refused:
        return False


def fill(targets, seed=SEED):
    """Returns columns of random pairs that convert; a third of them are nested."""
    rng = random.Random(seed)
    trial = Trial(rng)
    while len(trial.columns) < COLUMNS * ROUNDS:
        a, b = rng.choice(types.SCALARS), rng.choice(targets)
        if converts(a, b) and rng.random() < 0.3:
            strict = types.NAMED if targets is NAMED else (0.1, 0.1)
            a, b = types.pair(a, b, rng, rng.randrange(1, 5), strict)
        if converts(a, b) and types.plain(b) == b and (targets is not NAMED or types.word(b)):
            trial.add(a, b, nested(a, b, rng))
    return trial


def given(trial):
    """Returns the types of a trial's columns in the form of the parameter `column`."""
    words = [word for word in trial.words() if word != "--column"]
    return dict(word.split(":", 1) for word in words)


def stored(path):
    with forebay.open(path) as store:
        return pa.table(store["t"].scan()).sort_by("id")


def check_stored(trial, path, rejects):
    found = reasons(rejects)
    fail_on(trial.problems(stored(path), *found.values() or [{}]))


def test_types_given_by_column(path, tmp_path):
    trial, rejects = fill(NAMED), tmp_path / "rejects.jsonl"
    forebay.push(trial.table(), "t", key="{id}", column=given(trial), bad_rows=rejects, store=path)
    check_stored(trial, path, rejects)


def test_types_of_the_table_that_changes_are_pushed_onto(path, tmp_path):
    trial, rejects = fill(PLAIN), tmp_path / "rejects.jsonl"
    forebay.push(trial.targets(), "t", key="{id}", store=path)
    forebay.push(trial.table(), "t", onto="current", bad_rows=rejects, force=True, store=path)
    check_stored(trial, path, rejects)


def test_types_of_the_live_table_that_is_loaded(path, tmp_path):
    trial, rejects = fill(NAMED), tmp_path / "rejects.jsonl"
    with forebay.open(path, create=True) as store:
        table = store.create("t", value="row", column={"id": "int64", **given(trial)})
        table.load(trial.table(), key="{id}", bad_rows=rejects)
        found = pa.table(table.scan()).sort_by("id")
    fail_on(trial.problems(found, *reasons(rejects).values() or [{}]))


def test_types_that_do_not_convert(path):
    rng, tried = random.Random(SEED), 0
    while tried < REFUSED * ROUNDS:
        a, b = rng.choice(types.SCALARS), rng.choice(NAMED)
        if converts(a, b):
            continue
        tried += 1
        data = pa.table({"id": [1], "odd": pa.nulls(1, a)})
        with pytest.raises(forebay.Error, match="odd") as refused:
            forebay.push(
                data, "t", key="{id}", column={"odd": types.word(b)}, bad_rows="skip", store=path
            )
        for t in (a, b):
            text = str(refused.value).lower()
            assert any(word in text for word in types.words_for(t)), (
                f"seed {SEED}: {a} to {b}: {text}"
            )


def test_batches_of_a_stream_are_converted_like_a_table(path, tmp_path):
    """Row numbers count through the whole stream, in any thread that reads a batch."""
    trial, rejects = fill(NAMED), tmp_path / "rejects.jsonl"
    table = trial.table()
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    forebay.push(reader, "t", key="{id}", column=given(trial), bad_rows=rejects, store=path)
    check_stored(trial, path, rejects)


def test_a_frame_of_polars_is_converted_like_a_table(path):
    frame = pl.DataFrame({"id": [1, 2], "n": [1.0, 2.0], "s": [["1"], ["2", None]]})
    column = {"n": "int8", "s": "list(int32)"}
    forebay.push(frame, "t", key="{id}", column=column, store=path)
    with forebay.open(path) as store:
        assert store["t"][2] == {"id": 2, "n": 2, "s": [2, None]}
    fractional = frame.with_columns(pl.lit(0.5).alias("n"))
    with pytest.raises(forebay.DataError, match="row 1.*'n'.*0.5"):
        forebay.push(fractional, "t", key="{id}", column=column, store=path)
    column["n"] = "int8:round"
    forebay.push(fractional, "t", key="{id}", column=column, store=path)
    with forebay.open(path) as store:
        assert store["t"][1] == {"id": 1, "n": 1, "s": [1]}


def test_losses_are_counted(path):
    data = pa.table({"id": [1, 2, 3], "n": [0.5, 1.0, 1.5]})
    result = forebay.push(data, "t", key="{id}", column={"n": "int8:truncate"}, store=path)
    (lossy,) = result.lossy
    assert (lossy.column, lossy.how, lossy.values) == ("n", "truncate", 2)
    assert "2 values truncated" in str(result)
    assert "n: 2 values truncated" in result._repr_html_()


def test_losses_of_a_load_are_counted(path):
    data = pa.table({"id": [1, 2], "n": [0.5, 1.0]})
    with forebay.open(path, create=True) as store:
        table = store.create("t", value="row", column={"id": "int64", "n": "int8"})
        result = table.load(data, key="{id}", column=["n:int8:truncate"])
        (lossy,) = result.lossy
        assert (lossy.column, lossy.how, lossy.values) == ("n", "truncate", 1)
        assert "1 value truncated" in str(result)
        assert "n: 1 value truncated" in result._repr_html_()
        assert table[1] == {"id": 1, "n": 0}


def test_types_of_another_table(path):
    columns = {"id": "int16", "n": "decimal(9,2)"}
    data = pa.table({"id": [1], "n": [0.5]})
    forebay.push(data, "a", key="{id}", column=columns, store=path)
    forebay.push(data, "b", key="{id}", columns_from="a", store=path)
    with forebay.open(path) as store:
        assert pa.schema(store["b"].scan()).equals(pa.schema(store["a"].scan()))
