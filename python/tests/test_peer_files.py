"""The test files of Apache's readers of Parquet and Arrow.

Rows are equal to those that pyarrow reads, or the message gives a reason. tests/inputs has the
files as archives, unchanged; its README.md names the commits.
"""

import math
import tarfile
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pyarrow.types
import pytest

import forebay

INPUTS = Path(__file__).parents[2] / "tests/inputs"

# Parts of the error messages of files that are not read.
REFUSED = {
    "bad_data/ARROW-GH-41317.parquet": "its footer cannot be read: Expected list element type",
    # Two damaged row groups are read concurrently: either may be reported first.
    "bad_data/ARROW-GH-41321.parquet": "t.parquet: row group",
    "bad_data/ARROW-GH-45185.parquet": "cannot be read: first repetition level",
    "bad_data/ARROW-GH-47662.parquet": "expected 400 bytes (100 values of 4 bytes), got 364",
    "bad_data/ARROW-RS-GH-6229-DICTHEADER.parquet": "cannot be read: Integer overflow",
    "bad_data/ARROW-RS-GH-6229-LEVELS.parquet": "says more values than the footer",
    "bad_data/PARQUET-1481.parquet": "its footer cannot be read: Unexpected Type -7",
    "data/datapage_v1-corrupt-checksum.parquet": "is damaged or cut off: Page CRC checksum",
    "data/rle-dict-uncompressed-corrupt-checksum.parquet": "is damaged or cut off: Page CRC",
    "data/dict-page-offset-zero.parquet": "as files of Dremio 3.2 have",
    "data/int96_from_spark.parquet": "(INT96) outside the years 1677 to 2262",
    "0.17.1/generated_union": "two columns are named",
    "1.0.0-littleendian/generated_union": "two columns are named",
    "1.0.0-littleendian/generated_duplicate_fieldnames": "two columns are named",
    "cpp-21.0.0/generated_duplicate_fieldnames": "two columns are named",
    "cpp-21.0.0/generated_union": "is a union",
}
# These are read but not compared: pyarrow refuses the file, or Python has no such time.
NOT_COMPARED = {
    "data/incorrect_map_schema.parquet",
    "data/large_string_map.brotli.parquet",
    "data/nested_structs.rust.parquet",
    "0.14.1/generated_interval",
    "1.0.0-littleendian/generated_datetime",
    "1.0.0-littleendian/generated_interval",
    "cpp-21.0.0/generated_datetime",
    "cpp-21.0.0/generated_duration",
    "cpp-21.0.0/generated_interval",
}


def archive(name):
    with tarfile.open(INPUTS / f"{name}.tar.xz") as packed:
        files = (member for member in packed if member.isfile())
        return {
            file.name.removeprefix(f"{name}/"): packed.extractfile(file).read() for file in files
        }


FILES = archive("parquet-testing") | archive("arrow-testing")


def bare(name):
    return name.removesuffix(".arrow_file").removesuffix(".stream")


def reason(name):
    """Returns the reason why a file is not read, if there is one."""
    if "bigendian" in name:
        return "cannot be read: its numbers are big-endian, which is not read"
    if name.endswith(".encrypted") and "plaintext_footer" in name:
        return "its columns may be encrypted, which is not supported"
    if name.endswith(".encrypted"):
        return "it is Parquet with an encrypted footer"
    return REFUSED.get(bare(name))


def plain(value):
    """Returns a form of the value in which equal values, including NaN, are equal and hashable."""
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value
    if isinstance(value, dict):
        return tuple((name, plain(inner)) for name, inner in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(plain(inner) for inner in value)
    return value


def read_by_pyarrow(path):
    """Returns the table, or None if pyarrow refuses the file."""
    try:
        if path.suffix == ".arrow":
            return pa.ipc.open_file(path).read_all()
        if path.suffix == ".arrows":
            return pa.ipc.open_stream(path).read_all()
        return pa.parquet.read_table(path, partitioning=None)
    except (pa.ArrowException, OSError, NotImplementedError):
        return None


def rows_of(table, columns):
    values = (table[name].to_pylist() for name in columns)
    return [tuple(plain(value) for value in row) for row in zip(*values, strict=True)]


def best_key(table):
    """Returns the column with the most distinct values among those that can be a key."""

    def different_values(name):
        return len(set(table[name].to_pylist()) - {None})

    def fits(field):
        name, kind = field.name, field.type
        types = pa.types
        is_plain = types.is_integer(kind) or types.is_string(kind) or types.is_boolean(kind)
        if not is_plain or table.schema.names.count(name) > 1:
            return False
        return 0 < different_values(name) and all(
            len(str(value)) < 1000 for value in table[name].to_pylist()
        )

    return max(
        (field.name for field in table.schema if fits(field)), key=different_values, default=None
    )


def expected_rows(table, key):
    """Returns the last row of each key; without a key column all rows have one key."""
    columns = table.schema.names
    last = {}
    for row in rows_of(table, columns):
        at = "" if key is None else row[columns.index(key)]
        if at is not None:
            last[at] = row
    return Counter(last.values())


# A text of a gigabyte, and half a million rows.
LARGE = {"data/large_string_map.brotli.parquet", "data/overflow_i16_page_cnt.parquet"}


def by_day(name):
    """Returns whether a file is tested by day; nightly runs also read large files and streams."""
    return (
        name not in LARGE
        and not name.startswith("shredded_variant")
        and not name.endswith(".stream")
    )


MARKED = [pytest.param(name, marks=() if by_day(name) else pytest.mark.nightly) for name in FILES]


@pytest.mark.parametrize("name", MARKED)
def test_rows_are_equal_or_the_file_is_refused_with_a_reason(name, tmp_path):
    ending = {".arrow_file": "arrow", ".stream": "arrows"}.get(Path(name).suffix, "parquet")
    # If no column can be the key, the directory is.
    path = tmp_path / "files/part=1" / f"t.{ending}"
    path.parent.mkdir(parents=True)
    path.write_bytes(FILES[name])
    # Damaged files may crash pyarrow, which runs in this process, so it reads none of them.
    table = None if reason(name) else read_by_pyarrow(path)
    key = None if table is None else best_key(table)
    options = {
        "duplicates": "last",
        "bad_rows": "skip",
        "store": str(tmp_path / "store"),
    }
    try:
        forebay.push(str(tmp_path / "files"), "t", key=f"{{{key or 'part'}}}", **options)
    except forebay.Error as error:
        expected = reason(name)
        assert expected, f"{error} (pyarrow reads it: {table is not None})"
        assert expected in str(error)
        return
    assert not reason(name)
    if bare(name) in NOT_COMPARED:
        return
    assert table is not None, "pyarrow refuses it"
    with forebay.open(options["store"]) as store:
        got = store["t"].scan().to_arrow()
    assert Counter(rows_of(got, table.schema.names)) == expected_rows(table, key)
