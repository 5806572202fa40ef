"""Shared parts of the tests of examples/: the example, stores, and pushes that hold a table."""

import contextlib
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import forebay

EXAMPLES = Path(__file__).parents[2] / "examples"
# The directory of the command line that was installed with the package.
PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"


def example(folder):
    """The Python file of an example as a module."""
    spec = importlib.util.spec_from_file_location(
        f"{folder}_people", EXAMPLES / folder / "people.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_people(path, count):
    scores = [id % 7 / 7 for id in range(count)]
    pq.write_table(pa.table({"id": range(count), "score": scores}), path)


def run(*words, store=None, **options):
    """Runs a command in an environment as bare as cron's."""
    environment = {"PATH": PATH, "HOME": "/", **options.pop("env", {})}
    if store is not None:
        environment["FOREBAY_STORE"] = str(store)
    options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, **options}
    return subprocess.run([str(word) for word in words], env=environment, timeout=120, **options)


def ask(store, *words, code=0):
    """The answer of a forebay command with --json."""
    done = run("forebay", *words, "--json", store=store)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def serving(store, table="people"):
    """The serving version."""
    return [v["version"] for v in ask(store, "versions", table) if v["serving"]]


class Holder:
    """A push that continues until end(), so that other pushes of the table are refused."""

    def __init__(self, store, table="people"):
        self.batches = queue.Queue()
        schema = pa.schema({"id": pa.int64()})
        batch = pa.record_batch({"id": [1]}, schema)
        begun = threading.Event()

        def rows():
            begun.set()
            yield batch
            yield from iter(self.batches.get, None)

        def push():
            reader = pa.RecordBatchReader.from_batches(schema, rows())
            with contextlib.suppress(forebay.GateHeld):
                forebay.push(reader, table, key="{id}", store=str(store), progress=False)

        self.thread = threading.Thread(target=push)
        self.thread.start()
        assert begun.wait(90)

    def end(self):
        self.batches.put(None)
        self.thread.join(90)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()


@pytest.fixture
def store(tmp_path):
    """A store with a table of a thousand people, whose version 1 serves."""
    write_people(tmp_path / "people.parquet", 1000)
    source, store = tmp_path / "people.parquet", tmp_path / "store"
    forebay.push(str(source), "people", key="{id}", store=str(store), progress=False)
    return store


@pytest.fixture(scope="session")
def no_telemetry():
    os.environ.update(DAGSTER_DISABLE_TELEMETRY="yes", DO_NOT_TRACK="1")
