"""Secondary indexes of a live table of a cluster. One plan covers a load of the table and its
indexes."""

import json

import pyarrow
import pyarrow.parquet
import pytest
from harness import wait_for
from test_cluster_live_load import answered

LIVE = ["--mode", "live", "--durability", "os"]
COUNT = 40_000
INDEX = ["--index", "by_city={city}/{id}"]


def city(number):
    # Most rows are in one city, and so in one part of the index.
    return "oslo" if number % 10 else f"c{number % 700:03}"


@pytest.fixture
def made(shared, tmp_path):
    made = shared(5, zones=1)
    bounds = ["--order", "ordered", "--replicas", "1"]
    rows = ["--value", "row", "--column", "city:text", "--column", "v:int64"]
    made.store.run("create", "people", *LIVE, *bounds, "--boundary", "k020000", *rows)
    made.store.run("create", "by_city", *LIVE, *bounds, "--boundary", "m")
    made.wait_whole("people", "by_city")
    ids = [f"k{number:06}" for number in range(COUNT)]
    columns = {"id": ids, "city": list(map(city, range(COUNT))), "v": list(range(COUNT))}
    made.source = tmp_path / "people.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), made.source)
    return made


def words(made, *more):
    return [made.source, "--key", "{id}", *INDEX, *more]


def test_a_load_fills_a_table_and_its_index(made, tmp_path):
    plan = ["--partition-bytes", "256K"]
    seen = made.store.json("plan", "insert", "people", *words(made, *plan))
    tables = {piece["table"] for piece in seen["partitions"]}
    assert tables == {"people", "by_city"} and seen["rows"] == COUNT
    done = made.store.json("load", "people", *words(made, "--plan", "always", *plan))
    assert (done["table"], done["rows"]) == ("people", COUNT)
    assert [(one["table"], one["rows"]) for one in done["indexes"]] == [("by_city", COUNT)]
    counts = {
        name: table["partitions"]
        for name, table in made.ask_coordinator()["live"]["tables"].items()
    }
    # Both tables began with two partitions. The planner decides where it splits.
    assert counts["people"] + counts["by_city"] > 4, counts
    ids = [f"k{number:06}" for number in range(COUNT)]
    values = answered(made["n1"], ids, "people")
    assert [json.loads(value)["v"] for value in values] == list(range(COUNT))
    keys = [f"{city(number)}/k{number:06}" for number in range(COUNT)]
    assert answered(made["n2"], keys, "by_city") == ids
    with made["n1"].through_gateway() as client:
        _, found = client.execute_command("KV.RANGE", "[by_city:c010/", "(by_city:c0100", "KEYS")
    assert found == sorted(f"by_city:c010/k{n:06}" for n in range(COUNT) if city(n) == "c010")
    # A saved plan is for both tables, and for no other load.
    output = tmp_path / "plan.json"
    plan = ["--partition-bytes", "64K"]
    plan = [*words(made, *plan), "--output", output]

    def is_priced_alike():
        # The price depends on sizes that leaders report within seconds.
        planned = made.store.json("plan", "insert", "people", *plan)
        shown = made.store.json("cluster", "apply", output, code=2)["plan"]
        assert shown["splits"] == len(planned["splits"])
        return planned["copied_bytes"] == shown["copied_bytes"]

    wait_for(is_priced_alike, "both prices use the same reports", step=0.5)
    assert json.loads(output.read_text())["goal"]["insert"]["with"] == ["by_city"]
    alone = [made.source, "--key", "{id}", "--plan", output]
    seen = made.store.refuse("load", "people", *alone, code=2)
    assert "with index by_city, and the load is without an index" in seen


def test_a_load_that_an_index_cannot_take_is_refused(made):
    refused = made.store.refuse
    load = ["load", "people", made.source, "--key", "{id}"]
    assert "no live table nosuch" in refused(*load, "--index", "nosuch={city}", code=2)
    assert "is named twice" in refused(*load, "--index", "people={city}", code=2)
    assert "is no index" in refused(*load, "--index", "by_city", code=2)
    deltas = ["--as", "delta", *INDEX]
    assert "update or insert" in refused(*load, *deltas, code=2)
    several = ["load", "people", made.source, "--key", "{city}-{id}", *INDEX]
    assert "has several" in refused(*several, code=2)
    assert "with runs" in refused(*load, *INDEX, "--insert", "rows", code=2)
    made.store.run("push", "served", made.source, "--key", "{id}")
    assert "is a batch table" in refused(*load, "--index", "served={city}/{id}", code=2)
    assert answered(made["n1"], ["k000001"], "people") == [None]


def test_an_error_for_a_row_without_an_index_key_names_the_index(made, tmp_path):
    source = tmp_path / "gaps.parquet"
    rows = {"id": ["k000001", "k000002"], "city": ["oslo", None], "v": [1, 2]}
    pyarrow.parquet.write_table(pyarrow.table(rows), source)
    for command in ["load"], ["plan", "insert"]:
        seen = made.store.refuse(*command, "people", source, "--key", "{id}", *INDEX)
        assert "index by_city" in seen and "people" not in seen, seen
    assert answered(made["n1"], ["k000001"], "people") == [None]
    done = made.store.json("load", "people", source, "--key", "{id}", *INDEX, "--bad-rows", "skip")
    assert (done["rows"], done["indexes"][0]["rejected"]) == (2, 1)
