"""Stores of earlier formats are read, and stay writable.

images/store-version-1.tar.gz holds the files of the last program that wrote manifests of format 1:

    hashed   three partitions, one push
    ordered  three partitions, rows of seven birds, then a push onto it: two updates, one delete
    bytes    one partition, two pushes
    counts   live, two partitions, adds i64; all of it in its log
    notes    live, ordered, two partitions; a load in runs, writes to its log
"""

import json
import tarfile
from pathlib import Path

import pytest
from harness import Store

IMAGES = Path(__file__).parent / "images"
WINGSPANS = {1: 16.5, 2: 21.0, 3: 175.0, 4: 42.0, 5: 94.5, 6: 230.0, 7: None}
NAMES = ["wren", "robin", "kite", "swift", "owl", "crane", "dipper"]


@pytest.fixture
def old(tmp_path):
    with tarfile.open(IMAGES / "store-version-1.tar.gz") as image:
        image.extractall(tmp_path, filter="data")
    return Store(tmp_path / "version-1")


def rows(store, table):
    out = store.run("scan", table, "--json").out
    return {row["key"]: row["value"] for row in map(json.loads, out.splitlines())}


def formats(store, table, name):
    path = store.path / "tables" / table / name
    return json.loads(path.read_text().rsplit("xxh3", 1)[0])


def test_versions_of_format_1_can_be_read_verified_and_changed(old, tmp_path):
    hashed = rows(old, "hashed")
    assert {int(key): row["wingspan"] for key, row in hashed.items()} == WINGSPANS
    ordered = rows(old, "ordered")
    assert list(ordered) == [f"bird/{name}" for name in sorted({*NAMES, "heron"} - {"owl"})]
    assert (ordered["bird/robin"]["wingspan"], ordered["bird/heron"]["wingspan"]) == (22, 180)
    for table in ("hashed", "ordered", "bytes"):
        old.run("verify", table)
    old.run("rollback", "ordered")
    assert rows(old, "ordered")["bird/owl"]["wingspan"] == 94.5

    changes = tmp_path / "changes.csv"
    changes.write_text("id,name,wingspan\n9,teal,60\n")
    done = old.push("hashed", changes, args=["--onto", "current"])
    assert done["onto"] == 1
    assert len(rows(old, "hashed")) == 8
    new, before = (formats(old, "hashed", f"versions/{n}.manifest") for n in (2, 1))
    assert (new["forebay_manifest"], before["forebay_manifest"]) == (3, 1)
    assert [part["id"] for part in new["partitions"]] == [0, 1, 2]
    lowers = [part["lower"] for part in before["partitions"]]
    assert [part["bounds"]["lower"] for part in new["partitions"]] == lowers
    old.run("compact", "hashed")
    assert len(rows(old, "hashed")) == 8
    old.run("verify", "hashed")


def test_live_tables_of_format_1_are_served_and_written(old):
    assert formats(old, "notes", "live")["forebay_live"] == 1
    with old.serve() as server:
        r = server.client()
        assert [int(r.get(f"counts:k{n}")) for n in (1, 2, 3)] == [11, 2, 3]
        assert r.mget("notes:alpha", "notes:zulu", "notes:wren", "notes:owl", "notes:kite") == [
            b"one",
            b"last",
            b"changed",
            None,
            b"3",
        ]
        assert formats(old, "counts", "live")["forebay_live"] == 3, "the open converted the table"
        r.incrby("counts:k1", 4)
        r.set("notes:beta", "two")
    changes = old.path / "more.csv"
    changes.write_text("name,id\nzebra,8\n")
    old.run("load", "notes", changes, "--key", "{name}", "--value", "id")
    manifest = formats(old, "notes", "live")
    assert manifest["forebay_live"] == 3
    assert [part["bounds"] for part in manifest["partitions"]] == [
        {"lower": {"key": ""}, "upper": {"key": "m"}},
        {"lower": {"key": "m"}},
    ]
    with old.serve() as server:
        r = server.client()
        assert (int(r.get("counts:k1")), r.get("notes:beta")) == (15, b"two")
        assert (r.get("notes:zebra"), r.get("notes:wren")) == (b"8", b"changed")
