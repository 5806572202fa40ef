"""`forebay top` and /v1/top for busy servers."""

import contextlib
import hashlib
import json
import threading
import urllib.error
import urllib.request

import pytest
from harness import Store, wait_for

TABLE = ["--partitions", 4]


@contextlib.contextmanager
def running(*jobs):
    """Runs each job in a loop meanwhile."""
    over, problems = threading.Event(), []

    def work(job):
        try:
            while not over.is_set():
                job()
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    yield
    over.set()
    for thread in threads:
        thread.join()
    assert not problems, problems


def seen(store, *args):
    return store.json("top", "--once", "--every", "500ms", *args)


def by(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def test_a_server_shows_tables_keys_partitions_and_writes(store, source):
    store.push("people", source(100), args=["--partitions", 4])
    store.run("create", "live", *TABLE)
    with store.serve() as server:
        at = ["--node", f"127.0.0.1:{server.http}"]
        assert seen(store, *at)["tables"] == []
        assert "no table was asked for" in store.run("top", "--once", "--every", "100ms", *at).out
        reader, writer = server.client(), server.client()

        def read():
            reader.mget(["people:7", "people:7", "people:8"])

        def write():
            writer.set(b"live:\xff", "v")

        with running(read, write):
            wait_for(lambda: len(seen(store, *at)["tables"]) == 2, "both tables are seen")
            top = seen(store, *at)
            text = store.run("top", "--once", *at).out
        tables = {table["table"]: table for table in top["tables"]}
        assert tables["people"]["reads_per_second"] > 0 == tables["people"]["writes_per_second"]
        assert tables["live"]["writes_per_second"] > 0 == tables["live"]["reads_per_second"]
        assert tables["people"]["p99_us"] >= tables["people"]["p50_us"] > 0
        keys = {(row["table"], str(row["key"])): row for row in top["keys"]}
        hot, cool = keys["people", "7"], keys["people", "8"]
        ratio = hot["reads_per_second"] / cool["reads_per_second"]
        assert 1.5 < ratio < 2.7, ratio
        assert keys["live", "{'base64': '/w=='}"]["writes_per_second"] > 0
        places = set(by(top["partitions"], "table", "partition"))
        assert places == {(row["table"], row["partition"]) for row in top["keys"]}
        assert top["users"] is None
        assert "people:7" in text and "p99" in text


def page(server, query, login=None):
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}/v1/top?{query}")
    if login:
        request.add_header("Authorization", f"Bearer {login}")
    try:
        with urllib.request.urlopen(request, timeout=30) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.parametrize("query", ["for=0s", "for=11s", "for=x", "limit=0", "limit=1001", "a=1"])
def test_invalid_queries_are_refused(store, query):
    store.run("create", "t")
    with store.serve() as server:
        status, answer = page(server, query)
        assert status == 400 and "from 1ms to 10s" in answer["error"]


def test_at_most_four_clients_watch_at_once(store):
    store.run("create", "t")
    with store.serve() as server:
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(page(server, "for=5s")[0]))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(answers) == [200] * 4 + [429] * 2
        assert page(server, "for=1ms")[0] == 200


def test_users_see_only_tables_that_they_may_read(store, tmp_path):
    for table in ("t", "u"):
        store.run("create", table)
    secret = hashlib.sha256(b"secret").hexdigest()
    users = [
        {"name": "ada", "password_sha256": secret, "tables": ["t"], "verbs": ["read", "write"]},
        {"name": "bob", "password_sha256": secret, "tables": ["*"], "verbs": ["read", "admin"]},
    ]
    (tmp_path / "users.json").write_text(json.dumps({"users": users}))
    logins = {}
    for name in ("ada", "bob"):
        logins[name] = tmp_path / name
        logins[name].write_text(f"{name}:secret\n")
    with store.serve("--users", tmp_path / "users.json") as server:
        at = ["--node", f"127.0.0.1:{server.http}"]
        assert "--login" in store.refuse("top", "--once", *at)
        with server.client(username="ada", password="secret") as ada:
            with server.client(username="bob", password="secret") as bob:

                def both():
                    ada.get("t:1")
                    bob.get("u:1")

                with running(both):
                    login = ["--login", logins["bob"]]
                    wait_for(lambda: len(seen(store, *at, *login)["tables"]) == 2, "both are seen")
                    top = seen(store, *at, *login)
                    of_ada = seen(store, *at, "--login", logins["ada"])
        assert {user["user"] for user in top["users"]} == {"ada", "bob"}
        assert by(of_ada["keys"], "table", "key") == [("t", "1")] and of_ada["users"] is None


def test_the_nodes_of_a_cluster_are_watched_together(shared):
    made = shared()
    made.store.run("create", "watched", *TABLE)
    with made["n1"].through_gateway() as one, made["n2"].through_gateway() as two:

        def write():
            one.set("watched:hot", "v")
            two.get("watched:hot")

        with running(write):

            def hot():
                keys = [row for row in seen(made.store)["keys"] if row["table"] == "watched"]
                return keys and keys[0]["reads_per_second"] > 0 and keys[0]["writes_per_second"] > 0

            wait_for(hot, "the key is seen")
            top = seen(made.store)
    key = next(row for row in top["keys"] if row["table"] == "watched")
    assert key["key"] == "hot" and key["partition"] is not None
    assert len(top["nodes"]) == len(made.nodes) and top["problems"] == {}


def test_an_unreachable_server_is_named(tmp_path):
    text = Store(tmp_path / "none").refuse("top", "--once", "--node", "127.0.0.1:1")
    assert "127.0.0.1:1" in text
