"""Python's classes of dates, times and decimals, for the extension module.

A stored time counts units; `per_second` says how many are in a second. What does not fit Python's
classes (years beyond 9999, fractions of a microsecond) is an error rather than another value.
"""

from __future__ import annotations

import datetime as dt
import decimal as dec
import functools
import re
import struct
from typing import Any, cast
from zoneinfo import ZoneInfo

from ._errors import UsageError

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_UTC = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY_S = 24 * 60 * 60
_MICROSECOND = dt.timedelta(microseconds=1)


def decimal(text: str) -> dec.Decimal:
    return dec.Decimal(text)


_BEYOND = "the value is outside the years that Python's times have: use to_arrow()"


def date(days: int) -> dt.date:
    try:
        return _EPOCH.date() + dt.timedelta(days=days)
    except OverflowError:
        raise UsageError(_BEYOND) from None


def _span(units: int, per_second: int) -> dt.timedelta:
    if per_second > 1_000_000:
        micros, rest = divmod(units, per_second // 1_000_000)
        if rest:
            raise UsageError("the value has nanoseconds, which Python's times lack: use to_arrow()")
        return dt.timedelta(microseconds=micros)
    return dt.timedelta(microseconds=units * (1_000_000 // per_second))


_OFFSET_RE = re.compile(r"([+-])(\d\d):?(\d\d)")


@functools.lru_cache
def _zone(name: str) -> dt.tzinfo:
    """A time zone by its name in Arrow: one of the database of time zones, or an offset."""
    if name == "UTC":
        return dt.UTC
    if found := _OFFSET_RE.fullmatch(name):
        offset = dt.timedelta(hours=int(found[2]), minutes=int(found[3]))
        return dt.timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):
        raise UsageError(
            f"this machine does not know the time zone '{name}': pip install tzdata, or use "
            "to_arrow()"
        ) from None


def timestamp(units: int, per_second: int, zone: str | None) -> dt.datetime:
    """A time in its column's zone, which is None where the column has none."""
    try:
        if zone is None:
            return _EPOCH + _span(units, per_second)
        return (_EPOCH_UTC + _span(units, per_second)).astimezone(_zone(zone))
    except OverflowError:
        raise UsageError(_BEYOND) from None


def time(units: int, per_second: int) -> dt.time:
    if not 0 <= units < per_second * _DAY_S:
        raise UsageError("the value is no time of a day as Python has them: use to_arrow()")
    return (_EPOCH + _span(units, per_second)).time()


def duration(units: int, per_second: int) -> dt.timedelta:
    try:
        return _span(units, per_second)
    except OverflowError:
        raise UsageError(
            "the value is longer than a timedelta of Python can be: use to_arrow()"
        ) from None


def _units(span: dt.timedelta, per_second: int, nanoseconds: int = 0) -> int:
    """`nanoseconds` are those that pandas has besides Python's microseconds."""
    whole = span // _MICROSECOND * 1000 + nanoseconds
    units, rest = divmod(whole * per_second, 1_000_000_000)
    if rest:
        raise UsageError(f"{span} is finer than the column's unit of 1/{per_second} s")
    return units


def days_of(value: Any) -> int:
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        raise UsageError(f"{value!r} is no date")
    return (value - _EPOCH.date()).days


def timestamp_of(value: Any, per_second: int, zoned: bool) -> int:
    if not isinstance(value, dt.datetime) or value != value:
        raise UsageError(f"{value!r} is no datetime")
    if (value.tzinfo is not None) != zoned:
        raise UsageError(
            f"{value!r} has {'no ' if zoned else 'a '}time zone, and the column's values have "
            f"{'one' if zoned else 'none'}"
        )
    nanoseconds = getattr(value, "nanosecond", 0)
    plain: Any = cast("Any", value).to_pydatetime(warn=False) if nanoseconds else value
    return _units(plain - (_EPOCH_UTC if zoned else _EPOCH), per_second, nanoseconds)


def time_of(value: Any, per_second: int) -> int:
    if not isinstance(value, dt.time):
        raise UsageError(f"{value!r} is no time")
    if value.tzinfo is not None:
        raise UsageError(f"{value!r} has a time zone, and times of a day have none here")
    return _units(dt.datetime.combine(_EPOCH.date(), value) - _EPOCH, per_second)


def duration_of(value: Any, per_second: int) -> int:
    if not isinstance(value, dt.timedelta):
        raise UsageError(f"{value!r} is no timedelta")
    nanoseconds = getattr(value, "nanoseconds", 0)
    plain: Any = cast("Any", value).to_pytimedelta() if nanoseconds else value
    return _units(plain, per_second, nanoseconds)


def scaled(value: Any, precision: int, scale: int) -> int:
    if not isinstance(value, dec.Decimal | int) or isinstance(value, bool):
        raise UsageError(f"{value!r} is no Decimal")
    number = dec.Decimal(value)
    with dec.localcontext(prec=100):
        shifted = number.scaleb(scale)
        whole = int(shifted) if number.is_finite() else None
        if whole is None or whole != shifted or abs(whole) >= 10**precision:
            raise UsageError(f"{value} is no decimal({precision}, {scale})")
        return whole


def scaled_bytes(value: Any, precision: int, scale: int) -> bytes:
    return scaled(value, precision, scale).to_bytes(32, "little", signed=True)


def half_of(value: Any) -> int:
    """The bits of a float of 16."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{value!r} is no float16")
    try:
        bits = struct.pack("<e", value)
    except (OverflowError, struct.error):
        raise UsageError(f"{value!r} is no float16: it is too large") from None
    (half,) = struct.unpack("<e", bits)
    if half != value and value == value:
        raise UsageError(f"{value!r} is no float16: the nearest one is {half!r}")
    return int.from_bytes(bits, "little")


def interval_of(value: Any, kind: str) -> tuple[int, int, int]:
    """Months, days and nanoseconds, as they are read, or pyarrow's MonthDayNano."""
    parts = cast("tuple[Any, ...]", value)
    if not isinstance(value, tuple) or [type(part) for part in parts] != [int, int, int]:
        raise UsageError(f"{value!r} is no interval: give (months, days, nanoseconds)")
    months, days, nanoseconds = cast("tuple[int, int, int]", parts)
    lost = {
        "interval(months)": days or nanoseconds,
        "interval(days)": months or nanoseconds % 1_000_000,
    }
    if lost.get(kind) or any(abs(part) >= 2**31 for part in (months, days)):
        raise UsageError(f"{value!r} is no {kind}")
    if abs(nanoseconds) >= (2**31 * 1_000_000 if kind == "interval(days)" else 2**63):
        raise UsageError(f"{value!r} is no {kind}")
    return months, days, nanoseconds
