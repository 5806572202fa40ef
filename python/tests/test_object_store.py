"""Stores in a real S3 server (SeaweedFS), from Python."""

import pyarrow as pa
import pytest
from object_store import BUCKET

import forebay


@pytest.fixture
def url(s3_environment, request):
    """The URL of a store for one test; the first push creates it."""
    return f"s3://{BUCKET}/{request.node.name}"


def people(count, version):
    ids = list(range(count))
    return pa.table({"id": ids, "name": [f"n{id}" for id in ids], "version": [version] * count})


def test_push_read_swap_rollback_and_diff(url):
    first = forebay.push(people(1000, 1), "people", key="{id}", store=url, partitions=2)
    assert (first.version, first.rows, first.swapped) == (1, 1000, True)
    with forebay.open(url) as store:
        assert store.url == url and list(store) == ["people"]
        table = store["people"]
        assert table[7] == {"id": 7, "name": "n7", "version": 1}
        assert table.get_many([3, 5000]) == [{"id": 3, "name": "n3", "version": 1}, None]
        assert sorted(pa.table(table.scan())["id"].to_pylist()) == list(range(1000))
        second = table.push(people(1001, 2), key="{id}")
        assert second.version == 2 and table.version == 2 and table[7]["version"] == 2
        assert [version.serving for version in table.versions()] == [False, True]
        assert table.rollback() == forebay.Swapped("people", 1, 2)
        assert table.version == 1 and table[7]["version"] == 1
        assert store["people@2"][7]["version"] == 2
        assert table.swap(2).previous == 1 and table[7]["version"] == 2
        diff = table.diff(1, 2)
        assert (diff.added, diff.removed, diff.changed) == (1, 0, 1000)
        assert table.verify().rows == 1001
        changes = pa.table({"id": [1], "name": ["new"], "version": [3]})
        assert table.push(changes, key="{id}", onto="current").onto == 2
        assert table[1]["name"] == "new" and table[7]["version"] == 2
        assert table.compact().rows == 1001 and table[1]["name"] == "new"
        store.drop("people")
        assert list(store) == []


def test_ordered_tables_are_scanned_by_ranges(url):
    days = pa.table({"day": [f"{n:04}" for n in range(5000)], "n": range(5000)})
    forebay.push(days, "days", key="{day}", order="ordered", partitions=3, store=url)
    with forebay.open(url) as store:
        table = store["days"]
        scan = table.scan("1000", "1100")
        assert pa.table(scan)["n"].to_pylist() == list(range(1000, 1100))
        assert [key for key, _ in table.scan("4998", reverse=True)] == ["4999", "4998"]
        assert [key for key, _ in table.scan(limit=2)] == ["0000", "0001"]


def test_the_gate_and_missing_tables(url):
    with pytest.raises(forebay.MissingError, match="no forebay store at s3:"):
        forebay.open(url)["people"]
    forebay.push(people(1000, 1), "people", key="{id}", store=url)
    with pytest.raises(forebay.GateHeld) as held:
        forebay.push(people(10, 2), "people", key="{id}", store=url)
    assert held.value.result.version == 2
    store = forebay.open(url)
    assert store["people"].version == 1
    with pytest.raises(forebay.MissingError):
        store["nobody"]
    with pytest.raises(forebay.Error, match="a live table and a server need a directory"):
        store.create("clicks")
    with pytest.raises(forebay.UsageError, match="is a batch table"):
        store["people"].put(1, {})


def test_an_unreachable_store_is_reported(url, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(forebay.Error, match="forebay.json"):
        forebay.open(url)["people"]
