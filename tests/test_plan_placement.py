"""`forebay plan replicas | place | workload`, checked by independent computations."""

import itertools
import json
import xml.etree.ElementTree as ElementTree

import pytest

SCHEMES = ("base", "coarse", "compact", "balanced", "complete", "smooth", "migrate")


@pytest.fixture
def plan(store, tmp_path):
    """Runs a planner on an input. Returns its JSON, or its error if another exit code is
    expected."""

    def run(planner, given, *more, code=0):
        path = tmp_path / "input.json"
        path.write_text(given if isinstance(given, str) else json.dumps(given))
        result = store.run("plan", planner, "--input", path, "--json", *more, code=code)
        return result.json() if code == 0 else result.err

    return run


@pytest.fixture
def workload(store):
    def draw(distribution, partitions, *more):
        words = ("plan", "workload", "--distribution", distribution, "--partitions", partitions)
        return store.run(*words, "--requests", 30_000, "--seed", 3, "--json", *more).json()

    return draw


def capacity(placement, load):
    """Tries every set of nodes. The set with the highest load per node that no other node can serve
    is the limit."""
    nodes = len(placement)
    holders = [0] * len(load)
    for node, held in enumerate(placement):
        for partition in held:
            holders[partition] |= 1 << node
    most = 0.0
    for chosen in range(1, 1 << nodes):
        alone = sum(x for x, by in zip(load, holders, strict=True) if by & ~chosen == 0)
        most = max(most, alone / chosen.bit_count())
    return sum(load) / nodes / most


def test_workloads_match_the_papers_table(workload):
    drawn = workload("gamma", 4, "--shape", 5)
    assert drawn["distribution"] == "gamma" and drawn["shape"] == 5 and drawn["seed"] == 3
    assert sum(drawn["load"]) == drawn["requests"] == 30_000
    assert abs(sum(drawn["shares"]) - 1) < 1e-9
    for got, printed in zip(drawn["load"], [23542, 6329, 129, 0], strict=True):
        assert abs(got - printed) <= 4 * (printed * 0.25 + 30) ** 0.5 * 2
    assert workload("gamma", 4) == drawn


def test_every_scheme_places_and_reports_its_capacity(plan, workload):
    for distribution in ("uniform", "beta", "normal", "powerlaw", "gamma", "zipf"):
        load = workload(distribution, 128)["load"]
        given = {"name": distribution, "nodes": 8, "slots": 32, "load": load}
        base = plan("place", given, "--scheme", "base")
        given["current"] = base["placement"]
        for scheme in SCHEMES:
            placed = plan("place", given, "--scheme", scheme)
            placement = placed["placement"]
            assert placed["scheme"] == scheme and len(placement) == 8
            slots = list(itertools.chain(*placement))
            assert placed["R"] == [slots.count(partition) for partition in range(128)]
            assert min(placed["R"]) >= 1
            assert abs(placed["capacity"] - capacity(placement, load)) < 1e-6
            if scheme != "complete":
                assert all(len(held) <= 32 for held in placement)
            if scheme not in ("compact", "coarse"):
                assert all(len(set(held)) == len(held) for held in placement)
            new = [
                set(after) - set(before)
                for after, before in zip(placement, base["placement"], strict=True)
            ]
            assert placed["copies_to_ship"] == sum(map(len, new))
            if scheme in ("balanced", "smooth"):
                assert placed["capacity"] >= 0.999
            if scheme == "compact":
                assert placed["capacity"] >= 0.99
            if scheme == "migrate":
                assert placed["capacity"] >= 0.99 and placed["copies_to_ship"] <= 20
                assert placed["migration"]["least_to_ship"] <= placed["copies_to_ship"]
                steps = placed["plan"]["steps"]
                assert sum(step["do"] == "copy" for step in steps) == placed["copies_to_ship"]


def test_replica_counts_for_both_objectives(plan):
    given = {"nodes": 16, "load": [142, 14882, 14827, 149], "total": 16}
    l1 = plan("replicas", given, "--objective", "l1")
    assert l1["R"] == [1, 7, 7, 1]
    shares = [load / 30_000 for load in given["load"]]
    differences = [abs(r / 16 - share) for r, share in zip(l1["R"], shares, strict=True)]
    assert abs(l1["objective"] - sum(differences)) < 1e-12
    minmax = plan("replicas", given | {"max": 5, "total": 12})
    assert minmax["R"] == [1, 5, 5, 1] and abs(minmax["objective"] - 14882 / 5) < 1e-9


