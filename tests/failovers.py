"""Injects faults into the leader of a live table's partition, under three client libraries.

`make test-failovers` calls it. Each library writes every key once, with one writer per partition.
In turn, a leader is killed, stopped or cut off from the other nodes. The script prints how long
writes to the partitions of that node paused. It exits with 1 if an acknowledged write is lost, or
if a refused write appears.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import redis
from harness import WAIT_S, wait_for
from histories import FAILED, is_refused
from lossy_network import LossyCluster
from measured import build, commit
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.retry import Retry

HERE = Path(__file__).parent
# Pause between two writes of a writer.
PAUSE_S = 0.05
CLIENT_LIMIT_S = 2
GATEWAY_LIMIT_S = 5
# A longer pause counts as one of this length.
LONGEST_S = 30
KINDS = ("killed", "stopped", "cut off")
TARGETS = {"median": 4, "worst": 8}


class WriteResults:
    """The results of a library's writes. For each partition, `seen` holds begin and end of the
    acknowledged writes."""

    def __init__(self, name, partitions):
        self.name, self.is_over = name, False
        self.acknowledged, self.refused, self.uncertain = [], [], 0
        self.seen = [[] for _ in range(partitions)]
        self.errors = {}

    def note(self, place, key, begin, end, error=None, is_certain=False):
        if error is None:
            self.acknowledged.append(key)
            self.seen[place].append((begin, end))
            return
        self.errors[error[:60]] = self.errors.get(error[:60], 0) + 1
        if is_certain:
            self.refused.append(key)
        else:
            self.uncertain += 1

    def has_written(self, place, since):
        return any(begin >= since for begin, _ in self.seen[place][-1:])

    def pause(self, place, since, until):
        """The longest time between two acknowledged writes."""
        ends = [end for _, end in list(self.seen[place])]
        before = max((end for end in ends if end <= since), default=since)
        within = [before, *sorted(end for end in ends if since < end <= until)]
        within += [until] if len(within) == 1 else []
        return max(after - one for one, after in zip(within, within[1:], strict=False))


class PythonWriters(WriteResults):
    """Threads with redis-py. `connect(place)` returns a client."""

    def __init__(self, name, tags, connect):
        super().__init__(name, len(tags))
        self.connect = connect
        self.threads = [
            threading.Thread(target=self.write, args=row, daemon=True) for row in enumerate(tags)
        ]

    def start(self):
        for thread in self.threads:
            thread.start()

    def write(self, place, tag):
        client, at, number = None, None, 0
        while not self.is_over:
            time.sleep(PAUSE_S)
            try:
                client, at = self.connect(client, at)
            except (*FAILED, OSError):
                continue
            number += 1
            key = f"t:{{{tag}}}{self.name}-{number}"
            begin = time.time()
            try:
                client.set(key, key)
            except FAILED as error:
                text = f"{type(error).__name__} {error}"
                self.note(place, key, begin, 0, text, is_refused(str(error), error))
                continue
            self.note(place, key, begin, time.time())

    def end(self):
        self.is_over = True
        for thread in self.threads:
            thread.join(WAIT_S)


class Gateway:
    """A client at a node's gateway. As behind a load balancer, that node is not the faulty one."""

    def __init__(self, node):
        self.node = node

    def connect(self, client, at):
        if at is not self.node:
            if client:
                client.close()
            at = self.node
            client = at.through_gateway(socket_timeout=GATEWAY_LIMIT_S, socket_connect_timeout=1)
        return client, at


class ClusterClients:
    """One RedisCluster per writer. With a shared one, a lost connection fails other threads with
    ValueError (redis-py 8.1.0)."""

    def __init__(self, nodes):
        self.nodes = nodes

    def connect(self, client, _):
        client = client or redis.RedisCluster(
            startup_nodes=[ClusterNode("127.0.0.1", node.port) for node in self.nodes],
            retry=Retry(NoBackoff(), 0),
            socket_timeout=CLIENT_LIMIT_S,
            socket_connect_timeout=CLIENT_LIMIT_S,
        )
        return client, None


