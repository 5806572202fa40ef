"""Every source format gives the same rows. Globs and many files give one table."""

import datetime
import decimal

import pyarrow as pa
import pytest
from data import people, person, write


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "arrows"])
def test_every_format_gives_the_same_rows(store, tmp_path, kind):
    path = write(people(), tmp_path / f"people.{kind}")
    args = ["--format", "arrow"] if kind == "arrows" else []
    pushed = store.push("people", path, args=args)
    assert pushed["rows"] == 1000 and pushed["rejected"] == 0
    got = store.json("get", "people", "0", "1", "999", "1000")
    assert got == [person(0), person(1), person(999), None]


def test_formats_agree_on_the_checksum(store, tmp_path):
    sums = set()
    for kind in ["parquet", "arrow"]:
        store.push(kind, write(people(), tmp_path / f"people.{kind}"))
        sums.add(store.json("versions", kind)[0]["checksum"])
    assert len(sums) == 1


def test_a_glob_of_many_files_is_one_table(store, tmp_path):
    for part in range(5):
        write(people(100, start=part * 100), tmp_path / f"part-{part}.parquet")
    pushed = store.push("people", f"{tmp_path}/part-*.parquet")
    assert pushed["rows"] == 500
    assert store.json("get", "people", "0", "499") == [person(0), person(499)]
    more = write(people(10, start=500), tmp_path / "more.csv")
    assert store.push("people", f"{tmp_path}/part-*.parquet", more, args=["--force"])["rows"] == 510


def test_the_same_rows_in_other_files_and_partitions_have_the_same_checksum(store, tmp_path):
    write(people(400), tmp_path / "whole.parquet")
    for part in range(4):
        write(people(100, start=part * 100), tmp_path / f"cut-{part}.parquet")
    store.push("t", tmp_path / "whole.parquet")
    store.push("t", f"{tmp_path}/cut-*.parquet", args=["--partitions", "3"])
    store.push("u", f"{tmp_path}/cut-*.parquet", args=["--order", "ordered", "--partitions", "2"])
    versions = store.json("versions", "t")
    assert versions[0]["checksum"] == versions[1]["checksum"]
    whole, divided = (store.json("verify", f"t@{v}") for v in (1, 2))
    assert whole["rows"] == divided["rows"] == 400


def test_csv_options(store, tmp_path):
    path = tmp_path / "odd.txt"
    path.write_text('1;"a;b";NA\n2;c;\n')
    store.push(
        "odd",
        path,
        key="{column_1}",
        args=[
            "--format",
            "csv",
            "--csv-delimiter",
            ";",
            "--csv-null",
            "NA",
            "--csv-no-header",
        ],
    )
    first, second = store.json("get", "odd", "1", "2")
    assert first["column_2"] == "a;b" and first["column_3"] is None
    assert second["column_2"] == "c"


def test_key_templates_with_columns_and_widths(store, tmp_path):
    zone = datetime.timezone(datetime.timedelta(hours=2))
    table = pa.table(
        {
            "carrier": ["AA", "UA"],
            "flight": pa.array([7, 12345], pa.int32()),
            "at": pa.array(
                [datetime.datetime(2013, 1, 1, 2, tzinfo=zone)] * 2,
                pa.timestamp("us", "Europe/Athens"),
            ),
        }
    )
    path = write(table, tmp_path / "flights.parquet")
    store.push("t", path, key="{carrier}/{flight:05}")
    assert store.json("get", "t", "AA/00007", "UA/12345")[0]["flight"] == 7
    store.push("by_time", path, key="{at}/{carrier}", args=["--order", "ordered"])
    keys = [row["key"] for row in store.run("scan", "by_time", "--json").json_lines()]
    assert keys[0].startswith("2013-01-01T00:00:00") and "Z/AA" in keys[0]


def test_one_column_as_the_value(store, tmp_path):
    table = pa.table(
        {
            "id": ["a", "b"],
            "text": ["hello", "wörld"],
            "raw": [b"\xff\x00", b"ok"],
            "items": [[1, 2, 3], []],
        }
    )
    path = write(table, tmp_path / "values.parquet")
    store.push("text", path, args=["--value", "text"])
    assert store.json("get", "text", "a", "b") == ["hello", "wörld"]
    store.push("raw", path, args=["--value", "raw"])
    assert store.json("get", "raw", "a", "b") == [{"base64": "/wA="}, "ok"]
    store.push("items", path, args=["--value", "items"])
    assert store.json("get", "items", "a", "b") == [[1, 2, 3], []]


def test_a_warehouse_row_keeps_its_types(store, tmp_path):
    table = pa.table(
        {
            "id": ["x"],
            "price": pa.array(
                [decimal.Decimal("12345678901234567890.123456")], pa.decimal128(30, 6)
            ),
            "day": pa.array([datetime.date(2026, 11, 21)]),
            "moment": pa.array(
                [datetime.datetime(2026, 11, 21, 1, 2, 3, 456789)], pa.timestamp("us")
            ),
            "color": pa.array(["red"]).dictionary_encode(),
            "tags": [["a", None, "c"]],
            "place": [{"city": "Łódź", "at": {"lat": 51.75, "lon": 19.45}}],
            "big": pa.array([2**64 - 1], pa.uint64()),
            "flag": [True],
        }
    )
    store.push("t", write(table, tmp_path / "t.parquet"))
    (row,) = store.json("get", "t", "x")
    assert row["day"] == "2026-11-21" and row["color"] == "red" and row["flag"] is True
    assert row["moment"].startswith("2026-11-21T01:02:03.456789")
    assert row["tags"] == ["a", None, "c"]
    assert row["place"] == {"city": "Łódź", "at": {"lat": 51.75, "lon": 19.45}}
    assert row["big"] == 2**64 - 1
    assert "12345678901234567890.123456" in store.run("get", "t", "x").out


def test_values_larger_than_any_page(store, tmp_path):
    sizes = [0, 1, 4000, 4096, 5000, 70_000, 5_000_000]
    table = pa.table({"id": list(range(len(sizes))), "blob": ["x" * size for size in sizes]})
    path = write(table, tmp_path / "big.parquet")
    for order in ["hashed", "ordered"]:
        store.push(order, path, args=["--value", "blob", "--order", order])
        got = store.json("get", order, *range(len(sizes)))
        assert [len(value) for value in got] == sizes
        assert store.json("verify", order)["rows"] == len(sizes)
