"""Python's objects as columns of Arrow: lists of dicts, dicts of columns, pandas' object columns.

pyarrow makes one type of what is mixed in a column, and alters values for that: of a date and a
time it makes two dates, of times with and without a zone times of either. It drops what its type
has no room for. Such columns are refused here, before they are made.
"""

from __future__ import annotations

import datetime as dt
import decimal as dec
import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ._errors import DataError

_Path = tuple[str, ...]
"""Where in a value: the columns of structs, and `[]` for the items of lists."""

_PLAIN = frozenset({"string", "integer", "boolean", "empty"})
"""What pandas calls object columns whose values are all of one class that is safe."""

_WHOLE, _FLOATS, _HALVES, _DECIMALS = "whole numbers", "numbers", "numbers of float16", "decimals"
_DATES, _NAT = "dates", "NaT"
_ALIKE = frozenset({(_WHOLE, _FLOATS), (_WHOLE, _DECIMALS), (_FLOATS, _HALVES)})
"""Kinds that may occur together: pyarrow alters none, or fails."""


def of_rows(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A table of pyarrow of dicts, one a row; a column that a row lacks is null there."""
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    for name in cast("dict[Any, None]", names):
        if not isinstance(name, str):
            raise TypeError(f"the columns of rows have names that are str, not {name!r}")
    return of_columns({name: [row.get(name) for row in rows] for name in names})


def of_columns(columns: Mapping[str, Any]) -> Any:
    """A table of pyarrow of columns by their names: lists, or what pyarrow makes arrays of."""
    pa: Any = importlib.import_module("pyarrow")
    for name in cast("Mapping[Any, Any]", columns):
        if not isinstance(name, str):
            raise TypeError(f"columns have names that are str, not {name!r}")
    made = {name: _array(pa, name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in made.items()}
    if len(set(lengths.values())) > 1:
        given = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"the columns have different numbers of rows: {given}")
    return pa.table(made)


def of_frame(frame: Any) -> Any:
    """A table of pyarrow of a data frame of pandas."""
    pa: Any = importlib.import_module("pyarrow")
    infer: Any = importlib.import_module("pandas.api.types").infer_dtype
    frame = frame.copy(deep=False)
    names = [str(name) for name in frame.columns]
    for name, times in Counter(names).items():
        if times > 1:
            raise DataError(f"pandas.DataFrame: {times} columns have the name '{name}'")
    columns = [(name, frame.iloc[:, place]) for place, name in enumerate(names)]
    for place, (name, column) in enumerate(columns + _index(frame.index)):
        _check_pandas(name, column)
        # Of a category its values.
        values = getattr(column.dtype, "categories", column)
        if _is_of_objects(values) and infer(values, skipna=True) not in _PLAIN:
            _check(name, values)
            if place < len(names) and any(_is_deep(value) for value in values):
                frame.isetitem(place, column.map(_as_lists))
    # Without being asked pyarrow drops an index that is a range, which it is by chance alone: 1, 2,
    # 3 is one, and 1, 2, 5 is none. One with a name was meant as a column.
    has_name = any(name is not None for name in frame.index.names)
    try:
        return pa.Table.from_pandas(frame, preserve_index=True if has_name else None)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        words = "; ".join(str(word) for word in error.args)
        raise DataError(f"pandas.DataFrame: {words}") from None


def _index(index: Any) -> list[tuple[str, Any]]:
    """The columns that pyarrow makes of an index, by their names there."""
    levels = [index.get_level_values(place) for place in range(index.nlevels)]
    return [
        (f"__index_level_{place}__" if level.name is None else str(level.name), level)
        for place, level in enumerate(levels)
    ]


def _check_pandas(name: str, column: Any) -> None:
    """Types of pandas alone, of which Arrow would have a number or a struct without its meaning."""
    kind = getattr(column, "dtype", None)
    categories = getattr(kind, "categories", None)
    written = str(kind if categories is None else getattr(categories, "dtype", ""))
    for begin, how in (("period[", "to_timestamp()"), ("interval[", "astype(str)")):
        if written.startswith(begin):
            raise DataError(f"column '{name}' is of pandas' {written}: give it by {how}")


def _is_of_objects(column: Any) -> bool:
    return str(getattr(column, "dtype", "")) == "object"


def _array(pa: Any, name: str, values: Any) -> Any:
    _check_pandas(name, values)
    categories = getattr(getattr(values, "dtype", None), "categories", None)
    if _is_of_objects(categories):
        _check(name, cast("Iterable[Any]", categories))
    if _is_deep(values):
        return _lists(pa, name, values)
    if isinstance(values, list | tuple) or _is_of_objects(values):
        values = cast("Sequence[Any]", values)
        _check(name, values)
        if any(_is_deep(value) for value in values):
            values = [_as_lists(value) for value in values]
    elif isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"the column '{name}' is {type(values).__name__}, and has to be a list")
    try:
        return pa.array(values)
    except OverflowError:
        return _large(pa, name, values)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"column '{name}': {error}") from None


def _is_deep(value: Any) -> bool:
    """Whether it is an array of NumPy of two dimensions or more, which pyarrow does not take."""
    is_array = hasattr(value, "reshape") and hasattr(value, "dtype")
    # A matrix has two whatever is done with it.
    return is_array and value.ndim > 1 and value.reshape(-1).ndim == 1


def _lists(pa: Any, name: str, values: Any) -> Any:
    """The first dimension of an array as rows, the others as lists of a fixed size."""
    made = _array(pa, name, values.reshape(-1))
    if 0 not in values.shape[1:]:
        for size in reversed(values.shape[1:]):
            made = pa.FixedSizeListArray.from_arrays(made, size)
        return made
    kind = made.type
    for size in reversed(values.shape[1:]):
        kind = pa.list_(kind, size)
    return pa.array(values.tolist(), kind)


def _as_lists(value: Any) -> Any:
    """A value of a column; an array of several dimensions as a list of arrays."""
    return [_as_lists(part) for part in value] if _is_deep(value) else value


def _large(pa: Any, name: str, values: Any) -> Any:
    try:
        return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowException):
        raise DataError(
            f"column '{name}' has numbers beyond 64 bits: give them as decimal.Decimal or as text"
        ) from None


def _check(name: str, values: Iterable[Any]) -> None:
    # To pandas a NaN of decimals is a null, within lists as well.
    of_pandas = hasattr(values, "isna")
    seen: dict[_Path, str] = {}
    absent: set[_Path] = set()
    for value in values:
        for path, kind in _kinds(name, value, (name,), of_pandas):
            if kind == _NAT:
                absent.add(path)
                continue
            before = seen.setdefault(path, kind)
            if before != kind and not {(before, kind), (kind, before)} & _ALIKE:
                raise DataError(f"column '{'.'.join(path)}' mixes {_told(before, kind)}")
    for path in absent:
        if seen.get(path) == _DATES:
            raise DataError(f"column '{'.'.join(path)}' mixes dates and NaT: give None instead")


def _told(*kinds: str) -> str:
    """Whole numbers are but numbers in messages that are not about fractions."""
    if _HALVES in kinds:
        return " and ".join(kinds)
    return " and ".join(_FLOATS if kind == _WHOLE else kind for kind in kinds)


def _kinds(
    name: str, value: Any, path: _Path, of_pandas: bool = False
) -> Iterator[tuple[_Path, str]]:
    """The kinds of all that is in a value, as far as mixing them would alter something."""
    match value:
        case None:
            return
        case str():
            yield path, "text"
        case bytes() | bytearray() | memoryview():
            yield path, "bytes"
        case bool():
            yield path, "truth values"
        case int():
            yield path, _WHOLE
        case float():
            yield path, _FLOATS
        case dec.Decimal():
            if value.is_finite():
                yield path, _DECIMALS
            elif not (value.is_nan() and of_pandas):
                given = "which no decimal column holds: give None, or the column as floats"
                raise DataError(f"column '{'.'.join(path)}' has {value!r}, {given}")
        case dt.datetime() | dt.timedelta() if value != value:
            # A null; but among dates pyarrow makes the first day of the year 1 of it.
            if not of_pandas:
                yield path, _NAT
        case dt.date() | dt.time() | dt.timedelta():
            yield path, _kind_of_time(name, value)
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                if not isinstance(key, str):
                    was = f"a dict with the key {key!r}, which is {type(key).__name__}"
                    raise DataError(f"column '{'.'.join(path)}' has {was}: give keys that are str")
                yield from _kinds(name, item, (*path, key), of_pandas)
        case list() | tuple() | set() | frozenset():
            for item in cast("Iterable[Any]", value):
                yield from _kinds(name, item, (*path, "[]"), of_pandas)
        case _:
            yield from _kinds_of_array(name, value, path, of_pandas)


def _kind_of_time(name: str, value: Any) -> str:
    match value:
        case dt.datetime():
            if getattr(value, "nanosecond", 0):
                raise _nanoseconds(name, value)
            return "times without a zone" if value.tzinfo is None else "times with a zone"
        case dt.timedelta():
            if getattr(value, "nanoseconds", 0):
                raise _nanoseconds(name, value)
            return "durations"
        case dt.time(tzinfo=dt.tzinfo()):
            raise DataError(f"column '{name}' has {value!r}: times of a day have no zone here")
        case dt.time():
            return "times of a day"
        case _:
            return _DATES


def _kinds_of_array(
    name: str, value: Any, path: _Path, of_pandas: bool
) -> Iterator[tuple[_Path, str]]:
    """Of an array or a scalar of NumPy, and of classes that are no others'."""
    dtype: Any = getattr(value, "dtype", None)
    kind, shape = getattr(dtype, "kind", ""), getattr(value, "shape", ())
    if kind in ("m", "M"):
        yield path, f"times of {dtype}"
    elif kind == "O" and hasattr(value, "tolist"):
        yield from _kinds(name, value.tolist(), path, of_pandas)
    elif kind and 0 not in shape:
        kinds = {"b": "truth values", "i": _WHOLE, "u": _WHOLE, "U": "text", "S": "bytes"}
        floats = {2: _HALVES, 4: _FLOATS, 8: _FLOATS}
        found = floats.get(dtype.itemsize) if kind == "f" else kinds.get(kind)
        yield (*path, *("[]" for _ in shape)), found or f"values of {dtype}"
    elif not kind and type(value).__name__ != "NAType" and not hasattr(value, "as_py"):
        # Of whatever has `__int__`, as UUIDs have, numbers and times would be made beside those.
        yield path, f"objects of the class {type(value).__name__}"


def _nanoseconds(name: str, value: Any) -> DataError:
    return DataError(
        f"column '{name}' has {value!r}, whose nanoseconds would be lost: give the column as "
        "datetime64[ns] or timedelta64[ns], as by pandas.to_datetime and to_timedelta"
    )
