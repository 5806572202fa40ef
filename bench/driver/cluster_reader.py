"""Reads keys through some gateways at a fixed rate, one connection to each, and notes how long each read took.

    cluster_reader.py TABLE RECORDS READS_A_SECOND PORT...

It says `reading` once it has begun. At the end of its input it prints one object: {times: [when it was due, by the monotonic
clock], took: [seconds], failed: [texts]}. A read that was due while the one before was not answered counts from when it was due.
"""

import gc
import json
import random
import select
import socket
import sys
import time

from resp import is_whole


class Connection:
    def __init__(self, port: int, due: float):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.due, self.begun, self.heard = due, None, b""


def main() -> None:
    # A collection of all that was noted takes 20 ms, which would count as the servers'.
    gc.disable()
    table, records, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    step, chance = 1 / rate, random.Random(7)
    start = time.monotonic()
    ports = sys.argv[4:]
    all_of = [Connection(int(port), start + step * place / len(ports)) for place, port in enumerate(ports)]
    by_socket = {one.socket: one for one in all_of}
    times, took, failed = [], [], []
    print("reading", flush=True)
    while True:
        now = time.monotonic()
        for one in all_of:
            if one.begun is None and one.due <= now:
                # Late by its own sleep only: that is none of the server's time.
                one.begun = one.due if now - one.due > step else now
                one.socket.send(f"GET {table}:{chance.randrange(records):012d}\r\n".encode())
        wait = min((one.due - now for one in all_of if one.begun is None), default=1.0)
        readable, _, _ = select.select([*by_socket, sys.stdin], [], [], max(0.0, wait))
        for ready in readable:
            if ready is sys.stdin:
                print(json.dumps({"times": times, "took": took, "failed": failed}))
                return
            one = by_socket[ready]
            one.heard += ready.recv(65536)
            if is_whole(one.heard):
                times.append(one.due)
                took.append(time.monotonic() - one.begun)
                if not one.heard.startswith(b"$100\r\n"):
                    failed.append(one.heard[:100].decode(errors="replace"))
                one.begun, one.heard = None, b""
                one.due += step


if __name__ == "__main__":
    main()
