"""Edge values of types: those whose conversion most likely fails."""

import datetime
import math
from fractions import Fraction

import pyarrow as pa

from oracle import Bad, numbers, text, times
from oracle.convert import family, is_fixed_list, unwrap

HALF = Fraction(1, 2)
ANY_NUMBER = [Fraction(n) for n in (0, 1, -1, 2, 7)] + [
    Fraction(n, 2) for n in (1, -1, 3, 5, -5, 15)
]
ANY_NUMBER += [
    Fraction(1, 10),
    Fraction(199, 100),
    Fraction(-17, 10),
    Fraction(10**300),
    -Fraction(10**19),
]
# Values next to ties of narrower floats, by less than a wider float can represent.
ANY_NUMBER += [Fraction((1 << 62) + (1 << 38) + 1), 2049 + Fraction(1, 10**20)]
ANY_NUMBER += [1 + Fraction(1, 1 << 24) + Fraction(1, 10**30), Fraction(10004882813, 10**10)]
ANY_NUMBER += [Fraction((1 << bits) + more) for bits in (24, 31, 53, 63, 64) for more in (-1, 0, 1)]

# Seconds since 1970 of special days and moments of calendars and units.
DAYS = [
    "0001-01-01",
    "1969-12-31",
    "1970-01-01",
    "2000-02-29",
    "2024-02-29",
    "2100-02-28",
    "9999-12-31",
]
MOMENTS = [
    Fraction((datetime.date.fromisoformat(day).toordinal() - times.EPOCH) * times.DAY)
    for day in DAYS
]
MOMENTS += [Fraction(1), Fraction(-1), Fraction(-1, 2), Fraction(1, 1000), Fraction(1, 10**9)]
MOMENTS += [Fraction(1_700_000_000_500, 1000), Fraction(86_399_999_999_999, 10**9)]

ODD_TEXTS = ["", "a", "é", "NUL \0", 'quote " and \\', "line\nend", "null", "x" * 700]
ODD_NUMBERS = [
    "",
    "abc",
    "7.5x",
    "0x10",
    "1_000",
    " 7",
    "7 ",
    "--7",
    "1e",
    "٧",
    "1.2.3",
    "true",
    "2026-11-22",
]
NUMBERS = [
    "007",
    "+5",
    "-0",
    "7.0",
    "7.50",
    "7.5",
    "1e3",
    "1E+2",
    "-2.5e-1",
    "0.1",
    "1e400",
    "-1e400",
    "1e-400",
]
NUMBERS += [
    "1e999999999999",
    "1e-999999999999",
    "0e999999999999",
    "18446744073709551616",
    "9007199254740993",
]
NUMBERS += [
    "9007199254740993.0",
    "NaN",
    "nan",
    "inf",
    "-INF",
    "Infinity",
    "65520",
    "65519.9",
    "3.4028236e38",
]
NUMBERS += [
    "0.1000000000000000055511151231257827021181583404541015625",
    "0.1000000000000000055511151231257827",
]
NUMBERS += [
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "5e-324",
    "2e-324",
    "1.40129846e-45",
    "16777217",
]
NUMBERS += ["7.9602e-05", "2049.00000000000000000001", "1.000000059604644775390625000000000001"]
BOOLS = ["true", "FALSE", "True", "1", "0", "2", "yes", "t", "", "1.0"]
CLOCKS = [
    "10:20:30",
    "10:20:30.5",
    "23:59:59.999",
    "23:59:59.999999",
    "23:59:59.999999999",
    "00:00:00",
]
CLOCKS += [
    "24:00:00",
    "10:60:00",
    "10:20:61",
    "10:20:30.1234567891",
    "10:20:30.",
    "1:2:3",
    "",
    "abc",
]
SPANS = ["PT3.5S", "-PT3S", "PT0S", "PT3.500S", "PT9223372036854775808S", "PT3", "3.5", ""]
SPANS += ["PT9223372036854775807S", "PT3.1234567891S", "-PT9223372036.854775808S", "PT.5S", "x"]
INTERVALS = ["P1M2DT3S", "P1M", "P2D", "PT3.5S", "P-1M-2DT-3.000000001S", "PT0S", "P", "1M"]
INTERVALS += ["P2147483648M", "P1MT9223372036.854775807S", "P1MT9223372036.854775808S", "", "x"]
DATES = [
    "2026-11-22",
    "0001-01-01",
    "9999-12-31",
    "2024-02-29",
    "2023-02-29",
    "2026-13-01",
    "22.11.2026",
    "x",
    "",
]


