"""Keys, and tables whose values are one column. They convert like rows."""

import pyarrow as pa
import pytest
from oracle import drive


def rows(tmp_path, name="rows.parquet", **columns):
    return drive.write(pa.table(columns), tmp_path / name)


def test_a_key_that_its_type_cannot_hold_is_a_bad_row(store, tmp_path):
    path = rows(tmp_path, id=[1.0, 2.5], n=[1, 2])
    given = ["--column", "id:int64"]
    message = store.refuse("push", "t", path, "--key", "{id}", *given)
    for word in ["rows.parquet", "row 2", "'id'", "2.5"]:
        assert word in message, message
    pushed = store.push("t", path, args=["--bad-rows", "skip", *given])
    assert (pushed["rows"], pushed["rejected"]) == (1, 1)
    assert store.json("get", "t", "1") == [{"id": 1, "n": 1}]


def test_one_column_as_the_value(store, tmp_path):
    path = rows(tmp_path, id=["a", "b"], n=[7.0, 7.5])
    args = ["--value", "n", "--column", "n:int32"]
    message = store.refuse("push", "t", path, "--key", "{id}", *args)
    assert "row 2" in message and "'n'" in message and "7.5" in message, message
    store.push("t", path, args=["--bad-rows", "skip", *args])
    assert store.run("get", "t", "a").out.strip() == "7"


@pytest.mark.parametrize("way", ["column", "onto", "load"])
def test_lists_as_values(store, tmp_path, way):
    path = rows(tmp_path, id=["a", "b"], n=[[7.0, None], [1.7]])
    args = ["--key", "{id}", "--value", "n", "--bad-rows", tmp_path / "bad"]
    if way == "column":
        store.run("push", "t", path, *args, "--column", "n:list(int32)")
    elif way == "onto":
        whole = rows(tmp_path, "base.parquet", id=["c"], n=pa.array([[1]], pa.list_(pa.int32())))
        store.push("t", whole, args=["--value", "n"])
        store.run("push", "t", path, "--onto", "current", "--bad-rows", tmp_path / "bad")
    else:
        store.run("create", "t", "--value", "list", "--item", "int32")
        store.run("load", "t", path, *args)
    assert store.json("get", "t", "a", "b") == [[7, None], None]
    (line,) = (tmp_path / "bad").read_text().splitlines()
    assert "1.7" in line and "n" in line, line


@pytest.mark.parametrize(("kind", "good", "bad"), [("i64", 7.0, 7.5), ("f64", 2**53, 2**53 + 1)])
@pytest.mark.parametrize("way", ["push", "onto", "load"])
def test_numbers_that_deltas_add_to(store, tmp_path, way, kind, good, bad):
    path = rows(tmp_path, id=["a", "b"], n=[good, bad])
    column = ["--column", f"n:{'int64' if kind == 'i64' else 'float64'}"]
    args = ["--key", "{id}", "--value", "n", "--bad-rows", tmp_path / "bad", *column]
    if way == "push":
        store.run("push", "t", path, *args, "--delta", kind)
    elif way == "onto":
        base = rows(tmp_path, "base.parquet", id=["c"], n=[1 if kind == "i64" else 1.0])
        store.push("t", base, args=["--value", "n", "--delta", kind])
        store.run("push", "t", path, "--onto", "current", "--bad-rows", tmp_path / "bad", *column)
    else:
        store.run("create", "t", "--delta", kind)
        store.run("load", "t", path, *args)
    assert [
        None if value is None else float(value) for value in store.json("get", "t", "a", "b")
    ] == [good, None]
    (line,) = (tmp_path / "bad").read_text().splitlines()
    assert str(bad) in line, line


def test_rows_with_their_own_operation(store, tmp_path):
    base = rows(tmp_path, "base.parquet", id=[1, 2, 3], n=pa.array([1, 2, 3], pa.int32()))
    store.push("t", base)
    change = {"op": ["update", "delete", "insert", "update"], "id": [1.0, 2.0, 4.0, 3.5]}
    path = rows(tmp_path, **change, n=[7.0, None, 8.5, 9.0])
    bad = tmp_path / "bad"
    store.run("push", "t", path, "--onto", "current", "--op", "op", "--bad-rows", bad, "--force")
    found = store.json("get", "t", "1", "2", "3", "4")
    assert [row and row["n"] for row in found] == [7, None, 3, None]
    lines = bad.read_text().splitlines()
    assert len(lines) == 2 and "8.5" in lines[0] and "3.5" in lines[1], lines
