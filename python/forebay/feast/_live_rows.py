"""A row of a live table: when it happened, when it was made, and Feast's own message of values."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from feast.protos.feast.types.Value_pb2 import Map, Value

from .._errors import DamagedError

# Microseconds since 1970; the least number stands for a row without a created timestamp.
_TIMES = struct.Struct("<qq")
_NONE = -(1 << 63)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

Stamp = tuple[int, int]
"""Event and created timestamp, which say which of two rows is the newer one."""


class LiveRow(NamedTuple):
    stamp: Stamp
    values: Mapping[str, Value]


def microseconds(at: datetime) -> int:
    """A time without a zone is UTC, as everywhere in Feast."""
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def stamp(event: datetime, created: datetime | None) -> Stamp:
    return microseconds(event), _NONE if created is None else microseconds(created)


def event_time(stamp: Stamp) -> datetime:
    return _EPOCH + timedelta(microseconds=stamp[0])


def encode(row: LiveRow) -> bytes:
    return _TIMES.pack(*row.stamp) + Map(val=row.values).SerializeToString()


def stamp_of(stored: bytes) -> Stamp:
    try:
        return _TIMES.unpack_from(stored)
    except struct.error as error:
        raise DamagedError(f"a row of a live table has no timestamps: {error}") from None


def decode(stored: bytes) -> LiveRow:
    return LiveRow(stamp_of(stored), Map.FromString(stored[_TIMES.size :]).val)
