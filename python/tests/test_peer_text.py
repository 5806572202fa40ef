"""The test files of DuckDB's CSV reader: texts equal those of DuckDB, or rows are bad rows.

Each is read by the dialect that DuckDB finds, all columns as text. tests/inputs/README.md names the
commit.
"""

import logging
import tarfile
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import forebay

ARCHIVE = Path(__file__).parents[2] / "tests/inputs/duckdb-csv.tar.xz"

# DuckDB reads a backslash as an escape, quotes as text, or ignores a space before a quote.
DIFFERENT = {
    "data/csv/bad_escape.csv",
    "data/csv/rejects/unquoted/basic.csv",
    "data/csv/unescaped_quotes/stops.csv",
    "data/csv/validator/quoted_new_value.csv",
}
# Arrow has no name with a byte of zero.
UNNAMED = {
    "data/csv/afl/null_padding/15.csv",
    "data/csv/afl/null_padding/27.csv",
    "data/csv/afl/null_padding/34.csv",
    "data/csv/nullbyte_header.csv",
}
READ = "select * from read_csv(?, all_varchar=true, null_padding=false, allow_quoted_nulls=false, hive_partitioning=false)"  # noqa: E501
SNIFF = "select Delimiter, Quote, HasHeader, SkipRows from sniff_csv(?, all_varchar=true)"


class NotAlike(Exception):
    """DuckDB refuses the file, or reads it by a dialect that Forebay does not have."""


def read_by_duckdb(path):
    """Returns names and rows, and the options for Forebay that mean the same."""
    try:
        delimiter, quote, header, skipped = duckdb.execute(SNIFF, [str(path)]).fetchone()
        read = duckdb.execute(READ, [str(path)])
        names, rows = [column[0] for column in read.description], read.fetchall()
    except duckdb.Error as error:
        raise NotAlike from error
    quote = '"' if quote in ("\0", "", "(empty)", None) else quote
    if skipped or len(delimiter) != 1 or len(quote) != 1 or not rows:
        raise NotAlike
    if not header:
        names = [f"column_{number + 1}" for number in range(len(names))]
    if len(set(names)) < len(names):
        raise NotAlike
    options = {"csv_delimiter": delimiter.replace("\t", "\\t"), "csv_quote": quote}
    return names, rows, options if header else {**options, "csv_no_header": True}


def compare(path, store):
    """Returns whether any accepted row differs from DuckDB; None if Forebay refuses the file."""
    names, rows, options = read_by_duckdb(path)
    key = max(names, key=lambda name: len({row[names.index(name)] for row in rows}))
    options |= {
        "duplicates": "last",
        "bad_rows": "skip",
        "column": {name: "text" for name in names},
    }
    try:
        forebay.push(str(path), "t", key=f"{{{key}}}", store=store, **options)
    except forebay.Error:
        return None
    with forebay.open(store) as opened:
        table = opened["t"].scan().to_arrow()
    got = Counter(zip(*(table[name].to_pylist() for name in names), strict=True))
    last = {row[names.index(key)]: row for row in rows}
    return bool(got - Counter(last.values()))


@pytest.mark.nightly
def test_texts_equal_those_of_duckdb(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    outcomes, different = Counter(), set()
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(tmp_path, filter="data")
    for number, path in enumerate(sorted((tmp_path / "data").rglob("*.*"))):
        name = str(path.relative_to(tmp_path))
        if name in UNNAMED:
            continue
        try:
            outcome = compare(path, str(tmp_path / f"store-{number}"))
        except NotAlike:
            continue
        outcomes[outcome] += 1
        if outcome:
            different.add(name)
    assert different <= DIFFERENT
    assert outcomes[False] >= 490, outcomes
