"""Random pairs of types on every path from a file to a table, compared with the model.

FOREBAY_TEST_SEED=n repeats a run, and FOREBAY_TEST_ROUNDS=n makes it n times as long.
"""

import random

import pyarrow as pa
import pytest
from oracle import drive, types
from oracle.convert import Refused, check, unwrap
from oracle.edges import nested
from oracle.trial import ROUNDS, SEED, Trial

FORMATS = [".parquet", ".arrow", ".arrows"]
PAIRS = 110


def converts(a, b, how=None):
    try:
        check(a, b, how)
        return True
    except Refused:
        return False


def sources(suffix):
    """The types that a kind of file has."""
    encoded = [
        wrap(t) for t in types.SCALARS[::5] for wrap in ENCODINGS if not pa.types.is_date64(t)
    ]
    return [t for t in [*types.SCALARS, *encoded] if suffix != ".parquet" or drive.parquet_has(t)]


ENCODINGS = [
    lambda t: pa.dictionary(pa.int16(), t),
    lambda t: pa.run_end_encoded(pa.int32(), t),
]


def fill(trial, suffix, targets, rng, rounds=ROUNDS):
    """Adds columns of random convertible pairs, a third of them nested."""
    have = sources(suffix)
    while len(trial.columns) < PAIRS * rounds:
        a, b = rng.choice(have), rng.choice(targets)
        if not converts(a, b):
            continue
        depth = rng.choice([0, 0, 1, rng.randrange(1, 5)])
        if depth and unwrap(a) == a:
            a, b = types.pair(a, b, rng, depth, types.NAMED if targets is NAMED else (0.1, 0.1))
        if depth and suffix == ".parquet" and not drive.parquet_has(a) or not converts(a, b):
            continue
        if targets is NAMED and types.word(b) is None:
            continue
        trial.add(a, b, nested(a, b, rng))
    return trial


NAMED = [t for t in types.SCALARS if types.word(t)]
KEPT = [t for t in types.SCALARS if types.plain(t) == t]


@pytest.mark.parametrize("suffix", FORMATS)
def test_types_given_by_column(store, tmp_path, suffix):
    trial = fill(Trial(random.Random(SEED)), suffix, NAMED, random.Random(SEED))
    path = drive.write(trial.table(), tmp_path / f"rows{suffix}")
    _, rejected = drive.push(store, "t", tmp_path, path, args=trial.words())
    drive.check({path.name: trial}, store, "t", tmp_path, rejected)


@pytest.mark.parametrize("suffix", FORMATS)
def test_types_of_the_table_apply_to_a_push_onto_a_version(store, tmp_path, suffix):
    trial = fill(Trial(random.Random(SEED)), suffix, KEPT, random.Random(SEED))
    path = drive.write(trial.table(), tmp_path / f"rows{suffix}")
    store.push("t", drive.write(trial.targets(), tmp_path / "empty.arrow"))
    _, rejected = drive.push(store, "t", tmp_path, path, args=["--onto", "current", "--force"])
    drive.check({path.name: trial}, store, "t", tmp_path, rejected)


@pytest.mark.parametrize("suffix", FORMATS)
def test_types_of_a_live_table_apply_to_a_load(store, tmp_path, suffix):
    trial = fill(Trial(random.Random(SEED)), suffix, NAMED, random.Random(SEED))
    path = drive.write(trial.table(), tmp_path / f"rows{suffix}")
    store.run("create", "t", "--value", "row", "--column", "id:int64", *trial.words())
    rejected = tmp_path / "rejected.jsonl"
    store.run("load", "t", path, "--key", "{id}", "--bad-rows", rejected)
    drive.check({path.name: trial}, store, "t", tmp_path, rejected)
