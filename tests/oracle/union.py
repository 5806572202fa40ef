"""The type of a column that has different types in the files of one push."""

import pyarrow as pa

from oracle import numbers, times
from oracle.convert import family, is_fixed_list, unwrap


def united(a, b):
    """The narrowest type that holds both, or None."""
    a, b = unwrap(a), unwrap(b)
    if a == b:
        return a
    kinds = family(a), family(b)
    if "null" in kinds:
        return b if kinds[0] == "null" else a
    if kinds == ("number", "number"):
        return number(a, b)
    if kinds[0] == kinds[1]:
        return UNITED.get(kinds[0], lambda a, b: None)(a, b)
    pair = dict(zip(kinds, (a, b), strict=True))
    if {"date", "timestamp"} == set(kinds) and pair["timestamp"].tz is None:
        finer = unit(pair["timestamp"], "ms" if pa.types.is_date64(pair["date"]) else "s")
        return pa.timestamp(finer)
    return None


def number(a, b):
    floats = [t for t in (a, b) if t in numbers.FLOATS]
    if len(floats) == 2:
        return max(floats, key=lambda t: t.bit_width)
    if floats:
        other = b if a in numbers.FLOATS else a
        # int64 with uint64 counts as float, so that the order of files does not matter.
        is_whole = other in numbers.INTEGERS or (
            pa.types.is_decimal128(other) and other.precision <= 20 and other.scale == 0
        )
        return pa.float64() if is_whole else None
    if a in numbers.INTEGERS and b in numbers.INTEGERS:
        return integer(a, b)
    return decimals(a, b)


def integer(a, b):
    low = min(numbers.INTEGERS[t][0] for t in (a, b))
    high = max(numbers.INTEGERS[t][1] for t in (a, b))
    limits = numbers.INTEGERS.items()
    holders = [t for t, (least, most) in limits if least <= low and most >= high]
    return min(holders, key=lambda t: t.bit_width, default=pa.decimal128(20, 0))


def digits(t):
    """Digits before and after the point."""
    if pa.types.is_decimal(t):
        return t.precision - t.scale, t.scale
    return len(str(max(map(abs, numbers.INTEGERS[t])))), 0


def decimals(a, b):
    (before, after), (other_before, other_after) = digits(a), digits(b)
    scale = max(after, other_after)
    precision = max(before, other_before) + scale
    if precision > 76:
        return None
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def unit(*kinds):
    """The finest unit of types or names of units."""
    names = [kind if isinstance(kind, str) else kind.unit for kind in kinds]
    return max(names, key=lambda name: times.PER_SECOND[name])


def clock(a, b):
    finer = unit(a, b)
    return pa.time32(finer) if finer in ("s", "ms") else pa.time64(finer)


def timestamp(a, b):
    if (a.tz is None) != (b.tz is None):
        return None
    return pa.timestamp(unit(a, b), a.tz if a.tz == b.tz else "UTC")


def lists(a, b):
    item = united(a.value_type, b.value_type)
    if item is None:
        return None
    field = pa.field("item", item, a.value_field.nullable or b.value_field.nullable)
    if is_fixed_list(a) and is_fixed_list(b) and a.list_size == b.list_size:
        return pa.list_(field, a.list_size)
    return pa.large_list(field)


def maps(a, b):
    key, item = united(a.key_type, b.key_type), united(a.item_type, b.item_type)
    if key is None or item is None:
        return None
    nullable = a.item_field.nullable or b.item_field.nullable
    return pa.map_(key, pa.field("value", item, nullable))


def structs(a, b):
    """The fields of both. A field that one lacks may be null."""
    ours, theirs = ({field.name: field for field in t} for t in (a, b))
    fields = []
    for name in {**ours, **theirs}:
        field, other = ours.get(name), theirs.get(name)
        if field is None or other is None:
            fields.append((field or other).with_nullable(True))
            continue
        t = united(field.type, other.type)
        if t is None:
            return None
        fields.append(pa.field(name, t, field.nullable or other.nullable))
    return pa.struct(fields)


UNITED = {
    "text": lambda a, b: pa.large_string(),
    "binary": lambda a, b: (
        None
        if pa.types.is_fixed_size_binary(a) or pa.types.is_fixed_size_binary(b)
        else pa.large_binary()
    ),
    "date": lambda a, b: pa.date64(),
    "time": clock,
    "timestamp": timestamp,
    "duration": lambda a, b: pa.duration(unit(a, b)),
    "list": lists,
    "map": maps,
    "struct": structs,
}
