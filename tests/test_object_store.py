"""Stores in a real S3 server: every command, two at once, kills, and a faulty store."""

import json
import random
import re
import signal
import threading
import time

import pyarrow as pa
import pytest
from data import people, person, write
from harness import wait_for

MIB = 1 << 20


def words(table, path, *more):
    return ["push", table, path, "--key", "{id}", "--json", *more]


def wide(path, rows=5, seed=1):
    """A file of `rows` rows of 8 MiB that do not compress."""
    chance = random.Random(seed)
    values = [chance.randbytes(8 * MIB) for _ in range(rows)]
    table = pa.table({"id": range(rows), "wide": pa.array(values, pa.binary())})
    return write(table, path)


def test_every_command_works_as_on_a_directory(remote, source, tmp_path):
    first = remote.push("people", source(2000, version=1), args=["--partitions", "3"])
    assert (first["version"], first["rows"], first["swapped"]) == (1, 2000, True)
    second = remote.push("people", source(2000, version=2), args=["--order", "ordered"])
    assert second["version"] == 2
    assert remote.json("tables")[0]["serving"] == 2
    assert remote.versions("people") == [1, 2]
    assert remote.json("get", "people", "7") == [person(7, 2)]
    assert remote.json("rollback", "people")["version"] == 1
    assert remote.json("get", "people", "7") == [person(7, 1)]
    assert remote.json("swap", "people", "2")["version"] == 2
    assert remote.json("verify", "people")["rows"] == 2000
    out = tmp_path / "out.jsonl"
    assert remote.json("export", "people@1", "--to", out)["rows"] == 2000
    assert len(out.read_text().splitlines()) == 2000
    assert remote.json("diff", "people", "1", "2")["changed"] == 2000
    names = remote.keys("tables/people")
    runs = [name for name in names if "/runs/" in name]
    assert len(runs) == 4 and all(name.endswith(".run") for name in runs)
    manifests = [name for name in names if "/versions/" in name]
    assert manifests == [f"tables/people/versions/{v}.manifest" for v in (1, 2)]
    remote.run("drop", "people", "--yes")
    assert [name for name in remote.keys("tables/people") if not name.endswith(".lock")] == []
    assert remote.json("tables") == []


def test_the_gate_compares_with_the_serving_version(remote, source):
    remote.push("people", source(1000))
    held = remote.push("people", source(100), code=3)
    assert held["version"] == 2 and held["swapped"] is False
    assert remote.json("tables")[0]["serving"] == 1


def test_changes_on_top_and_their_merge(remote, source, tmp_path):
    remote.push("people", source(1000))
    write(people(10, version=5, start=990), tmp_path / "more.parquet")
    remote.run("push", "people", tmp_path / "more.parquet", "--onto", "current", "--quiet")
    assert remote.json("get", "people", "995") == [person(995, 5)]
    remote.run("compact", "people")
    assert remote.json("verify", "people")["rows"] == 1000
    assert remote.json("get", "people", "995", "5") == [person(995, 5), person(5)]


def test_old_versions_and_their_runs_are_removed(remote, source):
    for version in range(1, 5):
        remote.push("people", source(100, version=version), args=["--keep", "2"])
    assert remote.versions("people") == [3, 4]
    assert len(remote.keys("tables/people/runs")) == 2


def test_live_tables_and_plain_servers_are_refused_on_object_storage(remote):
    assert "directory" in remote.refuse("create", "counters")
    assert "--cache" in remote.refuse("serve")
    assert "no forebay store" in remote.refuse("tables")


