"""examples/airflow: its DAGs, run by Airflow in a process of its own over a database of its own."""

import json
import sys

import pytest
from conftest import EXAMPLES, Holder, ask, run, serving, write_people

RUN = """
import json, os, sys
from datetime import timedelta
sys.path.insert(0, os.environ["AIRFLOW__CORE__DAGS_FOLDER"])
import people

name, params, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
dag = getattr(people, name)()
for task in dag.tasks:
    task.retry_delay = timedelta(seconds=0.1)
    task.retries = min(task.retries, settings.get("retries", 5))
done = dag.test(run_conf=params, mark_success_pattern=settings.get("skip"))
told = {"state": done.state, "tasks": {}}
for ti in done.get_task_instances():
    values = {key: ti.xcom_pull(task_ids=ti.task_id, key=key) for key in ("return_value", "held")}
    told["tasks"][ti.task_id] = {"state": ti.state, "tries": ti.try_number, **values}
print("\\n" + json.dumps(told))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("airflow")
    done = run("airflow", "db", "migrate", env=environment(home))
    assert done.returncode == 0, done.stderr
    return home


def environment(home):
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
    }


@pytest.fixture
def dags(home, store, tmp_path):
    """Runs a DAG, without what computes the data where `skip` names it; tells how it ended."""

    def go(name, params=None, **settings):
        words = [sys.executable, "-c", RUN, name, json.dumps(params or {}), json.dumps(settings)]
        data = {**environment(home), "PEOPLE_DATA": str(tmp_path)}
        done = run(*words, store=store, env=data)
        assert done.stdout.strip(), done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return go


def test_a_run_publishes_and_gives_the_verdict_as_its_result(dags, store):
    told = dags("people")
    assert told["state"] == "success", told
    result = told["tasks"]["publish"]["return_value"]
    assert (result["version"], result["serves"], result["rows"]) == (2, True, 1000)
    assert result["gate"][0] == {
        "limit": "rows>-20%",
        "seen": "rows 1000 to 1000 (0%)",
        "passed": True,
    }
    assert serving(store) == [2]


def test_what_is_held_fails_or_is_skipped_until_a_person_decides(dags, store, tmp_path):
    write_people(tmp_path / "people.parquet", 10)
    told = dags("people", skip="compute")
    task = told["tasks"]["publish"]
    assert (told["state"], task["state"], task["tries"]) == ("failed", "failed", 1)
    assert task["held"]["version"] == 2 and not task["held"]["gate"][0]["passed"]
    told = dags("people", {"on_held": "skip"}, skip="compute")
    assert told["tasks"]["publish"]["state"] == "skipped" and serving(store) == [1]
    for _ in range(2):
        told = dags("people_swap_held", {"version": 3})
        assert told["state"] == "success" and serving(store) == [3]
    told = dags("people_roll_back", {"version": 3})
    assert told["tasks"]["rollback"]["return_value"] == {"version": 1, "previous": 3}
    told = dags("people_roll_back", {"version": 3})
    assert told["tasks"]["rollback"]["state"] == "skipped" and serving(store) == [1]


def test_only_another_push_is_waited_for(dags, store, tmp_path):
    with Holder(store):
        told = dags("people", skip="compute", retries=2)
    task = told["tasks"]["publish"]
    assert (told["state"], task["state"], task["tries"]) == ("failed", "failed", 3)
    (tmp_path / "people.parquet").write_bytes(b"PAR1 and no more")
    told = dags("people", skip="compute")
    task = told["tasks"]["publish"]
    assert (told["state"], task["state"], task["tries"]) == ("failed", "failed", 1)
    assert serving(store) == [1] and len(ask(store, "versions", "people")) == 2
