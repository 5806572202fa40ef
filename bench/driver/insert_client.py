"""Reads and writes keys at a fixed rate (open loop), or as fast as it goes; keeps a model of what was written.

    insert_client.py '{"ports": [...], "tables": [...], "keys": FILE, "rate": a second or 0, "writes": part, "value_bytes": n}'

One connection to each port given, one command at a time on each. A command that is due takes a connection that waits for nothing; where none
does, it counts from when it was due. So what one partition holds up holds up no others while there are connections. Each connection writes keys of its own, so that it knows what each of them has to hold: at least the number that
was acknowledged last, at most the one that was sent last. MOVED is followed, counted, and no error.

It says `going` once it has begun. At the end of its input it prints one object: {ops: [[due, seconds, is a write, place of the table]],
failed: [[when, text]], moved, written: {key: [acknowledged, sent]}}.
"""

import contextlib
import json
import os
import random
import selectors
import socket
import sys
import time
from collections import deque

from resp import is_whole, moved_port, word


class Connection:
    def __init__(self, port: int, keys: list, heard: selectors.BaseSelector):
        self.port, self.keys, self.selector = port, keys, heard
        self.begun, self.heard, self.sent = None, b"", None
        self.socket = None
        self.connect(port)

    def connect(self, port: int) -> None:
        if self.socket:
            self.selector.unregister(self.socket)
            self.socket.close()
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.selector.register(self.socket, selectors.EVENT_READ, self)

    def send(self, command: bytes) -> None:
        self.command = command
        self.socket.sendall(command)


class Client:
    def __init__(self, words: dict):
        self.words, self.chance = words, random.Random(7)
        self.tables = [table.encode() for table in words["tables"]]
        with open(words["keys"], "rb") as lines:
            self.keys = lines.read().split()
        ports, rate = words["ports"], words["rate"]
        self.step = 1 / rate if rate else 0.0
        self.selector = selectors.DefaultSelector()
        self.selector.register(sys.stdin, selectors.EVENT_READ)
        self.free = deque(Connection(port, self.keys[place::len(ports)], self.selector) for place, port in enumerate(ports))
        self.due = time.monotonic()
        self.ops, self.failed, self.moved, self.written, self.number = [], [], 0, {}, 0

    def begin(self, one: Connection, now: float) -> None:
        one.begun = self.due if self.step else now
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
            one.heard = b""
        elif not is_whole(one.heard):
            return
        elif one.heard.startswith(b"-MOVED"):
            self.moved += 1
            one.port = moved_port(one.heard)
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
        self.free.append(one)

    def go(self) -> None:
        print("going", flush=True)
        while True:
            now = time.monotonic()
            while self.free and (not self.step or self.due <= now):
                self.begin(self.free.popleft(), now)
                self.due += self.step
            wait = max(self.due - now, 0.0) if self.free else 1.0
            for ready, _ in self.selector.select(wait):
                if ready.fileobj is sys.stdin:
                    written = {key.decode(): pair for key, pair in self.written.items()}
                    print(json.dumps({"ops": self.ops, "failed": self.failed, "moved": self.moved, "written": written}))
                    return
                self.hear(ready.data)


if __name__ == "__main__":
    # It is to wait for the nodes, not for other programs here. Not everybody may ask for that.
    with contextlib.suppress(PermissionError):
        os.nice(-10)
    Client(json.loads(sys.argv[1])).go()
