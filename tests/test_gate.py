"""The gate checks schemas: it holds, reports or ignores a change, as the user chose. diff uses the
same text."""

import json

import pyarrow as pa
import pytest
from data import write


def prices(**changes):
    """Fifty rows with a struct, a list and a map. A change of None removes a column."""
    ids = range(50)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "n": pa.array(ids, pa.int32()),
        "note": pa.array([f"note {i}" for i in ids]),
        "price": pa.array(
            [{"net": i, "vat": i / 10} for i in ids],
            pa.struct([("net", pa.int32()), ("vat", pa.float64())]),
        ),
        "tags": pa.array([[i] for i in ids], pa.list_(pa.int16())),
        "sizes": pa.array([[("a", i)] for i in ids], pa.map_(pa.string(), pa.int8())),
        **changes,
    }
    return pa.table({name: column for name, column in columns.items() if column is not None})


@pytest.fixture
def push(store, tmp_path):
    """Pushes a table, and returns the last object of --json."""
    made = []

    def push(table, *args, code=0, key="{id}"):
        made.append(None)
        path = write(table, tmp_path / f"prices-{len(made)}.parquet")
        return store.push("prices", path, key=key, code=code, args=args)

    return push


def schema_findings(pushed):
    """The findings about the schema: the limit, and whether it passed."""
    return [(f["limit"], f["passed"]) for f in pushed["gate"] if "=" in f["limit"]]


def words(pushed):
    return [finding["seen"] for finding in pushed["gate"] if "=" in finding["limit"]]


def versions(store):
    return {v["version"]: v["serving"] for v in store.json("versions", "prices")}


NET = pa.array([{"net": i} for i in range(50)], pa.struct([("net", pa.int32())]))
TEXTS = pa.array([str(i) for i in range(50)])
FLOATS = pa.array([float(i) for i in range(50)])


@pytest.mark.parametrize(
    "changes, limit, seen",
    [
        ({"note": None}, "column-gone", "column note is gone (text)"),
        ({"price": NET}, "column-gone", "column price.vat is gone (float64)"),
        ({"n": TEXTS}, "type-changed", "column n changed its type: int32 to text"),
        ({"n": FLOATS}, "type-changed", "column n changed its type: int32 to float64"),
        (
            {"tags": pa.array([["a"]] * 50)},
            "type-changed",
            "column tags[] changed its type: int16 to text",
        ),
        (
            {"sizes": pa.array([[("a", "b")]] * 50, pa.map_(pa.string(), pa.string()))},
            "type-changed",
            "column sizes.value changed its type: int8 to text",
        ),
    ],
)
def test_changes_that_break_readers_are_held(store, push, changes, limit, seen):
    push(prices())
    held = push(prices(**changes), code=3)
    assert held["swapped"] is False
    assert schema_findings(held) == [(f"{limit}=hold", False)] and words(held) == [seen]
    assert versions(store) == {1: True, 2: False}
    # A report for this column and one for all give the same result. A column's limit includes its
    # nested fields.
    column = seen.split()[1]
    for given in [f"{limit}({column})=report", f"{limit}=report"]:
        passed = push(prices(**changes), "--gate", given)
        assert passed["swapped"] is True
        assert schema_findings(passed) == [(given, True)] and words(passed) == [seen]
        store.run("swap", "prices", "1")
    forced = push(prices(**changes), "--force")
    assert forced["swapped"] is True and schema_findings(forced) == [(f"{limit}=hold", False)]


