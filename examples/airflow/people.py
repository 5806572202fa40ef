"""Publishes a table from Airflow, with the gate's verdict as the task's result.

pip install ./python apache-airflow pyarrow
A copy of this file goes into the folder of DAGs; FOREBAY_STORE and PEOPLE_DATA say where store and
files are.
"""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from airflow.sdk import Param, dag, get_current_context, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

import forebay

STORE = os.environ.get("FOREBAY_STORE", "forebay-data")
PEOPLE = Path(os.environ.get("PEOPLE_DATA", "."), "people.parquet")


@task
def compute() -> None:
    """Stands for the job that computes what is served."""
    computed = pa.table({"id": range(1000), "score": [id % 7 / 7 for id in range(1000)]})
    pq.write_table(computed, PEOPLE)


@task(
    retries=5,
    retry_delay=timedelta(minutes=1),
    execution_timeout=timedelta(hours=4),
    # Pushes of the table from other runs would be refused one another; here they wait.
    max_active_tis_per_dag=1,
)
def publish() -> dict[str, Any]:
    """Pushes; another push to the table is waited for by the retries, nothing else is."""
    context = get_current_context()
    try:
        result = forebay.push(str(PEOPLE), "people", key="{id}", store=STORE, progress=False)
    except forebay.BusyError:
        raise
    except forebay.GateHeld as held:
        context["ti"].xcom_push("held", verdict(held.result))
        if context["params"]["on_held"] == "skip":
            raise AirflowSkipException(str(held)) from held
        raise AirflowFailException(str(held)) from held
    except Exception as error:
        raise AirflowFailException(str(error)) from error
    return verdict(result)


def verdict(result: forebay.PushResult) -> dict[str, Any]:
    """What a push did and the gate saw, as it lies in XCom."""
    return {
        "version": result.version,
        "serves": result.swapped,
        "rows": result.rows,
        "rejected": result.rejected,
        "gate": [
            {"limit": finding.limit, "seen": finding.seen, "passed": finding.passed}
            for finding in result.gate
        ],
    }


@task
def swap() -> dict[str, Any]:
    """Lets a version serve; to do so twice makes no difference."""
    version = get_current_context()["params"]["version"]
    with forebay.open(STORE) as store:
        swapped = store["people"].swap(version)
    return {"version": swapped.version, "previous": swapped.previous}


@task
def rollback() -> dict[str, Any]:
    """Goes back from a version, if it is the one that serves: a second time nothing happens."""
    version = get_current_context()["params"]["version"]
    with forebay.open(STORE) as store:
        table = store["people"]
        if table.version != version:
            raise AirflowSkipException(f"version {table.version} serves, not {version}")
        swapped = table.rollback()
    return {"version": swapped.version, "previous": swapped.previous}


START = datetime(2026, 11, 1, tzinfo=UTC)
VERSION = {"version": Param(type="integer", minimum=1)}
ON_HELD = {"on_held": Param("fail", enum=["fail", "skip"])}


@dag(schedule="15 4 * * *", start_date=START, catchup=False, max_active_runs=1, params=ON_HELD)
def people() -> None:
    compute() >> publish()


@dag(schedule=None, start_date=START, params=VERSION)
def people_swap_held() -> None:
    """For a person who has looked at a version that was held, and lets it serve."""
    swap()


@dag(schedule=None, start_date=START, params=VERSION)
def people_roll_back() -> None:
    """For a person who has found that the version which serves is wrong."""
    rollback()


people()
people_swap_held()
people_roll_back()
