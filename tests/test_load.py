"""`forebay load`: loads into live tables, served or not, even if a process dies."""

import os
import random
import signal
import subprocess
import threading
import time
from functools import partial

import pytest
import redis
from harness import Store, wait_for

ROWS = 20_000
SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 30)))


def keys(count=ROWS):
    return [f"k{number:06}" for number in range(count)]


def write(path, value, count=ROWS):
    """A source in which all keys have one value."""
    with path.open("w") as file:
        file.write("id,value\n")
        file.writelines(f"{key},{value}\n" for key in keys(count))
    return path


def words(table, path, *more):
    return ["load", table, path, "--key", "{id}", *more]


@pytest.fixture(params=[["--partitions", "5"], ["--order", "ordered", "--boundary", "k01"]])
def made(request, store):
    """A store with a live table `t`, hashed or ordered."""
    store.run("create", "t", *request.param, "--durability", "os")
    return store


def only_value(client, sample=500):
    """The value that all keys have, or None."""
    chosen = [f"t:{key}" for key in random.sample(keys(), sample)]
    values = set(client.mget(chosen))
    assert len(values) == 1, f"seed {SEED}: a load is partly visible: {values}"
    return values.pop()


def is_served(server):
    """Whether the table is served. The loader may still have it open."""
    try:
        return server.client().exists("t:k000000")
    except redis.ResponseError:
        return False


def offers(store):
    return list((store.path / "tables" / "t").glob("load-*.[ot]*"))


def leftovers(store):
    return sorted(str(path) for path in (store.path / "tables" / "t").rglob("load-*"))


def test_a_table_without_a_server(made, tmp_path):
    report = made.json(*words("t", write(tmp_path / "a.csv", "one")))
    seconds = report.pop("seconds")
    assert seconds > 0 and report == {
        "table": "t",
        "rows": ROWS,
        "bytes": ROWS * 10,
        "updates": ROWS,
        "inserts": 0,
        "deletes": 0,
        "deltas": 0,
        "rejected": 0,
        "lossy": [],
        "duplicates": 0,
    }
    again = made.run(*words("t", write(tmp_path / "b.csv", "two")))
    assert "20,000 keys" in again.out, again.out
    assert leftovers(made) == []
    with made.serve() as server:
        assert only_value(server.client(), ROWS) == b"two"
    made.run("verify", "t")


def test_reads_and_writes_continue_while_a_load_is_added(made, tmp_path):
    random.seed(SEED)
    made.run(*words("t", write(tmp_path / "a.csv", "old")))
    path = write(tmp_path / "b.csv", "loaded")
    with made.serve() as server:
        stop, problems, seen = threading.Event(), [], {}
        before = [f"t:{key}" for key in keys()[:1000]]
        during = [f"t:{key}" for key in keys()[1000:2000]]
        after = [f"t:{key}" for key in keys()[2000:3000]]

        def read():
            client = server.client()
            try:
                while not stop.is_set():
                    key = f"t:{random.choice(keys()[3000:])}"
                    value = client.get(key)
                    if value not in (b"old", b"loaded") or seen.get(key) == b"loaded" != value:
                        problems.append((key, seen.get(key), value))
                    seen[key] = value
            except redis.RedisError as error:
                problems.append(error)

        def write_on():
            client, number = server.client(), 0
            try:
                while not stop.is_set():
                    number += 1
                    client.mset({random.choice(during): f"written {number}"})
            except redis.RedisError as error:
                problems.append(error)

        client = server.client()
        for key in before:
            client.set(key, "before")
        threads = [threading.Thread(target=task) for task in (read, read, write_on)]
        for thread in threads:
            thread.start()
        for round_number in range(3):
            made.run(*words("t", path))
            for key in after:
                client.set(key, f"after {round_number}")
            assert set(client.mget(before)) == {b"loaded"}
            assert set(client.mget(after)) == {f"after {round_number}".encode()}
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == [], f"seed {SEED}"
        assert {b"loaded"} == set(client.mget([f"t:{key}" for key in keys()[3000:]]))
        for value in client.mget(during):
            assert value == b"loaded" or value.startswith(b"written"), value
        assert leftovers(made) == []


