"""Clients that write and read live tables of a cluster, and record all results."""

import contextlib
import json
import random
import subprocess
import threading
import time
from functools import partial
from pathlib import Path

import redis
from harness import WAIT_S, wait_for
from linearizability import Operation, show, violations
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

IOREDIS = Path(__file__).parent / "node/history.mjs"
# Pause between two commands of a client.
PAUSE_S = 0.01
# An error that begins with one of these words proves that nothing was written.
REFUSED = ("NOREPLICAS", "TRYAGAIN", "CLUSTERDOWN", "MOVED", "LOADING")
# RedisClusterException is no RedisError.
FAILED = (redis.RedisError, RedisClusterException)
# After these errors the command may have been sent, and the client needs a new connection. A client
# that kept its connection would have many more uncertain writes.
CONNECTION_LOST = (redis.ConnectionError, redis.TimeoutError, RedisClusterException)
KINDS = ["get", "get", "get", "set", "set", "cas", "del"]


def gateway(node):
    return node.through_gateway(socket_timeout=8)


def cluster_client(node):
    """A client that follows redirects and never retries."""
    options = {"retry": Retry(NoBackoff(), 0), "socket_timeout": 8, "socket_connect_timeout": 2}
    return node.cluster_client(**options)


class Recorder(threading.Thread):
    """One client. `history` holds keys and operations. It omits refused writes, so that no read may
    return them."""

    def __init__(self, name, connect, seed, keys):
        super().__init__(daemon=True)
        self.name, self.connect, self.keys = name, connect, keys
        self.chance = random.Random(f"{seed} {name}")
        self.history, self.errors, self.is_over = [], [], False
        self.written, self.last_seen, self.answered = 0, {}, 0

    def run(self):
        client = None
        while not self.is_over:
            time.sleep(PAUSE_S)
            try:
                client = client or self.connect()
            except (*FAILED, OSError):
                continue
            try:
                self.once(client)
            except CONNECTION_LOST:
                with contextlib.suppress(Exception):
                    client.close()
                client = None

    def once(self, client):
        kind, key = self.chance.choice(["incr", "get"]), f"t:n{self.chance.randrange(self.keys)}"
        if self.chance.random() < 0.75:
            kind, key = self.chance.choice(KINDS), f"t:r{self.chance.randrange(self.keys)}"
        self.written += 1
        new = f"{self.name}-{self.written}"
        args = {"get": (), "set": (new,), "incr": (1,), "del": ()}.get(kind)
        if kind == "cas":
            if self.last_seen.get(key) is None:
                return
            args = (self.last_seen[key], new)
        begin = time.time()
        try:
            result = ask(client, kind, key, args)
        except FAILED as error:
            self.failed(kind, key, args, begin, error)
            if isinstance(error, CONNECTION_LOST):
                raise
            return
        self.answered += kind != "get"
        if kind == "get":
            self.last_seen[key] = result
        self.history.append((key, Operation(kind, args, result, begin, time.time())))

    def failed(self, kind, key, args, begin, error):
        text = str(error)
        self.errors.append((begin, f"{type(error).__name__} {text}"))
        if kind != "get" and not is_refused(text, error):
            self.history.append((key, Operation(kind, args, None, begin)))


def ask(client, kind, key, args):
    if kind == "get":
        return client.get(key)
    if kind == "set":
        return bool(client.set(key, *args))
    if kind == "incr":
        return client.incr(key)
    if kind == "del":
        return client.delete(key)
    return bool(client.execute_command("SET", key, args[1], "IFEQ", args[0]))


def is_refused(text, error=None):
    """Whether an error proves that nothing was written."""
    if isinstance(error, redis.ConnectionError) and "refused" in text.lower():
        return True
    words = text.split(": ", 1)[-1] if text.startswith("Command #") else text
    is_refusal = isinstance(error, redis.ResponseError) and words.startswith(REFUSED)
    return is_refusal or "nothing was written" in text


class NodeRecorder:
    """A recorder for ioredis in its own process, which prints one line per command."""

    def __init__(self, name, node, seed, keys):
        words = ["node", str(IOREDIS), str(node.port), name, str(seed), str(keys)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.name, self.history, self.errors, self.answered = name, [], [], 0
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.last_seen = {}

    def start(self):
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            entry = json.loads(line)
            kind, key, args = entry["kind"], entry["key"], tuple(entry["args"])
            if "error" not in entry:
                result = bool(entry["result"]) if kind in ("set", "cas") else entry["result"]
                one = Operation(kind, args, result, entry["begin"], entry["end"])
                self.history.append((key, one))
                self.answered += kind != "get"
                continue
            self.errors.append((entry["begin"], entry["error"]))
            is_certain = entry["error"].startswith(REFUSED) or is_refused(entry["error"])
            if kind != "get" and not is_certain:
                self.history.append((key, Operation(kind, args, None, entry["begin"])))

    def end(self):
        self.process.stdin.close()
        self.listener.join(WAIT_S)
        self.process.kill()
        self.process.wait()


def read_keys(node, keys):
    """The values of all keys from one node, once it answers."""
    names = [f"t:{kind}{i}" for kind in "rn" for i in range(keys)]
    found = {}

    def answers():
        with gateway(node) as client:
            try:
                found.update((name, client.get(name)) for name in names)
            except redis.RedisError:
                return False
        return True

    wait_for(answers, "all keys are answered")
    return found


class Clients:
    """All clients of a test."""

    def __init__(self, nodes, seed, keys):
        self.all = [
            *(Recorder(f"gw{one.name}", partial(gateway, one), seed, keys) for one in nodes),
            *(
                Recorder(f"cl{one.name}", partial(cluster_client, one), seed, keys)
                for one in nodes[:2]
            ),
            NodeRecorder("io", nodes[-1], seed, keys),
        ]

    def __enter__(self):
        for one in self.all:
            one.start()
        return self

    def __exit__(self, *_):
        for one in self.all:
            one.is_over = True
        for one in self.all:
            one.end() if isinstance(one, NodeRecorder) else one.join(WAIT_S)

    def answered(self):
        return sum(one.answered for one in self.all)

    def resume(self, count=60):
        """Waits for `count` more answered writes, and returns the seconds it took."""
        seen = self.answered()
        progress = lambda: f"writes are answered: {[one.errors[-1:] for one in self.all]}"  # noqa: E731
        return wait_for(lambda: self.answered() >= seen + count, progress)

    def history(self):
        return [one for client in self.all for one in list(client.history)]

    def count_failures(self):
        """How many writes were uncertain, and how many commands the cluster refused."""
        uncertain = sum(one.is_uncertain for _, one in self.history())
        errors = [text for client in self.all for _, text in list(client.errors)]
        return uncertain, sum(any(word in text for word in REFUSED) for text in errors)

    def check(self, seed, final):
        """Checks that all results, together with the final content, are linearizable."""
        end = time.time()
        history = self.history()
        history += [(key, Operation("get", (), value, end, end)) for key, value in final.items()]
        found = violations(history)
        for key, why in found.items():
            print(f"seed {seed}, {key}: {why}\n{show(history, key)}")
        assert not found, (seed, found)
        return len(history)
