"""Asks nodes for a table's version again and again, each by a connection of its own, and notes when what they say
changes; of a store in a directory also when the catalog's head does. All in one thread: one does not wait for another.

    cluster_watch.py TABLE HEAD|- PORT...

It says `watching` once all have answered. At the end of its input it prints one object: {nodes: {PORT: [[version, first
answer by the monotonic clock, when that was asked, when the answer before came]]}, heads: [[time]], gap: median time
between two answers of a node}.
"""

import json
import os
import select
import socket
import statistics
import sys
import time

#: From an answer to the next question.
PAUSE_S = 0.0005


class Node:
    def __init__(self, port: int, table: str):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.question = f"KV.VERSION {table}\r\n".encode()
        self.seen, self.gaps = [], []
        self.due, self.asked, self.answered = 0.0, None, None

    def ask(self, now: float) -> None:
        self.socket.send(self.question)
        self.asked = now

    def hear(self) -> None:
        answer = self.socket.recv(200)
        now = time.monotonic()
        if not answer.endswith(b"\r\n"):
            sys.exit(f"not a whole answer: {answer!r}")
        said = answer.strip().decode()
        if not self.seen or self.seen[-1][0] != said:
            self.seen.append([said, now, self.asked, self.answered])
        elif len(self.gaps) < 100_000:
            self.gaps.append(now - self.answered)
        self.answered, self.asked, self.due = now, None, now + PAUSE_S


def main() -> None:
    table, head = sys.argv[1:3]
    nodes = {int(port): Node(int(port), table) for port in sys.argv[3:]}
    sockets = {node.socket: node for node in nodes.values()}
    heads, last, said = [], None, False
    while True:
        now = time.monotonic()
        if head != "-":
            found = os.stat(head)
            this = (found.st_ino, found.st_mtime_ns)
            if this != last:
                heads.append(time.monotonic())
                last = this
        for node in nodes.values():
            if node.asked is None and node.due <= now:
                node.ask(now)
        wait = min((node.due - now for node in nodes.values() if node.asked is None), default=PAUSE_S)
        readable, _, _ = select.select([*sockets, sys.stdin], [], [], max(0.0, min(wait, PAUSE_S)))
        for one in readable:
            if one is sys.stdin:
                gap = statistics.median(gap for node in nodes.values() for gap in node.gaps)
                seen = {port: node.seen for port, node in nodes.items()}
                print(json.dumps({"nodes": seen, "heads": heads, "gap": gap}))
                return
            sockets[one].hear()
        if not said and all(node.seen for node in nodes.values()):
            print("watching", flush=True)
            said = True


if __name__ == "__main__":
    main()
