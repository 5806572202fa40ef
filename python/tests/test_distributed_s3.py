"""Pushes by tasks into a real S3 server, with tasks that fail and die."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from object_store import BUCKET, KEY, SECRET, Proxy, RemoteStore
from test_distributed import Engine, files

import forebay
from forebay._forebay import PartWriter

# A task in a process of its own. It gets a recipe and its records.
TASK = """
import sys, pyarrow as pa
from forebay._forebay import PartWriter
recipe, records, scratch = sys.argv[1:]
writer = PartWriter(open(recipe, "rb").read(), scratch)
for batch in pa.ipc.open_file(records).read_all().to_batches():
    writer.add(batch)
print("\\0".join(writer.finish()), end="")
"""


# A driver in a process of its own. It builds a version and waits for input before the commit.
DRIVER = """
import sys, pyarrow as pa
sys.path[:0] = sys.argv[2:]
from test_distributed import Engine
import forebay
rows = pa.table({"id": pa.array(range(50), pa.int64())})
engine = Engine(sys.argv[1], rows, ["--partitions=2"])
reports = engine.reports()
print("built", flush=True)
sys.stdin.readline()
try:
    engine.push.commit(reports)
except forebay.Error as error:
    print(error)
"""


def drive(url, tmp_path):
    """Starts a driver, as if on another machine, and waits until it has built the version."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, url, *sys.path],
        env={**os.environ, "FOREBAY_WORK_DIR": str(tmp_path / "other")},
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdout.readline() == "built\n"
    return driver


@pytest.fixture
def proxy(s3_server):
    proxy = Proxy(s3_server)
    yield proxy
    proxy.stop()