def test_deltas_and_changes_through_the_server(store, tmp_path):
    store.run("create", "count", "--delta", "i64")
    store.run("create", "people", "--value", "row", "--column", "name:text", "--column", "age:int")
    clicks, people = tmp_path / "clicks.csv", tmp_path / "people.jsonl"
    clicks.write_text("page,n\na,2\nb,1\na,3\n")
    people.write_text('{"id": 1, "name": "Ann", "age": 7}\n{"id": 2, "name": "Bob", "age": 8}\n')
    with store.serve() as server:
        client = server.client(decode_responses=True)
        client.set("count:a", 10)
        for _ in range(2):
            store.run("load", "count", clicks, "--key", "{page}", "--as", "delta")
        assert client.mget("count:a", "count:b") == ["20", "2"]
        store.run("load", "people", people, "--key", "{id}")
        assert client.hgetall("people:2") == {"name": "Bob", "age": "8"}
        changes = tmp_path / "what.csv"
        changes.write_text("id,name,age,what\n1,,,delete\n2,Bo,9,update\n")
        store.run("load", "people", changes, "--key", "{id}", "--op", "what")
        assert client.hgetall("people:1") == {} and client.hget("people:2", "age") == "9"


def test_impossible_loads_are_refused(store, source, tmp_path):
    store.push("batch", source(10))
    store.run("create", "t")
    path = write(tmp_path / "a.csv", "x", 10)
    assert "forebay push" in store.refuse(*words("batch", path))
    assert "create it first" in store.refuse(*words("nothing", path))
    assert "--value COLUMN" in store.refuse(*words("t", source(10)))
    assert "forebay load" in store.refuse("push", "t", path, "--key", "{id}")
    path.write_text("id,value\n,x\n1,y\n")
    message = store.refuse(*words("t", path))
    assert "a.csv: line 2" in message and "--bad-rows" in message
    assert store.json(*words("t", path, "--bad-rows", "skip"))["rejected"] == 1
    assert leftovers(store) == []


def test_a_late_row_without_a_number_is_a_bad_row(store, tmp_path):
    """The bad row comes after the rows from which types are inferred. A given type gives the same
    result."""
    store.run("create", "t", "--delta", "i64")
    path = write(tmp_path / "counts.csv", 7, 300_000)
    with path.open("a") as file:
        file.write("late,many\n")
    rejects = tmp_path / "rejects.jsonl"
    loaded = store.json(*words("t", path, "--bad-rows", rejects))
    assert (loaded["rows"], loaded["rejected"]) == (300_000, 1)
    assert "many" in rejects.read_text()
    assert "many" in store.refuse(*words("t", path))


def test_numbers_are_read_with_the_tables_type(store, tmp_path):
    for kind, wanted in [("i64", ["1", "123", "-5"]), ("f64", ["1", "123", "-5"])]:
        store.run("create", kind, "--delta", kind, "--durability", "os")
        (tmp_path / "a.csv").write_text("id,n\na,1.0\nb,00123\nc,-5\n")
        (tmp_path / "a.jsonl").write_text(
            '{"id":"a","n":1.0}\n{"id":"b","n":"00123"}\n{"id":"c","n":-5}\n'
        )
        for name in ("a.csv", "a.jsonl"):
            assert store.json(*words(kind, tmp_path / name))["rows"] == 3
            assert store.run("get", kind, "a", "b", "c").out.split() == wanted


