"""Versions have rising numbers, are retained and removed, and return on rollback. The gate holds
bad ones."""

import pytest
from harness import wait_for


def numbers(store, table="people"):
    return [v["version"] for v in store.json("versions", table)]


def serving(store, table="people"):
    return next((v["version"] for v in store.json("versions", table) if v["serving"]), None)


def test_version_numbers_rise_or_are_given(store, source):
    path = source(10)
    store.push("people", path, args=["--version", "9"])
    assert store.push("people", path)["version"] == 10
    store.push("people", path, args=["--version", "20261121", "--keep", "10"])
    assert store.push("people", path, args=["--keep", "10"])["version"] == 20261122
    assert numbers(store) == [9, 10, 20261121, 20261122]
    assert "greater" in store.refuse("push", "people", path, "--key", "{id}", "--version", "11")


def test_the_last_n_versions_and_the_previous_one_are_kept(store, source):
    path = source(10)
    for _ in range(6):
        store.push("people", path)
    wait_for(lambda: numbers(store) == [4, 5, 6], "three versions are left")
    store.push("people", path, args=["--keep", "1"])
    wait_for(lambda: numbers(store) == [6, 7], "the previous version is kept")
    assert len([path for path in store.runs("people") if path.suffix == ".run"]) == 2
    store.run("rollback", "people")
    assert serving(store) == 6


def test_two_rollbacks_go_back_two_versions(store, source):
    for version in (1, 2, 3):
        store.push("people", source(10, version=version))
    assert store.json("rollback", "people")["version"] == 2
    assert store.json("rollback", "people", "--from", 2)["version"] == 1
    assert store.json("get", "people", "1")[0]["v1"] == 1
    store.refuse("rollback", "people")
    # A swap to the serving version changes nothing.
    store.run("swap", "people", "1")
    store.refuse("rollback", "people")
    store.run("swap", "people", "3")
    assert store.json("get", "people", "1")[0]["v1"] == 3


def test_no_swap_builds_and_keeps_the_serving_version(store, source):
    store.push("people", source(10, version=1))
    pushed = store.push("people", source(10, version=2), args=["--no-swap"])
    assert pushed["swapped"] is False and serving(store) == 1
    store.run("swap", "people", "2")
    assert store.json("get", "people", "1")[0]["v1"] == 2


def test_the_gate_holds_a_version_that_lost_its_rows(store, source):
    store.push("people", source(1000, version=1))
    pushed = store.push("people", source(100, version=2), code=3)
    assert pushed["swapped"] is False and pushed["rows"] == 100
    assert serving(store) == 1
    for quiet in [[], ["--quiet"]]:
        held = store.run("push", "people", source(100), "--key", "{id}", *quiet, code=3)
        assert "rows" in held.err and "%" in held.err and "--force" in held.err
    assert store.push("people", source(100, version=3), args=["--force"])["swapped"] is True
    assert store.json("get", "people", "1")[0]["v1"] == 3


def test_a_custom_gate_limit(store, source):
    store.push("people", source(1000))
    fewer = source(950)
    assert store.push("people", fewer, args=["--gate", "rows>-1%"], code=3)["swapped"] is False
    assert store.push("people", fewer, args=["--gate", "rows>-10%"])["swapped"] is True


@pytest.mark.parametrize("limit", ["rows", "rows>", "cheese>-1%", "rows>-x%"])
def test_an_invalid_gate_limit_is_refused(store, source, limit):
    store.push("people", source(10))
    message = store.run("push", "people", source(10), "--key", "{id}", "--gate", limit, code=None)
    assert message.code in (1, 2) and limit in message.err
    assert numbers(store) == [1]
