"""forebay.ray.push in a cluster on this machine: versions that it makes, and refusals."""

import importlib
import inspect
import os
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pyarrow as pa
import pytest
from object_store import RemoteStore
from ray_harness import QUIET
from spark_harness import counted, manifest, runs, skew

import forebay
import forebay.ray
from examples import run_example

ROOT = Path(__file__).resolve().parents[2]


def numbers(ray, rows, blocks=4):
    """Returns rows of a scattered key, a text and a number."""

    def columns(batch):
        n = batch["id"]
        return {"id": n * 7919 % 1_000_003, "name": [f"name {i}" for i in n], "half": n / 4}

    return ray.data.range(rows, override_num_blocks=blocks).map_batches(columns)


def rows_of(rows):
    """Returns the same rows without Ray."""
    n = range(rows)
    ids = [i * 7919 % 1_000_003 for i in n]
    return pa.table({"id": ids, "name": [f"name {i}" for i in n], "half": [i / 4 for i in n]})


def test_a_push_makes_the_runs_of_a_local_push(ray, path, tmp_path):
    """The same rows with the same boundaries make the same runs, byte for byte."""
    dataset, local, updates = numbers(ray, 20_000), str(tmp_path / "local"), []
    for order, boundaries in [("ordered", ["3", "55", "8"]), ("hashed", [4096, 8192, 10_000])]:
        given = {"order": order, "key": "{id}", "compression": "zstd", "boundaries": boundaries}
        made = forebay.ray.push(dataset, order, store=path, progress=updates.append, **given)
        assert (made.version, made.rows, made.swapped) == (1, 20_000, True)
        other = forebay.push(rows_of(20_000), order, store=local, **given)
        assert (made.rows, made.bytes) == (other.rows, other.bytes)
        assert runs(path, order) == runs(local, order) and len(runs(path, order)) == 4
        assert counted(path, order) == counted(local, order)
    stages = {progress.stage: progress for progress in updates}
    for name in ("encoding", "building"):
        assert (stages[name].done, stages[name].total, stages[name].unit) == (
            20_000,
            20_000,
            "rows",
        )


def test_types_that_are_not_stored_are_named(ray, path):
    colours = pa.table({"id": [1, 2], "colour": pa.array(["red", "blue"]).dictionary_encode()})
    dataset = ray.data.from_arrow(colours)
    made = forebay.ray.push(dataset, "t", key="{id}", partitions=1, store=path)
    assert [message for message in made.messages if "not stored" in message] == [
        "categories are not stored; these columns come back as their values: colour"
    ]


@pytest.mark.parametrize("sampler", ["interval", "random", "split"])
def test_samples_split_an_ordered_table(ray, path, sampler):
    """Nine of ten keys have the same prefix."""

    def keys(batch):
        return {"key": [f"a/{i:08}" if i % 10 else f"{i * 7919 % 10_007:05}" for i in batch["id"]]}

    dataset = ray.data.range(30_000, override_num_blocks=5).random_shuffle(seed=3).map_batches(keys)
    given = {"key": "{key}", "order": "ordered", "sampler": sampler, "store": path}
    assert forebay.ray.push(dataset, "t", partitions=8, seed=7, **given).rows == 30_000
    found, partitions = skew(path)
    assert found < 1.2 and partitions == 8
    assert forebay.ray.push(dataset, "t", **given).rows == 30_000
    assert len(manifest(path, version=2)["partitions"]) == 1


def test_duplicates(ray, path):
    """The first of two rows is the same as in a local push in the same order."""

    def slow_at_first(batch):
        time.sleep(0.5 if batch["id"][0] == 0 else 0)
        return {"id": batch["id"] % 2000, "n": batch["id"]}

    dataset = ray.data.range(6000, override_num_blocks=3).map_batches(slow_at_first)
    given = {"key": "{id}", "value": "n", "store": path, "partitions": 2}
    with pytest.raises(forebay.DataError, match=r"^key \d+ occurs more than once") as raised:
        forebay.ray.push(dataset, "t", **given)
    assert isinstance(raised.value.__cause__, ray.exceptions.RayTaskError)
    for choice, which in [("first", 0), ("last", 4000)]:
        result = forebay.ray.push(dataset, choice, duplicates=choice, **given)
        assert (result.rows, result.duplicates) == (2000, 4000)
        with forebay.open(path) as store:
            values = store[choice].get_many(range(2000))
        assert values == [str(which + id).encode() for id in range(2000)]
    assert not dataset.context.execution_options.preserve_order


