"""What the values of a table of a server are, by KV.SCHEMA; keys and values on the wire, and as
columns of Arrow."""

from __future__ import annotations

import difflib
import importlib
import json
import math
import operator
import re
from collections.abc import Sequence
from datetime import timedelta
from numbers import Real
from typing import Any, NamedTuple, SupportsIndex

from ._errors import UsageError
from ._typed import Decode, Digits, Types, arrow_field, decimals, name_of, parsed, to_float

Key = str | bytes | int

_FORMS = ("be", "hex", "uuid")
_TTL_RE = re.compile(r"(\d{1,18})\s*(ms|s|m|h|d|w)\s*")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
# A thousand centuries, as in a store of this process.
_MOST_MS = 1e5 * 365.25 * 86_400_000
_TEMPLATE_RE = re.compile(r"\{\{|\}\}|\{([^}]*)\}")


def key_text(key: bytes, how: str = "scan") -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise UsageError(f"the key {key!r} is not UTF-8: {how} with binary=True") from None


def milliseconds(ttl: float | timedelta | str) -> int:
    lasts: Any = ttl
    if isinstance(ttl, str):
        found = _TTL_RE.fullmatch(ttl)
        ms: float = int(found[1]) * _UNIT_MS[found[2]] if found else 0
    elif isinstance(ttl, timedelta):
        ms = ttl.total_seconds() * 1000
    else:
        is_number = not isinstance(lasts, bool) and isinstance(lasts, Real)
        ms = float(lasts) * 1000 if is_number else 0
    if not 0 < ms < _MOST_MS:
        reported = "give seconds above 0, a timedelta, or text as in '12h'"
        raise UsageError(f"{ttl!r} is no time to live: {reported}")
    return math.ceil(ms)


