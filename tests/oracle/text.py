"""Conversion of text to values, and of values to text."""

import datetime
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa

from oracle import Bad, numbers, times

NUMBER = re.compile(r"([+-]?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?", re.ASCII)
DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)
TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
DURATION = re.compile(r"(-?)PT(\d+)(?:\.(\d+))?S", re.ASCII)
INTERVAL = re.compile(r"P(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(-?)(\d+)(?:\.(\d+))?S)?", re.ASCII)
ZONE = re.compile(r"Z|[+-]\d\d:\d\d", re.ASCII)
INFINITE = float("inf")
SPECIAL = {"nan": float("nan"), "inf": INFINITE, "infinity": INFINITE}
SPECIAL |= {"-inf": -INFINITE, "-infinity": -INFINITE}
KINDS = {pa.float16(): np.float16, pa.float32(): np.float32, pa.float64(): np.float64}
# No type holds a number with more digits, or one nearer to zero.
MANY = 2_000


def read(text, data_type, how=None):
    """The value that a text represents."""
    if numbers.is_number(data_type):
        return read_number(text, data_type, how)
    if pa.types.is_boolean(data_type):
        found = {"true": True, "false": False, "1": True, "0": False}.get(text.lower())
        if found is None:
            raise Bad
        return found
    if pa.types.is_duration(data_type):
        return times.put(read_duration(text, data_type.unit), data_type)
    if data_type == pa.month_day_nano_interval():
        return read_interval(text)
    return read_time(text, data_type, how)


def read_number(text, data_type, how):
    if data_type in numbers.FLOATS and text.lower() in SPECIAL:
        return SPECIAL[text.lower()]
    match = NUMBER.fullmatch(text)
    if not match:
        raise Bad
    sign, before, after, exponent = match[1], match[2], match[3] or "", int(match[4] or 0)
    digits = (before + after).lstrip("0")
    minus = -1 if sign == "-" else 1
    if not digits:
        return minus * 0.0 if data_type in numbers.FLOATS else numbers.put(0, data_type)
    if exponent > MANY:
        raise Bad
    if exponent < -MANY:
        # Nearer to zero than any float, so any such number will do.
        exponent = -MANY
    x = minus * int(digits) * numbers.power(10, exponent - len(after))
    if data_type not in numbers.FLOATS:
        return numbers.put(x, data_type, how)
    plain = match[3] is None and match[4] is None
    # Few enough digits give the nearest float. Trailing zeros do not matter.
    if not plain and len(digits.rstrip("0")) <= numbers.DIGITS[data_type]:
        near = numbers.put(x, data_type, "round")
        if near != 0:
            return near
    return numbers.put(x, data_type, how)


def read_time(text, data_type, how):
    if pa.types.is_date(data_type):
        return times.put(read_date(text), data_type)
    if pa.types.is_time(data_type):
        return times.put(read_clock(text, data_type.unit, how), data_type, how)
    match = re.fullmatch(r"(\S{10})[T ](\S+?)(Z|[+-]\d\d:\d\d)?", text)
    if not match:
        raise Bad
    zone = match[3]
    if (zone is None) != (data_type.tz is None) and how != "utc":
        raise Bad
    x = read_date(match[1]) + read_clock(match[2], data_type.unit, how)
    if zone not in (None, "Z"):
        hours, minutes = int(zone[1:3]), int(zone[4:])
        if hours > 23 or minutes > 59:
            raise Bad
        x -= (-1 if zone[0] == "-" else 1) * 60 * (60 * hours + minutes)
    return times.put(x, data_type, how)


def read_date(text):
    match = DATE.fullmatch(text)
    try:
        day = datetime.date(*map(int, match.groups())).toordinal() if match else None
    except ValueError:
        day = None
    if day is None:
        raise Bad
    return Fraction((day - times.EPOCH) * times.DAY)


def read_clock(text, unit, how):
    match = TIME.fullmatch(text)
    if not match:
        raise Bad
    hour, minute, second = map(int, match.groups()[:3])
    digits = match[4] or ""
    long = len(digits) > times.FRACTION_DIGITS[unit] and how not in ("round", "truncate")
    if hour > 23 or minute > 59 or second > 59 or long:
        raise Bad
    return 3600 * hour + 60 * minute + second + Fraction(int(digits or 0), 10 ** len(digits))


def read_duration(text, unit):
    match = DURATION.fullmatch(text)
    if not match or len(match[3] or "") > times.FRACTION_DIGITS[unit]:
        raise Bad
    return seconds(*match.groups())


def seconds(sign, count, digits):
    fraction = Fraction(int(digits or 0), 10 ** len(digits or ""))
    return (-1 if sign else 1) * (int(count) + fraction)


def read_interval(text):
    match = INTERVAL.fullmatch(text)
    if not match or text == "P":
        raise Bad
    months, days = int(match[1] or 0), int(match[2] or 0)
    nanoseconds = seconds(*match.groups()[2:]) * 10**9 if match[4] else Fraction(0)
    if nanoseconds.denominator != 1 or any(abs(count) >= 1 << 31 for count in (months, days)):
        raise Bad
    return months, days, times.in_64(nanoseconds.numerator)


def write(value, data_type):
    """A value as `get` prints it."""
    if pa.types.is_boolean(data_type):
        return "true" if value else "false"
    if pa.types.is_integer(data_type):
        return str(value)
    if data_type in numbers.FLOATS:
        return float_text(value, data_type)
    if pa.types.is_decimal(data_type):
        return decimal_text(value, data_type.scale)
    if pa.types.is_duration(data_type):
        return ("-" if value < 0 else "") + "PT" + seconds_text(abs(value), data_type.unit)
    if data_type == pa.month_day_nano_interval():
        return interval_text(*value)
    return times.text(value, data_type)


def seconds_text(value, unit):
    return decimal_text(Fraction(value, times.PER_SECOND[unit]), times.FRACTION_DIGITS[unit]) + "S"


def interval_text(months, days, nanoseconds):
    parts = f"{months}M" if months else "", f"{days}D" if days else ""
    sign = "-" if nanoseconds < 0 else ""
    clock = f"T{sign}{seconds_text(abs(nanoseconds), 'ns')}" if nanoseconds else ""
    return "P" + ("".join([*parts, clock]) or "T0S")


def decimal_text(value, scale):
    """All digits of the scale, and no point if it is zero."""
    sign, count = "-" if value < 0 else "", int(abs(value) * numbers.power(10, scale))
    if scale <= 0:
        return sign + (f"{count}{'0' * -scale}" if count else "0")
    digits = f"{count:0{scale + 1}}"
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def float_text(value, data_type):
    """The shortest digits that read back as the same number, as Rust writes them."""
    if value != value:
        return "NaN"
    if value in (INFINITE, -INFINITE):
        return "Infinity" if value > 0 else "-Infinity"
    kind = KINDS[data_type]
    text = np.format_float_scientific(kind(value), unique=True, trim="-")
    mantissa, exponent = text.split("e")
    exponent = int(exponent)
    if value != 0 and not -4 <= exponent < 16:
        return f"{mantissa}e{exponent}"
    if kind is np.float16 and value != 0 and value == int(value):
        return f"{int(value)}.0"
    return np.format_float_positional(kind(value), unique=True, trim="0")
