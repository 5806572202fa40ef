"""Python's objects as columns of Arrow: lists of dicts, dicts of columns, pandas' object columns.

pyarrow makes one type of what is mixed in a column, and alters values for that: of a date and a
time it makes two dates, of times with and without a zone times of either, and it drops what its
type has no room for. Such columns are refused here, before they are made.
"""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ._errors import DataError

_Path = tuple[str, ...]
"""Where in a value: the columns of structs, and `[]` for the items of lists."""

_PLAIN = frozenset({"string", "integer", "floating", "boolean", "decimal", "empty"})
"""What pandas calls object columns whose values are all of one class that is safe."""


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
    made = {name: _array(pa, name, values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in made.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise DataError(f"the columns have different numbers of rows: {told}")
    return pa.table(made)


def of_frame(frame: Any) -> Any:
    """A table of pyarrow of a data frame of pandas."""
    pa: Any = importlib.import_module("pyarrow")
    infer: Any = importlib.import_module("pandas.api.types").infer_dtype
    columns = [(str(name), frame.iloc[:, place]) for place, name in enumerate(frame.columns)]
    if frame.index.name is not None:
        columns.append((str(frame.index.name), frame.index))
    for name, column in columns:
        _check_pandas(name, str(column.dtype))
        # Of a category its values.
        values = getattr(column.dtype, "categories", column)
        if _is_of_objects(values) and infer(values, skipna=True) not in _PLAIN:
            _check(name, values)
    try:
        return pa.table(frame)
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        words = "; ".join(str(word) for word in error.args)
        raise DataError(f"pandas.DataFrame: {words}") from None


def _check_pandas(name: str, kind: str) -> None:
    """Types of pandas alone, of which Arrow would have a number or a struct without its meaning."""
    for begin, how in (("period[", "to_timestamp()"), ("interval[", "astype(str)")):
        if kind.startswith(begin):
            raise DataError(f"column '{name}' is of pandas' {kind}: give it by {how}")


def _is_of_objects(column: Any) -> bool:
    return str(getattr(column, "dtype", "")) == "object"


def _array(pa: Any, name: str, values: Any) -> Any:
    if isinstance(values, list | tuple) or _is_of_objects(values):
        values = cast("Sequence[Any]", values)
        _check(name, values)
    elif isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"the column '{name}' is {type(values).__name__}, and has to be a list")
    try:
        return pa.array(values)
    except OverflowError:
        return _large(pa, name, values)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise DataError(f"column '{name}': {error}") from None


def _large(pa: Any, name: str, values: Any) -> Any:
    try:
        return pa.array(values, pa.uint64())
    except (OverflowError, pa.ArrowException):
        raise DataError(
            f"column '{name}' has numbers beyond 64 bits: give them as decimal.Decimal or as text"
        ) from None


def _check(name: str, values: Iterable[Any]) -> None:
    seen: dict[_Path, str] = {}
    for value in values:
        for path, kind in _kinds(name, value, (name,)):
            before = seen.setdefault(path, kind)
            if before != kind:
                raise DataError(f"column '{'.'.join(path)}' mixes {before} and {kind}")


def _kinds(name: str, value: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    """The kinds of all that is in a value, as far as mixing them would alter something."""
    match value:
        case str():
            yield path, "text"
        case bytes():
            yield path, "bytes"
        case bool():
            yield path, "truth values"
        case int() | float():
            yield path, "numbers"
        case dt.datetime() | dt.timedelta() if value != value:
            # NaT.
            return
        case dt.datetime():
            yield path, _kind_of_datetime(name, value)
        case dt.timedelta() if getattr(value, "nanoseconds", 0):
            raise _nanoseconds(name, value)
        case dt.date():
            yield path, "dates"
        case dt.time(tzinfo=dt.tzinfo()):
            raise DataError(f"column '{name}' has {value!r}: times of a day have no zone here")
        case dict():
            for key, item in cast("dict[Any, Any]", value).items():
                yield from _kinds(name, item, (*path, str(key)))
        case list() | tuple() | set() | frozenset():
            for item in cast("Iterable[Any]", value):
                yield from _kinds(name, item, (*path, "[]"))
        case _:
            yield from _kinds_of_array(name, value, path)


def _kinds_of_array(name: str, value: Any, path: _Path) -> Iterator[tuple[_Path, str]]:
    """Of an array or a scalar of NumPy."""
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in ("m", "M"):
        yield path, f"times of {value.dtype}"
    if kind == "O" and hasattr(value, "tolist"):
        yield from _kinds(name, value.tolist(), path)


def _kind_of_datetime(name: str, value: dt.datetime) -> str:
    if getattr(value, "nanosecond", 0):
        raise _nanoseconds(name, value)
    return "times without a zone" if value.tzinfo is None else "times with a zone"


def _nanoseconds(name: str, value: Any) -> DataError:
    return DataError(
        f"column '{name}' has {value!r}, whose nanoseconds would be lost: give the column as "
        "datetime64[ns] or timedelta64[ns], as by pandas.to_datetime and to_timedelta"
    )
