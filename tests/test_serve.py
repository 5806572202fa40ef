"""The command line of `forebay serve`: ports, users, the administrator's token."""

import hashlib
import json
import re
import signal
import socket
import urllib.error
import urllib.request

import pytest
import redis
from harness import WAIT_S, wait_for

TOKEN = "a token of more than sixteen characters"


@pytest.fixture
def two(store, source):
    store.push("people", source(version=1))
    store.push("people", source(version=2))
    return store


def post(server, path, body, token=None):
    """Posts JSON, and returns the status and the answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.http}{path}", json.dumps(body).encode(), method="POST"
    )
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_swap_and_rollback_by_http_need_the_token(two, tmp_path):
    (tmp_path / "token").write_text(TOKEN + "\n")
    with two.serve("--admin-token-file", tmp_path / "token") as server:
        client = server.client(decode_responses=True)
        for token in [None, "wrong" * 8]:
            assert post(server, "/v1/tables/people/rollback", {}, token)[0] in (401, 403)
        assert client.hget("people:1", "v1") == "2"
        assert post(server, "/v1/tables/people/rollback", {}, TOKEN)[0] == 200
        wait_for(lambda: client.hget("people:1", "v1") == "1", "the rollback is seen")
        status, answer = post(server, "/v1/tables/people/swap", {"version": 2}, TOKEN)
        assert (status, answer["to"]) == (200, 2)
        wait_for(lambda: client.hget("people:1", "v1") == "2", "the swap is seen")
        assert post(server, "/v1/tables/people/swap", {"version": 9}, TOKEN)[0] in (404, 409)


def test_users_see_only_their_tables(two, source, tmp_path):
    two.push("secret", source(10))
    password = hashlib.sha256(b"open sesame").hexdigest()
    user = {"name": "shop", "password_sha256": password, "tables": ["people"], "verbs": ["read"]}
    (tmp_path / "users.json").write_text(json.dumps({"users": [user]}))
    with two.serve("--users", tmp_path / "users.json") as server:
        with pytest.raises(redis.exceptions.AuthenticationError):
            server.client().hget("people:1", "id")
        with pytest.raises(redis.exceptions.AuthenticationError):
            server.client(username="shop", password="open barley").hget("people:1", "id")
        client = server.client(username="shop", password="open sesame")
        assert client.hget("people:1", "id") == b"1"
        with pytest.raises(redis.exceptions.ResponseError):
            client.hget("secret:1", "id")


def test_a_taken_port_and_bad_files_are_explained(two, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = two.refuse("serve", "--listen", f"127.0.0.1:{port}", "--http", "off")
        assert str(port) in message
    (tmp_path / "token").write_text("short")
    free = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert "token" in two.refuse("serve", *free, "--admin-token-file", tmp_path / "token")
    assert "nosuch" in two.refuse("serve", *free, "--users", tmp_path / "nosuch")
    two.refuse("serve", *free, "--tls-cert", tmp_path / "cert", code=2)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_server_ends_on_a_signal(two, sign):
    server = two.serve()
    client = server.client()
    assert client.ping()
    assert server.stop(sign) == 0


def test_a_directory_without_a_store_is_not_served(store, tmp_path):
    free = ["serve", "--listen", "127.0.0.1:0", "--http", "off"]
    message = store.refuse(*free)
    assert str(store.path) in message and "--create" in message
    assert not store.path.exists()
    store.path.mkdir()
    assert "--create" in store.refuse(*free)
    (store.path / "letter.txt").write_text("not a store's")
    for words in (free, [*free, "--create"]):
        assert str(store.path) in store.refuse(*words)
    assert [file.name for file in store.path.iterdir()] == ["letter.txt"]


def test_an_empty_store_is_served_until_its_first_push(store, source):
    with store.serve("--create") as server:
        client = server.client()
        assert client.ping() and client.dbsize() == 0
        store.push("people", source(10))
        wait_for(lambda: client.dbsize() == 10, "the first push is seen")


def test_a_full_standard_output_does_not_end_a_server(two, tmp_path):
    with open("/dev/full", "wb") as full, (tmp_path / "log").open("wb") as log:
        words = ["serve", "--listen", "127.0.0.1:0", "--http", "off"]
        process = two.start(*words, stdout=full, stderr=log)
    try:
        # The log has the line that could not be printed.
        seen = r"standard output cannot be written.* listen=127.0.0.1:(\d+) .*No space left"
        wait_for(lambda: re.search(seen, (tmp_path / "log").read_text()), "the line is logged")
        port = int(re.search(seen, (tmp_path / "log").read_text())[1])
        with redis.Redis(port=port, decode_responses=True) as client:
            assert client.hget("people:1", "v1") == "2"
    finally:
        process.terminate()
        assert process.wait(WAIT_S) == 0