class NodeWriters(WriteResults):
    """ioredis in its own process, which prints one line per write."""

    def __init__(self, tags, nodes):
        super().__init__("ioredis", len(tags))
        ports = ",".join(str(node.port) for node in nodes)
        script = HERE / "node/failovers.mjs"
        words = ["node", script, ports, self.name, str(int(PAUSE_S * 1000)), *tags]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self.listener = threading.Thread(target=self.listen, daemon=True)

    def start(self):
        self.listener.start()

    def listen(self):
        for line in self.process.stdout:
            entry = json.loads(line)
            error = entry["error"]
            place, key, begin, end = (entry[name] for name in ("place", "key", "begin", "end"))
            is_certain = bool(error) and is_refused(error, redis.ResponseError(error))
            self.note(place, key, begin, end, error, is_certain)

    def end(self):
        self.process.stdin.close()
        self.listener.join(WAIT_S)
        self.process.kill()
        self.process.wait()


class Failovers:
    """Failovers, and the pauses that writers measured: rows of (kind, library, pause in
    seconds)."""

    def __init__(self, made, chance):
        self.made, self.chance, self.rows = made, chance, []
        self.gateway = Gateway(made.nodes[0])
        self.writers = [
            PythonWriters("redis-py at a gateway", made.tags, self.gateway.connect),
            PythonWriters("redis-py, RedisCluster", made.tags, ClusterClients(made.nodes).connect),
            NodeWriters(made.tags, made.nodes),
        ]

    def all_write(self, places, since):
        return all(one.has_written(place, since) for one in self.writers for place in places)

    def wait_writes(self, places, seconds):
        since = time.time()
        with contextlib.suppress(AssertionError):
            wait_for(lambda: self.all_write(places, since), "writes", seconds)

    def once(self, kind):
        """Runs one failover, and returns the pauses by library."""
        made = self.made
        made.wait_up()
        made.wait_whole()
        self.wait_writes(range(len(made.tags)), LONGEST_S)
        leaders = made.leaders(made.nodes[0])
        faulty = leaders[self.chance.randrange(len(leaders))]
        places = [place for place, node in enumerate(leaders) if node is faulty]
        self.gateway.node = self.chance.choice(made.others(faulty))
        self.wait_writes(range(len(made.tags)), LONGEST_S)
        since = time.time()
        self.inject(kind, faulty)
        with contextlib.suppress(AssertionError):
            wait_for(lambda: made.has_moved(faulty, places), "other nodes lead", LONGEST_S, 0.1)
        self.wait_writes(places, max(1, since + LONGEST_S - time.time()))
        until = time.time()
        self.undo(kind, faulty)
        pauses = {
            one.name: max(one.pause(place, since, until) for place in places)
            for one in self.writers
        }
        self.rows += [(kind, name, pause) for name, pause in pauses.items()]
        return pauses

    def inject(self, kind, node):
        if kind == "killed":
            node.kill()
        elif kind == "stopped":
            node.signal(signal.SIGSTOP)
        else:
            self.made.cut_off(node)

    def undo(self, kind, node):
        if kind == "killed":
            node.start().wait_listening()
        elif kind == "stopped":
            node.signal(signal.SIGCONT)
        else:
            self.made.faults.heal()

    def run(self, count, seconds):
        begun = time.monotonic()
        for one in self.writers:
            one.start()
        try:
            for number in range(count):
                if time.monotonic() - begun > seconds:
                    break
                kind = KINDS[number % len(KINDS)]
                pauses = self.once(kind)
                words = ", ".join(f"{name} {pause:.2f} s" for name, pause in pauses.items())
                past = time.monotonic() - begun
                print(f"{past:7.1f} s  {number + 1}, {kind}: {words}", flush=True)
        finally:
            self.made.faults.heal()
            for one in self.writers:
                one.end()
        self.made.wait_up()
        self.made.wait_whole()
        return time.monotonic() - begun

    def wrong(self):
        """Per library, the acknowledged writes that are lost, and the refused writes that
        appeared."""
        node = self.made.nodes[0]
        found = {}
        for one in self.writers:
            lost = [key for key, value in read(node, one.acknowledged) if value != key]
            appeared = [key for key, value in read(node, one.refused) if value is not None]
            found[one.name] = (lost, appeared)
        return found