def test_bytes_keep_the_text_of_numbers(store, tmp_path):
    store.run("create", "b", "--durability", "os")
    texts = ["1.10", "2.50", "1e5", "-0.0"]
    lines = [f"{number},{text}" for number, text in enumerate(texts)]
    (tmp_path / "a.csv").write_text("\n".join(["id,v", *lines, ""]))
    fields = [f'{{"id":{number},"v":{text}}}' for number, text in enumerate(texts)]
    (tmp_path / "a.jsonl").write_text("\n".join(fields))
    for name in ("a.csv", "a.jsonl"):
        store.json("load", "b", str(tmp_path / name), "--key", "{id}")
        assert store.run("get", "b", "0", "1", "2", "3").out.split() == texts
    # A given type overrides the text.
    store.json("load", "b", str(tmp_path / "a.csv"), "--key", "{id}", "--column", "v:float64")
    assert store.run("get", "b", "0", "1").out.split() == ["1.1", "2.5"]


def test_an_option_without_effect_is_refused(store, tmp_path):
    store.run("create", "t", "--delta", "append")
    store.run("create", "rows", "--value", "row", "--column", "what:text")
    path = tmp_path / "a.csv"
    path.write_text("id,what,v\na,update,1\na,delta,2\n")
    by_op = [*words("t", path), "--op", "what"]
    assert "--duplicates" in store.refuse(*by_op, "--duplicates", "first", code=2)
    deltas = words("t", path, "--value", "v", "--as", "delta", "--duplicates", "fail")
    assert "--duplicates" in store.refuse(*deltas, code=2)
    message = store.refuse(*by_op, "--value", "what")
    assert "'what'" in message and "stored" in message, message
    message = store.refuse(*words("rows", path, "--op", "what"))
    assert "'what'" in message and "stored" in message, message
    assert store.json(*by_op)["rows"] == 1
    assert store.run("get", "t", "a").out == "12\n"


