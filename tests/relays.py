"""Relays before the peer ports of nodes, which pass on what nodes say to each other, or do not."""

import os
import random
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial

# Longer than anything here is held.
LIMIT_S = 100
# What the answer to a frame of replicas' messages says.
NOTHING = b"$0\r\n\r\n"


def owner_of(nodes, port, to):
    """The name of the node whose connection this is, from this port to that one."""
    ends = [f"0100007F:{port:04X}", f"0100007F:{to:04X}"]
    with open("/proc/net/tcp") as table:
        lines = [line.split() for line in table]
    sockets = {f"socket:[{line[9]}]" for line in lines if line[1:3] == ends}
    for node in nodes:
        with suppress(OSError):
            for entry in os.scandir(f"/proc/{node.process.pid}/fd"):
                with suppress(OSError):
                    if os.readlink(entry.path) in sockets:
                        return node.name
    return None


class Relay:
    """Stands before a node's peer port, knows which node each connection is from, and passes on
    what is said between nodes that are not cut off from each other."""

    def __init__(self, made, node):
        self.made, self.node = made, node
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                there, address = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(there, address[1]), daemon=True).start()

    def serve(self, asker, port):
        to = self.listener.getsockname()[1]
        source = owner_of(self.made.alive(), port, to)
        with asker, suppress(OSError):
            self.pass_if_whole(source, self.node.name)
            with socket.create_connection(("127.0.0.1", self.node.peer)) as node:
                self.join(asker, node, source)

    def join(self, asker, node, source):
        back = partial(self.pump, node, asker, self.node.name, source)
        threading.Thread(target=back, daemon=True).start()
        self.pump(asker, node, source, self.node.name)

    def pass_if_whole(self, source, to):
        """While the two are cut off nothing comes through, and nobody is told so."""
        if None in (source, to) or self.made.is_cut(source, to):
            self.made.healed.wait(LIMIT_S)
            raise ConnectionError

    def pump(self, here, there, source, to):
        with suppress(OSError):
            while data := here.recv(1 << 16):
                self.pass_if_whole(source, to)
                there.sendall(data)
        close(here, there)

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def close(*ends):
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class Weather:
    """What becomes of frames between nodes; drawn from a seed.

    `cuts` has pairs (from, to): what one says does not reach the other, in silence. Once it heals,
    what was held comes, late, as a network does that sends again.
    """

    def __init__(self, seed):
        self.lock = threading.Condition()
        self.cuts = set()
        # Of the frames with replicas' messages: those lost, those doubled, and the longest delay
        # of one in ten.
        self.lost, self.doubled, self.delay_s = 0.0, 0.0, 0.0
        self.begin(seed)

    def begin(self, seed):
        """Another test, while connections stay."""
        self.chance = random.Random(f"weather {seed}")
        self.counts = dict.fromkeys(("passed", "lost", "doubled", "delayed", "held"), 0)

    def is_cut(self, source, to):
        return (source, to) in self.cuts

    def cut(self, *pairs):
        with self.lock:
            self.cuts |= set(pairs)

    def cut_off(self, name, others, ways=("from", "to")):
        """A node from the others: what it says, what it hears, or both."""
        said = {(name, other) for other in others} if "from" in ways else set()
        heard = {(other, name) for other in others} if "to" in ways else set()
        self.cut(*said, *heard)

    def heal(self):
        with self.lock:
            self.cuts.clear()
            self.lost = self.doubled = self.delay_s = 0.0
            self.lock.notify_all()

    def wait_whole(self, source, to):
        with self.lock:
            if self.is_cut(source, to):
                self.counts["held"] += 1
            if not self.lock.wait_for(lambda: not self.is_cut(source, to), LIMIT_S):
                raise ConnectionError

    def copies(self):
        """How often a frame of replicas' messages is passed on, after how long."""
        with self.lock:
            fate, is_late = self.chance.random(), self.chance.random() < 0.1
            pause_s = self.chance.random() * self.delay_s if is_late else 0
            copies = 0 if fate < self.lost else 2 if fate > 1 - self.doubled else 1
            self.counts[("lost", "passed", "doubled")[copies]] += 1
            self.counts["delayed"] += pause_s > 0
        return copies, pause_s


class FrameRelay(Relay):
    """Knows the frames: those of replicas' messages can be lost, doubled and late. Their answers
    say nothing: of a lost one it is made up, of a double the second is kept back."""

    def serve(self, asker, port):
        to = self.listener.getsockname()[1]
        source = owner_of(self.made.alive(), port, to)
        if source is None:
            return close(asker)
        with asker, suppress(OSError):
            self.made.weather.wait_whole(source, self.node.name)
            with socket.create_connection(("127.0.0.1", self.node.peer)) as node:
                asker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.join(asker, node, source)

    def join(self, asker, node, source):
        answers = Answers()
        back = partial(self.answers, node, asker, source, answers)
        threading.Thread(target=back, daemon=True).start()
        self.questions(asker, node, source, answers)

    def questions(self, asker, node, source, answers):
        weather = self.made.weather
        with suppress(OSError, ValueError):
            for frame, name in frames(asker):
                copies, pause_s = weather.copies() if name == b"fb.groups" else (1, 0)
                time.sleep(pause_s)
                weather.wait_whole(source, self.node.name)
                answers.expect(copies, asker)
                for _ in range(copies):
                    node.sendall(frame)
        close(asker, node)

    def answers(self, node, asker, source, answers):
        with suppress(OSError, ValueError):
            for answer, _ in frames(node):
                self.made.weather.wait_whole(self.node.name, source)
                answers.give(answer, asker)
        close(asker, node)


class Answers:
    """The answers of a connection that are still to come, in the order of the questions."""

    def __init__(self):
        self.lock, self.due = threading.Lock(), deque()

    def expect(self, copies, asker):
        with self.lock:
            self.due.append(copies)
            self.make_up(asker)

    def give(self, answer, asker):
        with self.lock:
            self.due[0] -= 1
            # One of a double is enough.
            if self.due[0] == 0:
                self.due.popleft()
                asker.sendall(answer)
            self.make_up(asker)

    def make_up(self, asker):
        while self.due and self.due[0] == 0:
            self.due.popleft()
            asker.sendall(NOTHING)


def frames(end):
    """What comes as frames and answers: the bytes, and the first word where there are words."""
    held = bytearray()

    def more():
        data = end.recv(1 << 16)
        held.extend(data)
        return bool(data)

    def line(at):
        while (stop := held.find(b"\r\n", at)) < 0:
            if not more():
                return None
        return stop

    def bulk(at):
        """Where the bulk string that begins here lies, and where it ends."""
        stop = line(at)
        if stop is None:
            return None
        start, size = stop + 2, max(int(held[at + 1 : stop]), 0)
        while len(held) < start + size + 2:
            if not more():
                return None
        return start, start + size

    while (stop := line(0)) is not None:
        first, at = b"", stop + 2
        count = int(held[1:stop]) if held[:1] == b"*" else int(held[:1] == b"$")
        at = 0 if held[:1] == b"$" else at
        for number in range(count):
            place = bulk(at)
            if place is None:
                return
            first = bytes(held[slice(*place)]) if number == 0 and held[:1] == b"*" else first
            at = place[1] + 2
        yield bytes(held[:at]), first
        del held[:at]
