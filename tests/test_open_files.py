"""The limit of open files: a crowd of clients does not keep tables from writing theirs."""

import contextlib
import json
import resource
import socket
import urllib.request

import pytest
from harness import Failed, Server, wait_for

LIMIT = 200


def limited(limit):
    def limit_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return limit_files


class LimitedServer(Server):
    """A server that may have few files open."""

    def __init__(self, store, limit, *args):
        start = store.start
        store.start = lambda *words, **options: start(*words, preexec_fn=limited(limit), **options)
        super().__init__(store, *args)
        store.start = start


def connect(server):
    """A connection, and what the server says unasked: nothing when it was let in."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    client.sendall(b"PING\r\n")
    return client, client.recv(100)


def ask(server, path, method="GET", token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{server.http}{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, method=method, headers=headers)
    ) as page:
        return page.read().decode()


@pytest.mark.parametrize("limit", [56, 60])
def test_a_limit_that_is_too_low_is_said_at_the_start(store, limit):
    store.run("create", "kv")
    with pytest.raises(Failed, match=f"limit of open files is {limit}.*ulimit -n"):
        LimitedServer(store, limit, "--threads", "2")


def test_a_crowd_of_clients_does_not_keep_a_table_from_its_files(store, tmp_path):
    store.run("create", "kv")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    args = ["--threads", "2", "--admin-token-file", token]
    with LimitedServer(store, LIMIT, *args) as server:
        first = server.client()
        most = int(first.config_get("maxclients")["maxclients"])
        assert 16 <= most < LIMIT
        clients, refused = [], 0
        for _ in range(LIMIT + 100):
            client, answer = connect(server)
            clients.append(client)
            if answer.startswith(b"-ERR max number of clients reached"):
                refused += 1
                with contextlib.suppress(ConnectionResetError):
                    assert client.recv(100) == b"", "closed"
        assert refused >= 100
        for round in range(10):
            first.mset({f"kv:{round}-{n}": "x" * 1000 for n in range(100)})
            compacted = json.loads(ask(server, "/v1/tables/kv/compact", "POST", token.read_text()))
            assert compacted["records"] == 100 * (round + 1)
        assert json.loads(ask(server, "/ready"))["ready"]
        for client in clients:
            client.close()
        wait_for(lambda: connect(server)[1] == b"+PONG\r\n", "let in again")
