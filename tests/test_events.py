"""The history of a store's tables, and the events that its servers logged."""

import base64
import contextlib
import hashlib
import http.client
import json
import os
import pwd
import select
import socket
import urllib.error
import urllib.request

import pytest
import redis
from harness import WAIT_S, Store, wait_for

PASSWORD = "a password of the tests"


def user_name():
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def events(store, *words):
    return store.run("events", *words, "--json").json_lines()


def short(found):
    """The table, the change, and the old and new version."""
    fields = [event["fields"] for event in found]
    return [
        (of["table"], event["message"], of.get("from"), of.get("to"))
        for event, of in zip(found, fields, strict=True)
    ]


def admins(tmp_path):
    """A users file: `ops` may swap every table, and `shop` reads only `people`."""
    digest = hashlib.sha256(PASSWORD.encode()).hexdigest()
    users = [
        {"name": "ops", "password_sha256": digest, "tables": ["*"], "verbs": ["read", "admin"]},
        {"name": "shop", "password_sha256": digest, "tables": ["people"], "verbs": ["read"]},
    ]
    path = tmp_path / "users.json"
    path.write_text(json.dumps({"users": users}))
    return path


def ask(server, path, user=None, body=None):
    """The status and the answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.http}{path}", data)
    if user:
        pair = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        request.add_header("Authorization", f"Basic {pair}")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@contextlib.contextmanager
def followed(store, *words):
    """`forebay events --follow`, as a function that reads its next line."""
    # The stream is unbuffered, so that select sees waiting lines.
    process = store.start("events", "--follow", "--json", *words, bufsize=0)

    def next_line():
        readable, _, _ = select.select([process.stdout], [], [], WAIT_S)
        assert readable, "no line arrived"
        return json.loads(process.stdout.readline())

    yield next_line
    process.kill()
    process.communicate()


def test_the_history_of_a_store_names_users_and_changes(store, source):
    assert "no forebay store" in store.refuse("events")
    store.push("people", source(version=1))
    store.push("people", source(10, version=2), code=3)
    store.run("swap", "people", 2)
    store.run("rollback", "people")
    store.push("others", source(version=1))
    store.run("drop", "others", "--yes")
    store.push("people", source(version=3), args=["--no-swap"])
    found = events(store)
    assert short(found) == [
        ("people", "pushed", None, 1),
        ("people", "held at the gate", 1, 2),
        ("people", "swapped", 1, 2),
        ("people", "rolled back", 2, 1),
        ("others", "pushed", None, 1),
        ("others", "dropped", None, None),
    ]
    for event in found:
        assert event["source"] == "store"
        assert event["fields"]["user"] == user_name()
        assert event["fields"]["host"] == socket.gethostname()
    assert found[1]["level"] == "WARN" and "rows" in found[1]["fields"]["problem"]
    assert short(events(store, "others")) == short(found[4:])
    assert events(store, "--since", "1h") == found
    lines = store.run("events", "people").out.splitlines()
    assert len(lines) == 4
    assert f"people pushed host={socket.gethostname()} to=1 user={user_name()}" in lines[0]


def test_the_history_is_bounded(store, source):
    store.push("people", source(version=1))
    store.push("people", source(version=2))
    entry = max((store.path / "history").iterdir())
    time, _, rest = entry.name.partition("-")
    for number in range(1005):
        later = f"{int(time) + number + 1:014}-{rest}"
        (store.path / "history" / later).write_bytes(entry.read_bytes())
    store.run("swap", "people", 1)
    names = sorted(path.name for path in (store.path / "history").iterdir())
    assert len(names) == 1000
    assert events(store)[-1]["message"] == "swapped"


def test_an_unwritable_history_is_reported_and_blocks_nothing(store, source):
    store.push("people", source(version=1))
    store.push("people", source(version=2))
    for path in (store.path / "history").iterdir():
        path.unlink()
    (store.path / "history").rmdir()
    (store.path / "history").write_text("no directory")
    done = store.run("rollback", "people")
    assert "the history of the store lacks an entry" in done.err
    (store.path / "history").unlink()
    assert store.json("versions", "people")[0]["serving"]


def test_a_swap_by_http_has_the_name_of_its_user(store, source, tmp_path):
    for version in (1, 2):
        store.push("people", source(version=version))
        store.push("others", source(version=version))
    with store.serve("--users", admins(tmp_path)) as server:
        swap = "/v1/tables/people/swap"
        assert ask(server, swap, "shop", {"version": 1})[0] == 403
        assert ask(server, swap, None, {"version": 1})[0] == 401
        assert ask(server, swap, "ops", {"version": 1})[0] == 200
        assert ask(server, "/v1/tables/others/rollback", "ops", {})[0] == 200
        _, seen = ask(server, "/v1/events", "ops")
        [swapped] = [one for one in seen["events"] if one["message"] == "swapped by HTTP"]
        assert swapped["fields"] == {
            **{"table": "people", "user": "ops", "address": "127.0.0.1", "from": 2, "to": 1}
        }
        tables = {one["fields"].get("table") for one in seen["events"]}
        assert tables == {"people", "others", None}
        # A user of some tables sees only changes of those.
        _, seen = ask(server, "/v1/events", "shop")
        assert {one["fields"].get("table") for one in seen["events"]} == {"people"}
        assert ask(server, "/v1/events?table=others", "shop")[0] == 403
        assert ask(server, "/v1/events")[0] == 401
        log = server.log.read_text()
        assert "swapped by HTTP" in log and 'user="ops"' in log
        (tmp_path / "login").write_text(f"ops:{PASSWORD}\n")
        words = ["--node", f"127.0.0.1:{server.http}", "--login", tmp_path / "login"]
        found = events(store, "people", *words)
    by_http = [one for one in found if one["fields"].get("user") == "ops"]
    assert sorted(one["source"] for one in by_http) == [f"127.0.0.1:{server.http}", "store"]
    assert by_http[0]["fields"].get("host", "127.0.0.1") == "127.0.0.1"
    done = store.run("events", *words, "--json")
    assert "connection refused" in done.err.lower(), done.err


def test_events_are_followed(served):
    store, node = served.store, f"127.0.0.1:{served.http}"
    with followed(store, "people", "--node", node) as next_line:
        seen = [next_line()["message"] for _ in range(3)]
        assert seen == ["pushed", "pushed", "another version serves"]
        store.run("rollback", "people")
        seen = {(one["source"], one["message"]) for one in (next_line(), next_line())}
        assert seen == {("store", "rolled back"), (node, "another version serves")}


def test_a_stream_resumes_after_the_last_event(served):
    def lines(last=None):
        """The ids of a stream, one by one."""
        connection = http.client.HTTPConnection("127.0.0.1", served.http, timeout=WAIT_S)
        headers = {"Accept": "text/event-stream"}
        if last is not None:
            headers["Last-Event-ID"] = str(last)
        connection.request("GET", "/v1/events", headers=headers)
        reply = connection.getresponse()
        assert reply.getheader("content-type") == "text/event-stream"
        while line := reply.readline():
            if line.startswith((b"id: ", b"event: ")):
                yield line.decode().strip()

    known = [one["sequence"] for one in ask(served, "/v1/events")[1]["events"]]
    stream = lines()
    assert [next(stream) for _ in known] == [f"id: {number}" for number in known]
    served.store.run("rollback", "people")
    assert next(stream) == f"id: {known[-1] + 1}"
    stream.close()
    assert next(lines(known[-1])) == f"id: {known[-1] + 1}"
    assert next(lines(1)) == "event: gap"


def test_a_full_disk_does_not_flood_the_log(small_disk):
    store = Store(small_disk / "store")
    store.run("create", "kv")
    filler = small_disk / "filler"
    filler.write_bytes(bytes(3 << 20))
    with store.serve("--log-format", "json") as server:
        client, refused = server.client(), 0
        for number in range(3000):
            try:
                client.set(f"kv:{number}", os.urandom(10_000))
            except redis.ResponseError:
                refused += 1
        assert refused > 1000
        lines = [json.loads(line) for line in server.log.read_text().splitlines()]
        # At most one line of each kind in ten seconds.
        kinds = [(line["message"], line["fields"].get("error")) for line in lines]
        seconds = 10 + WAIT_S
        assert len(lines) < 10 + len(set(kinds)) * seconds / 10, lines
        assert any(line["level"] == "WARN" for line in lines), lines
        filler.unlink()
        wait_for(lambda: writes_pass(client), "writes pass")


def writes_pass(client):
    try:
        return client.set("kv:again", "x" * 20_000)
    except redis.ResponseError:
        return False


@pytest.mark.parametrize("level", ["info", "warn"])
def test_levels_and_lines_of_the_log(store, source, level, monkeypatch):
    monkeypatch.setenv("RUST_LOG", level)
    store.push("people", source(version=1))
    with store.serve("--log-format", "json") as server:
        store.push("people", source(version=2))
        client = server.client()
        for number in range(200):
            client.hget(f"people:{number}", "v1")
        wait_for(lambda: client.hget("people:7", "v1") == b"2", "the push")
        seen = ask(server, "/v1/events")[1]["events"]
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    swapped = [line for line in lines if line["message"] == "another version serves"]
    seen = [one["fields"] for one in seen if one["message"] == "another version serves"]
    assert seen == [line["fields"] for line in swapped]
    both = [{"table": "people", "to": 1}, {"table": "people", "from": 1, "to": 2}]
    assert seen == (both if level == "info" else []), lines
    # Commands write no lines.
    assert len(lines) < 20, lines


def test_a_cluster_reports_killed_nodes_and_rollouts(shared, source):
    made = shared(3)
    made.store.push("people", source(100, version=1))
    made.store.push("people", source(100, version=2))
    made.store.run("rollback", "people")
    found = short(events(made.store, "people"))
    by_store = [one[1:] for one in found if one[1] in ("pushed", "rolled back")]
    assert by_store == [("pushed", None, 1), ("pushed", 1, 2), ("rolled back", 2, 1)]
    for message in ("rollout began", "rollout committed", "rollout confirmed"):
        assert ("people", message, 1, 2) in found, found
    assert ("people", "rollback confirmed", 2, 1) in found, found
    lost = made.coordinator()
    lost.kill()

    def seen():
        found = events(made.store)
        return [(one["message"], one["fields"].get("node")) for one in found]

    wait_for(lambda: ("node is down", lost.name) in seen(), seen)
    others = {("node is the coordinator", one.name) for one in made.nodes if one is not lost}
    wait_for(lambda: others & set(seen()), seen)
    lost.start().wait_listening()
    wait_for(lambda: ("node is up again", lost.name) in seen(), seen)
