"""Conversion of values to Arrow arrays and back, for every type and layout that pyarrow has.

Times stay the integers that Arrow stores, without Python's own types.
"""

import decimal
import struct
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oracle.convert import family, is_fixed_list

decimal.getcontext().prec = 200

INTEGER_OF = {
    "date32": pa.int32(),
    "date64": pa.int64(),
    "time32": pa.int32(),
    "time64": pa.int64(),
    "timestamp": pa.int64(),
    "duration": pa.int64(),
}


def storage(t):
    """The integer type that stores a type of times."""
    for name, kind in INTEGER_OF.items():
        if getattr(pa.types, f"is_{name}")(t):
            return kind
    return None


def filler(t):
    """A value for unused places, or for places that must not be null."""
    kind = family(t)
    if kind in ("text", "binary"):
        width = t.byte_width if pa.types.is_fixed_size_binary(t) else 0
        return "" if kind == "text" else bytes(width)
    if kind == "list":
        return [filler(t.value_type)] * t.list_size if is_fixed_list(t) else []
    if kind == "struct":
        return {field.name: filler(field.type) for field in t}
    simple = {"bool": False, "interval": (0, 0, 0), "map": [], "null": None}
    if kind in simple:
        return simple[kind]
    return 0.0 if pa.types.is_floating(t) else Fraction(0) if pa.types.is_decimal(t) else 0


def as_decimal(x):
    return decimal.Decimal(x.numerator) / decimal.Decimal(x.denominator)


def build(values, t):
    """An Arrow array of a type from values."""
    if pa.types.is_dictionary(t):
        found = list({canonical(value): value for value in values if value is not None}.values())
        at = {canonical(value): place for place, value in enumerate(found)}
        places = [None if value is None else at[canonical(value)] for value in values]
        return pa.DictionaryArray.from_arrays(
            pa.array(places, t.index_type), build(found, t.value_type)
        )
    if isinstance(t, pa.RunEndEncodedType):
        ends, runs = [], []
        for place, value in enumerate(values, 1):
            if runs and canonical(runs[-1]) == canonical(value):
                ends[-1] = place
            else:
                ends.append(place)
                runs.append(value)
        return pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, t.run_end_type), build(runs, t.value_type)
        )
    kind, integers = family(t), storage(t)
    if integers is not None:
        return pa.array(values, integers).view(t)
    if pa.types.is_float16(t):
        return pa.array([None if v is None else np.float16(v) for v in values], t)
    if pa.types.is_decimal(t):
        return pa.array([None if v is None else as_decimal(v) for v in values], t)
    if kind == "interval":
        return pa.array([None if v is None else pa.MonthDayNano(v) for v in values], t)
    if kind == "list":
        return build_list(values, t)
    if kind == "struct":
        mask = pa.array([value is None for value in values], pa.bool_())
        columns = [
            build(
                [(v or {}).get(f.name, None if f.nullable else filler(f.type)) for v in values],
                f.type,
            )
            for f in t
        ]
        return pa.StructArray.from_arrays(columns, fields=list(t), mask=mask)
    if kind == "map":
        offsets, flat = flatten(values)
        keys = build([key for key, _ in flat], t.key_type)
        items = build([item for _, item in flat], t.item_type)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.MapArray.from_arrays(
            pa.array(offsets, pa.int32()), keys, items, type=t, mask=mask
        )
    return pa.array(values, t)


def flatten(values):
    offsets, flat = [0], []
    for value in values:
        flat += value or []
        offsets.append(len(flat))
    return offsets, flat


def build_list(values, t):
    mask = pa.array([value is None for value in values], pa.bool_())
    if is_fixed_list(t):
        blank = [filler(t.value_type)] * t.list_size
        flat = [item for value in values for item in (blank if value is None else value)]
        return pa.FixedSizeListArray.from_arrays(build(flat, t.value_type), type=t, mask=mask)
    offsets, flat = flatten(values)
    large = isinstance(t, (pa.LargeListType, pa.LargeListViewType))
    whole = pa.int64() if large else pa.int32()
    if isinstance(t, (pa.ListViewType, pa.LargeListViewType)):
        # Views may be in any order: here the last list is first.
        sizes = [len(value or []) for value in values]
        flat = [item for value in reversed(values) for item in value or []]
        starts = [sum(sizes[place + 1 :]) for place in range(len(sizes))]
        kind = pa.LargeListViewArray if large else pa.ListViewArray
        columns = pa.array(starts, whole), pa.array(sizes, whole), build(flat, t.value_type)
        return kind.from_arrays(*columns, type=t, mask=mask)
    kind = pa.LargeListArray if large else pa.ListArray
    return kind.from_arrays(pa.array(offsets, whole), build(flat, t.value_type), type=t, mask=mask)


def read(array):
    """The values of an array."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in read(chunk)]
    t = array.type
    if pa.types.is_dictionary(t):
        found = read(array.dictionary)
        return [None if place is None else found[place] for place in array.indices.to_pylist()]
    if isinstance(t, pa.RunEndEncodedType):
        return read(pc.run_end_decode(array))
    kind, integers = family(t), storage(t)
    if integers is not None:
        return array.view(integers).to_pylist()
    if pa.types.is_floating(t):
        return [None if value is None else float(value) for value in array.to_pylist()]
    if pa.types.is_decimal(t):
        return [None if value is None else Fraction(value) for value in array.to_pylist()]
    if kind == "interval":
        return [None if value is None else tuple(value) for value in array.to_pylist()]
    if kind == "struct":
        columns = {f.name: read(array.field(place)) for place, f in enumerate(t)}
        rows = (
            {name: column[row] for name, column in columns.items()} for row in range(len(array))
        )
        return masked(array, rows)
    if kind == "map":
        pairs = list(zip(read(array.keys), read(array.items), strict=True))
        return masked(array, slices(array.offsets.to_pylist(), pairs))
    if kind == "list":
        items = read(array.values)
        if is_fixed_list(t):
            start, size = array.offset * t.list_size, t.list_size
            return masked(array, (items[start + n * size :][:size] for n in range(len(array))))
        if isinstance(t, (pa.ListViewType, pa.LargeListViewType)):
            places = zip(array.offsets.to_pylist(), array.sizes.to_pylist(), strict=True)
            return masked(array, (items[start : start + size] for start, size in places))
        return masked(array, slices(array.offsets.to_pylist(), items))
    return array.to_pylist()


def slices(offsets, items):
    # The `items` of a sliced array may be only those of the slice.
    first = offsets[0] if len(items) == offsets[-1] - offsets[0] else 0
    pairs = zip(offsets, offsets[1:], strict=False)
    return (items[start - first : end - first] for start, end in pairs)


def masked(array, values):
    return [
        value if is_valid else None
        for is_valid, value in zip(array.is_valid().to_pylist(), values, strict=True)
    ]


def canonical(value):
    """A value that equals another one only if both are identical: all NaNs are equal, but 0.0 and
    -0.0 differ, and so do 1 and True."""
    if isinstance(value, float):
        return ("float", "nan" if value != value else struct.pack("<d", value))
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, dict):
        return tuple((name, canonical(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(canonical(item) for item in value)
    return value