def test_a_failed_push_leaves_nothing_visible(remote, source, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("id,v\n1,a\n1,b\n")
    remote.run(*words("people", bad), code=1)
    assert remote.json("tables") == []
    assert remote.push("people", source(100))["version"] == 1


def receipts(store, table):
    """The parts that the work directory records as sent: (object's name, part number)."""
    found = set()
    for path in (store.work / "tables" / table / "uploads").glob("*.json"):
        parts = json.loads(path.read_text())["parts"]
        known = [number for number, part in enumerate(parts, 1) if part["receipt"]]
        found |= {(path.name.removesuffix(".json"), number) for number in known}
    return found


def short(part):
    return part[0].rsplit("/", 1)[1], part[1]


def test_a_push_continues_the_uploads_of_a_killed_one(remote, proxy, tmp_path):
    path = wide(tmp_path / "wide.parquet", rows=8)
    store = remote.through(proxy.url)
    # Three parts pass, and the others hang until the kill.
    gate = threading.Semaphore(3)
    proxy.before = lambda exchange: exchange.part and gate.acquire() and None
    process = store.start(*words("wide", path))
    wait_for(lambda: len(receipts(store, "wide")) == 3, "three parts")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    sent = receipts(store, "wide")
    # The three parts may complete a file, which then exists.
    assert remote.unfinished_uploads() or remote.keys("tables/wide/runs")
    assert remote.json("tables") == []
    proxy.before = lambda exchange: None
    for _ in range(30):
        gate.release()
    wait_for(lambda: all(exchange.status for exchange in proxy.exchanges), "idle")
    since = len(proxy.exchanges)
    result = store.run(*words("wide", path))
    assert json.loads(result.out.splitlines()[-1])["version"] == 1
    again = [short(part) for part in proxy.parts(since)]
    assert len(again) == len(set(again)), "a part was sent twice"
    assert sent.isdisjoint(again), "a finished part was sent again"
    sizes = [len(remote.read(name)) for name in remote.keys("tables/wide/runs")]
    total = sum(-(-size // (8 * MIB)) for size in sizes if size > 8 * MIB)
    assert total >= 8 and len(sent) + len(again) == total
    assert "an earlier push has sent" in result.err
    assert remote.json("verify", "wide")["rows"] == 8
    assert remote.unfinished_uploads() == [] and remote.keys("tables/wide/uploads") == []


def test_a_push_of_other_data_abandons_the_old_upload(remote, proxy, tmp_path):
    store = remote.through(proxy.url)
    gate = threading.Semaphore(2)
    proxy.before = lambda exchange: exchange.part and gate.acquire(timeout=20) and None
    process = store.start(*words("wide", wide(tmp_path / "a.parquet", rows=4)))
    wait_for(lambda: len(receipts(store, "wide")) == 2, "two parts")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    proxy.before = lambda exchange: None
    for _ in range(9):
        gate.release()
    wait_for(remote.unfinished_uploads, "the store lists the upload")
    # Another machine has to wait until the dead one's lock expires.
    other = remote.through(remote.server.url, "elsewhere")
    started = time.monotonic()
    assert other.push("wide", wide(tmp_path / "b.parquet", rows=4, seed=2))["version"] == 1
    assert time.monotonic() - started > 5
    assert remote.unfinished_uploads() == [] and remote.keys("tables/wide/uploads") == []
    # The first machine pushes other data again. Its journal does not apply, and does no harm.
    third = store.push("wide", wide(tmp_path / "c.parquet", rows=3, seed=3), args=["--force"])
    assert third["version"] == 2
    for version in (1, 2):
        remote.run("verify", f"wide@{version}")


def test_the_store_is_killed_and_restarted_while_a_push_sends(remote, proxy, tmp_path):
    path = wide(tmp_path / "wide.parquet", rows=6)
    store = remote.through(proxy.url)
    proxy.before = lambda exchange: exchange.part and time.sleep(0.3)
    process = store.start(*words("wide", path))
    wait_for(lambda: len(proxy.parts()) >= 2, "two parts")
    remote.server.kill()
    time.sleep(1)
    assert process.poll() is None
    remote.server.start()
    result = store.finish(process)
    assert result.code == 0, result.err
    assert remote.json("verify", "wide")["rows"] == 6


def test_a_merge_outlasts_an_outage_as_a_push_does(remote, proxy, tmp_path):
    remote.push("wide", wide(tmp_path / "a.parquet", rows=3), args=["--partitions", "1"])
    changes = wide(tmp_path / "b.parquet", rows=1, seed=2)
    remote.push("wide", changes, args=["--onto", "current"])
    store, until = remote.through(proxy.url), []

    def outage(exchange):
        if exchange.part and not until:
            until.append(time.monotonic() + 20)
        return 503 if until and time.monotonic() < until[0] else None

    proxy.before = outage
    assert store.json("compact", "wide")["rows"] == 3
    assert time.monotonic() > until[0]
    remote.run("verify", "wide")


def test_the_gate_reads_many_pages_at_once(remote, proxy, source):
    rows = 120_000
    remote.push("people", source(rows, version=1), args=["--partitions", "2"])
    store, lock, now = remote.through(proxy.url), threading.Lock(), [0, 0]

    def slowly(exchange):
        if "/runs/" in exchange.path and exchange.method == "GET":
            with lock:
                now[0] += 1
                now[1] = max(now)
            time.sleep(0.03)
            with lock:
                now[0] -= 1

    proxy.before = slowly
    since = len(proxy.exchanges)
    store.push("people", source(rows, version=2))
    asked = [e for e in proxy.exchanges[since:] if "/runs/" in e.path and e.method == "GET"]
    assert len(asked) > 30 and now[1] >= 8, (len(asked), now)


def test_two_pushes_at_once(remote, source):
    big = source(30_000, version=1)
    first = remote.start(*words("people", big, "--rate", "300K"))
    wait_for(lambda: "tables/people/push.lock" in remote.keys("tables/people"), "the lock")
    other = remote.through(remote.server.url, "elsewhere")
    for store in (remote, other):
        refused = store.run(*words("people", source(10)), code=4)
        assert "another push" in refused.err and str(first.pid) in refused.err
    assert remote.finish(first).code == 0
    assert remote.versions("people") == [1]
    assert other.push("people", source(10), args=["--force"])["version"] == 2


def test_many_pushes_and_swaps_at_once_lose_nothing(remote, source):
    remote.push("people", source(50, version=1))
    paths = [source(50, version=2 + number) for number in range(3)]
    stores = [remote.through(remote.server.url, f"machine-{number}") for number in range(3)]
    pushes = [
        store.start(*words("people", path, "--force", "--keep", "20"))
        for store, path in zip(stores, paths, strict=True)
    ]
    rollbacks = [remote.run("swap", "people", 1, code=None) for _ in range(3)]
    results = [store.finish(push) for store, push in zip(stores, pushes, strict=True)]
    assert {result.code for result in results} <= {0, 4}
    done = [json.loads(r.out.splitlines()[-1])["version"] for r in results if r.code == 0]
    assert done and sorted(remote.versions("people")) == [1, *sorted(done)]
    assert all("panicked" not in result.err for result in [*rollbacks, *results])
    remote.run("verify", "people")


def pointer_puts(exchange):
    return exchange.method == "PUT" and exchange.path.partition("?")[0].endswith("/current")


def test_a_pointer_that_another_process_changed_is_not_overwritten(remote, proxy, source):
    for version in (1, 2):
        remote.push("people", source(50, version=version))
    store, name = remote.through(proxy.url), "tables/people/current"
    kept = remote.read(name)

    def meddle(exchange):
        if pointer_puts(exchange):
            remote.write(name, kept + b"x")

    proxy.before = meddle
    message = store.refuse("swap", "people", 1)
    assert "somebody else changed it" in message and "run this command again" in message
    assert remote.read(name) == kept + b"x", "the other write was overwritten"
    proxy.before = lambda exchange: None
    assert "damaged" in store.refuse("swap", "people", 1)
    remote.write(name, kept)
    assert store.json("swap", "people", 1)["version"] == 1


def test_an_error_after_a_write_that_succeeded(remote, proxy, source):
    for version in (1, 2):
        remote.push("people", source(50, version=version))
    store, failed = remote.through(proxy.url), []

    def lie(exchange, status, body):
        if pointer_puts(exchange) and not failed:
            failed.append(status)
            return 500, b""
        return status, body

    proxy.after = lie
    assert store.json("swap", "people", 1) == {"table": "people", "version": 1, "previous": 2}
    assert failed == [200] and remote.json("tables")[0]["serving"] == 1


def test_a_slow_store_that_answers_5xx(remote, proxy, source):
    store, chance = remote.through(proxy.url), random.Random(5)

    def trouble(exchange):
        time.sleep(chance.choice([0, 0.02, 0.2]))
        return 503 if chance.random() < 0.15 else None

    proxy.before = trouble
    assert store.push("people", source(500, version=1))["version"] == 1
    assert store.push("people", source(500, version=2))["version"] == 2
    assert store.json("verify", "people")["rows"] == 500
    assert store.json("rollback", "people")["version"] == 1
    assert len([exchange for exchange in proxy.exchanges if exchange.status == 503]) > 3


def is_run(exchange):
    return exchange.method == "GET" and ".run" in exchange.path


@pytest.mark.parametrize("damage", ["cut", "garbage"])
def test_truncated_and_changed_bodies(remote, proxy, source, damage):
    remote.push("people", source(2000))
    store = remote.through(proxy.url)
    expected = remote.run("scan", "people").out

    def cut(exchange, status, body):
        return (status, body[: len(body) // 2]) if is_run(exchange) else (status, body)

    def change(exchange, status, body):
        if is_run(exchange) and len(body) > 2000:
            body = body[:1000] + bytes([body[1000] ^ 4]) + body[1001:]
        return status, body

    proxy.after = cut if damage == "cut" else change
    message = store.refuse("verify", "people")
    assert re.search(r"people|runs/", message)
    result = store.run("scan", "people", code=1)
    assert expected.startswith(result.out), "wrong rows were shown"
    proxy.after = lambda exchange, status, body: (status, body)
    assert store.run("scan", "people").out == expected


def test_an_unreachable_store(remote, source):
    remote.push("people", source(10))
    nowhere = remote.through("http://127.0.0.1:9", "nowhere")
    message = nowhere.refuse("tables")
    assert "s3://" in message


def test_a_version_with_a_lost_run_does_not_serve(remote, source):
    for version in (1, 2):
        remote.push("people", source(50, version=version))
    lost = next(name for name in remote.keys("tables/people/runs") if "/1-" in name)
    client = remote.server.client()
    client.delete_object(Bucket="bucket", Key=f"{remote.prefix}/{lost}")
    assert "incomplete" in remote.refuse("rollback", "people")
    assert remote.json("tables")[0]["serving"] == 2
