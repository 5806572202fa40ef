"""Clients that request much and read nothing: the server's memory stays bounded."""

import socket
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import redis
from harness import wait_for

MIB = 1 << 20
VALUE = b"x" * (15 * MIB)


def own_memory(server):
    """Bytes of the process's own memory."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def metric(server, name):
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/metrics") as page:
        lines = page.read().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def request_value(server, count):
    """A connection that requests the value and does not read the replies."""
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(b"*2\r\n$3\r\nGET\r\n$4\r\nkv:k\r\n" * count)
    return client


@pytest.fixture
def large(store):
    """A server with a value of 15 MiB in a live table."""
    store.run("create", "kv")
    with store.serve("--reply-memory", "100M", "--memory", "64M") as server:
        server.client().set("kv:k", VALUE)
        yield server


def most_memory(server, seconds):
    most, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        most = max(most, own_memory(server))
        time.sleep(0.005)
    return most


def test_a_client_that_does_not_read_holds_one_reply(large):
    before = own_memory(large)
    client = request_value(large, 64)
    wait_for(
        lambda: metric(large, 'forebay_reply_bytes{kind="held"}') > 15 * MIB, "a reply is held"
    )
    most = most_memory(large, 1)
    assert most - before < 60 * MIB, f"{(most - before) / MIB:.0f} MiB"
    # The client is not dropped, and gets all replies when it reads.
    received = 0
    while received < 64 * len(VALUE):
        received += len(client.recv(MIB))
    client.close()


def test_many_clients_that_do_not_read_are_dropped_and_others_are_served(large):
    before = own_memory(large)
    clients = [request_value(large, 3) for _ in range(40)]
    dropped = 'forebay_connections_dropped_total{reason="reply_memory"}'
    wait_for(lambda: metric(large, dropped) >= 20, "dropped")
    most = most_memory(large, 1)
    # The limit, and one reply per thread under construction.
    assert most - before < 250 * MIB, f"{(most - before) / MIB:.0f} MiB"
    assert large.client().get("kv:k") == VALUE
    for client in clients:
        client.close()
    wait_for(lambda: metric(large, 'forebay_reply_bytes{kind="held"}') < MIB, "the memory is freed")
    lines = [line for line in large.log.read_text().splitlines() if "was dropped" in line]
    assert lines and len(lines) <= 5, lines
    assert "address=127.0.0.1:" in lines[0] and "held_bytes=" in lines[0], lines[0]


def test_a_transaction_and_a_delete_hold_at_most_one_reply(store):
    store.run("create", "kv", "--partitions", "1")
    limits = ("--reply-limit", "32M", "--reply-memory", "100M", "--memory", "64M")
    keys = [f"kv:{number}" for number in range(30)]
    with store.serve(*limits) as server:
        client = server.client()
        for key in keys:
            client.set(key, VALUE)
        before = own_memory(server)
        most = MemoryPeak(server)
        with client.pipeline(transaction=True) as exec_:
            for key in keys:
                exec_.get(key)
            exec_.set("kv:x", "1")
            with pytest.raises(redis.ResponseError, match="replies of EXEC are larger"):
                exec_.execute()
        assert client.get("kv:x") is None
        with client.pipeline(transaction=True) as exec_:
            for key in keys:
                exec_.strlen(key)
            exec_.set("kv:x", "1")
            assert exec_.execute() == [len(VALUE)] * 30 + [True]
        assert client.delete(*keys) == 30
        grown = most.stop() - before
        # One reply, one value in transit, and the memtables of earlier writes.
        assert grown < 150 * MIB, f"{grown / MIB:.0f} MiB"


class MemoryPeak:
    """The greatest memory use of a server until stop()."""

    def __init__(self, server):
        self.server, self.most, self.done = server, 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()

    def _watch(self):
        while not self.done.wait(0.002):
            self.most = max(self.most, own_memory(self.server))

    def stop(self):
        self.done.set()
        self.thread.join()
        return self.most
