"""A push that is killed, that fills the disk or that meets another push leaves nothing half
done."""

import os
import random
import resource
import shutil
import signal
import time

import pyarrow as pa
from data import people, person, write
from harness import Store

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.SystemRandom().randrange(2**32)))


def push_words(table, path, *more):
    return ["push", table, path, "--key", "{id}", "--json", *more]


def check_files(store, table, versions):
    """Checks that the table's directory holds only files of `versions`."""
    found = {
        str(path.relative_to(store.path))
        for path in (store.path / "tables" / table).rglob("*")
        if path.is_file() and path.suffix in (".run", ".ext", ".manifest", ".new", ".spill")
    }
    manifests = {name for name in found if name.endswith(".manifest")}
    assert manifests == {f"tables/{table}/versions/{v}.manifest" for v in versions}
    assert all(name.endswith((".run", ".ext", ".manifest")) for name in found), found
    assert len([name for name in found if name.endswith(".run")]) == len(versions)


def test_kill_9_at_random_moments_of_a_push(store, source):
    print(f"FOREBAY_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    store.push("people", source(1000, version=1))
    big = source(30_000, version=2)
    # --keep retains all versions, because a kill may come after the removal of old ones.
    words = push_words("people", big, "--memory", "8M", "--force", "--no-swap", "--keep", "100")
    begun = time.monotonic()
    # The gate holds the version, because it has thirty times as many rows. --force does not swap
    # with --no-swap.
    store.run(*words, code=3)
    whole = time.monotonic() - begun
    versions = [1, 2]
    for _ in range(8):
        process = store.start(*words)
        time.sleep(chance.uniform(0, whole))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        listed = [v["version"] for v in store.json("versions", "people")]
        # The kill may come after the commit. Then that version is whole.
        assert listed in (versions, [*versions, listed[-1]])
        versions = listed
        assert store.json("get", "people", "999") == [person(999, 1)]
        for version in listed:
            store.run("verify", f"people@{version}")
    last = store.push("people", big, args=["--force", "--memory", "8M", "--keep", "100"])
    assert last["version"] == versions[-1] + 1 and last["swapped"] is True
    check_files(store, "people", [*versions, last["version"]])


def test_two_pushes_at_once_to_a_table(store, source):
    store.push("people", source(10, version=1))
    store.run("push", "people", source(10, version=1), "--onto", "current")
    big = source(30_000, version=2)
    # The rate makes the first push last some seconds, so that the second one meets it.
    first = store.start(*push_words("people", big, "--force", "--rate", "500K"))
    lock = store.path / "tables" / "people" / "push.lock"
    end = time.monotonic() + 20
    while str(first.pid).encode() not in lock.read_bytes():
        assert first.poll() is None and time.monotonic() < end, "the first push never took the lock"
        time.sleep(0.005)
    refused = store.run(*push_words("people", source(10)), code=4)
    assert "another push" in refused.err and str(first.pid) in refused.err
    assert "another push" in store.run("compact", "people", code=4).err
    assert store.finish(first).code == 0
    assert [v["version"] for v in store.json("versions", "people")] == [1, 2, 3]
    assert store.push("people", source(10, version=3), args=["--force"])["version"] == 4


def test_pushes_to_different_tables_run_at_once(store, source):
    path = source(5000)
    running = [store.start(*push_words(f"t{i}", path)) for i in range(3)]
    assert [store.finish(process).code for process in running] == [0, 0, 0]


def limit_file_size(size):
    """A function for subprocesses: writes beyond `size` give an error, not a signal."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return limit


def test_a_push_at_a_file_size_limit(store, source):
    store.push("people", source(100, version=1))
    big = source(30_000, version=2)
    words = push_words("people", big, "--force")
    for size in [1, 4096, 100_000, 500_000]:
        result = store.run(*words, code=1, preexec_fn=limit_file_size(size))
        assert "panicked" not in result.err and "people" in result.err
    assert [v["version"] for v in store.json("versions", "people")] == [1]
    assert store.json("get", "people", "99") == [person(99, 1)]
    assert store.push("people", big, args=["--force"])["version"] == 2
    check_files(store, "people", [1, 2])


def test_a_push_on_a_full_disk(small_disk, source, tmp_path):
    store = Store(small_disk / "store")
    store.push("people", source(1000, version=1))
    big = write_wide(tmp_path / "wide.parquet")
    with store.serve() as server:
        client = server.client(decode_responses=True)
        for memory in ["64M", "2M"]:
            result = store.run(*push_words("people", big, "--force", "--memory", memory), code=1)
            assert "space" in result.err.lower() and "panicked" not in result.err
            assert client.hget("people:999", "v1") == "1"
        assert [v["version"] for v in store.json("versions", "people")] == [1]
        assert shutil.disk_usage(small_disk).total < 7_000_000
        # A small version fits again, without a restart or a cleanup command.
        assert store.push("people", source(1000, version=2))["swapped"] is True
        check_files(store, "people", [1, 2])


def write_wide(path):
    """A small Parquet file that makes a large table: 20 MB of repeated text."""
    rows = 20_000
    table = people(rows).append_column("wide", pa.array(["wide " * 200] * rows))
    return write(table, path)
