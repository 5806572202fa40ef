"""examples/dagster: its jobs, run by Dagster in this process."""

import dagster as dg
import pytest
from conftest import Holder, example, serving, write_people

pytestmark = pytest.mark.usefixtures("no_telemetry")
SERVED = dg.AssetKey("people_served")


@dg.asset(deps=[SERVED])
def downstream() -> None:
    """Work to run once a new version serves."""


@pytest.fixture
def jobs(store, tmp_path):
    return Jobs(store, tmp_path)


class Jobs:
    def __init__(self, store, data):
        self.example = example("dagster")
        self.store, self.data = store, data
        self.instance = dg.DagsterInstance.ephemeral()

    def run(self, name, config=None, only=None):
        """Runs a job. `only` selects assets, so that the data stay as the test made them."""
        definitions = dg.Definitions(
            assets=[self.example.people, self.example.people_served, downstream],
            jobs=[
                dg.define_asset_job("publish", "*"),
                self.example.swap_held,
                self.example.roll_back,
            ],
            resources={"store": self.example.Store(url=str(self.store), data=str(self.data))},
        )
        return definitions.resolve_job_def(name).execute_in_process(
            instance=self.instance,
            raise_on_error=False,
            run_config={"ops": config or {}},
            asset_selection=only,
        )

    def push(self, **config):
        config = {"people_served": {"config": {"busy_wait_s": 0.1, **config}}}
        return self.run("publish", config, [SERVED, downstream.key])

    def last(self):
        """The newest version on the asset's page."""
        return self.instance.get_latest_materialization_event(SERVED).asset_materialization


def findings(check):
    return [dict(record.data) for record in check.metadata["findings"].records]


def materialized(result):
    return [event.asset_key.to_user_string() for event in result.get_asset_materialization_events()]


def test_the_definitions_load_and_a_run_publishes(jobs, monkeypatch):
    monkeypatch.setenv("FOREBAY_STORE", str(jobs.store))
    monkeypatch.setenv("PEOPLE_DATA", str(jobs.data))
    jobs.example.definitions.get_repository_def().load_all_definitions()
    job = jobs.example.definitions.resolve_job_def("publish")
    result = job.execute_in_process(instance=jobs.instance)
    assert result.success and serving(jobs.store) == [2]
    assert jobs.last().metadata["version"].value == 2
    assert jobs.last().metadata["dagster/row_count"].value == 1000
    [check] = result.get_asset_check_evaluations()
    assert check.passed and findings(check)[0] == {
        "limit": "rows>-20%",
        "seen": "rows 1000 to 1000 (0%)",
        "passed": True,
    }


def test_a_held_version_fails_the_run(jobs):
    write_people(jobs.data / "people.parquet", 10)
    result = jobs.push()
    assert not result.success and materialized(result) == []
    [check] = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert check.metadata["version"].value == 2
    assert {"limit": "rows>-20%", "seen": "rows 1000 to 10 (-99%)", "passed": False} in findings(
        check
    )
    assert serving(jobs.store) == [1]


def test_a_held_version_can_warn_and_stops_downstream_assets(jobs):
    write_people(jobs.data / "people.parquet", 10)
    result = jobs.push(on_held="warn")
    assert result.success and materialized(result) == []
    [check] = result.get_asset_check_evaluations()
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert serving(jobs.store) == [1]
    # A serving version makes downstream assets run.
    write_people(jobs.data / "people.parquet", 1000)
    assert materialized(jobs.push()) == ["people_served", "downstream"]


def test_an_operator_swaps_a_held_version_and_rolls_it_back(jobs):
    write_people(jobs.data / "people.parquet", 10)
    jobs.push(on_held="warn")
    version = {"config": {"version": 2}}
    for _ in range(2):
        assert jobs.run("swap_held", {"swap": version}).success
        assert serving(jobs.store) == [2]
    assert jobs.last().metadata["version"].value == 2
    for _ in range(2):
        assert jobs.run("roll_back", {"rollback": version}).success
        assert serving(jobs.store) == [1]
    assert jobs.last().metadata["version"].value == 1


def retries(result):
    return [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def test_a_run_waits_for_another_push_only(jobs):
    with Holder(jobs.store):
        result = jobs.push(busy_tries=2)
    assert not result.success and len(retries(result)) == 2
    assert jobs.push().success
    (jobs.data / "people.parquet").write_bytes(b"PAR1 and no more")
    result = jobs.push()
    assert not result.success and retries(result) == []
    failed = result.failure_data_for_node("people_served").error.to_string()
    assert "forebay.DataError" in failed and "its footer is damaged or cut off" in failed