@pytest.mark.parametrize(
    "changes, limit, seen",
    [
        ({"fresh": TEXTS}, "column-new", "column fresh is new (text)"),
        (
            {"n": pa.array(range(50), pa.int64())},
            "type-widened",
            "column n has a wider type: int32 to int64",
        ),
        (
            {"tags": pa.array([[i] for i in range(50)], pa.list_(pa.int32()))},
            "type-widened",
            "column tags[] has a wider type: int16 to int32",
        ),
    ],
)
def test_changes_that_keep_readers_working_are_reported_and_can_be_held(
    store, push, changes, limit, seen
):
    push(prices())
    passed = push(prices(**changes))
    assert passed["swapped"] is True
    assert schema_findings(passed) == [(f"{limit}=report", True)] and words(passed) == [seen]
    store.run("rollback", "prices")
    held = push(prices(**changes), "--gate", f"{limit}=hold", code=3)
    assert schema_findings(held) == [(f"{limit}=hold", False)]


def test_changes_of_key_value_and_order_are_found(store, push):
    push(prices(), "--order", "ordered")
    held = push(prices(), code=3)
    assert words(held) == ["the order changed: ordered to hashed"]
    held = push(prices(), "--order", "ordered", key="{n}-{id}", code=3)
    assert words(held) == ["the key template changed: '{id}' to '{n}-{id}'"]
    held = push(prices(), "--order", "ordered", "--value", "n", code=3)
    assert words(held) == ["the values changed: whole rows to the bytes of column n"]
    limits = ["order-lost=report", "value-kind=report", "bytes>-95%"]
    gates = [word for limit in limits for word in ("--gate", limit)]
    assert push(prices(), "--value", "n", *gates)["swapped"] is True
    # Now the values are those of `n` alone, so no other column counts.
    wider = prices(n=pa.array(range(50), pa.int64()), note=None)
    back = push(wider, "--value", "n", "--order", "ordered")
    assert words(back) == [
        "column n has a wider type: int32 to int64",
        "the order changed: hashed to ordered",
    ]
    held = push(prices(), "--value", "note", "--order", "ordered", code=3)
    assert words(held) == ["the values changed: the bytes of column n to the bytes of column note"]


def test_equal_schemas_give_no_findings(push):
    push(prices())
    order = prices().select(["sizes", "id", "note", "tags", "n", "price"])
    assert schema_findings(push(order)) == []
    dictionary = prices(note=prices()["note"].combine_chunks().dictionary_encode())
    assert schema_findings(push(dictionary)) == []


def test_a_held_version_comes_with_advice(store, push, tmp_path):
    push(prices())
    path = write(prices(note=None, fresh=TEXTS).slice(0, 20), tmp_path / "held.parquet")
    held = store.run("push", "prices", path, "--key", "{id}", code=3).err
    assert "HELD rows>-20%: rows 50 to 20 (-60%)" in held
    assert "HELD column-gone=hold: column note is gone (text)" in held
    assert "also column fresh is new (text)" in held
    # Limits that passed are not printed.
    assert "nulls" not in held and "type-" not in held
    assert "forebay diff prices 1 2" in held and "forebay swap prices 2" in held
    assert "--force, or --gate 'rows>-61%' --gate 'bytes>-" in held
    assert "--gate 'column-gone(note)=report'" in held
    # The proposed options work.
    line = next(line for line in held.splitlines() if "--force, or " in line)
    limits = [word.strip("' ") for word in line.split("--gate")[1:]]
    gates = [word for limit in limits for word in ("--gate", limit)]
    assert store.push("prices", path, args=gates)["swapped"] is True


def test_reports_and_forced_changes_are_printed_beside_the_result(store, push, tmp_path):
    push(prices())
    path = write(prices(fresh=TEXTS), tmp_path / "fresh.parquet")
    result = store.run("push", "prices", path, "--key", "{id}")
    assert "gate: column fresh is new (text)" in result.err
    assert "column" not in store.run("push", "prices", path, "--key", "{id}").err
    path = write(prices(n=None), tmp_path / "forced.parquet")
    result = store.run("push", "prices", path, "--key", "{id}", "--force", "--json")
    events = [json.loads(line) for line in result.err.splitlines()]
    texts = [event["text"] for event in events if event["event"] == "message"]
    assert "gate, passed over: column-gone=hold: column n is gone (int32)" in texts
    assert store.run("push", "prices", path, "--key", "{id}", "--quiet").err == ""


