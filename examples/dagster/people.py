"""Publishes an asset of Dagster, with the gate's verdict as an asset check.

pip install ./python dagster dagster-webserver pyarrow
FOREBAY_STORE=store PEOPLE_DATA=data dagster dev -f examples/dagster/people.py
"""

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pyarrow.parquet as pq

import forebay

GATE = "gate"


class OnHeld(Enum):
    """What becomes of a run whose version the gate holds. In both cases nothing new serves."""

    fail = "fail"
    warn = "warn"


class Store(dg.ConfigurableResource):
    """The store, and where the assets' files are."""

    url: str
    data: str

    def file(self, name: str) -> Path:
        return Path(self.data) / f"{name}.parquet"


@dg.asset
def people(store: Store) -> dg.MaterializeResult:
    """Stands for the job that computes what is served."""
    computed = pa.table({"id": range(1000), "score": [id % 7 / 7 for id in range(1000)]})
    pq.write_table(computed, store.file("people"))
    return dg.MaterializeResult(metadata={"dagster/row_count": computed.num_rows})


class PublishConfig(dg.Config):
    on_held: OnHeld = OnHeld.fail
    busy_tries: int = 5
    busy_wait_s: float = 60


@dg.asset(
    deps=[people],
    check_specs=[dg.AssetCheckSpec(GATE, asset="people_served", blocking=True)],
    # A version that is held is no materialization: what comes downstream does not run.
    output_required=False,
)
def people_served(
    context: dg.AssetExecutionContext, config: PublishConfig, store: Store
) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:
    """The table `people`, as servers answer from it."""
    try:
        result = forebay.push(
            str(store.file("people")), "people", key="{id}", store=store.url, progress=False
        )
    except forebay.BusyError as busy:
        # The only failure that ends by waiting. A policy of retries would repeat them all.
        raise dg.RetryRequested(config.busy_tries, config.busy_wait_s) from busy
    except forebay.GateHeld as held:
        yield verdict(held.result, config.on_held)
        context.log.warning(str(held))
        if config.on_held is OnHeld.fail:
            raise dg.Failure(str(held), metadata=facts(held.result), allow_retries=False) from held
        return
    yield dg.MaterializeResult(
        metadata=facts(result), data_version=dg.DataVersion(str(result.version))
    )
    yield verdict(result)


def facts(result: forebay.PushResult) -> dict[str, dg.MetadataValue]:
    """What a push did, as Dagster shows it."""
    return {
        "version": dg.MetadataValue.int(result.version),
        "serves": dg.MetadataValue.bool(result.swapped),
        "dagster/row_count": dg.MetadataValue.int(result.rows),
        "rejected": dg.MetadataValue.int(result.rejected),
        "duplicates": dg.MetadataValue.int(result.duplicates),
        "bytes": dg.MetadataValue.int(result.bytes),
        "seconds": dg.MetadataValue.float(result.seconds),
    }


def verdict(result: forebay.PushResult, on_held: OnHeld = OnHeld.fail) -> dg.AssetCheckResult:
    """What the gate saw, a row a limit."""
    records = [
        dg.TableRecord({"limit": f.limit, "seen": f.seen, "passed": f.passed}) for f in result.gate
    ]
    columns = [dg.TableColumn(name) for name in ("limit", "seen")]
    columns.append(dg.TableColumn("passed", "bool"))
    table = dg.MetadataValue.table(records, dg.TableSchema(columns))
    error = on_held is OnHeld.fail
    return dg.AssetCheckResult(
        passed=result.swapped,
        asset_key="people_served",
        check_name=GATE,
        severity=dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN,
        metadata={"version": result.version, "findings": table},
    )


class VersionConfig(dg.Config):
    version: int


@dg.op
def swap(context: dg.OpExecutionContext, config: VersionConfig, store: Store) -> None:
    """Lets a version serve; to do so twice makes no difference."""
    with forebay.open(store.url) as opened:
        swapped = opened["people"].swap(config.version)
    served(context, swapped)


@dg.op
def rollback(context: dg.OpExecutionContext, config: VersionConfig, store: Store) -> None:
    """Goes back from a version, if it is the one that serves: a second time nothing happens."""
    with forebay.open(store.url) as opened:
        table = opened["people"]
        if table.version != config.version:
            context.log.info(f"version {table.version} serves, not {config.version}")
            return
        swapped = table.rollback()
    served(context, swapped)


def served(context: dg.OpExecutionContext, swapped: forebay.Swapped) -> None:
    """Has the asset's page say what serves now."""
    context.log_event(
        dg.AssetMaterialization(
            "people_served",
            description=f"{context.op.name}: version {swapped.version} serves",
            metadata={"version": swapped.version, "previous": swapped.previous},
            tags={"dagster/data_version": str(swapped.version)},
        )
    )


@dg.job
def swap_held() -> None:
    """For a person who has looked at a version that was held, and lets it serve."""
    swap()


@dg.job
def roll_back() -> None:
    """For a person who has found that the version which serves is wrong."""
    rollback()


publish = dg.define_asset_job("publish", [people, people_served])

definitions = dg.Definitions(
    assets=[people, people_served],
    jobs=[publish, swap_held, roll_back],
    schedules=[dg.ScheduleDefinition(job=publish, cron_schedule="15 4 * * *")],
    resources={"store": Store(url=dg.EnvVar("FOREBAY_STORE"), data=dg.EnvVar("PEOPLE_DATA"))},
)
