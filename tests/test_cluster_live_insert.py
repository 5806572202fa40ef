"""`forebay plan insert` of a live table of a cluster, and loads with plans. Partitions are split
and moved before rows arrive, beside writes, even if a process dies."""

import json
import os
import random

import pyarrow
import pyarrow.parquet
import pytest
from harness import wait_for
from test_cluster_live_load import Counting, answered, get_all, loads, staged

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 30)))
ORDERED = ["--mode", "live", "--durability", "os", "--order", "ordered"]
BASE = 30_000
NEW = 120_000


def names(count, first=0):
    return [f"k{number:07}" for number in range(first, first + count)]


def write(path, keys, value):
    """A source of keys with values of some 60 bytes, or with that number."""
    filler = random.Random(SEED)
    values = [
        value if isinstance(value, int) else f"{value}-{filler.randbytes(28).hex()}" for _ in keys
    ]
    pyarrow.parquet.write_table(pyarrow.table({"id": keys, "v": values}), path)
    return path, values


def partitions(made, table="t"):
    """The number of a table's partitions."""
    return made.ask_coordinator()["live"]["tables"][table]["partitions"]


@pytest.fixture
def skewed(shared, tmp_path):
    """Five nodes in one zone, and an ordered table with rows in its three partitions. All rows of
    the source lie in the last partition."""
    made = shared(5, zones=1)
    bounds = ["--boundary", "k0010000", "--boundary", "k0020000"]
    made.store.run("create", "t", *ORDERED, *bounds, "--replicas", "3")
    base, made.base = write(tmp_path / "base.parquet", names(BASE), "old")
    made.store.run("load", "t", base, "--key", "{id}")
    made.source, made.values = write(tmp_path / "new.parquet", names(NEW, 25_000), "new")
    made.wait_whole("t")
    return made


def planned(made, *more):
    words = ["plan", "insert", "t", made.source, "--key", "{id}", "--partition-bytes", "2M"]
    done = [None]

    def is_planned():
        # Nodes report the size of new partitions some seconds later.
        result = made.store.run(*words, *more, "--json", code=None)
        assert result.code == 0 or "ask again" in result.err, result.err
        done[0] = result
        return result.code == 0

    wait_for(is_planned, "the plan is made", step=0.5)
    return done[0].json()


def check_rows(made):
    for node in (made.nodes[0], made.nodes[-1]):
        assert answered(node, names(25_000)) == made.base[:25_000]
        assert get_all(node, names(NEW, 25_000)) == made.values


@pytest.mark.parametrize("sampler", ["split", "random", "interval"])
def test_a_plan_is_shown_and_changes_nothing(skewed, tmp_path, sampler):
    made = skewed
    before = made.status()["revision"]
    output, drawing = tmp_path / "plan.json", tmp_path / "plan.svg"
    plan = planned(made, "--sampler", sampler, "--output", output, "--draw", drawing)
    assert plan["table"] == "t" and plan["exact"] == (sampler != "split")
    assert abs(plan["rows"] - NEW) < NEW / 20
    assert len(plan["splits"]) >= 3 and plan["cost"] < 0.8 * plan["cost_no_moves"]
    assert plan["lower_bound"] <= plan["cost"]
    # No node has two replicas of a partition, before or after.
    for held in plan["dest"] + [piece["h"] for piece in plan["partitions"]]:
        assert len(held) == 3 == len(set(held))
    file = json.loads(output.read_text())
    assert file["goal"] == {"insert": {"table": "t"}}
    assert len(file["batches"][0]["splits"]) == len(plan["splits"])
    assert drawing.read_text().startswith("<svg") and "n5" in drawing.read_text()
    # Reading the sizes takes a revision, but the assignment is unchanged.
    assert partitions(made) == 3
    after = made.status()
    assert after["plan"] is None and after["revision"] > before
    seen = made.store.run(
        "plan", "insert", "t", made.source, "--key", "{id}", "--partition-bytes", "2M"
    ).out
    assert " rows, " in seen and "splits; " in seen and "without moves" in seen


def test_a_load_with_a_plan_splits_and_moves_before_it_adds_rows(skewed, tmp_path):
    made = skewed
    output = tmp_path / "plan.json"
    plan = planned(made, "--output", output)
    done = made.store.json("load", "t", made.source, "--key", "{id}", "--plan", output)
    assert done["rows"] == NEW
    assert partitions(made) == 3 + len(plan["splits"])
    made.wait_whole("t")
    check_rows(made)
    assert loads(made) == [] and staged(made) == []
    # The table has changed since the plan was made.
    words = made.store.refuse("load", "t", made.source, "--key", "{id}", "--plan", output)
    assert "is not what it was when the plan was made" in words
    check_rows(made)


