"""Pairs of types that do not convert are refused before any row is read."""

import random

import pyarrow as pa
import pytest
from oracle import drive, types
from oracle.convert import Refused, check
from oracle.trial import ROUNDS, SEED

PAIRS = 40


def refused(a, b):
    try:
        check(a, b)
        return False
    except Refused:
        return True


def draw(rng, targets):
    while True:
        a, b = rng.choice(types.SCALARS), rng.choice(targets)
        if rng.random() < 0.3:
            a, b = types.pair(a, b, rng, rng.randrange(1, 4))
        if refused(a, b) and types.plain(b) == b:
            return a, b


@pytest.mark.parametrize("way", ["column", "onto", "load"])
def test_types_that_do_not_convert_are_refused(store, tmp_path, way):
    rng = random.Random(SEED)
    targets = types.SCALARS if way == "onto" else [t for t in types.SCALARS if types.word(t)]
    for number in range(PAIRS * ROUNDS):
        a, b = draw(rng, targets)
        while way != "onto" and types.word(b) is None:
            a, b = draw(rng, targets)
        # The row is null, so only its types can be refused.
        path = drive.write(pa.table({"id": [1], "odd": pa.nulls(1, a)}), tmp_path / "rows.arrow")
        message = refuse(store, tmp_path, way, f"t{number}", path, b).lower()
        assert "odd" in message, f"seed {SEED}: {a} to {b}: {message}"
        for t in (a, b):
            assert any(word in message for word in types.words_for(t)), (
                f"seed {SEED}: {a} to {b}: {message}"
            )


def refuse(store, tmp_path, way, table, path, target):
    """Tries a conversion that must fail, and returns its message."""
    if way == "column":
        return store.refuse(
            "push", table, path, "--key", "{id}", "--column", f"odd:{types.word(target)}"
        )
    if way == "load":
        columns = ["--column", "id:int64", "--column", f"odd:{types.word(target)}"]
        store.run("create", table, "--value", "row", *columns)
        return store.refuse("load", table, path, "--key", "{id}", "--bad-rows", "skip")
    base = pa.table({"id": [2], "odd": pa.nulls(1, target)})
    store.push(table, drive.write(base, tmp_path / "base.arrow"))
    return store.refuse("push", table, path, "--onto", "current", "--bad-rows", "skip")


@pytest.mark.parametrize("way", ["onto", "load"])
def test_nulls_and_columns_that_the_table_forbids_are_refused(store, tmp_path, way):
    base = drive.write(pa.table({"id": [1], "v": [1]}), tmp_path / "base.parquet")
    wider = drive.write(pa.table({"id": [1], "v": [2], "more": [3]}), tmp_path / "wider.parquet")
    if way == "load":
        store.run("create", "t", "--value", "row", "--column", "id:int64", "--column", "v:int64")
        message = store.refuse("load", "t", wider, "--key", "{id}")
    else:
        store.push("t", base)
        message = store.refuse("push", "t", wider, "--onto", "current")
    assert "'more'" in message, message


def test_a_null_in_a_column_without_nulls_is_a_bad_row(store, tmp_path):
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), False)])
    base = pa.table({"id": [1], "v": [1]}, schema=schema)
    store.push("t", drive.write(base, tmp_path / "base.arrow"))
    change = drive.write(pa.table({"id": [2, 3], "v": [5, None]}), tmp_path / "change.arrow")
    message = store.refuse("push", "t", change, "--onto", "current")
    assert "'v'" in message and "null" in message, message
    lacking = drive.write(pa.table({"id": [2]}), tmp_path / "lacking.arrow")
    message = store.refuse("push", "t", lacking, "--onto", "current", "--bad-rows", "skip")
    assert "'v'" in message, message