def _number(value: object) -> int | float | None:
    """A number, also one of NumPy's, as Python's own; None: it is none."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, SupportsIndex):
        try:
            return operator.index(value)
        except TypeError:
            # NumPy's durations and truth values.
            return None
    if not isinstance(value, Real):
        return None
    same = float(value)
    return same if same == value else None


def columns_of(template: str) -> list[str]:
    """The columns of a template of keys."""
    names: list[str] = []
    for found in _TEMPLATE_RE.finditer(template):
        if (inside := found[1]) is None:
            continue
        name, _, form = inside.rpartition(":")
        names.append(name if name and (form in _FORMS or form.isdigit()) else inside)
    return names


class Shape:
    """What KV.SCHEMA says of a table."""

    def __init__(self, text: bytes) -> None:
        reported = json.loads(text)
        self.text = text
        self.table: str = reported["table"]
        self.version: int | None = reported["version"]
        self.hashed: bool = reported["order"] == "hashed"
        self.order: str = reported["order"]
        self.number: str | None = reported["number"]
        self.key: str | None = reported["key"]
        name, details = name_of(reported["value"])
        self.kind = "number" if self.number else name
        self._columns: list[dict[str, Any]] = reported["columns"]
        self._list = self._list_kind(details) if name == "list" else None
        self._python = self._decoder(Types(for_arrow=False))

    def decode(self, value: bytes | None) -> Any:
        """A value as a store of this process gives it; null is None."""
        return None if value is None else self._python(value)

    def decoder_of(self, columns: Sequence[str] | None) -> Decode:
        """Reads values as `decode` does; of rows the columns of these names, if not all."""
        if columns is None or self.kind != "row":
            return self._python
        return self._decoder(Types(for_arrow=False), columns)

    def _decoder(self, types: Types, only: Sequence[str] | None = None) -> Decode:
        if self.kind == "row":
            row = types.row(self._columns, only)
            return lambda value: row(parsed(value))
        if self.kind == "list":
            items = types.decoder(self._list)
            return lambda value: items(parsed(value))
        if self.number == "i64":
            return int
        if self.number == "f64":
            number = to_float(None)
            return lambda value: number(Digits(value.decode()))
        return lambda value: value

    def encode(self, value: Any) -> bytes:
        """A value as SET and KV.DELTA take it."""
        if self.kind in ("row", "list"):
            command = "HSET" if self.kind == "row" else "RPUSH"
            raise UsageError(
                f"table {self.table} holds {self.kind}s, which a connection does not write whole: "
                f"{command} of a Redis client writes them, and forebay.load adds many"
            )
        if self.number is None:
            if isinstance(value, str):
                return value.encode()
            if isinstance(value, bytes | bytearray):
                return bytes(value)
            raise TypeError(f"a value of table {self.table} is bytes or text")
        number = _number(value)
        if number is None:
            raise TypeError(f"a value of table {self.table} is a number")
        if self.number == "i64":
            if not isinstance(number, int):
                raise TypeError(f"a value of table {self.table} is a whole number")
            return str(number).encode()
        try:
            stored = float(number)
        except OverflowError:
            raise UsageError("it is beyond the numbers of 64 bits") from None
        if isinstance(number, int) and int(stored) != number:
            raise UsageError(f"{number} is no float: it would be stored as {stored!r}")
        return repr(stored).encode()

    # Arrow.

    def columns_of_scan(self, binary: bool, only: Sequence[str] | None) -> list[Column]:
        """The columns of a scan, which are those of `forebay export`; or `only` those named."""
        key = {"kind": "binary" if binary else "text", "nullable": False}
        if self.kind == "row":
            columns = self._columns
            names = {column["name"] for column in columns}
            with_key = self.key is None or not names.issuperset(columns_of(self.key))
        else:
            kind: Any = {"number": {"i64": "int64", "f64": "float64"}.get(self.number or "")}
            kind |= {"bytes": "binary"}
            kind |= {"list": self._list}
            columns = [{"name": "value", "kind": kind[self.kind], "nullable": False}]
            with_key = True
        found = [Column(column, is_key=False) for column in columns]
        if with_key:
            name = "key"
            while any(column["name"] == name for column in columns):
                name = f"_{name}"
            found.insert(0, Column({"name": name, **key}, is_key=True))
        return found if only is None else _named(found, only)

    def _list_kind(self, details: dict[str, Any]) -> dict[str, Any]:
        """The type of the lists that are values; that of their column says whether all have one
        length."""
        (column,) = [one for one in self._columns if one["name"] == details["column"]]
        item = {"name": "item", "kind": details["item"], "nullable": True}
        return {"list": {"item": item, "length": name_of(column["kind"])[1].get("length")}}

    def arrow_decoder(self, columns: Sequence[str]) -> Decode:
        return self._decoder(Types(for_arrow=True), columns)


class Column(NamedTuple):
    """A column of a scan."""

    reported: dict[str, Any]
    is_key: bool

    @property
    def name(self) -> str:
        return self.reported["name"]


def _named(columns: Sequence[Column], only: Sequence[str]) -> list[Column]:
    by_name = {column.name: column for column in columns}
    for name in only:
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            known = ", ".join(by_name)
            raise UsageError(f"there is no column '{name}'{hint}; there are: {known}")
    return [by_name[name] for name in only]


class Layout:
    """Columns of a scan, or of keys that were looked up, as record batches.

    Of looked up keys, which may be absent, each may be null.
    """

    def __init__(
        self,
        shape: Shape,
        binary: bool,
        only: Sequence[str] | None = None,
        looked_up: bool = False,
    ) -> None:
        self._pa: Any = importlib.import_module("pyarrow")
        self._columns = shape.columns_of_scan(binary, only)
        self._rows = shape.kind == "row"
        self._binary, self._how = binary, "look up" if looked_up else "scan"
        names = [column.name for column in self._columns if not column.is_key]
        self._decode = shape.arrow_decoder(names)
        nullable = {"nullable": True} if looked_up else {}
        reported = ({**column.reported, **nullable} for column in self._columns)
        self.schema: Any = self._pa.schema([arrow_field(column, self._pa) for column in reported])

    def batch(self, records: Sequence[tuple[bytes, bytes | None]]) -> Any:
        """A row for each; one without a value is null."""
        values = [None if value is None else self._decode(value) for _, value in records]
        if not self._columns:
            rows = self._pa.array([{}] * len(records), self._pa.struct([]))
            return self._pa.RecordBatch.from_struct_array(rows)
        arrays = [
            self._array(field, self._cells(column, records, values))
            for column, field in zip(self._columns, self.schema, strict=True)
        ]
        return self._pa.record_batch(arrays, schema=self.schema)

    def _array(self, field: Any, cells: list[Any]) -> Any:
        try:
            return self._pa.array(cells, field.type)
        except self._pa.ArrowInvalid as error:
            if self._pa.types.is_decimal128(field.type):
                return decimals(self._pa, field.type, cells)
            raise UsageError(
                f"pyarrow makes no {field.type} of what column '{field.name}' has: take the values "
                f"by get or by looping ({error})"
            ) from None

    def _cells(
        self,
        column: Column,
        records: Sequence[tuple[bytes, bytes | None]],
        values: list[Any],
    ) -> list[Any]:
        if not column.is_key:
            if not self._rows:
                return values
            return [None if row is None else row[column.name] for row in values]
        return [None if value is None else self._shown(key) for key, value in records]

    def _shown(self, key: bytes) -> str | bytes:
        return key if self._binary else key_text(key, self._how)
