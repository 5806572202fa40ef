"""Files of one push whose columns have different types: the common type, and the stored values."""

import itertools
import random

import pyarrow as pa
import pytest
from oracle import drive, types
from oracle.edges import nested
from oracle.trial import ROUNDS, SEED, Trial
from oracle.union import united

PLACES = [(".parquet", ".parquet"), (".arrow", ".parquet"), (".arrows", ".arrow")]
COLUMNS = 60
CONFLICTS = 25


def holds(suffix, t):
    return suffix != ".parquet" or drive.parquet_has(t)


def draw(rng, suffixes):
    """Two different types, and a type that holds both, or None."""
    while True:
        a, b = rng.choices(types.SCALARS, k=2)
        if rng.random() < 0.3:
            a, b = types.pair(a, b, rng, rng.randrange(1, 4))
        if types.plain(a) != types.plain(b) and holds(suffixes[0], a) and holds(suffixes[1], b):
            return a, b, united(a, b)


@pytest.mark.parametrize("suffixes", PLACES)
def test_the_type_that_holds_both(store, tmp_path, suffixes):
    rng = random.Random(SEED)
    count = COLUMNS * ROUNDS
    first, second = Trial(rng), Trial(rng, first_id=100_000)
    while len(first.columns) < count:
        a, b, target = draw(rng, suffixes)
        if target is not None:
            first.add(a, target, nested(a, target, rng))
            second.add(b, target, nested(b, target, rng))
    paths = [tmp_path / f"{name}{suffix}" for name, suffix in zip("ab", suffixes, strict=True)]
    trials = dict(zip([path.name for path in paths], (first, second), strict=True))
    for path, trial in zip(paths, trials.values(), strict=True):
        drive.write(trial.table(), path)
    _, rejected = drive.push(store, "t", tmp_path, *paths)
    drive.check(trials, store, "t", tmp_path, rejected, digits=False)


def test_types_without_a_common_type_are_a_conflict(store, tmp_path):
    rng, tried = random.Random(SEED), 0
    while tried < CONFLICTS * ROUNDS:
        a, b, target = draw(rng, (".arrow", ".arrow"))
        if target is not None:
            continue
        tried += 1
        paths = [
            drive.write(
                pa.table({"id": [number], "odd": pa.nulls(1, t)}), tmp_path / f"{name}.arrow"
            )
            for number, (name, t) in enumerate([("a", a), ("b", b)])
        ]
        message = store.refuse("push", "t", *paths, "--key", "{id}").lower()
        for word in ["odd", "a.arrow", "b.arrow", "--column"]:
            assert word in message, f"seed {SEED}: {a} and {b}: {message}"
        for t in (a, b):
            assert any(word in message for word in types.words_for(t)), (
                f"seed {SEED}: {a} and {b}: {message}"
            )


def evolved(tmp_path, *rows):
    """A file per row, whose column `v` has exactly the fields of that row."""
    return [
        drive.write(pa.table({"id": [number], "v": [row]}), tmp_path / f"{number}.parquet")
        for number, row in enumerate(rows)
    ]


def values(store, count):
    return [row["v"] for row in store.json("get", "t", *map(str, range(count)))]


@pytest.mark.parametrize("turned", [False, True])
def test_a_field_that_a_file_lacks_is_null(store, tmp_path, turned):
    rows = [{"a": 1}, {"a": 2, "b": "two"}][:: -1 if turned else 1]
    store.push("t", *evolved(tmp_path, *rows))
    assert values(store, 2) == [{"b": None, **row} for row in rows]


@pytest.mark.parametrize("turned", [False, True])
def test_a_field_that_the_structs_of_lists_lack_is_null(store, tmp_path, turned):
    rows = [[{"a": 1}, {"a": 2}], [{"b": 1.5, "a": 3}]][:: -1 if turned else 1]
    store.push("t", *evolved(tmp_path, *rows))
    assert values(store, 2) == [[{"b": None, **item} for item in row] for row in rows]


def test_a_field_that_only_one_file_has_five_levels_deep(store, tmp_path):
    def wrap(inner):
        return {"l1": [{"l2": {"l3": [{"l4": inner}]}}]}

    rows = [wrap({"a": 1}), wrap({"a": 2, "b": {"c": "deep"}}), wrap({"c": [1.5], "a": None})]
    store.push("t", *evolved(tmp_path, *rows))
    wanted = [
        wrap({"a": None, "b": None, "c": None, **row["l1"][0]["l2"]["l3"][0]["l4"]}) for row in rows
    ]
    assert values(store, 3) == wanted


def test_an_integer_that_the_common_float_cannot_hold_is_a_bad_row(store, tmp_path):
    whole = pa.table({"id": [1, 2], "n": pa.array([2**53, 2**53 + 1], pa.int64())})
    paths = [
        drive.write(whole, tmp_path / "whole.parquet"),
        drive.write(pa.table({"id": [3], "n": [0.5]}), tmp_path / "half.parquet"),
    ]
    message = store.refuse("push", "t", *paths, "--key", "{id}")
    for word in ["whole.parquet", "row 2", "'n'", "9007199254740993"]:
        assert word in message, message
    pushed = store.push("t", *paths, args=["--bad-rows", "skip"])
    assert (pushed["rows"], pushed["rejected"]) == (2, 1)


def test_columns_inferred_from_text_stay_text_if_their_types_differ(store, tmp_path):
    files = {"a.csv": "id,n\n1,1.50\n2,7\n", "b.csv": "id,n\n3,x1\n", "c.csv": "id,n\n4,007\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    store.push("t", tmp_path / "*.csv")
    rows = store.json("get", "t", "1", "2", "3", "4")
    assert [row["n"] for row in rows] == ["1.50", "7", "x1", "007"]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ((pa.int64(), pa.uint64(), pa.float32()), pa.float64()),
        ((pa.int8(), pa.uint8(), pa.float16()), pa.float64()),
        ((pa.int64(), pa.int8(), pa.uint64()), pa.decimal128(20, 0)),
        ((pa.date32(), pa.timestamp("s"), pa.date64()), pa.timestamp("ms")),
        ((pa.null(), pa.int8(), pa.decimal128(9, 4)), pa.decimal128(9, 4)),
    ],
)
def test_the_order_of_files_does_not_matter(store, tmp_path, kinds, wanted):
    files = [pa.table({"id": [number], "v": pa.nulls(1, t)}) for number, t in enumerate(kinds)]
    for number, order in enumerate(itertools.permutations(files)):
        paths = [drive.write(file, tmp_path / f"{at}.arrow") for at, file in enumerate(order)]
        store.push(f"t{number}", *paths)
        found = drive.stored(store, f"t{number}", tmp_path).schema.field("v").type
        assert types.shape(found, digits=False) == types.shape(wanted, digits=False)