def test_bad_rows_and_blocks_of_other_kinds(ray, path):
    table = pa.table({"id": [1, None, 3], "s": ["a", "b", "c"]})
    dataset = ray.data.from_arrow(table)
    with pytest.raises(forebay.DataError, match="row 2.*'id' is null"):
        forebay.ray.push(dataset, "t", key="{id}", partitions=2, store=path)
    with forebay.open(path) as store:
        assert store.tables() == []
    result = forebay.ray.push(dataset, "t", key="{id}", bad_rows="skip", store=path)
    assert (result.rows, result.rejected) == (2, 1)
    frames = ray.data.from_pandas(table.slice(2).to_pandas())
    assert forebay.ray.push(frames, "frames", key="{s}", partitions=2, store=path).rows == 1
    empty = ray.data.from_arrow(table.slice(0, 0))
    assert forebay.ray.push(empty, "empty", key="{s}", order="ordered", store=path).rows == 0
    few = numbers(ray, 1000, blocks=6).limit(317)
    assert forebay.ray.push(few, "few", key="{id}", partitions=3, store=path).rows == 317
    with forebay.open(path) as store:
        assert store["frames"]["c"]["s"] == "c" and store["few"].verify().rows == 317


def without_nulls(row):
    """Returns the row without its nulls, at any depth."""
    return {
        name: without_nulls(value) if isinstance(value, dict) else value
        for name, value in row.items()
        if value is not None
    }


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "a": 2**53 + 1, "b": 2}, {"id": 2, "a": 0.5, "b": 3}],
        [{"id": 1, "a": 1, "b": 2}, {"id": 2, "b": 3, "a": 4}],
        [{"id": 1, "a": {"x": 1, "y": 2}}, {"id": 2, "a": {"y": 3, "x": 4}}],
        [{"id": 1, "a": 1}, {"id": 2, "b": 2}],
        [{"id": 1, "a": 1}, {"id": 2, "a": 3, "b": 2}],
        [{"id": 1, "a": {"x": 1}}, {"id": 2, "a": {"x": 3, "b": 2}}],
    ],
)
def test_blocks_of_other_types_and_orders_lose_nothing(ray, path, rows):
    dataset = ray.data.from_arrow([pa.Table.from_pylist([row]) for row in rows])
    try:
        forebay.ray.push(dataset, "t", key="{id}", store=path)
    except forebay.DataError as error:
        assert re.search(r"\b[ab]\b", str(error)), error
        return
    with forebay.open(path) as store:
        assert [without_nulls(row) for row in store["t"].get_many([1, 2])] == rows


def test_a_value_that_the_type_of_all_blocks_does_not_hold_is_a_bad_row(ray, path):
    large = 2**53 + 1
    blocks = [pa.table({"id": [1], "a": [large]}), pa.table({"a": [0.5], "id": [2]})]
    dataset = ray.data.from_arrow(blocks)
    given = {"key": "{id}", "store": path}
    with pytest.raises(forebay.DataError, match=f"part 0: row 1: .*'a'.*{large}"):
        forebay.ray.push(dataset, "t", **given)
    skipped = forebay.ray.push(dataset, "t", bad_rows="skip", **given)
    assert (skipped.rows, skipped.rejected, skipped.lossy) == (1, 1, ())
    rounded = forebay.ray.push(dataset, "t", column={"a": "float64:round"}, force=True, **given)
    assert [(lossy.column, lossy.how, lossy.values) for lossy in rounded.lossy] == [
        ("a", "round", 1)
    ]
    assert "1 value rounded" in str(rounded)
    # The serving version also gives the types.
    with pytest.raises(forebay.DataError, match="part 1: row 1: .*'a'.*0.5"):
        forebay.ray.push(dataset, "t", column={"a": "int64"}, **given)
    with pytest.raises(forebay.DataError, match=f"part 0: row 1: .*'a'.*{large}"):
        forebay.ray.push(dataset, "t", columns_from="t", **given)


def test_wrong_options_are_reported_before_anything_runs(ray, path):
    def never(batch):
        raise AssertionError("the dataset was computed")

    dataset = ray.data.from_arrow(pa.table({"id": [1]})).filter(never)

    def wrong(match, error=forebay.UsageError, **options):
        with pytest.raises(error, match=match):
            forebay.ray.push(dataset, "t", store=path, **{"key": "{id}", **options})

    wrong("invalid value 'sideways' for order", order="sideways")
    wrong("names the column 'nr', which the source does not have", forebay.DataError, key="{nr}")
    wrong("has to be one of interval, random, split", sampler="all")
    with pytest.raises(TypeError, match="no dataset of Ray; forebay.push and"):
        forebay.ray.push(pa.table({"id": [1]}), "t", key="{id}", store=path)  # pyright: ignore


def test_options_equal_those_of_a_push_from_spark():
    ours = inspect.signature(forebay.ray.push).parameters
    theirs = inspect.signature(importlib.import_module("forebay.spark").push).parameters
    assert ours.keys() - {"dataset"} == theirs.keys() - {"df"}


def test_an_error_of_the_source_and_of_progress_end_the_push(ray, path):
    def fail(batch):
        if len(batch["id"]) > 1:
            raise RuntimeError("the database hung up")
        return batch

    def refuse(progress):
        raise ZeroDivisionError("no more")

    dataset = ray.data.range(10, override_num_blocks=1).map_batches(fail)
    given = {"key": "{id}", "partitions": 2, "store": path}
    with pytest.raises(forebay.Error, match="^Ray has given the push up: RuntimeError: the data"):
        forebay.ray.push(dataset, "t", **given)
    with pytest.raises(ZeroDivisionError, match="no more"):
        forebay.ray.push(numbers(ray, 10), "t", progress=refuse, **given)
    with forebay.open(path) as store:
        assert store.tables() == []
    assert forebay.ray.push(numbers(ray, 10), "t", **given).version == 1


