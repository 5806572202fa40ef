"""The online store for Feast through `forebay serve`: several processes read and write."""

import time

import pandas as pd
import pyarrow as pa
import pytest
from feast.types import Int64
from feast_repo import HOUR, NOW, TYPES, Repo
from harness import Store as Files

import forebay


@pytest.fixture
def served(tmp_path):
    files = Files(tmp_path / "repo" / "store")
    # A server needs a store; the first `feast apply` creates its tables.
    files.path.parent.mkdir(parents=True)
    forebay.open(files.path, create=True).close()
    with files.serve() as server:
        yield f"redis://127.0.0.1:{server.port}"


def row(id, at=NOW, **values) -> pd.DataFrame:
    times = {"event_timestamp": [at], "created": [at]}
    return pd.DataFrame({"id": [id], **times, **{name: [value] for name, value in values.items()}})


def test_reads_through_a_server(tmp_path, served):
    """Versions are pushed to the directory and single rows to the server, which serves both."""
    repo = Repo(tmp_path / "repo", connection=served, refresh_seconds=0)
    repo.write(id=[1, 2, 3], **{k: pa.array(v, kind) for k, (_, kind, v) in TYPES.items()})
    repo.view({name: kind for name, (kind, _, _) in TYPES.items()})
    repo.materialize()
    embedded = Repo(tmp_path / "repo", read_only=True)
    expected = embedded.read([3, 2, 1, 9], *TYPES)
    assert expected["big"] == [-(2**63), 0, 2**53 + 1, None]
    wait(lambda: repo.read([1], "big") == {"big": [2**53 + 1]})
    assert repo.read([3, 2, 1, 9], *TYPES) == expected


def test_writes_through_a_server(tmp_path, served):
    one = Repo(tmp_path / "repo", connection=served, refresh_seconds=0)
    one.write(id=[1, 2], x=[1, 2])
    one.view({"x": Int64})
    one.materialize()
    one.features.write_to_online_store("stats", row(1, NOW + HOUR, x=10))
    one.features.write_to_online_store("stats", row(1, x=11))
    one.features.write_to_online_store("stats", row(2, NOW - HOUR, x=12))
    # Another process has no access to the store.
    other = Repo(tmp_path / "repo", connection=served, store=None)
    wait(lambda: other.read([1, 2], "x") == {"x": [10, 2]})
    one.features.teardown()
    with forebay.open(one.store_path) as store:
        assert list(store) == []


def test_a_table_that_another_process_has_open_is_not_skipped(tmp_path, served):
    own = Repo(tmp_path / "repo")
    own.write(id=[1], x=[1])
    own.view({"x": Int64})
    own.materialize()
    own.features.write_to_online_store("stats", row(1, NOW + HOUR, x=10))
    assert own.read([1], "x") == {"x": [10]}
    other = Repo(tmp_path / "repo", connection=served, refresh_seconds=0)
    with pytest.raises(forebay.BusyError, match="another process has it open"):
        other.read([1], "x")


def test_without_a_store_nothing_is_materialised(tmp_path, served):
    repo = Repo(tmp_path / "repo", connection=served, store=None)
    repo.write(id=[1], x=[1])
    repo.view({"x": Int64})
    with pytest.raises(forebay.UsageError, match="set online_store.store"):
        repo.materialize()
    with pytest.raises(forebay.MissingError, match="forebay create shop.stats.live"):
        repo.features.write_to_online_store("stats", row(1, x=1))
    assert repo.read([1], "x") == {"x": [None]}


def wait(holds) -> None:
    """Waits for a server, which sees changes of its store within a second."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.1)