def edges(a, b):
    """Values of type `a` to convert to type `b`."""
    a, b = unwrap(a), unwrap(b)
    kind = family(a)
    if kind == "number":
        return numeric(a, b)
    if kind == "bool":
        return [True, False]
    if kind in ("date", "time", "timestamp", "duration"):
        return temporal(a, b)
    if kind == "interval":
        return [(0, 0, 0), (1, -2, 3), (-14, 0, -1), (1 << 30, -(1 << 31), (1 << 63) - 1)]
    if kind == "text":
        return texts(b)
    if kind == "binary":
        return binaries(a, b)
    if kind == "null":
        return []
    raise ValueError(a)


def numeric(a, b):
    found = [*ANY_NUMBER, *limits(a), *limits(b)]
    values = [near for x in found for near in nearest(x, a)]
    if a in numbers.FLOATS:
        values += [-0.0, math.nan, math.inf, -math.inf]
    return values


def limits(t):
    """The greatest and least numbers of a type, their neighbours, and its finest steps."""
    if t in numbers.INTEGERS:
        low, high = numbers.INTEGERS[t]
        steps = (-1, -HALF, 0, HALF, 1)
        return [Fraction(end + step) for end in (low, high) for step in steps]
    if t in numbers.FLOATS:
        bits, low, high = numbers.FLOATS[t]
        most, least = numbers.greatest(t), numbers.power(2, low - bits + 1)
        found = [most, most * 2, least, least / 2, numbers.power(2, low), numbers.power(2, high)]
        found += [Fraction((1 << bits) + more) for more in (-1, 1, 2)]
        found += [
            1 + numbers.power(2, 1 - bits),
            1 + numbers.power(2, -bits),
            1 + 3 * numbers.power(2, -bits),
        ]
        return [*found, -most, -most * 2, -least]
    if pa.types.is_decimal(t):
        step = numbers.power(10, -t.scale)
        most = (10**t.precision - 1) * step
        found = [most, most + step, most + step / 2, step, step / 2, step / 10, 12345 * step]
        return [*found, -most, -most - step, -step / 2]
    return []


def nearest(x, t):
    """The number as a value of a type, or the nearest one."""
    try:
        return [numbers.put(x, t, "round")]
    except Bad:
        return []


def temporal(a, b):
    found = list(MOMENTS)
    for t in (a, b):
        if family(t) in ("date", "time", "timestamp", "duration"):
            found += time_limits(t)
    values = []
    for x in found:
        for step in (-1, 0, 1):
            try:
                if pa.types.is_date64(a):
                    # A date64 with a time of day is unusual, but occurs.
                    values.append(times.in_64(math.floor(x * 1000) + step))
                else:
                    floor = times.put(x, a, "truncate") + step
                    values.append(times.put(times.seconds(floor, a), a))
            except Bad:
                continue
    return list(dict.fromkeys(values))


def time_limits(t):
    if pa.types.is_date32(t):
        return [Fraction(day * times.DAY) for day in (-times.LIMIT_32, times.LIMIT_32 - 1)]
    unit = 1000 if pa.types.is_date64(t) else times.PER_SECOND[t.unit]
    if pa.types.is_time(t):
        return [Fraction(times.DAY * unit - 1, unit)]
    return [Fraction(end, unit) for end in (-times.LIMIT_64, times.LIMIT_64 - 1)]


