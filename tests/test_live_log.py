"""Truncated or removed files of a live table's log."""

import os
import signal

import pytest
import redis

DURABILITIES = ["sync", "20ms"]


def log_files(store):
    directory = store.path / "tables" / "kv" / "log"
    return sorted(directory.iterdir(), key=lambda path: int(path.stem))


def note(store):
    return store.path / "tables" / "kv" / "log.durable"


@pytest.fixture
def killed(store):
    """A live table with 500 synced writes in its log. Its server was killed."""
    store.run("create", "kv")
    server = store.serve()
    client = server.client()
    for number in range(500):
        client.set(f"kv:{number}", "x" * 30)
    server.stop(signal.SIGKILL)
    return store


def check_reported(store, words):
    for command in (["verify", "kv"], ["get", "kv", "7"], ["compact", "kv"]):
        message = store.refuse(*command)
        assert "has lost its end" in message and words in message, message
        assert f"remove {note(store)}" in message, message


def test_a_removed_log_file_is_reported(killed):
    log_files(killed)[-1].unlink()
    check_reported(killed, "is missing")
    # A server serves its other tables.
    with killed.serve() as server:
        with pytest.raises(redis.ResponseError, match="no table 'kv'"):
            server.client().get("kv:7")
        assert "has lost its end" in server.log.read_text()
    note(killed).unlink()
    assert killed.json("verify", "kv")["records"] == 0
    with killed.serve() as server:
        server.client().set("kv:7", "again")
    assert killed.run("get", "kv", "7").out.strip() == "again"


@pytest.mark.parametrize("kept", [0, 30, 61, 4096, 5000, 15_000])
def test_a_truncated_log_file_is_reported(killed, kept):
    os.truncate(log_files(killed)[-1], kept)
    check_reported(killed, "1.log")
    note(killed).unlink()
    killed.run("verify", "kv")
    assert "xxx" not in killed.run("get", "kv", "499").out


def test_a_whole_log_is_read(killed):
    assert killed.run("verify", "kv").code == 0
    with killed.serve() as server:
        assert server.client().dbsize() == 500


@pytest.mark.parametrize("durability", DURABILITIES)
@pytest.mark.parametrize("kept", [0, 100, 4096, None])
def test_a_log_that_is_truncated_under_writes_acknowledges_no_more(store, durability, kept):
    store.run("create", "kv", "--durability", durability)
    server = store.serve()
    client = server.client()
    for number in range(200):
        client.set(f"kv:{number}", "x" * 30)
    (log,) = log_files(store)
    if kept is None:
        log.unlink()
    else:
        os.truncate(log, kept)
    with pytest.raises(redis.ResponseError, match="1.log.*(cut short|removed)"):
        for number in range(200 if durability == "sync" else 1_000_000):
            client.set(f"kv:after-{number}", "y" * 30)
            assert durability != "sync", "acknowledged, but not stored"
    assert client.get("kv:7") == b"x" * 30
    server.stop(signal.SIGKILL)
    # It is unknown whether writes after the last sync were stored.
    seen = store.run("verify", "kv", code=1 if durability == "sync" else None)
    assert seen.code == 0 or "has lost its end" in seen.err
