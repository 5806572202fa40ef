"""forebay.ray.load into live tables of a cluster of three nodes."""

import inspect
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from live_cluster import PARTED, ROW, LiveCluster
from object_store import BUCKET, RemoteStore

import forebay
import forebay.ray
import forebay.spark
from examples import run_example


def numbers(ray, first, last, word="name", blocks=4):
    """Returns rows of a number, a text and another number."""

    def columns(batch):
        n = batch["id"] + first
        return {"id": n, "name": [f"{word} {i}" for i in n], "half": n / 4}

    return ray.data.range(last - first, override_num_blocks=blocks).map_batches(columns)


def wanted(first, last, word="name"):
    return {
        f"k{id:06}": {"id": id, "name": f"{word} {id}", "half": id / 4} for id in range(first, last)
    }


def load(cluster, dataset, table, key="k{id:06}", **options):
    result = forebay.ray.load(dataset, table, key=key, store=cluster.path, **options)
    assert cluster.staged(table) == []
    return result


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_a_dataset_is_loaded_whole_into_an_empty_and_a_filled_table(ray, live_cluster, order):
    table = live_cluster.create(f"whole_{order}", *ROW, *PARTED[order])
    dataset = numbers(ray, 0, 20_000)
    result = load(live_cluster, dataset, table)
    assert (result.rows, result.applied.updates, result.rejected) == (20_000, 20_000, 0)
    held = wanted(0, 20_000)
    assert live_cluster.all_of(table) == held
    # The same load again changes nothing.
    assert load(live_cluster, dataset, table).rows == 20_000
    assert live_cluster.all_of(table) == held
    load(live_cluster, numbers(ray, 15_000, 25_000, "new"), table)
    assert live_cluster.all_of(table) == held | wanted(15_000, 25_000, "new")


def test_rows_of_one_key_are_composed_in_the_order_of_the_dataset(ray, live_cluster):
    table = live_cluster.create("operations", "--delta", "append", *PARTED["hashed"])
    verbs, held, rows = ["update", "insert", "delta", "delete"], {}, []
    for row in range(4000):
        key, value, op = f"k{row * 7919 % 50}", f"{row} ".encode(), verbs[row * row % 101 % 4]
        rows.append({"k": key, "v": value.decode(), "op": op})
        if op == "update" or op == "insert" and key not in held:
            held[key] = value
        elif op == "delta":
            held[key] = held.get(key, b"") + value
        elif op == "delete":
            held.pop(key, None)
    dataset = ray.data.from_items(rows, override_num_blocks=4)
    result = load(live_cluster, dataset, table, key="{k}", op="op")
    assert (result.rows, result.duplicates) == (50, 3950)
    assert live_cluster.all_of(table) == held


def test_deltas_are_added_once_though_a_worker_dies(ray, live_cluster, tmp_path, monkeypatch):
    """The task of one block kills its worker in its first run."""
    table, note = (
        live_cluster.create("died", "--delta", "i64", *PARTED["hashed"]),
        tmp_path / "note",
    )
    real = forebay.ray._encode

    def dying(source, block, partitions):
        if source.number == 2 and not note.exists():
            note.touch()
            os._exit(1)
        return real(source, block, partitions)

    monkeypatch.setattr(forebay.ray, "_encode", dying)
    dataset = ray.data.range(40_000, override_num_blocks=4)
    ones = dataset.map_batches(lambda batch: {"id": batch["id"] % 100, "n": batch["id"] * 0 + 1})
    for round in (1, 2):
        result = load(live_cluster, ones, table, key="k{id:02}", as_="delta")
        assert (result.rows, result.applied.deltas, result.duplicates) == (100, 100, 39_900)
        assert live_cluster.all_of(table) == {f"k{id:02}": 400 * round for id in range(100)}
    assert note.exists()


def test_partitions_are_split_by_a_sample_before_the_load(ray, live_cluster):
    table = live_cluster.create("planned", *ROW, "--order", "ordered", replicas=1)
    dataset = numbers(ray, 0, 30_000)
    assert load(live_cluster, dataset, table, plan="always", partition_bytes="200K").rows == 30_000
    assert live_cluster.all_of(table) == wanted(0, 30_000)
    assert live_cluster.ask_coordinator()["live"]["tables"][table]["partitions"] > 1


