"""Data frames of pandas, of tables of pyarrow, in which no number is another one."""

from __future__ import annotations

import importlib
from typing import Any


def of_pandas(table: Any) -> Any:
    """A `pandas.DataFrame` of a table of pyarrow.

    pyarrow makes floats of whole numbers among nulls, which rounds those beyond 2**53. Here such
    columns are of pandas' own types with nulls, `Int64` and its like, and lists with nulls within
    have Python's numbers.
    """
    pa: Any = importlib.import_module("pyarrow")
    pd: Any = importlib.import_module("pandas")
    nullable = {
        getattr(pa, f"{prefix}int{bits}")(): getattr(pd, f"{name}Int{bits}Dtype")()
        for prefix, name in (("", ""), ("u", "U"))
        for bits in (8, 16, 32, 64)
    }
    whole = [
        place
        for place, column in enumerate(table.columns)
        if column.null_count > 0 and column.type in nullable
    ]
    others = table.select([place for place in range(table.num_columns) if place not in whole])
    frame = others.to_pandas(integer_object_nulls=True)
    for place in whole:
        column = table.column(place).to_pandas(types_mapper=nullable.get)
        frame.insert(place, table.column_names[place], column, allow_duplicates=True)
    return frame
