"""Pushes the model `people` once its tests have passed; a row for each push is kept.

A version that the gate holds fails this model, and with it the run.
"""

import os
from datetime import UTC, datetime
from typing import Any

import duckdb

import forebay


def model(dbt: Any, session: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation:
    dbt.config(materialized="incremental", tags=["push"])
    store = os.environ["FOREBAY_STORE"]
    result = forebay.push(dbt.ref("people"), "people", key="{id}", store=store, progress=False)
    return session.sql(
        "select ?::timestamptz as pushed_at, ?::text as name, ?::bigint as version, "
        "?::bigint as row_count, ?::double as seconds",
        params=[datetime.now(UTC), result.table, result.version, result.rows, result.seconds],
    )
