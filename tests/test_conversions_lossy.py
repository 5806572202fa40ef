"""Losses that a column allows: the values that arrive, and the number of changed ones."""

import random

import pyarrow as pa
import pytest
from oracle import drive, types
from oracle.convert import Refused, check, family, unwrap
from oracle.edges import nested
from oracle.trial import ROUNDS, SEED, Trial, fail_on

HOWS = ("round", "truncate", "null", "utc")
COLUMNS = 90
NAMED = [t for t in types.SCALARS if types.word(t)]
# Rounding and truncating apply to numbers and times.
ROUNDED = {"number", "time", "timestamp", "date", "duration"}


def sensible(a, b, how):
    """Whether docs/reference/conversions.md defines `how` for this pair."""
    kinds = family(unwrap(a)), family(b)
    if how == "utc":
        return kinds == ("timestamp", "timestamp") and (unwrap(a).tz is None) != (b.tz is None)
    if how == "null":
        return True
    if how == "truncate" and pa.types.is_floating(b):
        return False
    return kinds[0] in ROUNDED and kinds[1] in ROUNDED


def draw(rng, how):
    while True:
        a, b = rng.choice(types.SCALARS), rng.choice(NAMED)
        try:
            check(a, b, how)
        except Refused:
            continue
        if not sensible(a, b, how):
            continue
        if rng.random() < 0.3 and not is_undefined(b, how):
            a, b = types.pair(a, b, rng, rng.randrange(1, 4), strict=(0, 0))
        if types.word(b) and a != b and readable(a, b):
            return a, b


def readable(a, b):
    """Whether a list of the wrong fixed size occurs. It would be null as a whole, which the
    document does not define."""
    try:
        check(a, b, "utc")
    except Refused:
        return False
    return types.plain(b) == b and "fixed_size_list" not in f"{a}{b}"


def is_undefined(b, how):
    """The document does not define whether durations are truncated towards zero or the past."""
    return how == "truncate" and pa.types.is_duration(b)


def values(a, b, how, rng):
    found = nested(a, b, rng)
    return [value for value in found if value >= 0] if is_undefined(b, how) else found


def fill(how):
    rng = random.Random(SEED)
    trial = Trial(rng)
    for _ in range(COLUMNS * ROUNDS):
        a, b = draw(rng, how)
        trial.add(a, b, values(a, b, how, rng), how)
    return trial


def counted(trial, result):
    """The errors in the counts of a result."""
    reported = {
        entry["column"]: (entry["how"], entry["values"]) for entry in result.get("lossy", [])
    }
    wanted = trial.lossy()
    titles = {column.name: column.title() for column in trial.columns}
    return [
        f"{titles[name]}: {reported.get(name)} is counted, and {wanted.get(name)} were changed"
        for name in titles
        if (reported.get(name) or (None, 0))[1] != (wanted.get(name) or (None, 0))[1]
        or (name in wanted and reported[name][0] != wanted[name][0])
    ]


@pytest.mark.parametrize("how", HOWS)
def test_an_allowed_loss(store, tmp_path, how):
    trial = fill(how)
    path = drive.write(trial.table(), tmp_path / "rows.arrow")
    result, rejected = drive.push(store, "t", tmp_path, path, args=trial.words())
    drive.check({path.name: trial}, store, "t", tmp_path, rejected)
    fail_on(counted(trial, result))


@pytest.mark.parametrize("way", ["onto", "load"])
def test_an_allowed_loss_into_an_existing_table(store, tmp_path, way):
    trial = fill("round")
    path, rejected = (
        drive.write(trial.table(), tmp_path / "rows.arrow"),
        tmp_path / "t-rejected.jsonl",
    )
    if way == "onto":
        store.push("t", drive.write(trial.targets(), tmp_path / "empty.arrow"))
        args = ["--onto", "current", "--force", *trial.words()]
        result, rejected = drive.push(store, "t", tmp_path, path, args=args)
    else:
        plain = [word.removesuffix(":round") for word in trial.words()]
        store.run("create", "t", "--value", "row", "--column", "id:int64", *plain)
        args = ["--key", "{id}", "--bad-rows", rejected, *trial.words()]
        result = store.json("load", "t", path, *args)
    drive.check({path.name: trial}, store, "t", tmp_path, rejected)
    fail_on(counted(trial, result))


