"""Reads keys of a table of a cluster, each from a node that has it: partitions by their shares, keys of a partition by lot.

    place_client.py '{"ports": [...], "table": T, "records": n, "bounds": [first slot of each partition], "shares": [...], "rate": a second or 0,
                      "outstanding": n, "spread": whether any replica answers, "seed": n}'

Without a rate it is a closed loop: so many GETs are outstanding all the time, each on a connection of its own, and whichever is answered makes room
for the next one. The next one is drawn by the shares. So a node that is asked too much has most of them waiting, and
all others have less to do. With a rate it is an open loop: a GET counts from when it was due where it is late by more
than what this process sleeps at a time.

KV.MAP tells who has a key. Of a live table its leader is asked, and who MOVED names from then on; of a batch table any of its replicas by lot, and the map
is asked for each second.

It says `going` once it has begun. A line of its input is other shares, from then on. At the end of its input it prints one object: {answered: {port:
{tenth of a second of the monotonic clock: GETs}}, took: [[when it was answered, seconds]] with a rate, failed: {text: times}, moved}.
"""

import array
import binascii
import contextlib
import gc
import json
import os
import random
import select
import socket
import sys
import threading
import time
from collections import Counter, defaultdict, deque

import numpy
import redis
from resp import is_whole, moved_port, word

SLOTS = 1 << 14
#: Keys that are drawn at a time.
BLOCK = 1 << 14
#: What a GET may be late by in an open loop: this process sleeps for a millisecond at least.
OWN_S = 0.002
#: Connections to a node in an open loop, made before it begins; what is due beyond these waits. They are made one by
#: one with a pause, as a node that has little of a core takes them slowly. What it does not take is tried again a
#: second later.
CONNECTIONS, PAUSE_S = 64, 0.001
LOOK_S = 1.0


class Keys:
    """The keys of the table: 12 digits, as cluster_places.source has them."""

    def __init__(self, words: dict):
        names = [b"%s:%012d" % (words["table"].encode(), number) for number in range(words["records"])]
        self.commands = [word(b"GET", name) for name in names]
        self.slots = numpy.array([binascii.crc_hqx(name, 0) % SLOTS for name in names])
        partitions = numpy.searchsorted(words["bounds"], self.slots, side="right") - 1
        self.order = numpy.argsort(partitions, kind="stable")
        self.counts = numpy.bincount(partitions, minlength=len(words["bounds"]))
        self.firsts = numpy.cumsum(self.counts) - self.counts

    def drawn(self, shares: list, seed: int):
        """Numbers of keys, without an end."""
        chance = numpy.random.default_rng(seed)
        weights = numpy.array(shares) * (self.counts > 0)
        weights /= weights.sum()
        while True:
            partitions = chance.choice(len(weights), BLOCK, p=weights)
            places = (chance.random(BLOCK) * self.counts[partitions]).astype(numpy.int64)
            yield from self.order[self.firsts[partitions] + places].tolist()


class Routes:
    """Who has the keys: {range of each key} and [ports of each range]."""

    def __init__(self, words: dict, slots):
        self.words, self.slots = words, slots
        self.look(words["ports"][0])
        if words["spread"]:
            threading.Thread(target=self.keep, daemon=True).start()

    def look(self, port: int) -> None:
        with redis.Redis(port=port, socket_timeout=10, decode_responses=True) as client:
            rows = client.execute_command("KV.MAP", self.words["table"])
        ranges = numpy.searchsorted([int(row[0]) for row in rows], self.slots, side="right") - 1
        ports = [tuple(int(node.rsplit(":", 1)[1]) for node in row[2]) for row in rows]
        if not self.words["spread"]:
            ports = [of[:1] for of in ports]
        if all(ports):
            self.now = (ranges.tolist(), ports)

    def keep(self) -> None:
        for number in range(1 << 30):
            time.sleep(LOOK_S)
            with contextlib.suppress(redis.RedisError, OSError):
                self.look(self.words["ports"][number % len(self.words["ports"])])

    def moved(self, key: int, port: int) -> int:
        """The port of the node that MOVED names. It may name one of the node's ports for a class, which are beside its ordinary one; there a
        node forwards what another one leads, and says no more who that is."""
        node = max(one for one in self.words["ports"] if one <= port)
        if not self.words["spread"]:
            ranges, ports = self.now
            ports[ranges[key]] = (node,)
        return node


class Connection:
    __slots__ = ("begun", "free", "heard", "is_open", "key", "port", "slots", "socket")


