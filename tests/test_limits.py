"""Limits of the system on a process: threads and file sizes."""

import contextlib
import os
import resource
import socket
import subprocess
from pathlib import Path

import pytest
import redis
from data import people, write
from harness import BINARY, WAIT_S, Store, wait_for

LIMIT_BYTES = 300_000


class Limited(Store):
    """A store whose commands cannot start threads, because no stack of this size fits."""

    def environment(self):
        return {**super().environment(), "RUST_MIN_STACK": str(1 << 50)}


@pytest.mark.parametrize(
    "words",
    [
        ["push", "people", "{source}", "--key", "{id}"],
        ["push", "people", "{source}", "--key", "{id}", "--dry-run"],
        ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"],
    ],
)
def test_commands_without_a_thread_end_with_a_clear_error(store, source, words):
    store.push("people", source())
    words = [word.replace("{source}", str(source())) for word in words]
    message = Limited(store.path).refuse(*words)
    assert "thread" in message and "Resource temporarily unavailable" in message
    assert message.count("\n") == 1, message


def test_one_thread_does_shared_work_if_no_other_starts(store, source):
    for version in (1, 2):
        store.push("people", source(20_000, version), args=["--partitions", "4"])
    changes = source(100, 3)
    store.run("push", "people", changes, "--onto", "current", "--gate", "changed<100%")
    limited = Limited(store.path)
    assert limited.json("compact", "people", "--threads", "4")["rows"] == 20_000
    assert limited.json("diff", "people", "1", "4")["changed"] == 20_000
    assert limited.json("verify", "people")["rows"] == 20_000


def test_the_file_size_limit_gives_a_clear_error(store, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, LIMIT_BYTES))

    big = write(people(20_000), tmp_path / "big.parquet")
    store.push("people", big)
    for words in (
        ["push", "people", big, "--key", "{id}"],
        ["export", "people", "--to", tmp_path / "x.csv"],
    ):
        result = store.run(*words, code=1, preexec_fn=limit)
        assert "File too large" in result.err, result.err
    assert [version["version"] for version in store.json("versions", "people")] == [1]
    assert not (tmp_path / "x.csv").exists()


def threads(process):
    """The name and the nice value of each thread."""
    found = []
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        # Some threads end meanwhile.
        with contextlib.suppress(OSError):
            nice = os.getpriority(os.PRIO_PROCESS, int(task.name))
            found.append(((task / "comm").read_text().strip(), nice))
    return found


@pytest.mark.parametrize("words, nice", [([], 19), (["--nice", "0"], 0)])
def test_a_push_runs_at_background_priority(store, words, nice):
    # The inherited nice value counts, too.
    nice = min(os.getpriority(os.PRIO_PROCESS, 0) + nice, 19)
    push = [
        BINARY,
        "--store",
        store.path,
        "push",
        "t",
        "-",
        "--format",
        "csv",
        "--key",
        "{id}",
        "--create",
    ]
    with subprocess.Popen([*push, *words], stdin=subprocess.PIPE) as process:
        process.stdin.write(b"id,name\n1,a\n")
        process.stdin.flush()
        wait_for(lambda: nice in dict(threads(process)).values(), lambda: threads(process))
        # A push at background priority has a thread per processor that makes the system schedule
        # again.
        turns = 0 if "--nice" in words else len(os.sched_getaffinity(0))
        wait_for(
            lambda: [name for name, _ in threads(process)].count("forebay-turns") == turns,
            lambda: threads(process),
        )
        process.stdin.close()
        assert process.wait(WAIT_S) == 0
    assert store.json("get", "t", "1")[0]["name"] == "a"


def test_a_too_long_value_is_refused_with_the_reason(store):
    store.run("create", "kv")
    with store.serve() as server:
        client = server.client(single_connection_client=True)
        connection, large = client.client_id(), b"x" * (17 << 20)
        for words in (
            ["SET", "kv:large", large],
            ["SET", "kv:large", b"x" * (100 << 20)],
            ["MSET", "kv:a", "1", "kv:large", large, "kv:b", "2"],
            ["HSET", "kv:large", "field", large, "other", "1"],
            # The whole command is longer than the limit.
            ["MSET", *(word for n in range(5) for word in (f"kv:{n}", b"x" * (15 << 20)))],
        ):
            with pytest.raises(redis.ResponseError, match="has at most (16777216|67108864) bytes"):
                client.execute_command(*words)
            assert client.mget("kv:large", "kv:a", "kv:b", "kv:0") == [None] * 4
        pipe = client.pipeline(transaction=False)
        pipe.set("kv:a", "1").set("kv:large", large).set("kv:b", "2")
        first, refused, last = pipe.execute(raise_on_error=False)
        assert (first, last) == (True, True) and "at most 16777216" in str(refused)
        with pytest.raises(redis.ResponseError, match="at most 16777216 bytes|EXECABORT"):
            client.pipeline().set("kv:c", "3").set("kv:large", large).execute()
        assert client.mget("kv:a", "kv:b", "kv:c", "kv:large") == [b"1", b"2", None, None]
        assert client.set("kv:large", b"x" * (16 << 20))
        assert client.client_id() == connection


def test_a_long_line_and_a_length_without_end_close_the_connection(store):
    with store.serve("--create") as server:
        for sent, words in (
            (b"SET kv:a " + b"x" * (65 << 10) + b"\r\n", b"too big inline request"),
            (b"*2\r\n$3\r\nGET\r\n$600000000\r\n", b"at most 16777216 bytes"),
        ):
            with socket.create_connection(("127.0.0.1", server.port), WAIT_S) as raw:
                raw.settimeout(WAIT_S)
                raw.sendall(sent)
                raw.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda raw=raw: raw.recv(4096), b""))
            assert answer.startswith(b"-ERR") and words in answer, answer
