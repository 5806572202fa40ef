"""`forebay plan insert` for scripts and operators: JSON in and out, drawings, refusals."""

import json
import random
import xml.etree.ElementTree as ElementTree

import pytest


def written(path, request):
    path.write_text(json.dumps(request))
    return path


def instance(machines, partitions, seed=1):
    below = random.Random(seed).randrange
    return {
        "machines": machines,
        "partitions": [
            {"e": below(500), "n": below(500), "h": below(machines)} for _ in range(partitions)
        ],
    }


def loads(request, dest):
    insert, moved = [0] * request["machines"], [0] * request["machines"]
    for part, to in zip(request["partitions"], dest, strict=True):
        insert[to] += part["n"]
        if to != part["h"]:
            moved[to] += part["e"]
            moved[part["h"]] += part["e"]
    return max(insert), max(moved)


@pytest.mark.parametrize("mode", ["paper", "fast", "polish"])
def test_the_reported_cost_matches_the_destinations(store, tmp_path, mode):
    request = instance(7, 90)
    more = ["--seconds", "0.2"] if mode == "polish" else []
    path = written(tmp_path / "in.json", request)
    plan = store.json("plan", "insert", "--input", path, "--mode", mode, *more)
    s_max, o_max = loads(request, plan["dest"])
    assert (plan["s_max"], plan["o_max"], plan["cost"]) == (s_max, o_max, s_max + o_max)
    homes = [part["h"] for part in request["partitions"]]
    assert plan["cost"] <= plan["cost_no_moves"] == sum(loads(request, homes))
    assert plan["lower_bound"] <= plan["cost"]
    moves = {(move["partition"], move["from"], move["to"]) for move in plan["moves"]}
    pairs = enumerate(zip(homes, plan["dest"], strict=True))
    assert moves == {(j, home, to) for j, (home, to) in pairs if home != to}
    assert len(plan["plan"]["steps"]) == len(moves)
    assert not store.path.exists(), "planning touched a store"


def test_fast_plans_are_repeatable_and_cheaper_than_the_papers(store, tmp_path):
    path = written(tmp_path / "in.json", instance(10, 300))
    fast, again = (store.json("plan", "insert", "--input", path) for _ in range(2))
    assert fast == again
    paper = store.json("plan", "insert", "--input", path, "--mode", "paper")
    assert fast["cost"] < paper["cost"]
    assert fast["cost"] <= 1.05 * fast["lower_bound"]


@pytest.mark.parametrize("machines", [10, 1000])
def test_plans_are_drawn(store, tmp_path, machines):
    request = {**instance(machines, 20 * machines), "name": "night <feed>"}
    path, drawing = written(tmp_path / "in.json", request), tmp_path / "plan.svg"
    shown = store.run("plan", "insert", "--input", path, "--draw", drawing).out
    assert shown.startswith("night <feed>\n") and "no plan with these pieces comes below" in shown
    assert max(len(line) for line in shown.splitlines()) < 200
    root = ElementTree.fromstring(drawing.read_text())
    assert root.get("width") == "1200"
    assert drawing.stat().st_size < 2_000_000


def test_a_drawing_replaces_a_file_like_an_export(store, tmp_path):
    path = written(tmp_path / "in.json", instance(3, 20))
    drawing, link = tmp_path / "plan.svg", tmp_path / "link.svg"
    drawing.write_text("before")
    drawing.chmod(0o600)
    link.symlink_to(drawing)
    store.run("plan", "insert", "--input", path, "--draw", link)
    assert link.is_symlink() and drawing.stat().st_mode & 0o777 == 0o600
    assert ElementTree.fromstring(drawing.read_text()).get("width") == "1200"
    assert sorted(file.name for file in tmp_path.glob("*plan*")) == ["plan.svg"]
    message = store.refuse("plan", "insert", "--input", path, "--draw", tmp_path)
    assert "give a file's name" in message and str(tmp_path) in message


def test_a_drawing_that_cannot_be_written_replaces_no_file(store, tmp_path):
    request = instance(3, 20)
    homes = [[part["h"] for part in request["partitions"]]]
    request["regions"] = [{"name": "west", "machines": 3, "homes": homes}]
    path, drawing = written(tmp_path / "in.json", request), tmp_path / "plan.svg"
    drawing.write_text("before")
    (tmp_path / "plan-1.svg").mkdir()
    message = store.refuse("plan", "insert", "--input", path, "--draw", drawing)
    assert "plan-1.svg" in message
    assert drawing.read_text() == "before"
    assert sorted(file.name for file in tmp_path.glob(".*")) == []