@pytest.fixture
def remote(s3_server, s3_environment, tmp_path, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return RemoteStore(s3_server, tmp_path / "machine", name)


@pytest.fixture
def wide():
    """Incompressible rows of 10 kB, 30 MB in all, so that each run is uploaded in parts."""
    ids = list(range(3000))
    return pa.table({"id": pa.array(ids, pa.int64()), "data": [os.urandom(10_000) for _ in ids]})


def url(remote):
    return f"s3://{BUCKET}/{remote.prefix}"


def engine(remote, rows, words, tmp_path):
    made = Engine(url(remote), rows, words)
    made.scratch = tmp_path / "scratch"
    made.scratch.mkdir(exist_ok=True)
    return made


def start(engine, records, folder, endpoint=None):
    """Starts a task, as if on another machine."""
    folder.mkdir()
    (folder / "recipe").write_bytes(engine.push.recipe())
    with pa.ipc.new_file(folder / "records", records.schema) as file:
        file.write_table(records)
    environment = dict(os.environ)
    if endpoint is not None:
        environment["AWS_ENDPOINT_URL"] = endpoint
    words = [sys.executable, "-c", TASK, *(str(folder / name) for name in ("recipe", "records"))]
    return subprocess.Popen(
        [*words, str(folder / "scratch")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def reports(task):
    out, error = task.communicate(timeout=120)
    assert task.returncode == 0, error
    return out.split("\0")


def test_runs_go_straight_into_the_bucket(birds, remote, tmp_path):
    words = ["--order=ordered", '--boundaries=["bird/0100", "bird/0640"]', "--compression=lz4"]
    distributed = engine(remote, birds, words, tmp_path)
    parts = distributed.shuffled(distributed.encode())
    tasks = [start(distributed, part, tmp_path / f"{at}") for at, part in enumerate(parts)]
    found = [report for task in tasks for report in reports(task)]
    # Tasks leave no files on their machines.
    assert all(os.listdir(tmp_path / f"{at}" / "scratch") == [] for at in range(3))
    held, text, _ = distributed.push.commit(found)
    assert (held, json.loads(text)["rows"]) == (False, 1000)
    other = str(tmp_path / "other")
    boundaries = ["bird/0100", "bird/0640"]
    options = {"key": "bird/{id:04}", "order": "ordered", "compression": "lz4"}
    forebay.push(birds, "birds", store=other, boundaries=boundaries, **options)
    runs = [name for name in remote.keys("tables/birds/runs") if name.endswith(".run")]
    assert sorted(map(remote.read, runs)) == sorted(files(other))
    with forebay.open(url(remote)) as store:
        assert store["birds"]["bird/0007"]["name"] == "bird 7"


def test_files_of_dead_tasks_are_removed(wide, remote, proxy, tmp_path):
    distributed = engine(remote, wide, ["--partitions=2"], tmp_path)
    first, second = distributed.shuffled(distributed.encode())
    stuck, go = threading.Event(), threading.Event()

    def hold(exchange):
        if exchange.part and exchange.part[1] == 2:
            stuck.set()
            go.wait(90)

    proxy.before = hold
    dies = start(distributed, first, tmp_path / "dies", proxy.url)
    assert stuck.wait(90)
    dies.kill()
    go.set()
    dies.communicate()
    assert remote.keys("tables/birds/uploads") and not remote.keys("tables/birds/runs")
    # A second task ends and is not reported; a third one is.
    lost = reports(start(distributed, first, tmp_path / "lost"))
    counts = reports(start(distributed, first, tmp_path / "counts"))
    assert len(remote.keys("tables/birds/runs")) == 2 and lost != counts
    held, text, _ = distributed.push.commit(counts + distributed.write(second))
    assert (held, json.loads(text)["rows"]) == (False, 3000)
    assert len(remote.keys("tables/birds/runs")) == 2
    assert not remote.keys("tables/birds/uploads") and not remote.unfinished_uploads()
    with forebay.open(url(remote)) as store:
        assert store["birds"]["bird/0999"]["data"] == wide["data"][999].as_py()


def test_a_failed_task_removes_its_files(wide, remote, proxy, tmp_path, monkeypatch):
    distributed = engine(remote, wide, ["--partitions=2"], tmp_path)
    first, _ = distributed.shuffled(distributed.encode())

    def refuse(exchange):
        return 403 if exchange.part and exchange.part[1] == 2 else None

    proxy.before = refuse
    failed = start(distributed, first, tmp_path / "fails", proxy.url)
    _, error = failed.communicate(timeout=120)
    assert failed.returncode != 0 and "cannot sync" in error
    assert os.listdir(tmp_path / "fails" / "scratch") == []
    assert not remote.keys("tables/birds/uploads") and not remote.unfinished_uploads()
    assert not remote.keys("tables/birds/runs")
    distributed.write(first)
    assert len(remote.keys("tables/birds/runs")) == 1
    distributed.push.abandon()
    assert not remote.keys("tables/birds/runs") and not remote.keys("tables/birds/versions")
    assert forebay.push(wide, "birds", key="bird/{id:04}", store=url(remote)).version == 1


def test_requests_to_a_store_that_answers_5xx_are_repeated(
    birds, remote, proxy, tmp_path, monkeypatch
):
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    refused = set()

    def before(exchange):
        once = (exchange.method, exchange.path)
        if once in refused or len(refused) > 12:
            return None
        refused.add(once)
        return 503

    distributed = engine(remote, birds, ["--partitions=2"], tmp_path)
    proxy.before = before
    assert distributed.run()["rows"] == 1000
    assert len(refused) > 5


def test_a_second_push_and_a_missing_run_are_refused(birds, remote, tmp_path):
    distributed = engine(remote, birds, ["--partitions=2"], tmp_path)
    os.environ["FOREBAY_WORK_DIR"] = str(tmp_path / "elsewhere")
    with pytest.raises(forebay.BusyError):
        engine(remote, birds, ["--partitions=2"], tmp_path)
    found = distributed.reports()
    (lost, _) = remote.keys("tables/birds/runs")
    remote.server.client().delete_object(Bucket=BUCKET, Key=f"{remote.prefix}/{lost}")
    with pytest.raises(forebay.Error, match=Path(lost).name):
        distributed.push.commit(found)
    assert not remote.keys("tables/birds/versions") and not remote.keys("tables/birds/runs")


def test_the_next_push_succeeds_after_a_driver_died(birds, remote, tmp_path):
    driver = drive(url(remote), tmp_path)
    assert len(remote.keys("tables/birds/runs")) == 2
    with pytest.raises(forebay.BusyError):
        forebay.push(birds, "birds", key="bird/{id:04}", store=url(remote))
    driver.kill()
    driver.communicate()
    # A push with the same work directory starts at once; others wait until the lease expires.
    other = tmp_path / "other"
    result = forebay.push(birds, "birds", key="bird/{id:04}", store=url(remote), work_dir=other)
    assert (result.version, result.rows) == (1, 1000)
    assert len(remote.keys("tables/birds/runs")) == 1


def test_a_delayed_driver_loses_to_a_push_that_ran_meanwhile(birds, remote, tmp_path):
    driver = drive(url(remote), tmp_path)
    driver.send_signal(signal.SIGSTOP)
    result = forebay.push(birds, "birds", key="bird/{id:04}", store=url(remote))
    assert result.version == 1
    driver.send_signal(signal.SIGCONT)
    output, _ = driver.communicate("continue\n", timeout=60)
    assert "taken over by another process" in output and "run the command again" in output
    with forebay.open(url(remote)) as store:
        assert store["birds"].version == 1 and len(store["birds"].get_many(["bird/0999"])) == 1
        assert store["birds"]["bird/0999"]["name"] == "bird 999"


def test_missing_credentials_of_a_task_are_reported(birds, remote, tmp_path, monkeypatch):
    distributed = engine(remote, birds, ["--partitions=2"], tmp_path)
    recipe = distributed.push.recipe()
    for secret in (KEY, SECRET):
        assert secret not in recipe.decode().split('"')
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(forebay.Error, match=r"forebay\.json"):
        PartWriter(recipe, str(tmp_path / "scratch"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    distributed.push.abandon()
