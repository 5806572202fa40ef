"""Features as columns: what Feast's values become in a version, and back.

Scalars and lists of text, bytes, numbers, booleans and timestamps (in seconds, as Feast has them)
are columns of these types. JSON, UUIDs and decimals are text. All others (maps, structs, sets, ...)
are Feast's own message, serialised.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from feast.protos.feast.types import Value_pb2
from feast.protos.feast.types.Value_pb2 import Value
from feast.type_map import python_values_to_proto_values
from feast.value_type import ValueType

from .._errors import DataError, UsageError

pa: Any = importlib.import_module("pyarrow")
pc: Any = importlib.import_module("pyarrow.compute")
types: Any = pa.types


class Kind(NamedTuple):
    """How a type of Feast is stored."""

    field: str
    """Of `Value`."""
    arrow: Any
    items: Any = None
    """The message of a list."""


def _kinds() -> dict[ValueType, Kind]:
    scalars = {
        ValueType.STRING: ("string", pa.string(), "String"),
        ValueType.BYTES: ("bytes", pa.binary(), "Bytes"),
        ValueType.INT32: ("int32", pa.int32(), "Int32"),
        ValueType.INT64: ("int64", pa.int64(), "Int64"),
        ValueType.DOUBLE: ("double", pa.float64(), "Double"),
        ValueType.FLOAT: ("float", pa.float32(), "Float"),
        ValueType.BOOL: ("bool", pa.bool_(), "Bool"),
        ValueType.UNIX_TIMESTAMP: ("unix_timestamp", pa.int64(), "Int64"),
    }
    kinds: dict[ValueType, Kind] = {}
    for scalar, (name, arrow, message) in scalars.items():
        kinds[scalar] = Kind(f"{name}_val", arrow)
        items = getattr(Value_pb2, f"{message}List")
        kinds[ValueType[f"{scalar.name}_LIST"]] = Kind(f"{name}_list_val", pa.list_(arrow), items)
    for text in (ValueType.JSON, ValueType.UUID, ValueType.TIME_UUID, ValueType.DECIMAL):
        kinds[text] = Kind(f"{text.name.lower()}_val", pa.string())
    return kinds


_KINDS = _kinds()
_OTHER = Kind("", pa.binary())


def arrow_type(kind: ValueType) -> Any:
    """The type of a feature's column."""
    return _KINDS.get(kind, _OTHER).arrow


# From values of Feast.


def stored(value: Value, kind: ValueType) -> Any:
    """What stands in the column for a value."""
    if value.WhichOneof("val") in (None, "null_val"):
        return None
    how = _KINDS.get(kind)
    if how is None:
        return value.SerializeToString()
    held = getattr(value, how.field)
    return held if how.items is None else list(held.val)


def reader(kind: ValueType) -> Callable[[Any], Value]:
    """Gives a function from what stands in a column of this type to Feast's value.

    It raises TypeError or ValueError for what is of another type."""
    how = _KINDS.get(kind)
    if how is None:
        return Value.FromString
    field, message = how.field, how.items
    if message is None:
        return lambda held: Value(**{field: held})
    return lambda held: Value(**{field: message(val=held)})


# From columns of an offline store.


def _is_text(kind: Any) -> bool:
    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _is_bytes(kind: Any) -> bool:
    return types.is_binary(kind) or types.is_large_binary(kind)


def _is_number(kind: Any) -> bool:
    return types.is_integer(kind) or types.is_float32(kind) or types.is_float64(kind)


_SCALARS: dict[ValueType, Callable[[Any], bool]] = {
    ValueType.STRING: _is_text,
    ValueType.BYTES: _is_bytes,
    ValueType.INT32: _is_number,
    ValueType.INT64: _is_number,
    ValueType.DOUBLE: _is_number,
    ValueType.FLOAT: _is_number,
    ValueType.BOOL: types.is_boolean,
    ValueType.UNIX_TIMESTAMP: types.is_timestamp,
}


_KEYS = (
    *(ValueType.STRING, ValueType.BYTES, ValueType.INT32, ValueType.INT64),
    ValueType.UNIX_TIMESTAMP,
)