class Client:
    def __init__(self, words: dict):
        self.words, self.keys = words, Keys(words)
        self.routes = Routes(words, self.keys.slots)
        self.next = self.keys.drawn(words["shares"], words["seed"]).__next__
        self.chance = random.Random(words["seed"]).random
        self.step = 1 / words["rate"] if words["rate"] else 0.0
        self.poll = select.epoll()
        self.poll.register(sys.stdin.fileno(), select.EPOLLIN)
        self.by_fd, self.free, self.waiting = {}, defaultdict(list), defaultdict(deque)
        self.answered, self.failed = defaultdict(Counter), Counter()
        self.moved, self.times, self.took = 0, array.array("d"), array.array("d")

    def connect(self, port: int) -> Connection:
        """Does not wait: what is sent over it goes once it is open."""
        one = Connection()
        one.port, one.heard, one.free, one.slots, one.key, one.is_open = port, b"", self.free[port], self.answered[port], None, False
        one.socket = socket.socket()
        one.socket.setblocking(False)
        one.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.socket.connect_ex(("127.0.0.1", port))
        self.by_fd[one.socket.fileno()] = one
        self.poll.register(one.socket.fileno(), select.EPOLLOUT)
        return one

    def opened(self, one: Connection) -> None:
        one.is_open = True
        self.poll.modify(one.socket.fileno(), select.EPOLLIN)
        if one.key is not None:
            self.send(one)

    def send(self, one: Connection) -> None:
        # One that is lost is told by the next look.
        with contextlib.suppress(OSError):
            one.socket.send(self.keys.commands[one.key])

    def begin(self, key: int, begun: float, port: int = 0) -> None:
        if not port:
            ranges, ports = self.routes.now
            of = ports[ranges[key]]
            port = of[0] if len(of) == 1 else of[int(self.chance() * len(of))]
        free = self.free[port]
        if free:
            one = free.pop()
        elif self.step:
            return self.waiting[port].append((key, begun))
        else:
            one = self.connect(port)
        one.key, one.begun = key, begun
        if one.is_open:
            self.send(one)

    def hear(self, one: Connection) -> None:
        """Takes what came; at the end of a reply the connection is free, and what waited for it or comes next is sent."""
        if not one.is_open:
            return self.opened(one)
        try:
            some = one.socket.recv(1 << 16)
        except OSError:
            some = b""
        if not some:
            return self.lost(one)
        heard = one.heard + some
        if not is_whole(heard):
            one.heard = heard
            return
        now, key, begun = time.monotonic(), one.key, one.begun
        one.heard = b""
        one.free.append(one)
        if heard.startswith(b"$") and heard[1] != 45:
            one.slots[int(now * 10)] += 1
            if self.step:
                self.times.append(now)
                self.took.append(now - begun)
        elif heard.startswith(b"-MOVED"):
            self.moved += 1
            return self.begin(key, begun, self.routes.moved(key, moved_port(heard)))
        else:
            self.failed[heard[:80].decode(errors="replace").strip()] += 1
        self.go_on(one.port, now)

    def go_on(self, port: int, now: float) -> None:
        if not self.step:
            self.begin(self.next(), now)
        elif self.waiting[port]:
            self.begin(*self.waiting[port].popleft(), port)

    def lost(self, one: Connection) -> None:
        self.failed["the connection was closed"] += 1
        self.poll.unregister(one.socket.fileno())
        del self.by_fd[one.socket.fileno()]
        one.socket.close()
        if one in one.free:
            one.free.remove(one)
        one.free.append(self.connect(one.port))
        self.go_on(one.port, time.monotonic())

    def due(self) -> float:
        """Sends what is due; how long nothing more is."""
        now = time.monotonic()
        while self.due_at <= now:
            self.begin(self.next(), self.due_at if now - self.due_at > OWN_S else now)
            self.due_at += self.step
        return self.due_at - now

    def go(self) -> None:
        if self.step:
            self.open_all()
        print("going", flush=True)
        stdin, by_fd, hear, poll = sys.stdin.fileno(), self.by_fd, self.hear, self.poll.poll
        self.due_at = time.monotonic()
        if not self.step:
            for _ in range(self.words["outstanding"]):
                self.begin(self.next(), self.due_at)
        while True:
            wait = self.due() if self.step else 1.0
            for fd, _ in poll(wait):
                if fd != stdin:
                    hear(by_fd[fd])
                elif line := sys.stdin.readline():
                    self.next = self.keys.drawn(json.loads(line), self.words["seed"]).__next__
                else:
                    return self.tell()

    def open_all(self) -> None:
        for port in self.words["ports"] * CONNECTIONS:
            self.free[port].append(self.connect(port))
            time.sleep(PAUSE_S)

    def tell(self) -> None:
        took = [[round(at, 3), round(took, 6)] for at, took in zip(self.times, self.took)]
        print(json.dumps({"answered": self.answered, "took": took, "failed": self.failed, "moved": self.moved}))


if __name__ == "__main__":
    # It is to wait for the nodes, not for other programs here. Not everybody may ask for that.
    with contextlib.suppress(PermissionError):
        os.nice(-10)
    gc.disable()
    Client(json.loads(sys.argv[1])).go()