def test_partitions_move_from_a_lost_and_a_drained_node(plan):
    load = [10 + partition for partition in range(24)]
    given = {"nodes": 6, "slots": 15, "load": load, "min": 2, "zones": ["a", "b", "c"] * 2}
    given["bytes"] = [1000 + partition for partition in range(24)]
    given["current"] = plan("place", given)["placement"]
    moved = plan("place", given | {"lost": [0], "drain": [1]}, "--scheme", "migrate")
    assert moved["placement"][0] == moved["placement"][1] == []
    assert all(
        sum(partition in held for held in moved["placement"]) >= 2 for partition in range(24)
    )
    copies = [step for step in moved["plan"]["steps"] if step["do"] == "copy"]
    assert copies and all(step["from"] != 0 for step in copies)
    assert sum(step["bytes"] for step in copies) == moved["bytes_to_ship"]
    assert moved["measures"]["zone_failure"]["lost_load"] == 0


def test_drawings(store, tmp_path, plan, workload):
    load = workload("gamma", 320)["load"]
    given = {"nodes": 20, "slots": 32, "load": load}
    given["current"] = plan("place", given, "--scheme", "base")["placement"]
    path = tmp_path / "plan.svg"
    placed = plan("place", given, "--scheme", "migrate", "--draw", path)
    words = " ".join(ElementTree.parse(path).getroot().itertext())
    for word in ("load before", "load after", "replicas before", "replicas after"):
        assert word in words
    shown = store.run(
        "plan", "place", "--input", tmp_path / "input.json", "--scheme", "migrate"
    ).out
    assert f"to ship: {placed['copies_to_ship']} copies" in shown
    assert all(len(line) <= 160 for line in shown.splitlines()), shown


RIGHT = {"nodes": 2, "slots": 2, "load": [1, 2, 3]}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"load": [1, -2]}, "load[1]"),
        ({"load": [1, "x"]}, "load[1]"),
        ({"load": [1] * 5}, "slots"),
        ({"load": []}, "load"),
        ({"slots": -1}, "slots"),
        ({"slots": [1]}, "slots"),
        ({"nodes": 0}, "nodes"),
        ({"nodes": 1.5}, "nodes"),
        ({"colour": 1}, "colour"),
        ({"min": 3}, "min"),
        ({"zones": ["a"]}, "zones"),
        ({"current": [[0], [7]]}, "current[1][0]"),
        ({"drain": [5]}, "drain[0]"),
        ({"node_bytes": 5}, "bytes"),
        ({"bytes": [1]}, "bytes"),
        ({"predicted": [1]}, "predicted"),
    ],
)
def test_invalid_input_is_refused_with_its_path(plan, change, path):
    error = plan("place", RIGHT | change, code=1)
    assert path in error, error


def test_not_a_number_is_refused_with_its_path(plan):
    assert "load[1]" in plan("place", '{"nodes": 2, "slots": 2, "load": [1, NaN]}', code=1)
    assert "load[1]" in plan("place", '{"nodes": 2, "slots": 2, "load": [1, 1e999]}', code=1)
    assert "current" in plan("place", RIGHT, "--scheme", "migrate", code=1)
    assert "share" in plan(
        "place", RIGHT | {"current": []}, "--scheme", "migrate", "--share", "NaN", code=2
    )
    assert "total" in plan("replicas", {"nodes": 2, "load": [1, 1], "total": 5}, code=1)


def test_parameters_of_another_distribution_are_refused(store):
    words = ("plan", "workload", "--partitions", 4, "--distribution")
    assert "alpha" in store.run(*words, "gamma", "--alpha", 2, code=2).err
    assert "shape" in store.run(*words, "gamma", "--shape", -2, code=2).err
    assert (
        "partitions"
        in store.run("plan", "workload", "--distribution", "uniform", "--partitions", 0, code=2).err
    )
