"""`describe` shows tables, and `doctor` finds problems of the store, the machine or the cluster."""

import json
import urllib.request

TABLE = ["--mode", "live", "--replicas", "3", "--durability", "os", "--partitions", "6"]


def findings(answer):
    found = answer["findings"]
    return {finding["check"]: (finding["verdict"], finding["found"]) for finding in found}


def test_tables_of_both_kinds_are_described(live, source, tmp_path):
    store = live.store
    store.push("flights", source())
    store.push("flights", source(version=2))
    answer = store.json("describe", "flights")
    assert (answer["mode"], answer["serving"], answer["previous"]) == ("batch", 2, 1)
    assert answer["versions"] == [1, 2]
    assert answer["rows"] == 1000 and answer["key"] == "{id}" and answer["backup"] is None
    assert answer["columns"][0]["column"] == "id"
    assert sum(part["rows"] for part in answer["partitions"]) == 1000
    assert answer["partitions"][0]["from"] == "slot 0" and answer["partitions"][-1]["to"] is None
    text = store.run("describe", "flights").out
    assert "serves      version 2" in text and "rollback to version 1" in text
    answer = store.json("describe", "people")
    assert answer["mode"] == "live" and answer["durability"] == "sync" and answer["key"] is None
    assert [column["type"] for column in answer["columns"]] == ["text", "int64", "float64"]
    store.json("backup", "flights", "--to", tmp_path / "backups")
    assert store.json("describe", "flights")["backup"] is not None
    with urllib.request.urlopen(f"http://127.0.0.1:{live.http}/metrics", timeout=30) as page:
        assert 'forebay_table_backup_timestamp_seconds{table="flights"}' in page.read().decode()
    assert "there is no table nope" in store.refuse("describe", "nope")


def test_the_doctor_names_the_problems_of_a_store(store, source):
    store.push("flights", source())
    assert store.json("doctor")["verdict"] == "ok"
    pointer = store.path / "tables" / "flights" / "current"
    pointer.write_bytes(b"damage")
    answer = store.json("doctor", code=2)
    verdict, found = findings(answer)["tables"]
    assert (answer["verdict"], verdict) == ("failed", "failed") and "flights" in found
    assert "FAILED" in store.run("doctor", code=2).out
    (store.path / "forebay.json").unlink()
    assert findings(store.json("doctor", code=2))["store"][0] == "failed"


def test_the_doctor_tries_conditional_writes(remote, source):
    remote.push("flights", source())
    answer = findings(remote.json("doctor"))
    assert answer["conditional writes"][0] == "ok"
    assert not [key for key in remote.keys() if "probe" in key]


def test_a_cluster_is_described_and_examined(shared):
    made = shared(3)
    store = made.store
    assert store.json("create", "t", *TABLE)["led"] == 6
    answer = store.json("describe", "t")
    assert answer["mode"] == "live" and len(answer["partitions"]) == 6
    assert all(len(part["nodes"]) == 3 for part in answer["partitions"])
    answer = store.json("doctor")
    assert answer["verdict"] == "ok", json.dumps(answer)
    checks = findings(answer)
    assert "can be reached" in checks["ports"][1] and checks["clocks"][0] == "ok"
    assert "n1, n2, n3" in checks["programs"][1]
