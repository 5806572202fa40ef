"""Materialisations as versions of batch tables."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

from feast.utils import make_tzaware
from feast.value_type import ValueType

from .._errors import DataError, MissingError, UsageError
from .._push import PushResult
from .._store import Store
from ._columns import feature_column, key_column, time_column

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")

KEY, EVENT, CREATED, EXPIRES = "_key", "_event", "_created", "_expires"
"""Columns beside the features."""

_TIME = pa.timestamp("us", "UTC")
# What columns there are is what the feature view declares, so that a change of them is meant.
_SCHEMA_LIMITS = ("column-gone=report", "type-changed=report")

How = Literal["replace", "onto", "merge"]


class View(NamedTuple):
    """What is to be known of a feature view."""

    name: str
    features: dict[str, ValueType]
    join_keys: dict[str, ValueType]
    event_column: str
    created_column: str | None


class Range(NamedTuple):
    """The times that a materialisation takes rows from."""

    start: datetime
    end: datetime


def way(
    mode: Literal["auto", "replace", "upsert"],
    span: Range,
    before: list[tuple[datetime, datetime]],
) -> How:
    """What a materialisation does with what earlier ones wrote.

    A range that covers all of theirs has all rows that they had, so that it replaces them. One that
    comes after all of theirs has newer rows only, which go on top. Any other is merged with what
    is there, row by row."""
    ranges = [Range(_aware(start), _aware(end)) for start, end in before]
    start, end = _aware(span.start), _aware(span.end)
    covers = all(start <= one.start and one.end <= end for one in ranges)
    if mode == "replace" or (mode == "auto" and covers):
        return "replace"
    return "onto" if all(one.end <= start for one in ranges) else "merge"


def _aware(at: datetime) -> datetime:
    return make_tzaware(at)


def columns_of(table: Any, view: View, key_ttl_s: int | None) -> Any:
    """The rows of an offline store as they are pushed, the newest last."""
    for name in (KEY, EVENT, CREATED, EXPIRES):
        if name in view.features:
            raise UsageError(
                f"feature view {view.name}: a feature cannot be called {name}, which is a column "
                "of its table: rename it"
            )
    names = [view.event_column, *([view.created_column] if view.created_column else [])]
    for name in [*names, *view.features]:
        if name not in table.column_names:
            raise DataError(
                f"feature view {view.name}: the offline store gave no column {name}; it gave: "
                f"{', '.join(table.column_names)}"
            )
    event = time_column(table.column(view.event_column), view.event_column)
    if event.null_count:
        raise DataError(
            f"feature view {view.name}: {event.null_count} rows have no {view.event_column}"
        )
    created = pa.nulls(table.num_rows, _TIME)
    if view.created_column is not None:
        created = time_column(table.column(view.created_column), view.created_column)
    columns = {KEY: key_column(table, view.join_keys), EVENT: event, CREATED: created}
    if key_ttl_s is not None:
        until = datetime.now(UTC) + timedelta(seconds=key_ttl_s)
        columns[EXPIRES] = pa.repeat(pa.scalar(until, _TIME), table.num_rows)
    for name, kind in view.features.items():
        columns[name] = feature_column(table.column(name), name, kind)
    return newest_last(pa.table(columns))


def newest_last(rows: Any) -> Any:
    """Of rows of one key the last is what counts; without a created timestamp it comes first."""
    made = pc.fill_null(rows.column(CREATED), pa.scalar(-(1 << 63), pa.int64()).cast(_TIME))
    times = pa.table({EVENT: rows.column(EVENT), CREATED: made})
    keys = [(EVENT, "ascending"), (CREATED, "ascending")]
    return rows.take(pc.sort_indices(times, sort_keys=keys))


def publish(
    store: Store, name: str, rows: Any, how: How, options: Mapping[str, Any]
) -> PushResult | None:
    """Pushes rows as the next version; None where there was nothing to do."""
    current: Any = None if how == "replace" else _current(store, name)
    if current is not None:
        if not rows.num_rows:
            return None
        if how == "onto" and _same_columns(current.schema, rows.schema):
            return _pushed(store, name, rows, {"onto": "current", **options})
        held = _fitted(current.to_arrow(), rows.schema)
        rows = newest_last(pa.concat_tables([held, rows]))
    whole = {"key": f"{{{KEY}}}", "duplicates": "last"}
    if EXPIRES in rows.column_names:
        whole["ttl_column"] = EXPIRES
    return _pushed(store, name, rows, {**whole, **options})


def _pushed(store: Store, name: str, rows: Any, options: dict[str, Any]) -> PushResult:
    given = options.get("gate") or ()
    limits = (given,) if isinstance(given, str) else given
    # The last limit of a kind counts, so that those that were given come last.
    push: Any = store.push
    return push(rows, name, **{**options, "gate": [*_SCHEMA_LIMITS, *limits]})


def _current(store: Store, name: str) -> Any:
    try:
        return store[name]
    except MissingError:
        return None


def _same_columns(one: Any, other: Any) -> bool:
    return {field.name: field.type for field in one} == {field.name: field.type for field in other}


def _fitted(rows: Any, schema: Any) -> Any:
    """Rows of an older version with the columns of a newer one."""
    columns: list[Any] = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        try:
            columns.append(column.cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"column {field.name} is {field.type} now, and what was materialised "
                f"({column.type}) cannot become that: materialise the whole range again ({error})"
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)
