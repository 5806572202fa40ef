import sys
from pathlib import Path

import pyarrow as pa
import pytest

import forebay

# This folder has the helpers that run servers for the tests of the command line.
sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The path of a store; the first push creates it."""
    return str(tmp_path / "store")


@pytest.fixture
def store(path: str):
    with forebay.open(path, create=True) as opened:
        yield opened


@pytest.fixture(scope="session")
def birds() -> pa.Table:
    """A thousand rows, with nulls and a dictionary."""
    ids = list(range(1000))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"bird {id}" for id in ids],
            "weight": [None if id % 10 == 0 else id / 4 for id in ids],
            "colour": pa.array([["red", "blue"][id % 2] for id in ids]).dictionary_encode(),
        }
    )


@pytest.fixture(scope="session")
def sparks(tmp_path_factory):
    """Sessions of Spark: `sparks.get("local")`. Tests of one kind are adjacent."""
    from spark_harness import Sparks

    found = Sparks(tmp_path_factory.mktemp("spark"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def live_cluster(tmp_path_factory):
    """Three nodes over a store in a directory."""
    from live_cluster import LiveCluster

    made = LiveCluster(tmp_path_factory.mktemp("live_cluster"))
    try:
        yield made.start()
    finally:
        made.end()
    made.check_logs()


@pytest.fixture(scope="module")
def ray(s3_server, tmp_path_factory):
    """A node with two workers. Their environment names the S3 server."""
    from ray_harness import running

    with running(s3_server, tmp_path_factory.mktemp("work")) as ray:
        yield ray


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    from object_store import S3Server

    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.kill()


@pytest.fixture
def s3_environment(s3_server, monkeypatch, tmp_path):
    """Sets the S3 server and its credentials in the environment."""
    from object_store import RemoteStore

    remote = RemoteStore(s3_server, tmp_path / "driver", tmp_path.name)
    for name, word in remote.environment().items():
        if name.startswith("AWS_") or name == "FOREBAY_WORK_DIR":
            monkeypatch.setenv(name, word)