def test_partitions_are_split_and_moved_under_writes(skewed, tmp_path):
    made = skewed
    made.store.run("create", "n", *ORDERED, "--boundary", "k5", "--replicas", "3", "--delta", "i64")
    counted = names(40, 30_000)
    source, _ = write(tmp_path / "numbers.parquet", names(NEW, 25_000), 1000)
    counting = Counting(made.nodes, counted, table="n")
    with counting:
        wait_for(lambda: counting.done > 200, "counting continues")
        words = ["load", "n", source, "--key", "{id}", "--as", "delta"]
        words += ["--plan", "always", "--partition-bytes", "1M", "--json"]
        done = [None]

        def is_loaded():
            result = made.store.run(*words, code=None)
            assert result.code == 0 or "ask again" in result.err, result.err
            done[0] = result
            return result.code == 0

        wait_for(is_loaded, "the rows are loaded", 120, 0.5)
        before = counting.done
        wait_for(lambda: counting.done > before + 200, "counting continues")
    assert done[0].json()["rows"] == NEW
    assert partitions(made, "n") > 4
    for node in made.nodes:
        values = answered(node, names(NEW, 25_000), "n")
        assert counting.wrong(values[5000:5040], 1000) == [], f"seed {SEED}"
        rest = values[:5000] + values[5040:]
        assert set(rest) == {"1000"}


@pytest.mark.parametrize(
    "victim",
    [
        "coordinator",
        *(pytest.param(victim, marks=pytest.mark.nightly) for victim in ("command", "node")),
    ],
)
def test_a_process_that_dies_during_a_plan_loses_no_row(skewed, victim):
    made = skewed
    planning = ["--plan", "always", "--partition-bytes", "1M"]
    words = ["load", "t", made.source, "--key", "{id}", *planning]
    planned(made)
    command = made.store.start(*words, "--json")

    made.wait_for(lambda seen: seen["plan"], "a plan is carried out")
    killed = None
    if victim == "command":
        command.kill()
        command.communicate()
    else:
        coordinator = made.coordinator()
        killed = (
            coordinator
            if victim == "coordinator"
            else next(node for node in made.nodes if node is not coordinator)
        )
        killed.kill()
        killed.start().wait_listening()
        done = made.store.finish(command)
        # A dead node may have ended the plan. Then nothing was loaded.
        assert done.code == 0 or "nothing was loaded" in done.err, done.err
    made.wait_no_plan(120)
    made.wait_up()
    made.store.json(*words)
    made.wait_whole("t")
    check_rows(made)
    assert loads(made) == [] and staged(made) == []


def test_an_impossible_plan_is_refused_with_advice(skewed, tmp_path, store):
    made = skewed
    source = ["t", made.source, "--key", "{id}"]
    refuse = made.store.refuse
    assert "not a live table of a cluster" in refuse("plan", "insert", "x", *source[1:], code=2)
    assert "--key" in refuse("plan", "insert", "t", made.source, code=2)
    assert "--plan auto" in refuse("load", *source, "--partition-bytes", "1M", code=2)
    refused = refuse("load", *source, "--plan", tmp_path / "none.json")
    assert "cannot read" in refused and "none.json" in refused
    other = tmp_path / "other.json"
    wish = {"goal": {"insert": {"table": "u"}}, "batches": [], "copies": {}}
    other.write_text(json.dumps(wish))
    assert "an insert into u, not into t" in refuse("load", *source, "--plan", other, code=2)
    other.write_text("{}")
    assert "is no plan for the cluster" in refuse("load", *source, "--plan", other)
    empty = tmp_path / "empty.csv"
    empty.write_text("id,v\n")
    assert "no rows" in refuse("plan", "insert", "t", empty, "--key", "{id}")
    bad = tmp_path / "bad.csv"
    bad.write_text("id,v\n" + "".join(f"{'' if i % 100 == 0 else i},x\n" for i in range(1000)))
    words = ["plan", "insert", "t", bad, "--key", "{id}"]
    assert "10 bad rows" in refuse(*words) and "--bad-rows skip" in refuse(*words)
    assert made.store.json(*words, "--bad-rows", "skip")["rejected"] == 10
    assert "a plan writes no rows" in refuse(*words, "--bad-rows", tmp_path / "rows", code=2)
    other.write_text(
        json.dumps(
            {
                "goal": {"insert": {"table": "t"}},
                "batches": [
                    {
                        "copied_bytes": 0,
                        "lists": [],
                        "splits": [{"table": "u", "at": {"key": "k5"}}],
                    }
                ],
                "copies": {},
            }
        )
    )
    words = refuse("load", *source, "--plan", other)
    assert "splits table u, which is not what it is for" in words
    assert "--input" in refuse("plan", "insert", "--input", other, "--key", "{id}", code=2)
    assert partitions(made) == 3
