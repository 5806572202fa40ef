"""The binary's paths from a source to stored rows, for trials."""

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from oracle.trial import fail_on, reasons


def write(table, path):
    """Writes a table in the format of its path, in one batch, so that rows are counted from 1."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, store_schema=True)
    elif path.suffix == ".arrow":
        with pyarrow.ipc.new_file(path, table.schema) as out:
            out.write_table(table.combine_chunks())
    elif path.suffix == ".arrows":
        with pyarrow.ipc.new_stream(path, table.schema) as out:
            out.write_table(table.combine_chunks())
    else:
        raise ValueError(path)
    return path


def parquet_has(t):
    """Whether a Parquet file returns the type that pyarrow wrote, with values."""
    if pa.types.is_nested(t) and "_view" in str(t):
        # The writer fails if it has to slice views.
        return False
    try:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"a": pa.nulls(1, t)}), sink)
        return pq.read_table(pa.BufferReader(sink.getvalue()))["a"].type == t
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError):
        return False


def stored(store, table, tmp_path):
    """The rows of a table, in the order of their ids."""
    path = tmp_path / f"{table}-stored.arrow"
    store.run("export", table, "--to", path)
    with pyarrow.ipc.open_file(path) as file:
        return file.read_all().sort_by("id")


def check(trials, store, table, tmp_path, rejected, digits=True):
    """Compares the stored rows with the trials, by the names of their files."""
    found, held = reasons(rejected), stored(store, table, tmp_path)
    problems = [trial.problems(held, found.get(file, {}), digits) for file, trial in trials.items()]
    fail_on([problem for each in problems for problem in each])


def push(store, table, tmp_path, *paths, args=()):
    """Pushes with bad rows to a file. Returns the output of --json and that file."""
    rejected = tmp_path / f"{table}-rejected.jsonl"
    return store.push(table, *paths, args=["--bad-rows", rejected, *args]), rejected
