"""Loads by tasks without an engine: a killed driver, and the next load after it."""

import signal
import subprocess
import sys
import textwrap

import pyarrow as pa
import pytest

import forebay
from forebay._forebay import DistributedLoad, PartWriter, TaskEncoder

KILLED = """
    import os, signal, sys
    import pyarrow as pa
    from forebay._forebay import DistributedLoad, PartWriter, TaskEncoder

    rows = pa.record_batch({{"id": list(range(1000)), "n": [1] * 1000}})
    words = ["load", "--key={{id}}", "--as=delta", "--store={store}", "--", "{table}"]
    load = DistributedLoad(words, rows.schema, "killed")
    encoder = TaskEncoder(load.recipe(), 0)
    writer = PartWriter(load.recipe(), {scratch!r})
    for batch in encoder.encode(rows) + encoder.finish():
        writer.add(batch.take(pa.array(range(batch.num_rows))))
    assert len(writer.finish()) == load.partitions
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def table(live_cluster, request):
    return live_cluster.create(request.node.name[5:25], "--delta", "i64", "--partitions", "3")


def test_killed_driver(live_cluster, table, tmp_path):
    words = KILLED.format(store=live_cluster.path, table=table, scratch=str(tmp_path))
    command = [sys.executable, "-c", textwrap.dedent(words)]
    for ended in ("load", "drop"):
        killed = subprocess.run(command, stderr=subprocess.PIPE, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(live_cluster.staged(table)) == 3
        if ended == "load":
            rows = pa.table({"id": [7, 8], "n": [1, 1]})
            forebay.load(rows, table, key="{id}", as_="delta", store=live_cluster.path)
            assert live_cluster.all_of(table) == {"7": 1, "8": 1}
        else:
            live_cluster.store.run("drop", table, "--yes")
        assert live_cluster.staged(table) == []


def test_reports_kept(live_cluster, table, tmp_path):
    """The reported one of two runs of a partition counts; altered records are refused."""
    rows = pa.record_batch({"id": list(range(1000)), "n": [1] * 1000})

    def begin():
        words = ["load", "--key={id}", "--as=delta", f"--store={live_cluster.path}", "--", table]
        load = DistributedLoad(words, rows.schema, "twice")
        encoder = TaskEncoder(load.recipe(), 0)
        return load, encoder.encode(rows) + encoder.finish()

    def write(load, batches):
        writer = PartWriter(load.recipe(), str(tmp_path))
        for batch in batches:
            writer.add(batch)
        return writer.finish()

    load, batches = begin()
    first, second = write(load, batches), write(load, batches)
    assert len(live_cluster.staged(table)) == 6
    load.commit([first[0], second[1], first[2]])
    assert live_cluster.staged(table) == []
    wanted = {str(id): 1 for id in range(1000)}
    assert live_cluster.all_of(table) == wanted
    load, batches = begin()
    with pytest.raises(forebay.DataError, match="were sent to it"):
        write(load, [batches[0].slice(1), *batches[1:]])
    reports = write(load, batches)
    with pytest.raises(forebay.DataError, match="it is one of load"):
        load.commit([*reports[:2], first[2]])
    with pytest.raises(forebay.UsageError, match="ended already"):
        load.commit(reports)
    assert live_cluster.staged(table) == [] and live_cluster.all_of(table) == wanted
