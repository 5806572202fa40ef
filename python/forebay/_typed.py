"""Values as servers write them, as Python's objects and as Arrow's: see docs/reference/values.md.

A value is JSON of which the table's schema says the types; together they are what is stored.
Python's objects are those that a store of this process gives (`_values.py`). Arrow's arrays are
made of the units of times, so that nothing is rounded.
"""

from __future__ import annotations

import base64
import decimal as dec
import json
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, cast

from . import _values
from ._errors import DamagedError, UsageError

Decode = Callable[[Any], Any]

_DIGITS = {"second": 0, "millisecond": 3, "microsecond": 6, "nanosecond": 9}
_SHORT = {"second": "s", "millisecond": "ms", "microsecond": "us", "nanosecond": "ns"}
_FLOATS = {"float16": "<e", "float32": "<f"}


class Digits(str):
    """A number as it is written."""


class Pairs(list[tuple[str, Any]]):
    """An object, in its order; names may come twice."""


_JSON = json.JSONDecoder(parse_float=Digits, object_pairs_hook=Pairs, strict=False)


def parsed(text: bytes) -> Any:
    return _JSON.decode(text.decode())


def unfit(value: object, kind: object) -> DamagedError:
    return DamagedError(f"the server sent {value!r:.80}, which is no {kind}")


def name_of(kind: Any) -> tuple[str, dict[str, Any]]:
    """A type's name, and what else is said of it."""
    if isinstance(kind, str):
        return kind, {}
    ((name, details),) = cast("dict[str, dict[str, Any]]", kind).items()
    return name, details


# Texts as units.

_DATE = r"([+-]?\d{4,})-(\d\d)-(\d\d)"
_CLOCK = r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?"
_DATE_RE = re.compile(_DATE)
_TIME_RE = re.compile(_CLOCK)
_TIMESTAMP_RE = re.compile(f"{_DATE}T{_CLOCK}Z?")
_DURATION_RE = re.compile(r"(-?)PT(\d+)(?:\.(\d+))?S")
_INTERVAL_RE = re.compile(r"P(?:(-?\d+)M)?(?:(-?\d+)D)?(?:T(-?)(\d+)(?:\.(\d{9}))?S)?")


def match(pattern: re.Pattern[str], text: Any, kind: str) -> tuple[str | None, ...]:
    found = pattern.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise unfit(text, kind)
    return found.groups()


def days_of(year: str, month: str, day: str) -> int:
    """Days since 1970-01-01, of any year of the Gregorian calendar."""
    y, m = int(year), int(month)
    y -= m <= 2
    era, of_era = divmod(y, 400)
    of_year = (153 * ((m + 9) % 12) + 2) // 5 + int(day) - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def date_units(text: Any) -> int:
    return days_of(*cast("tuple[str, str, str]", match(_DATE_RE, text, "date")))


def clock_units(parts: tuple[Any, ...], digits: int) -> int:
    hours, minutes, seconds, fraction = parts
    whole = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    return whole * 10**digits + int(fraction or 0)


def timestamp_units(text: Any, digits: int) -> int:
    if isinstance(text, str) and "T" not in text:
        return date_units(text) * 86400 * 10**digits
    year, month, day, *clock = match(_TIMESTAMP_RE, text, "timestamp")
    days = days_of(cast(str, year), cast(str, month), cast(str, day))
    return days * 86400 * 10**digits + clock_units(tuple(clock), digits)


def duration_units(text: Any, digits: int) -> int:
    sign, seconds, fraction = match(_DURATION_RE, text, "duration")
    units = int(cast(str, seconds)) * 10**digits + int(fraction or 0)
    return -units if sign else units


def interval(text: Any) -> tuple[int, int, int]:
    months, days, sign, seconds, fraction = match(_INTERVAL_RE, text, "interval")
    nanoseconds = int(seconds or 0) * 10**9 + int(fraction or 0)
    return int(months or 0), int(days or 0), -nanoseconds if sign else nanoseconds


# Decoders.


