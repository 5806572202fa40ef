"""Writes whose keys move, and uncertain writes, against servers that answer as a test wants."""

import json
import socket
import threading

import pytest

import forebay

SCHEMA = {
    "table": "t", "version": None, "order": "hashed", "key": None, "number": None,
    "value": {"bytes": {"column": "value"}}, "columns": [],
}  # fmt: skip


class Fake:
    """A node that answers a SET of a key from `answers`, or OK, and notes it."""

    def __init__(self, state: "State") -> None:
        self.state, self.answers = state, {}
        self.sets: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rwb") as stream:
            while line := stream.readline():
                words = []
                for _ in range(int(line[1:])):
                    size = int(stream.readline()[1:])
                    words.append(stream.read(size + 2)[:-2].decode())
                stream.write(self._reply(words))
                stream.flush()

    def _reply(self, words: list[str]) -> bytes:
        name = words[0].upper()
        if name == "CLUSTER":
            return b"*1\r\n*3\r\n:0\r\n:16383\r\n*4\r\n" + address(self.port) + b"$1\r\nx\r\n*0\r\n"
        if name == "KV.SCHEMA":
            return bulk(json.dumps(SCHEMA))
        if name == "KV.MAP":
            return b"*1\r\n*3\r\n:0\r\n$-1\r\n*1\r\n" + bulk(f"127.0.0.1:{self.state.port}")
        if name == "SET":
            self.sets.append(words[1])
            answer = self.answers.get(words[1], "+OK")
            if "MOVED" in answer:
                self.state.port = int(answer.rpartition(":")[2])
            return f"{answer}\r\n".encode()
        return b"+OK\r\n"

    def close(self) -> None:
        self._listener.close()


class State:
    """The port that the map names."""

    port = 0


def bulk(text: str) -> bytes:
    return f"${len(text)}\r\n{text}\r\n".encode()


def address(port: int) -> bytes:
    return bulk("127.0.0.1") + f":{port}\r\n".encode()


@pytest.fixture
def nodes():
    state = State()
    made = [Fake(state), Fake(state)]
    state.port = made[0].port
    yield made
    for one in made:
        one.close()


@pytest.fixture
def table(nodes):
    with forebay.connect(f"redis://127.0.0.1:{nodes[0].port}", timeout=5) as connection:
        yield connection["t"]


def test_only_a_write_whose_key_moved_is_sent_to_the_other_node(nodes, table):
    first, second = nodes
    first.answers = {"t:b": f"-MOVED 7 127.0.0.1:{second.port}"}
    assert table.put_many({"a": "1", "b": "2", "c": "3"}) == 3
    assert (first.sets, second.sets) == (["t:a", "t:b", "t:c"], ["t:b"])


@pytest.mark.parametrize(
    "answer",
    [
        "-TRYAGAIN nobody answered in time",
        "-MISCONF the log could not be synced",
        "-UNCERTAIN the leader is gone",
    ],
)
def test_an_uncertain_write_is_not_sent_again(nodes, table, answer):
    nodes[0].answers = {"t:a": answer}
    with pytest.raises(forebay.UncertainError, match="not sent again"):
        table.put("a", "1")
    assert nodes[0].sets == ["t:a"] and nodes[1].sets == []


def test_a_key_that_moves_for_ever_ends_in_an_error(nodes):
    first = nodes[0]
    first.answers = {"t:a": f"-MOVED 7 127.0.0.1:{first.port}"}
    with forebay.connect(f"redis://127.0.0.1:{first.port}", timeout=0.3) as connection:
        with pytest.raises(forebay.BusyError, match="0 of 1 writes"):
            connection["t"].put("a", "1")
    assert len(first.sets) > 1


def test_a_refused_write_is_reported_and_not_sent_again(nodes, table):
    nodes[0].answers = {"t:a": "-OOM no memory for writes"}
    with pytest.raises(forebay.Error, match="no memory for writes"):
        table.put("a", "1")
    assert nodes[0].sets == ["t:a"]


@pytest.mark.parametrize("code", ["TRYAGAIN nothing was written:", "NOREPLICAS no majority:"])
def test_an_unwritten_write_is_sent_again_until_the_timeout(nodes, code):
    first = nodes[0]
    first.answers = {"t:a": f"-{code} nobody leads"}
    with forebay.connect(f"redis://127.0.0.1:{first.port}", timeout=0.3) as connection:
        with pytest.raises(forebay.NotWrittenError, match="0 of 1 writes"):
            connection["t"].put("a", "1")
    assert len(first.sets) > 1
