"""Conversion of dates, times, timestamps, durations and intervals between units, and the
calendar."""

import datetime
import math
from fractions import Fraction

import pyarrow as pa

from oracle import Bad
from oracle.numbers import whole

PER_SECOND = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}
FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
DAY = 86_400
EPOCH = datetime.date(1970, 1, 1).toordinal()
LIMIT_64 = 1 << 63
LIMIT_32 = 1 << 31


def seconds(value, data_type):
    """A value of any type of times in seconds, exactly."""
    if pa.types.is_date32(data_type):
        return Fraction(value * DAY)
    if pa.types.is_date64(data_type):
        return Fraction(value, 1000)
    return Fraction(value, PER_SECOND[data_type.unit])


def near(x, how, past):
    """An integer near x. `truncate` rounds points in time towards the past."""
    if how == "truncate" and past:
        return math.floor(x)
    return whole(x, how)


def put(x, data_type, how=None):
    """Seconds as a value of a type of times."""
    if pa.types.is_date(data_type):
        day = near(x / DAY, how, past=True)
        if pa.types.is_date64(data_type):
            return in_64(day * DAY * 1000)
        if not -LIMIT_32 <= day < LIMIT_32:
            raise Bad
        return day
    past = not pa.types.is_duration(data_type)
    value = near(x * PER_SECOND[data_type.unit], how, past)
    if pa.types.is_time(data_type) and not 0 <= value < DAY * PER_SECOND[data_type.unit]:
        raise Bad
    return in_64(value)


def in_64(value):
    if not -LIMIT_64 <= value < LIMIT_64:
        raise Bad
    return value


def instant(value, data_type, to_type, how):
    """A date or timestamp as another one. A date64 keeps its time of day if it can."""
    if pa.types.is_date64(data_type) and pa.types.is_date64(to_type):
        return value
    return put(seconds(value, data_type), to_type, how)


def civil(day):
    """Year, month and day from days since 1970-01-01, for any year."""
    era, rest = divmod(day + EPOCH - 1, 146_097)
    date = datetime.date.fromordinal(rest + 1)
    return date.year + 400 * era, date.month, date.day


def date_text(day):
    year, month, day = civil(day)
    sign = "" if 0 <= year <= 9999 else "-" if year < 0 else "+"
    return f"{sign}{abs(year):04}-{month:02}-{day:02}"


def time_text(value, unit):
    """The time of day, with all the digits of its unit."""
    count, fraction = divmod(value, PER_SECOND[unit])
    text = f"{count // 3600:02}:{count // 60 % 60:02}:{count % 60:02}"
    return f"{text}.{fraction:0{FRACTION_DIGITS[unit]}}" if FRACTION_DIGITS[unit] else text


def timestamp_text(value, unit, zoned):
    day, rest = divmod(value, DAY * PER_SECOND[unit])
    return f"{date_text(day)}T{time_text(rest, unit)}{'Z' if zoned else ''}"


def text(value, data_type):
    """A value of a type of times as `get` prints it."""
    if pa.types.is_date32(data_type):
        return date_text(value)
    if pa.types.is_date64(data_type):
        day, rest = divmod(value, DAY * 1000)
        return timestamp_text(value, "ms", False) if rest else date_text(day)
    if pa.types.is_time(data_type):
        return time_text(value, data_type.unit)
    return timestamp_text(value, data_type.unit, data_type.tz is not None)
