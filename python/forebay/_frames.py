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
    others = sorted({*range(table.num_columns)} - {*whole})
    frame = table.select(others).to_pandas(integer_object_nulls=True)
    if not whole:
        return frame
    frame = pd.concat([frame, table.select(whole).to_pandas(types_mapper=nullable.get)], axis=1)
    place_of = {column: place for place, column in enumerate([*others, *whole])}
    return frame.iloc[:, [place_of[column] for column in range(table.num_columns)]]
