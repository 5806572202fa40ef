"""Relays in front of the nodes' peer ports. They forward or block the traffic between nodes."""

import os
import random
import socket
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial

# No test holds traffic for longer.
LIMIT_S = 100
# The answer to a frame of replica messages.
NOTHING = b"$0\r\n\r\n"


def owner_of(nodes, port, to):
    """The name of the node that opened the connection from this port to that one."""
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
    """Stands in front of a node's peer port, and knows the node behind each connection. It forwards
    data between nodes that are not cut off from each other."""

    def __init__(self, made, node):
        self.made, self.node = made, node
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                asker, address = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(asker, address[1]), daemon=True).start()

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
        """Blocks silently while the two nodes are cut off from each other."""
        if None in (source, to) or self.made.is_cut(source, to):
            self.made.healed.wait(LIMIT_S)
            raise ConnectionError

    def pump(self, reader, writer, source, to):
        with suppress(OSError):
            while data := reader.recv(1 << 16):
                self.pass_if_whole(source, to)
                writer.sendall(data)
        close(reader, writer)

    def end(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


def close(*ends):
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class NetworkFaults:
    """Faults between nodes, drawn from a seed.

    `cuts` holds pairs (from, to) of nodes. Frames from one to the other are held silently. After
    `heal` they arrive late, as on a network that retransmits.
    """

    def __init__(self, seed):
        self.lock = threading.Condition()
        self.cuts = set()
        # Shares of replica-message frames that are lost or doubled, and the longest delay of one
        # frame in ten.
        self.lost, self.doubled, self.delay_s = 0.0, 0.0, 0.0
        self.begin(seed)

    def begin(self, seed):
        """Prepares the next test, while connections stay open."""
        self.chance = random.Random(f"weather {seed}")
        self.counts = dict.fromkeys(("passed", "lost", "doubled", "delayed", "held"), 0)

    def is_cut(self, source, to):
        return (source, to) in self.cuts

    def cut(self, *pairs):
        with self.lock:
            self.cuts |= set(pairs)

    def cut_off(self, name, others, directions=("from", "to")):
        """Cuts a node off from the others: what it sends, what it receives, or both."""
        sent = {(name, other) for other in others} if "from" in directions else set()
        received = {(other, name) for other in others} if "to" in directions else set()
        self.cut(*sent, *received)

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
        """How often to forward a frame of replica messages, and after what delay."""
        with self.lock:
            fate, is_late = self.chance.random(), self.chance.random() < 0.1
            pause_s = self.chance.random() * self.delay_s if is_late else 0
            copies = 0 if fate < self.lost else 2 if fate > 1 - self.doubled else 1
            self.counts[("lost", "passed", "doubled")[copies]] += 1
            self.counts["delayed"] += pause_s > 0
        return copies, pause_s


class FrameRelay(Relay):
    """Knows frames: it can lose, double and delay those with replica messages. Their answers are
    empty: the relay makes up the answer to a lost frame, and drops the second answer to a doubled
    one."""

    def serve(self, asker, port):
        to = self.listener.getsockname()[1]
        source = owner_of(self.made.alive(), port, to)
        if source is None:
            return close(asker)
        with asker, suppress(OSError):
            self.made.faults.wait_whole(source, self.node.name)
            with socket.create_connection(("127.0.0.1", self.node.peer)) as node:
                asker.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                node.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.join(asker, node, source)

    def join(self, asker, node, source):
        answers = Answers()
        back = partial(self.answers, node, asker, source, answers)
        threading.Thread(target=back, daemon=True).start()
        self.requests(asker, node, source, answers)

    def requests(self, asker, node, source, answers):
        faults = self.made.faults
        with suppress(OSError, ValueError):
            for frame, name in frames(asker):
                copies, pause_s = faults.copies() if name == b"fb.groups" else (1, 0)
                time.sleep(pause_s)
                faults.wait_whole(source, self.node.name)
                answers.expect(copies, asker)
                for _ in range(copies):
                    node.sendall(frame)
        close(asker, node)

    def answers(self, node, asker, source, answers):
        with suppress(OSError, ValueError):
            for answer, _ in frames(node):
                self.made.faults.wait_whole(self.node.name, source)
                answers.give(answer, asker)
        close(asker, node)


class Answers:
    """The pending answers of a connection, in the order of the requests."""

    def __init__(self):
        self.lock, self.due = threading.Lock(), deque()

    def expect(self, copies, asker):
        with self.lock:
            self.due.append(copies)
            self.make_up(asker)

    def give(self, answer, asker):
        with self.lock:
            self.due[0] -= 1
            # Only one answer of a doubled frame is forwarded.
            if self.due[0] == 0:
                self.due.popleft()
                asker.sendall(answer)
            self.make_up(asker)

    def make_up(self, asker):
        while self.due and self.due[0] == 0:
            self.due.popleft()
            asker.sendall(NOTHING)


def frames(end):
    """The frames and answers of a connection: the bytes, and the first word, if any."""
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
        """The begin and end of the bulk string at this position."""
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