@pytest.mark.parametrize("damaged", ["versions/1.manifest", "runs/*.run", None])
def test_a_version_that_cannot_be_compared_is_held(store, push, damaged):
    """The gate must not pass a version that it could not compare."""
    assert push(prices())["gate"] == []
    if damaged is None:
        (store.path / "tables/prices/versions/1.manifest").unlink()
    else:
        (file,) = (store.path / "tables/prices").glob(damaged)
        content = bytearray(file.read_bytes())
        content[len(content) // 4 :: 97] = bytes(len(content[len(content) // 4 :: 97]))
        file.write_bytes(content)
    for given in [], ["--gate", "rows>-99%"]:
        held = push(prices(), *given, code=3)
        assert not held["swapped"]
        (finding,) = held["gate"]
        assert finding["limit"] == "a comparison with version 1" and not finding["passed"]
        assert "it serves, and cannot be read" in finding["seen"]
    assert push(prices(), "--dry-run=all", code=3)["outlook"] == "hold"
    assert push(prices(), "--force")["swapped"] and len(push(prices())["gate"]) > 1


def test_rows_that_were_pushed_twice_are_counted_once(store, push):
    """After pushes onto a version, there are more records than rows."""
    ids = list(range(5000))

    def table(n, count=5000):
        return pa.table({"id": ids[:count], "n": [n] * count})

    push(table(0))
    for n in 1, 2:
        push(table(n), "--onto", "current")
    seen = {finding["limit"]: finding["seen"] for finding in push(table(3))["gate"]}
    assert seen["rows>-20%"] == "rows, estimated, 5000 to 5000 (0%)", seen
    for n in 4, 5:
        push(table(n), "--onto", "current")
    gone = table(6, 1500).append_column("op", pa.array(["delete"] * 1500))
    held = push(gone, "--onto", "current", "--op", "op", code=3)
    limits = {finding["limit"] for finding in held["gate"] if not finding["passed"]}
    assert limits == {"rows>-20%", "lost<20%"}, held["gate"]


def test_diff_and_the_gate_use_the_same_text(store, push):
    push(prices())
    changed = prices(note=None, price=NET, n=TEXTS, tags=pa.array([[i] for i in range(50)]))
    held = push(changed.append_column("fresh", TEXTS), code=3)
    text = store.run("diff", "prices", "1", "2").out
    schema = store.json("diff", "prices", "1", "2")["schema"]
    assert len(words(held)) == 5
    assert [change["text"] for change in schema["changes"]] == words(held)
    for line in words(held):
        assert f"\n{line}\n" in text
    assert schema["added"] == ["fresh"]
    assert schema["removed"] == ["note", "price.vat"]
    assert schema["retyped"] == ["n", "tags[]"]
    assert schema["changes"][1] == {
        "change": "column-gone",
        "column": "note",
        "before": "text",
        "after": None,
        "text": "column note is gone (text)",
    }


def test_changes_onto_a_version_are_compared_with_the_serving_schema(store, push, tmp_path):
    push(prices())
    push(prices(note=None), "--force")
    path = write(prices(note=None).slice(0, 1), tmp_path / "one.parquet")
    onto = store.json("push", "prices", path, "--onto", "current")
    assert schema_findings(onto) == []
    # Onto an older version, its columns return.
    path = write(prices().slice(0, 1), tmp_path / "two.parquet")
    onto = store.json("push", "prices", path, "--onto", "1")
    assert schema_findings(onto) == [("column-new=report", True)]


@pytest.mark.parametrize(
    "limit", ["column-gone", "column-gone=keep", "column-gone()=hold", "order-lost(n)=hold"]
)
def test_an_invalid_schema_limit_is_refused(store, push, limit):
    push(prices())
    refused = store.refuse("push", "prices", "x.parquet", "--key", "{id}", "--gate", limit, code=2)
    assert limit in refused and "column-gone=report" in refused


def scored(scale=1.0):
    """Two hundred rows with a score from 10 on."""
    scores = [scale * (10 + i / 10) for i in range(200)]
    names = [f"name {i:03}" for i in range(200)]
    return prices(
        id=pa.array(range(200), pa.int64()), n=pa.array(scores), note=names, price=None, tags=None,
        sizes=None,
    )  # fmt: skip


def test_values_of_another_scale_are_held_and_shown(push, store):
    first = push(scored())
    of_n = next(column for column in first["statistics"] if column["column"] == "n")
    assert (of_n["of"], of_n["values"], of_n["min"], of_n["distinct"]) == ("number", 200, 10, 200)
    assert of_n["quantiles"]["p50"] == 20
    held = push(scored(1000), code=3)
    assert not held["swapped"]
    wrong = {finding["limit"]: finding["seen"] for finding in held["gate"] if not finding["passed"]}
    assert set(wrong) == {"shift<20%", "std<200%"}
    assert "median from 20 to 20000" in wrong["shift<20%"]
    pairs = json.loads(store.run("diff", "prices", 1, 2, "--json").out)["values"]
    of_n = next(pair for pair in pairs if pair["column"] == "n")
    assert (of_n["before"]["mean"], of_n["after"]["mean"]) == (19.95, 19950)
    assert "values of n: mean 19.95 -> 19950" in store.run("diff", "prices", 1, 2).out


def test_a_dry_run_shows_values_and_judges_them(push, store):
    push(scored())
    tried = push(scored(1.5), "--dry-run", "--gate", "mean(n)<20%", code=3)
    held = [finding["limit"] for finding in tried["gate"] if not finding["passed"]]
    assert held == ["shift<20%", "mean(n)<20%"]
    assert [column["column"] for column in tried["statistics"]] == ["id", "n", "note"]
    push(scored(1.5), "--gate", "mean(n)<60%", "--gate", "shift(n)<200%")


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("nulls(nte)<1%", "did you mean"),
        ("mean(note)<1%", "length(COLUMN)"),
        ("length(n)<1%", "mean(COLUMN)"),
        ("type-changed(nte)=report", "did you mean 'note'"),
        ("column-new(zz)=hold", "the rows do not have"),
        ("type-changed(vv)=report", "neither the rows nor the version that serves have"),
    ],
)
def test_limits_for_unknown_columns_are_refused_before_the_build(push, store, limit, reason, more):
    push(scored())
    path = write(scored(), store.path.parent / "again.parquet")
    words = ["push", "prices", path, "--key", "{id}", "--gate", limit, *more]
    done = store.run(*words, code=1)
    assert limit in done.err
    assert reason in done.err
    assert len(json.loads(store.run("versions", "prices", "--json").out)) == 1


def test_limits_on_statistics_hold_a_push_onto_a_version_with_a_reason(push, store):
    push(scored())
    changed = scored().slice(0, 3)
    held = push(changed, "--onto", "current", "--gate", "mean(n)<5%", code=3)
    wrong = [finding for finding in held["gate"] if not finding["passed"]]
    assert [finding["limit"] for finding in wrong] == ["mean(n)<5%"]
    assert "--onto" in wrong[0]["seen"] and "leave out this limit" in wrong[0]["seen"]


def test_both_zeros_count_as_one_value_and_keep_their_sign(push, store):
    def zeros(sign):
        return scored().set_column(1, "n", pa.array([0.0, sign * 0.0] * 100))

    first = push(zeros(1))
    second = push(zeros(-1), "--gate", "shift(n)<5%", "--gate", "distinct(n)<5%")
    assert second["swapped"]
    for pushed in (first, second):
        of_n = next(column for column in pushed["statistics"] if column["column"] == "n")
        assert (of_n["common"], of_n["distinct"]) == (1, 1)
    assert '"n":-0.0' in store.run("get", "prices", 1).out