@pytest.mark.parametrize("planner", ["insert", "place", "replicas"])
def test_drawings_need_a_separate_svg_file(store, tmp_path, planner):
    request = instance(3, 20)
    if planner != "insert":
        request = {"nodes": 3, "slots": 4, "load": [1, 2, 3], "total": 6}
    path = written(tmp_path / "in.json", request)
    before = path.read_text()
    link = tmp_path / "link.svg"
    link.symlink_to(path)
    for drawing in (path, link):
        message = store.refuse("plan", planner, "--input", path, "--draw", drawing, code=2)
        assert "is the input" in message and path.read_text() == before
    message = store.refuse("plan", planner, "--input", path, "--draw", "-", code=2)
    assert "standard output" in message
    message = store.refuse("plan", planner, "--input", path, "--draw", tmp_path / "x.png", code=2)
    assert ".svg" in message and sorted(file.suffix for file in tmp_path.iterdir()) == [
        ".json",
        ".svg",
    ]


def test_batches_and_regions_are_printed(store, tmp_path):
    request = instance(3, 40)
    for part in request["partitions"]:
        part["h"] = 0
    request["regions"] = [{"name": "west", "machines": 2, "homes": [[0] * 40]}]
    path = written(tmp_path / "in.json", request)
    words = ["--input", path, "--batch-bytes", "600", "--draw", tmp_path / "plan.svg"]
    plan = store.json("plan", "insert", *words)
    steps = len(plan["plan"]["steps"])
    ends = [0, *(end for _, end in plan["batches"])]
    assert ends[-1] == steps and [first for first, _ in plan["batches"]] == ends[:-1]
    (west,) = plan["regions"]
    assert west["region"] == "west" and sorted(set(west["dest"])) == [0, 1]
    assert (tmp_path / "plan-1.svg").exists()


def test_refusals_name_file_and_field(store, tmp_path):
    part = {"e": 1, "n": 1, "h": 0}
    for request, words in [
        ({"machines": 2, "partitions": [part, {**part, "h": 2}]}, "partitions[1].h: machine 2"),
        ({"machines": 2, "partitions": [{**part, "n": -1}]}, "partitions[0].n: -1"),
        ({"machines": 2, "partitions": [{**part, "x": 0}]}, "unknown field `x`"),
        ({"machines": 2, "partitions": [{**part, "e": float("nan")}]}, "partitions[0].e"),
        ({"machines": 2, "partitions": [{**part, "e": None}]}, "partitions[0].e"),
        ({"machines": 2}, "give either partitions or tables"),
        ([], "not a JSON object"),
    ]:
        path = written(tmp_path / "wrong.json", request)
        message = store.refuse("plan", "insert", "--input", path)
        assert "wrong.json" in message and words in message, message
    assert "nowhere.json" in store.refuse("plan", "insert", "--input", tmp_path / "nowhere.json")
    path = written(tmp_path / "in.json", instance(2, 4))
    store.refuse("plan", "insert", "--input", path, "--seconds", "3", code=2)
    store.refuse("plan", "insert", "--input", path, "--draw", tmp_path / "no" / "dir.svg")
    store.refuse("plan", "insert", "--input", path, "--batch-bytes", "9", code=2)


def test_degenerate_instances_are_planned(store, tmp_path):
    twin = {"e": 5, "n": 7, "h": 1}
    for request, dest in [
        ({"machines": 1, "partitions": []}, []),
        ({"machines": 3, "partitions": [{"e": 0, "n": 0, "h": 2}]}, [2]),
        ({"machines": 1, "partitions": [{"e": 5, "n": 7, "h": 0}] * 3}, [0, 0, 0]),
        ({"machines": 2, "partitions": [twin, twin], "move_price": 1e300}, [1, 1]),
        ({"machines": 9, "partitions": [{"e": 0.5, "n": 0.25, "h": 8}]}, [8]),
    ]:
        path = written(tmp_path / "in.json", request)
        for mode in ["paper", "fast"]:
            plan = store.json("plan", "insert", "--input", path, "--mode", mode)
            assert plan["dest"] == dest, request
        store.run("plan", "insert", "--input", path)
