"""The limit of open files: a crowd of clients does not keep tables from opening their files."""

import contextlib
import json
import resource
import socket
import urllib.error
import urllib.request

import pytest
from harness import WAIT_S, Failed, Server, is_served, wait_for

LIMIT = 200


def limited(limit):
    def limit_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))

    return limit_files


class LimitedServer(Server):
    """A server with a low limit of open files."""

    def __init__(self, store, limit, *args):
        start = store.start
        store.start = lambda *words, **options: start(*words, preexec_fn=limited(limit), **options)
        super().__init__(store, *args)
        store.start = start


def connect(server):
    """A connection and its first answer. A refused client gets an error."""
    client = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    client.sendall(b"PING\r\n")
    return client, client.recv(100)


def ask(server, path, method="GET", token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    url = f"http://127.0.0.1:{server.http}{path}"
    with urllib.request.urlopen(
        urllib.request.Request(url, method=method, headers=headers), timeout=WAIT_S
    ) as page:
        return page.read().decode()


@pytest.mark.parametrize("limit", [56, 60])
def test_a_too_low_limit_of_open_files_is_reported_at_the_start(store, limit):
    store.run("create", "kv")
    with pytest.raises(Failed, match=f"limit of open files is {limit}.*ulimit -n"):
        LimitedServer(store, limit, "--threads", "2")


def test_many_clients_leave_enough_files_for_a_table(store, tmp_path):
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
        wait_for(lambda: connect(server)[1] == b"+PONG\r\n", "a new client is accepted")


def test_more_partitions_than_files_refuse_only_writes(store):
    tables = [f"t{number}" for number in range(12)]
    for table in tables:
        store.run("create", table, "--partitions", "16", "--durability", "os")
    written, refusals = {}, set()

    def write(client):
        for turn in range(200):
            for table in tables:
                keys = [f"{table}:{turn}-{number}" for number in range(100)]
                with client.pipeline(transaction=False) as pipe:
                    for key in keys:
                        pipe.set(key, "x" * 100)
                    answers = pipe.execute(raise_on_error=False)
                for key, answer in zip(keys, answers, strict=True):
                    if answer is True:
                        written[key] = b"x" * 100
                    else:
                        refusals.add(str(answer))
                if refusals:
                    return

    with LimitedServer(store, 150, "--memory", "3M", "--threads", "2") as server:
        wait_for(lambda: is_served(server.client(), tables[-1]), "the tables")
        write(server.client())
        assert any("open" in why and "files" in why for why in refusals), refusals
        # New clients are accepted, and reads work.
        assert connect(server)[1] == b"+PONG\r\n"
        assert server.client().get("t0:0-0") == b"x" * 100

        def has_reason():
            try:
                ask(server, "/ready/tables")
            except urllib.error.HTTPError as unready:
                return unready.code == 503 and "open" in unready.read().decode()
            # A repeated flush may have succeeded between two refusals.
            write(server.client())
            return False

        wait_for(has_reason, "/ready/tables gives the reason")
    with store.serve() as server:
        client = server.client()
        wait_for(lambda: all(is_served(client, table) for table in tables), "the tables")
        keys = list(written)
        assert client.mget(keys[:1000]) == [written[key] for key in keys[:1000]]
        assert client.mget(keys[-1000:]) == [written[key] for key in keys[-1000:]]
        assert client.set("t0:more", "1")