def read(node, keys):
    with node.through_gateway() as client:
        for at in range(0, len(keys), 500):
            part = keys[at : at + 500]
            yield from zip(part, client.mget(part), strict=True)


def row(name, pauses):
    median, worst = statistics.median(pauses), max(pauses)
    return f"| {name} | {len(pauses)} | {median:.2f} | {worst:.2f} |"


def report(done, wrong, took_s, head):
    """The results as a page."""
    lines = [head, "| library | failovers | median s | worst s |"]
    lines += ["| --- | ---: | ---: | ---: |"]
    lines += [
        row(one.name, [pause for _, name, pause in done.rows if name == one.name])
        for one in done.writers
    ]
    lines += ["", "| fault | library | failovers | median s | worst s |"]
    lines += ["| --- | --- | ---: | ---: | ---: |"]
    for kind in KINDS:
        for one in done.writers:
            pauses = [at for what, name, at in done.rows if (what, name) == (kind, one.name)]
            lines += [f"| {kind} {row(one.name, pauses)}"] if pauses else []
    lines += ["", "| library | acknowledged | lost | refused | appeared | uncertain |"]
    lines += ["| --- | ---: | ---: | ---: | ---: | ---: |"]
    for one in done.writers:
        lost, appeared = (len(keys) for keys in wrong[one.name])
        counts = [len(one.acknowledged), lost, len(one.refused), appeared, one.uncertain]
        lines.append(f"| {one.name} | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join([*lines, "", f"It took {took_s:.0f} s."]) + "\n"


def heading(seed, load):
    installed = json.loads((HERE / "node/node_modules/ioredis/package.json").read_text())
    node = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout.strip()
    targets = f"median {TARGETS['median']} s, worst {TARGETS['worst']} s"
    return f"""# Failovers of live tables under clients

{time.strftime("%Y-%m-%d")}, `make test-failovers` at {commit()}, a {build()} build, seed {seed}.
redis-py {redis.__version__}, ioredis {installed["version"]} on Node.js {node}.
Machine: {os.cpu_count()} cores, shared with other work (load {load:.1f} before the run).

Three nodes on loopback, a live table with 3 replicas, 6 partitions and `--durability os`. Each
library has a writer for each partition, which writes a new key every {PAUSE_S * 1000:.0f} ms and
sends nothing again. Limits of the clients: {CLIENT_LIMIT_S} s, at the gateway {GATEWAY_LIMIT_S} s;
ioredis asks for the slots every second. The gateway is never that of the faulty node, as behind a
load balancer. The pause is the longest time between two acknowledged writes to a partition that the
faulty node led, and of several partitions the longest. Targets: {targets}, nothing
lost, nothing that was refused appears. A pause of {LONGEST_S} s did not end while the fault lasted.
"""


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--failovers", type=int, default=50)
    words.add_argument("--seconds", type=float, default=3600, help="begin no failover after these")
    words.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    words.add_argument("--results", type=Path, help="write the results to this file, too")
    asked = words.parse_args()
    head = heading(asked.seed, os.getloadavg()[0])
    print(head)
    with tempfile.TemporaryDirectory(prefix="forebay-failovers-") as directory:
        made = LossyCluster(Path(directory), asked.seed, node_timeout=None)
        try:
            done = Failovers(made.start(), random.Random(asked.seed))
            took_s = done.run(asked.failovers, asked.seconds)
            wrong = done.wrong()
        finally:
            made.end()
        made.check_logs()
    page = report(done, wrong, took_s, head)
    print(page[len(head) :])
    for one in done.writers:
        for text, count in sorted(one.errors.items(), key=lambda pair: -pair[1])[:8]:
            print(f"{one.name}: {count} x {text}")
        for what, keys in zip(("lost", "appeared"), wrong[one.name], strict=True):
            print(f"{one.name}: {what}: {keys[:20]}") if keys else None
    if asked.results:
        asked.results.write_text(page)
    sys.exit(1 if any(keys for pair in wrong.values() for keys in pair) else 0)


if __name__ == "__main__":
    main()