def test_a_missing_column_of_operations_is_refused_before_reading(store, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id":"a","v":1}\n')
    store.run("create", "t", "--delta", "i64")
    rejects = ["--bad-rows", "skip"]
    for source in (path, write(tmp_path / "a.csv", 1, 1)):
        message = store.refuse(*words("t", source, "--op", "nope", *rejects))
        assert "'nope'" in message and "have" in message, message
    days = tmp_path / "days" / "what=delta"
    days.mkdir(parents=True)
    (days / "a.jsonl").write_text('{"id":"a","v":1}\n')
    assert store.json(*words("t", tmp_path / "days", "--op", "what"))["deltas"] == 1
    store.push("b", path)
    onto = ["push", "b", path, "--onto", "current", *rejects]
    assert "'nope'" in store.refuse(*onto, "--op", "nope")
    message = store.refuse(*onto, "--op", "v")
    assert "'v'" in message and "stored" in message, message


def test_two_loads_at_once(made, tmp_path):
    path = write(tmp_path / "a.csv", "first")
    first = made.start(*words("t", path, "--rate", "100K"))
    lock = made.path / "tables" / "t" / "push.lock"
    wait_for(lambda: lock.exists() and str(first.pid) in lock.read_text(), "the first has the lock")
    refused = made.run(*words("t", path), code=4)
    assert "another load" in refused.err and str(first.pid) in refused.err
    assert "is under way" in made.run("drop", "t", "--yes", code=4).err
    assert made.finish(first).code == 0


def kill_at_random(process, longest):
    time.sleep(random.random() * longest)
    process.send_signal(signal.SIGKILL)


def test_a_killed_load_adds_all_or_nothing(made, tmp_path):
    random.seed(SEED)
    made.run(*words("t", write(tmp_path / "a.csv", "0")))
    began = time.monotonic()
    made.run(*words("t", tmp_path / "a.csv"))
    longest = time.monotonic() - began
    value = b"0"
    for served in [False, True]:
        server = made.serve() if served else None
        for number in range(8):
            path = write(tmp_path / "b.csv", f"{served}{number}")
            loader = made.start(*words("t", path))
            kill_at_random(loader, 1.2 * longest)
            done = made.finish(loader).code == 0
            now = server or made.serve()
            if served:
                # The server adds accepted loads, and never adds others.
                wait_for(lambda: not offers(made), "the offer is settled")
            found = only_value(now.client())
            new = f"{served}{number}".encode()
            assert found in ([new] if done else [new, value]), f"seed {SEED}"
            value = found
            if not served:
                assert now.stop() == 0
                assert leftovers(made) == []
        if server:
            assert server.stop() == 0


def test_a_load_ends_though_its_server_is_killed(made, tmp_path):
    random.seed(SEED)
    made.run(*words("t", write(tmp_path / "a.csv", "0")))
    with made.serve():
        began = time.monotonic()
        made.run(*words("t", tmp_path / "a.csv"))
        longest = time.monotonic() - began
    for number in range(6):
        path = write(tmp_path / "b.csv", str(number + 1))
        server = made.serve()
        loader = made.start(*words("t", path))
        kill_at_random(server.process, 1.1 * longest)
        server.stop()
        # In every other round, a new server and the loader want to open the table.
        server = made.serve() if number % 2 else None
        result = made.finish(loader)
        assert result.code == 0, f"seed {SEED}: {result.err}"
        server = server or made.serve()
        wait_for(partial(is_served, server), "the table is served")
        assert only_value(server.client()) == str(number + 1).encode(), f"seed {SEED}"
        assert server.stop() == 0
        assert leftovers(made) == []


def test_a_load_is_refused_while_another_process_holds_the_table(store, tmp_path):
    store.run("create", "t")
    path = write(tmp_path / "a.csv", "x", 10)
    script = (
        "import fcntl, sys, time\nlock = open(sys.argv[1], 'r+')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\nlock.truncate()\nlock.write('it was opened by a test')\n"
        "lock.flush()\nprint('ready', flush=True)\ntime.sleep(600)\n"
    )
    lock = store.path / "tables" / "t" / "live.lock"
    command = ["python3", "-c", script, str(lock)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert holder.stdout.readline() == b"ready\n"
    message = store.refuse(*words("t", path), code=4)
    assert "opened by a test" in message and "forebay serve" in message
    holder.kill()
    holder.communicate()
    store.run(*words("t", path))


def test_a_full_disk(small_disk, tmp_path):
    store = Store(small_disk / "store")
    store.run("create", "t", "--durability", "os")
    store.run(*words("t", write(tmp_path / "a.csv", "old")))
    big = write(tmp_path / "b.csv", "new" * 200)
    with store.serve() as server:
        for memory in ["64M", "2M"]:
            result = store.run(*words("t", big, "--memory", memory), code=1)
            assert "space" in result.err.lower() and "panicked" not in result.err
            assert only_value(server.client()) == b"old"
            assert leftovers(store) == []
        store.run(*words("t", write(tmp_path / "c.csv", "new")))
        assert only_value(server.client()) == b"new"


def test_lists_use_the_only_remaining_column(store, tmp_path):
    store.run("create", "t", "--value", "list", "--item", "int16", "--durability", "os")
    (tmp_path / "rows.jsonl").write_text('{"id":"a","tags":[1,2]}\n{"id":"b","tags":[]}\n')
    (tmp_path / "rows.csv").write_text('id,tags\nc,"[3]"\n')
    (tmp_path / "more.csv").write_text('id,tags,more\nc,"[3]",1\n')
    for name, rows in [("rows.jsonl", 2), ("rows.csv", 1)]:
        assert store.json(*words("t", tmp_path / name))["rows"] == rows
    assert store.json("get", "t", "a", "b", "c") == [[1, 2], [], [3]]
    assert "say by --value COLUMN which" in store.refuse(*words("t", tmp_path / "more.csv"))


def test_a_load_of_inserts_reports_that_keys_keep_their_values(store, tmp_path):
    store.run("create", "t", "--ttl", "never")
    for value, kept in (("old", "old"), ("new", "old")):
        path = write(tmp_path / f"{value}.csv", value, count=3)
        done = store.run(*words("t", path, "--as", "insert")).out
        assert "t took inserts of 3 keys" in done and "keep their values" in done, done
        assert store.run("get", "t", "k000001").out == f"{kept}\n"
    path = write(tmp_path / "updates.csv", "newest", count=3)
    assert "t has 3 keys more written" in store.run(*words("t", path)).out
