"""Rows of seven columns to measure with, in no order: people as a table of features has them."""

from pathlib import Path

from common import DATA, say

#: Rows of a group of a Parquet file: the least that a task can be given.
GROUP_ROWS = 100_000
COUNTRIES = ("de", "fr", "us", "gb", "in", "br", "jp", "ng")
#: The key of a table of people.
TABLE_KEY = "{id:012}"
SEED = 5


def table(rows: int) -> Path:
    """A Parquet file: numbers, texts, a time and a flag; each `id` once, shuffled."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"people-{rows}.parquet"
    if path.exists():
        return path
    say(f"writing a table of {rows:,} people")
    chance = numpy.random.default_rng(SEED)
    ids = chance.permutation(rows) * 7 + 11
    seconds = chance.integers(1_600_000_000, 1_700_000_000, rows)
    made = pyarrow.table({
        "id": ids,
        "name": [f"user-{n:x}-{n * 2654435761 % 2**32:08x}" for n in ids.tolist()],
        "country": numpy.array(COUNTRIES)[chance.integers(0, len(COUNTRIES), rows)],
        "age": chance.integers(1, 99, rows).astype(numpy.int32),
        "score": chance.random(rows),
        "seen": pyarrow.array(seconds * 1_000_000, pyarrow.timestamp("us", tz="UTC")),
        "active": chance.integers(0, 2, rows).astype(bool),
    })
    new = path.with_suffix(".new")
    pyarrow.parquet.write_table(made, new, row_group_size=GROUP_ROWS)
    new.replace(path)
    return path
