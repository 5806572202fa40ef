"""examples/airflow: its DAGs, run by Airflow in this process, with its own database."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from conftest import EXAMPLES, Holder, ask, example, serving, write_people


@pytest.fixture(scope="module")
def airflow(tmp_path_factory):
    """The example's module. Airflow reads its settings when it is first imported."""
    os.environ |= {
        "AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
    }
    command = Path(sys.executable).parent / "airflow"
    subprocess.run([command, "db", "migrate"], check=True, capture_output=True)
    return example("airflow")


@pytest.fixture
def dags(airflow, store, tmp_path, monkeypatch):
    """Runs a DAG without the tasks that `skip` names, and returns its result."""
    monkeypatch.setattr(airflow, "STORE", str(store))
    monkeypatch.setattr(airflow, "PEOPLE", tmp_path / "people.parquet")

    def run_dag(name, params=None, skip=None, retries=5):
        dag = getattr(airflow, name)()
        for task in dag.tasks:
            task.retry_delay = timedelta(seconds=0.1)
            task.retries = min(task.retries, retries)
        done = dag.test(run_conf=params, mark_success_pattern=skip)
        return {"state": done.state, "tasks": dict(map(seen, done.get_task_instances()))}

    return run_dag


def seen(instance):
    values = {
        key: instance.xcom_pull(task_ids=instance.task_id, key=key)
        for key in ("return_value", "held")
    }
    return instance.task_id, {"state": instance.state, "tries": instance.try_number, **values}


def test_a_run_publishes_and_returns_the_gates_verdict(dags, store):
    seen = dags("people")
    assert seen["state"] == "success", seen
    result = seen["tasks"]["publish"]["return_value"]
    assert (result["version"], result["serves"], result["rows"]) == (2, True, 1000)
    assert result["gate"][0] == {
        "limit": "rows>-20%",
        "seen": "rows 1000 to 1000 (0%)",
        "passed": True,
    }
    assert serving(store) == [2]


def test_a_held_version_fails_or_is_skipped_until_an_operator_decides(dags, store, tmp_path):
    write_people(tmp_path / "people.parquet", 10)
    seen = dags("people", skip="compute")
    task = seen["tasks"]["publish"]
    assert (seen["state"], task["state"], task["tries"]) == ("failed", "failed", 1)
    assert task["held"]["version"] == 2 and not task["held"]["gate"][0]["passed"]
    seen = dags("people", {"on_held": "skip"}, skip="compute")
    assert seen["tasks"]["publish"]["state"] == "skipped" and serving(store) == [1]
    for _ in range(2):
        seen = dags("people_swap_held", {"version": 3})
        assert seen["state"] == "success" and serving(store) == [3]
    seen = dags("people_roll_back", {"version": 3})
    assert seen["tasks"]["rollback"]["return_value"] == {"version": 1, "previous": 3}
    seen = dags("people_roll_back", {"version": 3})
    assert seen["tasks"]["rollback"]["state"] == "skipped" and serving(store) == [1]


def test_a_run_waits_for_another_push_only(dags, store, tmp_path):
    with Holder(store):
        seen = dags("people", skip="compute", retries=2)
    task = seen["tasks"]["publish"]
    assert (seen["state"], task["state"], task["tries"]) == ("failed", "failed", 3)
    (tmp_path / "people.parquet").write_bytes(b"PAR1 and no more")
    seen = dags("people", skip="compute")
    task = seen["tasks"]["publish"]
    assert (seen["state"], task["state"], task["tries"]) == ("failed", "failed", 1)
    assert serving(store) == [1] and len(ask(store, "versions", "people")) == 2
