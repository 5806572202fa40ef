"""examples/dbt: models are built, tested and pushed, by the command line and within dbt."""

import json
import shutil

import duckdb
import pytest
from conftest import EXAMPLES, ask, run, serving


@pytest.fixture
def project(tmp_path):
    shutil.copytree(EXAMPLES / "dbt", tmp_path / "dbt")
    return tmp_path / "dbt"


def in_dbt(project, *words):
    # Telemetry is off, because the tests have no network.
    environment = {"DO_NOT_TRACK": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false", "NO_COLOR": "1"}
    return run(*words, store=project / "store", cwd=project, env=environment)


def change_seed(project, change):
    seed = project / "seeds" / "raw_people.csv"
    lines = seed.read_text().splitlines()
    seed.write_text("\n".join(change(lines)) + "\n")


def test_the_command_line_pushes_models_that_pass_their_tests(project):
    store = project / "store"
    done = in_dbt(project, "./publish", "--create")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == 5
    assert ask(store, "get", "people", "1") == [
        {"id": 1, "name": "Ada", "city": "London", "score": 0.91}
    ]
    # A duplicate row: the test of the model fails, and nothing is pushed.
    change_seed(project, lambda lines: [*lines, lines[1]])
    done = in_dbt(project, "./publish", "--no-create")
    assert done.returncode == 1 and "unique_people_id" in done.stdout
    assert len(ask(store, "versions", "people")) == 1
    # Too few rows: the model is built, tested and pushed, and the gate holds it.
    change_seed(project, lambda lines: lines[:3])
    done = in_dbt(project, "./publish", "--no-create")
    assert done.returncode == 3, done.stdout + done.stderr
    held = json.loads(done.stdout.splitlines()[-1])
    assert (held["version"], held["swapped"]) == (2, False)
    assert serving(store) == [1]


def test_a_model_pushes_and_records_its_pushes(project):
    store = project / "store"
    for _ in range(2):
        done = in_dbt(project, "dbt", "build")
        assert done.returncode == 0, done.stdout
    assert serving(store) == [2]
    with duckdb.connect(project / "target" / "people.duckdb") as warehouse:
        pushes = warehouse.sql("from people_pushes order by version").fetchall()
    assert [push[1:4] for push in pushes] == [("people", 1, 5), ("people", 2, 5)]
    change_seed(project, lambda lines: lines[:3])
    done = in_dbt(project, "dbt", "build")
    assert done.returncode == 1 and "forebay.GateHeld: the gate holds version 3" in done.stdout
    assert serving(store) == [2]
    # A test of the pushed model fails, so the push is skipped.
    change_seed(project, lambda lines: [*lines, lines[1]])
    done = in_dbt(project, "dbt", "build")
    assert done.returncode == 1 and "SKIP=1" in done.stdout
    assert len(ask(store, "versions", "people")) == 3