def test_partitions_are_split_by_a_plan_in_a_file(ray, live_cluster, tmp_path):
    table = live_cluster.create("filed", *ROW, "--order", "ordered", replicas=1)
    source, plan = tmp_path / "rows.parquet", tmp_path / "plan.json"
    pq.write_table(pa.Table.from_pylist(list(wanted(0, 30_000).values())), source)
    words = ["--key", "k{id:06}", "--partition-bytes", "200K", "--output", plan]
    live_cluster.store.run("plan", "insert", table, source, *words)
    assert load(live_cluster, numbers(ray, 0, 30_000), table, plan=plan).rows == 30_000
    assert live_cluster.all_of(table) == wanted(0, 30_000)
    assert live_cluster.ask_coordinator()["live"]["tables"][table]["partitions"] > 1
    with pytest.raises(forebay.UsageError, match="into filed, not into"):
        load(live_cluster, numbers(ray, 0, 10), "planned", plan=plan)


def test_a_partition_that_is_split_meanwhile_refuses_the_load(ray, live_cluster, monkeypatch):
    table = live_cluster.create("cut", *ROW, *PARTED["ordered"])
    real = forebay.ray._Job.reports

    def split_then(*words):
        reports = real(*words)
        live_cluster.split(table, "k002000")
        return reports

    monkeypatch.setattr(forebay.ray._Job, "reports", split_then)
    with pytest.raises(forebay.Error, match="was split while the load was built: load again"):
        load(live_cluster, numbers(ray, 0, 3000), table)
    assert live_cluster.staged(table) == [] and live_cluster.all_of(table) == {}


def test_wrong_options_and_rows_are_reported(ray, live_cluster, path):
    table = live_cluster.create("wrong", *ROW, *PARTED["hashed"])
    dataset = numbers(ray, 0, 10)

    def wrong(match, error=forebay.UsageError, dataset=dataset, table=table, **options):
        given = {"key": "k{id:06}", "store": live_cluster.path, **options}
        with pytest.raises(error, match=match):
            forebay.ray.load(dataset, table, **given)
        assert live_cluster.staged("wrong") == []

    wrong("not a live table of a cluster at .*: tasks build versions", table="none")
    wrong("t is not a live table of a cluster", table="t", store=path)
    wrong("invalid value 'sideways' for as_", as_="sideways")
    wrong("unexpected keyword argument 'partitions'", TypeError, partitions=3)
    wrong("is no dataset of Ray", TypeError, dataset=pa.table({"id": [1]}))
    bad = ray.data.from_arrow(pa.table({"id": [1, None], "name": ["a", "b"], "half": [0.25, 0.5]}))
    wrong("null", forebay.DataError, dataset=bad)
    assert live_cluster.all_of(table) == {}
    result = load(live_cluster, bad, table, bad_rows="skip")
    assert (result.rows, result.rejected) == (1, 1)


def test_options_equal_those_of_loads_from_spark():
    ours = inspect.signature(forebay.ray.load).parameters
    theirs = inspect.signature(forebay.spark.load).parameters
    assert ours.keys() - {"dataset"} == theirs.keys() - {"df"}


def test_a_cluster_over_object_storage(ray, s3_server, tmp_path, monkeypatch):
    """A task dies after the upload of its run. The second run counts, and both are removed."""
    note, real = tmp_path / "note", forebay.ray._write

    def dying(recipe, pieces):
        reports = real(recipe, pieces)
        if not note.exists():
            note.touch()
            os._exit(1)
        return reports

    monkeypatch.setattr(forebay.ray, "_write", dying)
    cluster = LiveCluster(tmp_path, RemoteStore(s3_server, tmp_path / "remote", "ray-load"))
    try:
        cluster.start()
        table = cluster.create("t", *ROW, *PARTED["hashed"])
        for first, word in ((0, "name"), (2000, "new")):
            dataset = numbers(ray, first, 6000, word)
            load(cluster, dataset, table, work_dir=tmp_path / "driver")
        assert note.exists()
        assert cluster.all_of(table) == wanted(0, 2000) | wanted(2000, 6000, "new")
        uploads = s3_server.client().list_multipart_uploads(Bucket=BUCKET, Prefix="ray-load")
        assert uploads.get("Uploads", []) == []
    finally:
        cluster.end()
    cluster.check_logs()


def test_the_example_of_the_docstring_holds(ray, live_cluster):
    live_cluster.create("clicks", "--delta", "i64", *PARTED["hashed"])
    run_example(
        forebay.ray.load.__doc__,
        "load",
        {"forebay": forebay, "ray": ray, "store": live_cluster.path},
    )
