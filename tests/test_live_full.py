"""Live tables on a full disk, or without file descriptors: writes succeed again without a
restart."""

import http.client
import json
import os
import resource

import pytest
import redis
from harness import Store, wait_for

TOKEN = "a token of more than sixteen characters"


def messages(server, word):
    return [line for line in server.log.read_text().splitlines() if word in line]


def writes_pass(client):
    try:
        return client.set("kv:again", "x" * 20_000)
    except redis.ResponseError:
        return False


def test_writes_refused_on_a_full_disk_cost_nothing_and_succeed_again(small_disk):
    store = Store(small_disk / "store")
    store.run("create", "kv")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(3 << 20))
    log = store.path / "tables/kv/log"
    with store.serve() as server:
        client = server.client()
        refused = 0
        for number in range(3000):
            try:
                client.set(f"kv:{number}", os.urandom(10_000))
            except redis.ResponseError as error:
                refused += 1
                assert "make room" in str(error) or "see to that" in str(error).lower(), error
        assert refused > 1000
        numbers = [int(path.stem) for path in log.iterdir()]
        assert max(numbers) < 100, numbers
        assert len(messages(server, "failed")) < 10, server.log.read_text()
        filler.unlink()
        wait_for(lambda: writes_pass(client), "writes pass")
    assert store.run("verify", "kv").code == 0


def test_a_log_does_not_fill_a_disk_with_space_for_its_records(small_disk):
    store = Store(small_disk / "store")
    store.run("create", "kv")
    with store.serve() as server:
        client = server.client()
        for number in range(8000):
            client.set(f"kv:{number % 50}", os.urandom(2000))
    assert store.run("verify", "kv").code == 0


@pytest.mark.parametrize("durability", ["sync", "20ms"])
def test_writes_refused_for_lack_of_open_files_succeed_again(store, tmp_path, durability):
    (tmp_path / "token").write_text(TOKEN)
    store.run("create", "kv", "--durability", durability)
    with store.serve("--admin-token-file", tmp_path / "token") as server:
        client = server.client()
        client.set("kv:1", "one")
        admin = http.client.HTTPConnection("127.0.0.1", server.http, timeout=20)

        def compact():
            headers = {"Authorization": f"Bearer {TOKEN}"}
            admin.request("POST", "/v1/tables/kv/compact", headers=headers)
            reply = admin.getresponse()
            return reply.status, json.loads(reply.read())

        assert compact()[0] == 200
        limits = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        # The log needs a new file.
        for _ in range(20):
            with pytest.raises(redis.ResponseError, match="ulimit -n"):
                client.set("kv:2", "two")
        assert client.get("kv:1") == b"one"
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        wait_for(lambda: writes_pass(client), "writes pass")
        # A flush needs a file, too.
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        status, seen = compact()
        assert status != 200 and "Too many open files" in json.dumps(seen), seen
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, limits)
        assert compact()[0] == 200
        client.set("kv:3", "three")
        admin.close()
    assert store.run("verify", "kv").code == 0


def test_a_table_on_a_full_disk_is_not_ready_even_if_small_writes_succeed(small_disk):
    store = Store(small_disk / "store")
    store.run("create", "kv")
    filler = small_disk / "filler"
    with store.serve() as server:

        def ready():
            connection = http.client.HTTPConnection("127.0.0.1", server.http, timeout=10)
            connection.request("GET", "/ready/tables/kv")
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())["problems"]

        client = server.client()
        assert client.set("kv:first", "x") and ready() == (200, [])
        free = os.statvfs(small_disk).f_bavail * 4096
        filler.write_bytes(bytes(free - (100 << 10)))
        with pytest.raises(redis.ResponseError, match="make room"):
            client.set("kv:large", os.urandom(1 << 20))
        assert client.set("kv:small", "x")
        status, problems = ready()
        assert status == 503 and "live table kv refuses writes" in problems[0], problems
        filler.unlink()
        wait_for(lambda: ready() == (200, []), "ready")
        assert client.set("kv:large", os.urandom(1 << 20))