def test_texts_that_do_not_fit_are_rounded_or_null(store, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,r,t,n\n1,7.5,-7.5,seven\n2,0.1,1e-400,7\n3,12,12.9,7.5\n")
    given = [
        "--column",
        "r:int32:round",
        "--column",
        "t:int32:truncate",
        "--column",
        "n:int32:null",
    ]
    result = store.push("t", path, args=given)
    rows = store.json("get", "t", "1", "2", "3")
    assert [[row[name] for name in "rtn"] for row in rows] == [
        [8, -7, None],
        [0, 0, 7],
        [12, 12, None],
    ]
    counts = {entry["column"]: (entry["how"], entry["values"]) for entry in result["lossy"]}
    assert counts == {"r": ("round", 2), "t": ("truncate", 3), "n": ("null", 2)}
    text = store.run("push", "t", path, "--key", "{id}", *given).out
    assert "r: 2 values rounded" in text, text


def test_fields_and_items_are_named_by_paths(store, tmp_path):
    rows = pa.table({"id": [1], "price": [{"net": 1.5, "gross": 2.5}], "n": [[1.5, 2.0, -2.5]]})
    path = drive.write(rows, tmp_path / "rows.parquet")
    given = ["--column", "price.gross:int64:round", "--column", "n[]:int16:truncate"]
    result = store.push("t", path, args=given)
    assert store.json("get", "t", "1") == [
        {"id": 1, "price": {"net": 1.5, "gross": 3}, "n": [1, 2, -2]}
    ]
    counts = sorted((entry["how"], entry["values"]) for entry in result["lossy"])
    assert counts == [("round", 1), ("truncate", 2)]


def test_a_column_with_the_exact_name_precedes_a_field(store, tmp_path):
    rows = pa.table({"id": [1], "a": [{"b": 1.5}], "a.b": [2.5]})
    path = drive.write(rows, tmp_path / "rows.parquet")
    store.push("t", path, args=["--column", "a.b:int64:round"])
    assert store.json("get", "t", "1") == [{"id": 1, "a": {"b": 1.5}, "a.b": 3}]
    rows = pa.table({"id": [1], "a": [1.5], "a.b": [2.0]})
    other = drive.write(rows, tmp_path / "other.parquet")
    store.push("u", other, args=["--column", "a:int64:round", "--column", "a.b:int64"])
    rows = rows.set_column(2, "a.b", pa.array([2.5]))
    other = drive.write(rows, tmp_path / "other.parquet")
    args = ["--key", "{id}", "--column", "a:int64:round", "--column", "a.b:int64"]
    assert "'a.b'" in store.refuse("push", "u", other, *args)


def test_without_an_allowed_loss_nothing_is_lost_or_counted(store, tmp_path):
    path = drive.write(pa.table({"id": [1], "v": [7.0]}), tmp_path / "rows.parquet")
    assert not store.push("t", path, args=["--column", "v:int32"]).get("lossy")
    assert store.json("get", "t", "1")[0]["v"] == 7


@pytest.mark.parametrize("how", ["floor", "", "Round", "round:null"])
def test_an_unknown_loss_is_refused(store, tmp_path, how):
    path = drive.write(pa.table({"id": [1], "v": [7.5]}), tmp_path / "rows.parquet")
    result = store.run("push", "t", path, "--key", "{id}", "--column", f"v:int32:{how}", code=None)
    assert result.code in (1, 2) and "--column" in result.err and "int32" in result.err, result.err
