"""The online store: reads from both tables of a feature view, writes to the live one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from feast import Entity
from feast.feature_view import FeatureView
from feast.infra.online_stores.online_store import OnlineStore
from feast.infra.supported_async_methods import SupportedAsyncMethods
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.repo_config import RepoConfig

from .._errors import UsageError
from ._columns import reader
from ._live_rows import LiveRow, Stamp, decode, encode, event_time, stamp, stamp_of
from ._names import PRECOMPUTED, key_of, project_table, view_table
from ._places import Place, close_place, own_config, place_of, values_of
from ._versions import CREATED, EVENT

Row = tuple[EntityKey, dict[str, Value], datetime, datetime | None]
Found = tuple[datetime | None, dict[str, Value] | None]


class ForebayOnlineStore(OnlineStore):
    """Features in tables of Forebay.

    A feature view has a batch table, a version for each materialisation, and a live table for what
    is written row by row. A read gives the newer of both rows, by their event timestamps.
    """

    # Tables of versions of feature views have names of their own.
    _versioned_read_supported = True

    _config: RepoConfig | None = None

    def _place(self, config: RepoConfig) -> Place:
        self._config = config
        return place_of(config)

    @property
    def async_supported(self) -> SupportedAsyncMethods:
        return SupportedAsyncMethods(read=True, write=True)

    # Reading.

    def online_read(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[Found]:
        place, name = self._place(config), view_table(config, table)
        keys = [key_of(entity) for entity in entity_keys]
        rows = values_of(place.batch(name), keys)
        live_rows = values_of(place.live(name), keys)
        read = _Reading(config, table, requested_features)
        return [read.newer(row, live) for row, live in zip(rows, live_rows, strict=True)]

    async def online_read_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        entity_keys: list[EntityKey],
        requested_features: list[str] | None = None,
    ) -> list[Found]:
        return await asyncio.to_thread(
            self.online_read, config, table, entity_keys, requested_features
        )

    # Writing.

    def online_write_batch(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[Row],
        progress: Callable[[int], Any] | None,
    ) -> None:
        """Writes rows to the live table; one that is older than what is there is left out."""
        if not data:
            return
        place = self._place(config)
        live = place.writable(view_table(config, table))
        news: dict[str | bytes, LiveRow] = {}
        for entity, values, event, created in data:
            key, at = key_of(entity), stamp(event, created)
            if key not in news or news[key].stamp <= at:
                news[key] = LiveRow(at, values)
        with place.lock:
            keys = list(news)
            for key, held in zip(keys, live.get_many(keys), strict=True):
                if held is not None and stamp_of(held) > news[key].stamp:
                    del news[key]
            items = [(key, encode(row)) for key, row in news.items()]
            live.put_many(items, ttl=own_config(config).key_ttl_seconds)
        if progress is not None:
            progress(len(data))

    async def online_write_batch_async(
        self,
        config: RepoConfig,
        table: FeatureView,
        data: list[Row],
        progress: Callable[[int], Any] | None,
    ) -> None:
        await asyncio.to_thread(self.online_write_batch, config, table, data, progress)

    # Feature views that come and go.

    def update(
        self,
        config: RepoConfig,
        tables_to_delete: Sequence[FeatureView],
        tables_to_keep: Sequence[FeatureView],
        entities_to_delete: Sequence[Entity],
        entities_to_keep: Sequence[Entity],
        partial: bool,
    ) -> None:
        place = self._place(config)
        place.prepare([view_table(config, view) for view in tables_to_keep])
        gone = {view_table(config, view) for view in tables_to_delete}
        if gone:
            place.drop(gone.__contains__)

    def teardown(
        self, config: RepoConfig, tables: Sequence[FeatureView], entities: Sequence[Entity]
    ) -> None:
        names = {view_table(config, view) for view in tables}
        precomputed = project_table(config.project, PRECOMPUTED)
        self._place(config).drop(lambda name: name in names or name.startswith(precomputed))
        close_place(config)

    async def close(self) -> None:
        """Closes live tables, which other processes may open then; a later call opens them."""
        if self._config is not None:
            close_place(self._config)


_ABSENT = Value()


class _Reading:
    """What one read of a feature view makes of stored rows."""

    def __init__(self, config: RepoConfig, view: FeatureView, requested: list[str] | None) -> None:
        self._types = {field.name: field.dtype.to_value_type() for field in view.features}
        self._names = list(self._types) if requested is None else requested
        self._readers = [
            (name, reader(self._types[name])) for name in self._names if name in self._types
        ]
        self._oldest: float | None = None
        ttl = getattr(view, "ttl", None)
        if own_config(config).enforce_ttl and ttl:
            self._oldest = time.time() - ttl.total_seconds()

    def newer(self, row: dict[str, Any] | None, live: bytes | None) -> Found:
        """The newer of a row of each table; the live one of two of the same moment."""
        if live is not None and (row is None or stamp_of(live) >= _stamp(row)):
            return self._of_live(decode(live))
        return (None, None) if row is None else self._of_batch(row)

    def _of_batch(self, row: dict[str, Any]) -> Found:
        event: datetime = row[EVENT]
        if self._is_expired(event):
            return None, None
        try:
            return event, {
                name: _ABSENT if (held := row[name]) is None else read(held)
                for name, read in self._readers
                if name in row
            }
        except (TypeError, ValueError):
            raise self._mismatch(row) from None

    def _mismatch(self, row: dict[str, Any]) -> UsageError:
        """Says which feature of a row is of another type than is declared."""
        reported: list[str] = []
        for name, read in self._readers:
            try:
                if row.get(name) is not None:
                    read(row[name])
            except (TypeError, ValueError):
                reported.append(f"{name} is declared {self._types[name].name}, not {row[name]!r}")
        return UsageError(
            f"what was materialised is of another type than is declared ({'; '.join(reported)}): "
            "materialise the feature view again"
        )

    def _of_live(self, row: LiveRow) -> Found:
        event = event_time(row.stamp)
        if self._is_expired(event):
            return None, None
        return event, {name: row.values[name] for name in self._names if name in row.values}

    def _is_expired(self, event: datetime) -> bool:
        return self._oldest is not None and event.timestamp() < self._oldest


def _stamp(row: dict[str, Any]) -> Stamp:
    return stamp(row[EVENT], row[CREATED])