def _is_plain(column: Any, kind: ValueType) -> bool:
    """Whether a cast does what Feast's conversion does."""
    if kind in _SCALARS:
        return _SCALARS[kind](column.type)
    scalar = ValueType.__members__.get(kind.name.removesuffix("_LIST"))
    if kind not in _KINDS or scalar is None or scalar == ValueType.UNIX_TIMESTAMP:
        return False
    if not (types.is_list(column.type) or types.is_large_list(column.type)):
        return False
    # Feast has rules of its own for nulls within lists, and for NaN in those of integers.
    if not _SCALARS[scalar](column.type.value_type) or pc.list_flatten(column).null_count:
        return False
    return types.is_floating(column.type.value_type) is types.is_floating(arrow_type(scalar))


def _refuse_rounded(column: Any) -> None:
    """Data frames make floats of whole numbers where some are absent, and round large ones."""
    if pc.any(pc.greater_equal(pc.abs(column), pa.scalar(2.0**53, column.type))).as_py():
        raise ValueError(
            "they came as floats, with some of 2^53 or more, which are rounded: an offline store "
            "that keeps whole numbers next to absent ones is wanted, such as duckdb, or a source "
            "without absent values"
        )


def _without_nan(column: Any) -> Any:
    """For Feast a NaN is a value that is absent."""
    if not types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def feature_column(column: Any, feature: str, kind: ValueType) -> Any:
    """A column of an offline store, as the feature's column is stored."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    target = arrow_type(kind)
    try:
        if types.is_null(column.type):
            return pa.nulls(len(column), target)
        if not _is_plain(column, kind):
            values = python_values_to_proto_values(column.to_numpy(zero_copy_only=False), kind)
            return pa.array([stored(value, kind) for value in values], target)
        if kind == ValueType.UNIX_TIMESTAMP:
            return column.cast(pa.timestamp("s"), safe=False).cast(target)
        if kind == ValueType.INT64 and types.is_floating(column.type):
            _refuse_rounded(column)
        # A Float32 is rounded, as by Feast; nothing else is.
        return _without_nan(column).cast(target, safe=kind != ValueType.FLOAT)
    except (pa.ArrowInvalid, TypeError, ValueError, AssertionError) as error:
        raise DataError(
            f"feature {feature} is declared {kind.name}, and its column ({column.type}) has values "
            f"that are none: {error}"
        ) from error


def time_column(column: Any, name: str) -> Any:
    """A column of times, as microseconds in UTC; those without a zone are UTC."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", "UTC"), safe=False)
    pandas: Any = importlib.import_module("pandas")
    try:
        times = pandas.to_datetime(column.to_numpy(zero_copy_only=False), utc=True)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"column {name} ({column.type}) has values that are no times: {error}"
        ) from error
    return pa.array(times, pa.timestamp("us", "UTC"), safe=False)


def _key_part(column: Any, join_key: str, kind: ValueType) -> Any:
    """A column of one join key, as part of a key: what `key_of` makes of each."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise DataError(
            f"{column.null_count} rows have no {join_key}, which is a join key; the first is "
            f"row {row}"
        )
    if kind not in _KEYS:
        raise UsageError(
            f"the join key {join_key} is declared {kind.name}: keys are integers, strings, bytes "
            "or timestamps"
        )
    held = feature_column(column, join_key, kind)
    if not _is_text(held.type) and not _is_bytes(held.type):
        return held.cast(pa.string())
    text = "" if _is_text(held.type) else b""
    for plain, code in (("%", "%25"), ("/", "%2F")):
        held = pc.replace_substring(held, plain, code)
    return pc.if_else(pc.equal(held, text), pa.scalar("%", held.type), held)


def key_column(table: Any, join_keys: dict[str, ValueType]) -> Any:
    """The keys of all rows."""
    for join_key in join_keys:
        if join_key not in table.column_names:
            raise DataError(
                f"the offline store gave no column {join_key}, which is a join key; it gave: "
                f"{', '.join(table.column_names)}"
            )
    parts = [_key_part(table.column(name), name, join_keys[name]) for name in sorted(join_keys)]
    if not parts:
        return pa.repeat("%", table.num_rows)
    if len(parts) == 1:
        return parts[0]
    if any(_is_bytes(part.type) for part in parts):
        parts = [part.cast(pa.binary()) for part in parts]
    between = pa.scalar("/" if _is_text(parts[0].type) else b"/", parts[0].type)
    return pc.binary_join_element_wise(*parts, between)
