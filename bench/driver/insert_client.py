"""Reads and writes keys at a fixed rate (open loop), or as fast as it goes; keeps a model of what was written.

    insert_client.py '{"ports": [...], "tables": [...], "keys": FILE, "rate": a second or 0, "writes": part, "value_bytes": n}'

One connection to each port, one command at a time on each. A command that was due while the one before was not answered counts from
when it was due. Each connection writes keys of its own, so that it knows what each of them has to hold: at least the number that
was acknowledged last, at most the one that was sent last. MOVED is followed, counted, and no error.

It says `going` once it has begun. At the end of its input it prints one object: {ops: [[due, seconds, is a write, place of the table]],
failed: [[when, text]], moved, written: {key: [acknowledged, sent]}}.
"""

import contextlib
import json
import os
import random
import select
import socket
import sys
import time


def word(*parts: bytes) -> bytes:
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


class Connection:
    def __init__(self, port: int, keys: list, due: float):
        self.port, self.keys, self.due = port, keys, due
        self.begun, self.heard, self.sent = None, b"", None
        self.socket = None
        self.connect(port)

    def connect(self, port: int) -> None:
        if self.socket:
            self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, command: bytes) -> None:
        self.command = command
        self.socket.sendall(command)

    def whole(self) -> bool:
        head, line, rest = self.heard.partition(b"\r\n")
        if not line or not head.startswith(b"$") or head == b"$-1":
            return bool(line)
        return len(rest) >= int(head[1:]) + 2


class Client:
    def __init__(self, words: dict):
        self.words, self.chance = words, random.Random(7)
        self.tables = [table.encode() for table in words["tables"]]
        with open(words["keys"], "rb") as lines:
            self.keys = lines.read().split()
        ports, rate = words["ports"], words["rate"]
        self.step = len(ports) / rate if rate else 0.0
        start = time.monotonic()
        self.all_of = [Connection(port, self.keys[place::len(ports)], start + self.step * place / len(ports)) for place, port in enumerate(ports)]
        self.ops, self.failed, self.moved, self.written, self.number = [], [], 0, {}, 0

    def begin(self, one: Connection, now: float) -> None:
        # Late by its own sleep only: that is none of the server's time.
        one.begun = one.due if self.step and now - one.due > self.step else now
        place = self.chance.randrange(len(self.tables))
        table = self.tables[place]
        if self.chance.random() < self.words["writes"]:
            key = b"%s:%s" % (table, self.chance.choice(one.keys))
            self.number += 1
            self.written.setdefault(key, [0, 0])[1] = self.number
            one.sent = (place, key, self.number)
            one.send(word(b"SET", key, b"%d" % self.number + b" " * self.words["value_bytes"]))
        else:
            one.sent = (place, None, 0)
            one.send(word(b"GET", b"%s:%s" % (table, self.chance.choice(self.keys))))

    def hear(self, one: Connection) -> None:
        some = one.socket.recv(1 << 16)
        one.heard += some
        if not some:
            self.failed.append([time.monotonic(), "the connection was closed"])
            one.connect(one.port)
        elif not one.whole():
            return
        elif one.heard.startswith(b"-MOVED"):
            self.moved += 1
            one.port = int(one.heard.split()[2].rsplit(b":", 1)[1])
            one.heard = b""
            one.connect(one.port)
            return one.send(one.command)
        now, (place, key, number) = time.monotonic(), one.sent
        if one.heard.startswith(b"-"):
            self.failed.append([now, one.heard[:200].decode(errors="replace").strip()])
        elif key and one.heard.startswith(b"+"):
            self.written[key][0] = number
        self.ops.append((round(one.begun, 6), round(now - one.begun, 6), int(key is not None), place))
        one.begun, one.heard = None, b""
        one.due = one.due + self.step if self.step else now

    def go(self) -> None:
        print("going", flush=True)
        while True:
            now = time.monotonic()
            for one in self.all_of:
                if one.begun is None and one.due <= now:
                    self.begin(one, now)
            wait = min((one.due - now for one in self.all_of if one.begun is None), default=1.0)
            sockets = {one.socket: one for one in self.all_of}
            readable, _, _ = select.select([*sockets, sys.stdin], [], [], max(0.0, wait))
            for ready in readable:
                if ready is sys.stdin:
                    written = {key.decode(): pair for key, pair in self.written.items()}
                    print(json.dumps({"ops": self.ops, "failed": self.failed, "moved": self.moved, "written": written}))
                    return
                self.hear(sockets[ready])


if __name__ == "__main__":
    # It is to wait for the nodes, not for other programs here. Not everybody may ask for that.
    with contextlib.suppress(PermissionError):
        os.nice(-10)
    Client(json.loads(sys.argv[1])).go()