@pytest.mark.parametrize("stage", ["_encode", "_write"])
def test_a_task_whose_worker_dies_is_repeated(ray, path, tmp_path, monkeypatch, stage):
    """The worker is killed once, before it returns its result."""
    real, mark = getattr(forebay.ray, stage), str(tmp_path / "killed")

    def dies_once(*arguments):
        made = real(*arguments)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return made
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(forebay.ray, stage, dies_once)
    given = {"key": "{id}", "partitions": 3}
    assert forebay.ray.push(numbers(ray, 5000), "t", store=path, **given).rows == 5000
    assert os.path.exists(mark)
    # Files of the killed task are removed, and the version is the same as without the fault.
    forebay.push(rows_of(5000), "t", store=tmp_path / "local", **given)
    assert manifest(path)["totals"] == manifest(tmp_path / "local")["totals"]
    assert runs(path) == runs(tmp_path / "local") and len(runs(path)) == 3


def test_lost_reports_and_records_are_detected(ray, path, monkeypatch):
    """A report is lost, then a record between encoding and building."""
    given = {"key": "{id}", "partitions": 3, "store": path}
    real = forebay.ray._Job.reports
    monkeypatch.setattr(forebay.ray._Job, "reports", lambda *words: real(*words)[1:])
    with pytest.raises(forebay.Error, match="has 0 reports instead of one.*nothing of it is"):
        forebay.ray.push(numbers(ray, 1000), "t", **given)
    monkeypatch.undo()
    whole = forebay.ray._encode

    def lossy(*arguments):
        counted, first, *others = whole(*arguments)
        return [counted, first.slice(1), *others]

    monkeypatch.setattr(forebay.ray, "_encode", lossy)
    with pytest.raises(forebay.Error, match="partition 0: .* were sent to it, and .* came"):
        forebay.ray.push(numbers(ray, 1000, blocks=1), "t", **given)
    monkeypatch.undo()
    with forebay.open(path) as store:
        assert store.tables() == []
    assert forebay.ray.push(numbers(ray, 1000), "t", **given).rows == 1000
    assert len(runs(path)) == 3, "runs of the pushes that were refused were left"


def test_a_push_into_object_storage(ray, s3_server, tmp_path):
    remote = RemoteStore(s3_server, tmp_path / "remote", "ray-push")
    url = remote.environment()["FOREBAY_STORE"]
    given = {"key": "{id}", "partitions": 3, "work_dir": tmp_path / "work"}
    assert forebay.ray.push(numbers(ray, 5000), "t", store=url, **given).swapped
    assert len(remote.keys("tables/t/runs/")) == 3
    with pytest.raises(forebay.DataError, match="which the source does not have"):
        forebay.ray.push(numbers(ray, 10), "t", store=url, **{**given, "key": "{nr}"})
    assert forebay.ray.push(numbers(ray, 4500), "t", store=url, **given).version == 2


INTERRUPTED = """
    import sys, time
    sys.path[:0] = {paths!r}
    from ray_harness import start
    import forebay.ray, ray.data

    def encode(*arguments):
        time.sleep(100)

    forebay.ray._encode = encode
    start(ray, {directory!r})
    dataset = ray.data.range(10)
    report = lambda progress: print(progress.stage, flush=True)
    forebay.ray.push(dataset, "t", key="{{id}}", partitions=2, store={path!r}, progress=report)
"""


def test_a_push_that_is_interrupted_leaves_nothing(path, birds, tmp_path):
    forebay.push(birds, "t", key="{id}", value="name", store=path)
    with tempfile.TemporaryDirectory(prefix="ray") as directory:
        words = INTERRUPTED.format(path=path, paths=sys.path, directory=directory)
        log = tmp_path / "errors"
        # A pipe that is not read until the end could fill up and stop the process.
        with log.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-c", textwrap.dedent(words)],
                env={**os.environ, **QUIET},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        try:
            begun = process.stdout.readline()
            assert begun == "encoding\n", log.read_text()
            with pytest.raises(forebay.BusyError):
                forebay.push(birds, "t", key="{id}", store=path)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=90)
        finally:
            process.kill()
            process.wait()
    assert log.read_text().rstrip().endswith("KeyboardInterrupt")
    assert forebay.push(birds, "t", key="{id}", value="name", store=path).version == 2


def test_the_example_holds(ray, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "docs/how-to/push-from-ray.md"
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    exec(compile(code, page, "exec"), {"__name__": "__main__"})
    with forebay.open("store") as store:
        assert store.tables()


def test_the_example_of_the_docstring_holds(ray, path):
    run_example(forebay.ray.push.__doc__, "push", {"forebay": forebay, "ray": ray, "store": path})