def texts(b):
    kind = family(b)
    if kind == "number":
        exact = [number_text(x) for x in limits(b) + ANY_NUMBER]
        return [*NUMBERS, *ODD_NUMBERS, *(one for one in exact if one)]
    if kind == "bool":
        return BOOLS
    if kind == "time":
        return CLOCKS
    if kind == "duration":
        return SPANS
    if kind == "interval":
        return INTERVALS
    if kind == "date":
        return DATES
    if kind == "timestamp":
        return moments(b)
    if pa.types.is_fixed_size_binary(b):
        return ["a" * b.byte_width, "a" * (b.byte_width + 1), ""]
    return ODD_TEXTS


def moments(t):
    zones = ["", "Z", "+01:00", "-05:30"]
    found = [f"{day}T10:20:30.5{zone}" for day in DATES[:6] for zone in zones]
    found += [
        f"2026-11-22{between}{clock}{zone}"
        for clock in CLOCKS
        for between in "T "
        for zone in zones[:2]
    ]
    for end in time_limits(t):
        day = math.floor(end / times.DAY)
        if 1 <= times.civil(day)[0] <= 9999:
            count = math.floor((end - day * times.DAY) * times.PER_SECOND[t.unit])
            whole = f"{times.date_text(day)}T{times.time_text(count, t.unit)}"
            found += [whole + ("Z" if t.tz else "")]
    return [*found, "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "x", ""]


def number_text(x):
    """All digits of a number, unless there are too many."""
    for scale in (0, 1, 2, 5, 20, 60):
        if (x * 10**scale).denominator == 1 and abs(x) < 10**90:
            return text.decimal_text(x, scale)
    return None


def binaries(a, b):
    if pa.types.is_fixed_size_binary(a):
        width = a.byte_width
        return [b"a" * width, b"\0" * width, b"\xff" * width]
    found = [b"", b"abc", b"\0", "é".encode(), b"\xff\xfe", b"\xc3", b"y" * 700]
    if pa.types.is_fixed_size_binary(b):
        found += [b"\xff" * b.byte_width, b"z" * (b.byte_width - 1)]
    return found


def nested(a, b, rng, depth=0):
    """Values of any type to convert to another, including lists and structs of edge values. Some
    are null."""
    a, b = unwrap(a), unwrap(b)
    kind = family(a)
    if kind == "list":
        items = nested(a.value_type, b.value_type, rng, depth + 1)
        sizes = [a.list_size] if is_fixed_list(a) else [0, 1, 1, 1, 2, 3]
        if is_fixed_list(b) and not is_fixed_list(a):
            sizes += [b.list_size] * 6
        lists = [pick(items, size, rng, a.value_field.nullable) for size in sizes for _ in range(3)]
        return [one for one in lists if one is not None]
    if kind == "struct":
        wanted = {field.name: field.type for field in b}
        columns = {f.name: nested(f.type, wanted.get(f.name, f.type), rng, depth + 1) for f in a}
        rows = []
        for _ in range(12):
            row = {f.name: pick(columns[f.name], 1, rng, f.nullable) for f in a}
            if all(value is not None for value in row.values()):
                rows.append({name: value[0] for name, value in row.items()})
        return rows
    if kind == "map":
        keys = list(
            {repr(key): key for key in nested(a.key_type, b.key_type, rng, depth + 1)}.values()
        )
        items = nested(a.item_type, b.item_type, rng, depth + 1)
        maps = []
        for size in (0, 1, 1, 2, 3):
            chosen = rng.sample(keys, min(size, len(keys)))
            found = pick(items, len(chosen), rng, a.item_field.nullable)
            if found is not None:
                maps.append(list(zip(chosen, found, strict=True)))
        return maps
    return edges(a, b)


def pick(items, size, rng, nullable):
    """`size` of the values, or None if there are none."""
    choice = [*items, None] if nullable else items
    if size and not choice:
        return None
    return [rng.choice(choice) for _ in range(size)]
