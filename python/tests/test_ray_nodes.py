"""forebay.ray.push in a cluster that loses some of its nodes."""

import importlib
import os
import tempfile
import time

import pyarrow as pa
import pytest
from ray_harness import QUIET, START
from spark_harness import runs

import forebay
import forebay.ray
from forebay import _ray_nodes

ROWS, BLOCKS = 40_000, 8
# A node counts as dead after two seconds without a sign.
WATCH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 2,
}
NODE = {"num_cpus": 1, "object_store_memory": 128 << 20}


class Nodes:
    """A node without processors for the driver, and two working nodes."""

    def __init__(self, ray, cluster, directory):
        self.ray, self.cluster, self.directory = ray, cluster, directory
        self.working = [cluster.add_node(**NODE) for _ in range(2)]

    def lose(self, several=1):
        for _ in range(several):
            self.cluster.remove_node(self.working.pop(), allow_graceful=False)

    def fill(self):
        while len(self.working) < 2:
            self.working.append(self.cluster.add_node(**NODE))


@pytest.fixture(scope="module")
def cluster():
    with (
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray") as directory,
    ):
        for name, word in {**QUIET, "RAY_TMPDIR": directory}.items():
            patch.setenv(name, word)
        os.mkdir(os.path.join(directory, "ray"))
        ray = importlib.import_module("ray")
        importlib.import_module("ray.data")
        made = importlib.import_module("ray.cluster_utils").Cluster()
        made.add_node(**{**NODE, "num_cpus": 0}, include_dashboard=False, _system_config=WATCH)
        nodes = Nodes(ray, made, directory)
        ray.init(address=made.address, log_to_driver=START["log_to_driver"])
        yield nodes
        ray.shutdown()
        made.shutdown()


def dataset(ray):
    def columns(batch):
        time.sleep(0.3)
        n = batch["id"].tolist()
        return {"id": [i * 7919 % 1_000_003 for i in n], "name": [f"name {i} " * 30 for i in n]}

    return ray.data.range(ROWS, override_num_blocks=BLOCKS).map_batches(columns, batch_size=None)


def rows():
    """Returns the same rows without Ray."""
    n = range(ROWS)
    return pa.table(
        {"id": [i * 7919 % 1_000_003 for i in n], "name": [f"name {i} " * 30 for i in n]}
    )


@pytest.mark.parametrize("stage", ["sampling", "encoding", "building"])
def test_a_push_continues_without_a_lost_node(cluster, path, tmp_path, monkeypatch, stage):
    """Blocks or records of the node are lost; the version is the same as without the loss."""
    cluster.fill()
    name = {"sampling": "_sample", "encoding": "_encode", "building": "_write"}[stage]
    real, mark, updates = getattr(forebay.ray, name), str(tmp_path / "lost"), []

    def waits(*arguments):
        while not os.path.exists(mark):
            time.sleep(0.05)
        return real(*arguments)

    def lose(progress):
        updates.append((progress.stage, progress.done))
        if progress.stage == stage and not os.path.exists(mark):
            cluster.lose()
            open(mark, "w").close()

    monkeypatch.setattr(forebay.ray, name, waits)
    given = {"key": "{id}", "order": "ordered"}
    if stage == "sampling":
        given["partitions"] = 4
    else:
        given["boundaries"] = ["2", "45", "7"]
    began = time.monotonic()
    pushed = forebay.ray.push(dataset(cluster.ray), "t", store=path, progress=lose, **given)
    assert pushed.rows == ROWS and time.monotonic() - began < 90
    assert updates.count((stage, 0)) == 2, "the lost node had no work"
    if stage != "sampling":
        forebay.push(rows(), "t", store=tmp_path / "local", **given)
        assert runs(path) == runs(tmp_path / "local")
    assert len(runs(path)) == 4


def test_a_push_ends_if_no_node_with_processors_is_left(cluster, path, monkeypatch):
    cluster.fill()
    monkeypatch.setattr(_ray_nodes, "PATIENCE_S", 4.0)

    def lose(progress):
        if progress.stage == "encoding" and cluster.working:
            cluster.lose(2)

    numbers = cluster.ray.data.from_arrow(pa.table({"id": range(1000)}))
    began = time.monotonic()
    with pytest.raises(forebay.Error, match="no node with a processor for tasks"):
        forebay.ray.push(numbers, "t", key="{id}", partitions=2, store=path, progress=lose)
    assert time.monotonic() - began < 60
    with forebay.open(path) as store:
        assert store.tables() == []
