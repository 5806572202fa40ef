"""Data frames of pandas, of tables of pyarrow, in which no value is another one."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd  # pyright: ignore[reportMissingTypeStubs]


def for_pandas(table: Any) -> Any:
    """The same table of pyarrow, whose metadata give pandas the types of columns with nulls.

    pyarrow makes floats of whole numbers among nulls, which rounds those beyond 2**53, and objects
    of truth values. Of this table its `to_pandas` makes pandas' own types with nulls: `Int64` and
    its like and `boolean`. It does the same of a data frame that had them.
    """
    pa: Any = importlib.import_module("pyarrow")
    names: dict[Any, str] = {pa.bool_(): "boolean"}
    for bits in (8, 16, 32, 64):
        names[getattr(pa, f"int{bits}")()] = f"Int{bits}"
        names[getattr(pa, f"uint{bits}")()] = f"UInt{bits}"
    columns = [
        {
            **{"name": name, "field_name": name, "metadata": None},
            **{"pandas_type": str(column.type), "numpy_type": names[column.type]},
        }
        for name, column in zip(table.column_names, table.columns, strict=True)
        if column.null_count > 0 and column.type in names
    ]
    if not columns:
        return table
    metadata = json.dumps({"columns": columns, "index_columns": [], "column_indexes": []})
    return table.replace_schema_metadata({"pandas": metadata})


def of_pandas(table: Any) -> pd.DataFrame:
    """A data frame of a table of pyarrow: `for_pandas`, with Python's numbers in lists with nulls
    within."""
    return for_pandas(table).to_pandas(integer_object_nulls=True)
