"""The conversion of a value to a column's type, for every pair of types."""

from collections import namedtuple

import pyarrow as pa

from oracle import Bad, Refused, numbers, text, times

Outcome = namedtuple("Outcome", "kind value changed", defaults=[None, 0])


def convert(value, from_type, to_type, how=None, nullable=True):
    """Returns ("value", v, changed), ("bad",) or ("refused",). `changed` counts the values that
    `how` altered."""
    try:
        check(from_type, to_type, how)
    except Refused:
        return Outcome("refused")
    converter = Converter(how)
    try:
        converted = converter.field(value, from_type, to_type, nullable)
    except Bad:
        return Outcome("bad")
    return Outcome("value", converted, converter.changed)


def is_text(t):
    return pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)


def is_binary(t):
    plain = pa.types.is_binary(t) or pa.types.is_large_binary(t) or pa.types.is_binary_view(t)
    return plain or pa.types.is_fixed_size_binary(t)


def is_list(t):
    return is_fixed_list(t) or isinstance(
        t, (pa.ListType, pa.LargeListType, pa.ListViewType, pa.LargeListViewType)
    )


def is_fixed_list(t):
    return isinstance(t, pa.FixedSizeListType)


def is_interval(t):
    return t == pa.month_day_nano_interval()


def unwrap(t):
    """The type without dictionary or run-end encoding."""
    while pa.types.is_dictionary(t) or isinstance(t, pa.RunEndEncodedType):
        t = t.value_type
    return t


FAMILIES = {
    "null": pa.types.is_null,
    "bool": pa.types.is_boolean,
    "number": numbers.is_number,
    "date": pa.types.is_date,
    "time": pa.types.is_time,
    "timestamp": pa.types.is_timestamp,
    "duration": pa.types.is_duration,
    "interval": is_interval,
    "text": is_text,
    "binary": is_binary,
    "list": is_list,
    "struct": pa.types.is_struct,
    "map": pa.types.is_map,
}

SCALARS_OF_TEXT = {"number", "bool", "date", "time", "timestamp", "duration", "interval"}
FAMILY_PAIRS = {
    *{(one, other) for one in ("number", "bool") for other in ("number", "bool")},
    *{(one, other) for one in ("text", "binary") for other in ("text", "binary")},
    *{("text", one) for one in SCALARS_OF_TEXT},
    *{(one, "text") for one in SCALARS_OF_TEXT},
    *{(one, one) for one in ("time", "duration", "interval", "list", "struct", "map", "null")},
}


def family(t):
    return next(name for name, is_it in FAMILIES.items() if is_it(t))


def check(a, b, how=None):
    """Raises Refused if no value of one type can become one of the other."""
    a, b = unwrap(a), unwrap(b)
    pair = (family(a), family(b))
    if pair[0] == "null":
        pass  # Without nulls allowed, only rows with a null are bad.
    elif pair == ("list", "list"):
        check(a.value_type, b.value_type, how)
    elif pair == ("map", "map"):
        check(a.key_type, b.key_type, how)
        check(a.item_type, b.item_type, how)
    elif pair == ("struct", "struct"):
        check_fields(a, b, how)
    elif pair[0] in ("date", "timestamp") and pair[1] in ("date", "timestamp"):
        zones = [pa.types.is_timestamp(t) and t.tz is not None for t in (a, b)]
        both_timestamps = pair == ("timestamp", "timestamp")
        if zones[0] != zones[1] and not (both_timestamps and how == "utc"):
            raise Refused
        if any(zones) and not both_timestamps:
            raise Refused
    elif pair not in FAMILY_PAIRS:
        raise Refused


def check_fields(a, b, how):
    """Matches fields by name. A missing field must allow null, and no field may be lost."""
    have = {field.name: field for field in a}
    for field in b:
        source = have.pop(field.name, None)
        if source is not None:
            check(source.type, field.type, how)
        elif not field.nullable:
            raise Refused
    if have:
        raise Refused


class Converter:
    """Converts a value of a column, and counts the changed values."""

    def __init__(self, how):
        self.how, self.changed = how, 0

    def field(self, value, a, b, nullable):
        """Converts a value, with null allowed or not."""
        a, b = unwrap(a), unwrap(b)
        if value is not None:
            value = self.value(value, a, b)
        if value is None and not nullable:
            raise Bad
        return value

    def value(self, value, a, b):
        kind = family(b)
        if kind == "list":
            return self.loose(lambda: self.items(value, a, b))
        if kind == "struct":
            have = {field.name: field.type for field in a}
            return {
                field.name: self.field(
                    value.get(field.name),
                    have.get(field.name, pa.null()),
                    field.type,
                    field.nullable,
                )
                for field in b
            }
        if kind == "map":
            return [
                (
                    self.field(key, a.key_type, b.key_type, False),
                    self.field(item, a.item_type, b.item_type, b.item_field.nullable),
                )
                for key, item in value
            ]
        return self.loose(lambda: self.scalar(value, a, b))

    def loose(self, action):
        """With `null`, a value that does not fit becomes null."""
        before = self.changed
        try:
            return action()
        except Bad:
            if self.how != "null":
                raise
            self.changed = before + 1
            return None

    def items(self, value, a, b):
        if is_fixed_list(b) and len(value) != b.list_size:
            raise Bad
        return [
            self.field(item, a.value_type, b.value_type, b.value_field.nullable) for item in value
        ]

    def scalar(self, value, a, b):
        converted = scalar(value, a, b, self.how)
        if self.how in ("round", "truncate", "utc"):
            try:
                check(a, b)
                scalar(value, a, b, None)
            except (Bad, Refused):
                self.changed += 1
        return converted


def scalar(value, a, b, how):
    """Converts a value that is no list, struct or map."""
    kinds = family(a), family(b)
    if kinds == ("binary", "text"):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise Bad from None
    if kinds[1] == "binary":
        value = value.encode() if isinstance(value, str) else value
        if pa.types.is_fixed_size_binary(b) and len(value) != b.byte_width:
            raise Bad
        return value
    if kinds[1] == "text":
        return value if kinds[0] == "text" else text.write(value, a)
    if kinds[0] == "text":
        return text.read(value, b, how)
    if kinds[1] in ("number", "bool"):
        return numbers.put(value, b, how)
    if kinds[1] == "interval":
        return value
    if kinds[0] in ("date", "timestamp"):
        return times.instant(value, a, b, how)
    return times.put(times.seconds(value, a), b, how)