def to_float(layout: str | None) -> Decode:
    def decode(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise unfit(value, "float")
        try:
            number = float(value)
        except ValueError:
            raise unfit(value, "float") from None
        return struct.unpack(layout, struct.pack(layout, number))[0] if layout else number

    return decode


def to_decimal(value: Any) -> dec.Decimal:
    if isinstance(value, bool) or not isinstance(value, Digits | int):
        raise unfit(value, "decimal")
    return dec.Decimal(str(value))


def to_bytes(value: Any) -> bytes:
    if isinstance(value, str) and not isinstance(value, Digits):
        return value.encode()
    if isinstance(value, Pairs) and [name for name, _ in value] == ["base64"]:
        return base64.b64decode(value[0][1], validate=True)
    raise unfit(value, "binary")


def exactly(kind: type, name: str) -> Decode:
    def decode(value: Any) -> Any:
        if type(value) is not kind:
            raise unfit(value, name)
        return value

    return decode


class Types:
    """How types are read: as Python's objects, or `for_arrow`."""

    def __init__(self, for_arrow: bool) -> None:
        self._for_arrow = for_arrow

    def decoder(self, kind: Any) -> Decode:
        """Reads a value of a type; null is None."""
        decode = self._of(*name_of(kind))
        return lambda value: None if value is None else decode(value)

    def _of(self, name: str, details: dict[str, Any]) -> Decode:
        if "int" in name and name.lstrip("u").startswith("int") and name[-1].isdigit():
            return exactly(int, name)
        if name.startswith("float"):
            return to_float(_FLOATS.get(name))
        if name.startswith("interval"):
            return interval
        simple: dict[str, Decode] = {
            "null": exactly(type(None), name),
            "bool": exactly(bool, name),
            "text": exactly(str, name),
            "binary": to_bytes,
            "fixed_binary": to_bytes,
            "decimal": to_decimal,
        }
        if name in simple:
            return simple[name]
        if name in ("list", "struct", "map"):
            return getattr(self, f"_{name}")(details)
        return self._time(name, details)

    def _time(self, name: str, details: dict[str, Any]) -> Decode:
        digits = _DIGITS[details["unit"]] if details else 3
        units: dict[str, tuple[Decode, Decode]] = {
            "date32": (date_units, _values.date),
            "date64": (
                lambda text: timestamp_units(text, 3),
                lambda units: _values.timestamp(units, 1000, None),
            ),
            "timestamp": (
                lambda text: timestamp_units(text, digits),
                lambda units: _values.timestamp(units, 10**digits, details.get("zone")),
            ),
            "time": (
                lambda text: clock_units(match(_TIME_RE, text, "time"), digits),
                lambda units: _values.time(units, 10**digits),
            ),
            "duration": (
                lambda text: duration_units(text, digits),
                lambda units: _values.duration(units, 10**digits),
            ),
        }
        if name not in units:
            raise UsageError(f"this package knows no type {name!r}: a newer one may")
        read, make = units[name]
        return read if self._for_arrow else lambda text: make(read(text))

    def _list(self, details: dict[str, Any]) -> Decode:
        item = self.decoder(details["item"]["kind"])

        def decode(value: Any) -> list[Any]:
            if type(value) is not list:
                raise unfit(value, "list")
            return [item(one) for one in cast("list[Any]", value)]

        return decode

    def _struct(self, details: dict[str, Any]) -> Decode:
        return self.row(details["fields"])

    def row(self, columns: list[dict[str, Any]], only: Sequence[str] | None = None) -> Decode:
        """Reads an object of these columns, which come in their order; `only` those of these names,
        in theirs."""
        names = [column["name"] for column in columns]
        decoders = [self.decoder(column["kind"]) for column in columns]
        wanted = None if only is None else [names.index(name) for name in only if name in names]

        def decode(value: Any) -> dict[str, Any]:
            if not isinstance(value, Pairs) or [name for name, _ in value] != names:
                raise unfit(value, f"row of {', '.join(names)}")
            if wanted is not None:
                return {names[at]: decoders[at](value[at][1]) for at in wanted}
            cells = zip(names, decoders, value, strict=True)
            return {name: read(cell) for name, read, (_, cell) in cells}

        return decode

    def _map(self, details: dict[str, Any]) -> Decode:
        key, value = (column["kind"] for column in details["entries"])
        read_key, read_text, read = self.decoder(key), self._key(key), self.decoder(value)

        def decode(entries: Any) -> list[tuple[Any, Any]]:
            if isinstance(entries, Pairs):
                return [(read_text(name), read(one)) for name, one in entries]
            if type(entries) is not list:
                raise unfit(entries, "map")
            sides = [dict(entry) for entry in cast("list[Pairs]", entries)]
            return [(read_key(side["key"]), read(side["value"])) for side in sides]

        return decode

    def _key(self, kind: Any) -> Decode:
        """Reads a map's key from its text, which is what the value would be as JSON, unquoted."""
        name, decode = name_of(kind)[0], self.decoder(kind)
        if name in ("binary", "fixed_binary"):
            return lambda text: decode(
                parsed(text.encode()) if text.startswith('{"base64":"') else text
            )
        numbers = ("int", "uint", "bool", "decimal")
        if name.startswith(numbers) and not name.startswith("interval"):
            return lambda text: decode(parsed(text.encode()))
        return decode


def arrow_type(kind: Any, pa: Any) -> Any:
    """The Arrow type that `forebay export` and a store's scan give to a type."""
    name, details = name_of(kind)
    plain = {"bool": "bool_", "text": "string"}
    if name == "decimal":
        of = getattr(pa, f"decimal{details['bits']}")
        return of(details["precision"], details["scale"])
    if name == "time":
        bits = 32 if _DIGITS[details["unit"]] <= 3 else 64
        return getattr(pa, f"time{bits}")(_SHORT[details["unit"]])
    if name == "timestamp":
        return pa.timestamp(_SHORT[details["unit"]], details.get("zone"))
    if name == "duration":
        return pa.duration(_SHORT[details["unit"]])
    if name == "interval_month_day_nano":
        return pa.month_day_nano_interval()
    if name.startswith("interval"):
        raise UsageError(f"pyarrow has no type for {name}: take the values by get or by looping")
    if name == "fixed_binary":
        return pa.binary(details["width"])
    if name == "list":
        return pa.list_(arrow_field(details["item"], pa), details.get("length") or -1)
    if name == "struct":
        return pa.struct([arrow_field(column, pa) for column in details["fields"]])
    if name == "map":
        key, value = (arrow_field(column, pa) for column in details["entries"])
        return pa.map_(key, value, details["sorted"])
    return getattr(pa, plain.get(name, name))()


def arrow_field(column: dict[str, Any], pa: Any) -> Any:
    return pa.field(column["name"], arrow_type(column["kind"], pa), column["nullable"])


def decimals(pa: Any, kind: Any, values: Sequence[dec.Decimal | None]) -> Any:
    """An array of decimals of 128 bits, some with more digits than their type says, as DuckDB has
    in its HUGEINT."""
    with dec.localcontext(prec=100):
        units = [0 if value is None else int(value.scaleb(kind.scale)) for value in values]
    try:
        numbers = b"".join(number.to_bytes(16, "little", signed=True) for number in units)
    except OverflowError:
        raise DamagedError(f"the server sent a number that is no {kind}") from None
    valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(units), [valid, pa.py_buffer(numbers)])
