"""Runs clients of Redis Cluster against a cluster of five real nodes, to which things happen.

`make test-clients` calls it. Each client is a program of its own (python/reading.py says what it
takes and prints). All of them read, while tables are replaced and taken back, and nodes are killed,
stopped and started again. It ends with a table, and with 1 when a client was given a wrong answer,
did not read, or failed too often.
"""

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from cluster import Cluster  # noqa: E402
from harness import Store  # noqa: E402

GROUPS = 500
KEYS = [f"{{{group}}}:{i}" for group in range(GROUPS) for i in range(4)]
TABLES = ("people", "prices")
# More versions of a table than there are.
MOST_VERSIONS = 9
# The exit code of a rollout that left nodes out.
LEFT_OUT = 6
# How long a client may take to begin.
START_S = 60
# How long clients read between two events.
QUIET_S = 4
# A node is away for more than half of the time. A client that never learned of it would fail with a
# fifth of its GETs and most of its MGETs over slots then: a fifth of all its reads and more. So one
# that fails with less than half as many has learned what there was to learn, however slowly.
MOST_FAILED = 0.1
# redis-cli learns nothing: it gives one command to one node, and every fifth time that one is away.
# redis-rs 1.8.1, the blocking one, sends no part of a split MGET again: each of these that meets a
# redirect fails or panics, and so do all of them until it comes to know that a node is away.
MOST_FAILED_OF = {"redis-cli": 0.2, "redis-rs": 0.2}

PYTHON = [sys.executable]
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp"]
JAVA += [f"{HERE}/java/target/classes:{HERE}/java/target/lib/*"]

BUILT = HERE / "java/target/built"
MODULES = HERE / "node/node_modules/installed.json"
RUST = HERE / "rust/target/debug/redis-rs"

# How a client is run, what is there when it was installed, and whether it reads from replicas.
CLIENTS = {
    "redis-py": ([*PYTHON, HERE / "python/redis_py.py"], HERE, True),
    "valkey-glide": ([*PYTHON, HERE / "python/valkey_glide.py"], HERE, True),
    "redis-cli": ([*PYTHON, HERE / "python/redis_cli.py"], HERE, False),
    "go-redis": ([HERE / "go/bin/go-redis"], HERE / "go/bin/go-redis", True),
    "rueidis": ([HERE / "go/bin/rueidis"], HERE / "go/bin/rueidis", True),
    "jedis": ([*JAVA, "forebay.clients.JedisReads"], BUILT, True),
    "lettuce": ([*JAVA, "forebay.clients.LettuceReads"], BUILT, True),
    "ioredis": (["node", HERE / "node/ioredis.mjs"], MODULES, True),
    "node-redis": (["node", HERE / "node/node-redis.mjs"], MODULES, True),
    "redis-rs": ([RUST, "sync"], RUST, True),
    "redis-rs-tokio": ([RUST, "async"], RUST, True),
}


class Client:
    """A client that reads until it is told to end."""

    def __init__(self, name, variant, words, directory, arguments):
        self.name, self.variant = name, variant
        self.log = directory / f"{name}-{variant}.log"
        self.lines, self.reading = [], threading.Event()
        command = [*map(str, words), variant, *arguments]
        with self.log.open("wb") as log:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True)
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self):
        for line in self.process.stdout:
            self.lines.append(line)
            self.reading.set()
        self.reading.set()

    def end(self):
        """What it tells; None when it ended without a word."""
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.listener.join(90)
        self.kill()
        last = self.lines[-1] if self.lines else ""
        return json.loads(last) if last.startswith("{") else None

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Events:
    """What is done to the cluster, and when."""

    def __init__(self, cluster):
        self.cluster, self.store, self.seen = cluster, cluster.store, []
        self.began = time.time()
        self.versions = dict.fromkeys(TABLES, 0)
        self.turns = list(cluster.nodes)

    def note(self, text):
        self.seen.append((time.time(), text))
        print(f"{time.time() - self.began:7.1f} s  {text}", flush=True)

    def before(self, at):
        """The last event before a moment."""
        return next((text for then, text in reversed(self.seen) if then <= at), "start")

    def rollout(self, *words, codes=(0,)):
        """A command that changes what serves, or where."""
        begun = time.monotonic()
        result = self.store.run(*words, code=None)
        self.note(f"{' '.join(words[:2])}: {time.monotonic() - begun:.1f} s")
        if result.code not in codes:
            raise SystemExit(f"{words}: exit code {result.code}\n{result.err}{result.out}")

    def push(self, table, *more, codes=(0,)):
        """The next version of a table, whose values say that they are of this one."""
        self.versions[table] += 1
        version = self.versions[table]
        values = [f"{table}:{one} {version}" for one in KEYS]
        source = self.store.path.parent / f"{table}-{version}.parquet"
        pq.write_table(pa.table({"id": KEYS, "value": values}), source)
        words = ["--key", "{id}", "--value", "value", "--force", *more]
        self.rollout("push", table, str(source), *words, codes=codes)

    def quiet(self):
        """Clients read on while nothing happens."""
        time.sleep(QUIET_S)

    def back(self, node):
        node.start().comes_up()
        self.cluster.wait_up()
        self.note(f"{node.name} is back")
        self.quiet()

    def happen(self):
        self.note("nothing happens")
        self.quiet()
        self.push("people")
        self.rollout("rollback", "people")
        self.push("prices", "--no-swap")
        self.rollout("swap", "people@2", "prices@2", "--force")
        self.quiet()

        self.kill(self.other_than_coordinator(), "people")
        self.rollout("rollback", "people")
        self.stop(self.other_than_coordinator(), "prices")
        self.kill(self.cluster.coordinator(), "people")
        self.drain(self.other_than_coordinator())

        self.push("people")
        self.rollout("rollback", "people", "prices")
        self.quiet()

    def other_than_coordinator(self):
        """Another node each time."""
        coordinator = self.cluster.coordinator()
        node = next(node for node in self.turns if node is not coordinator)
        self.turns.remove(node)
        self.turns.append(node)
        return node

    def kill(self, node, table):
        self.note(f"kill -9 {node.name}")
        node.kill()
        self.quiet()
        self.push(table, codes=(0, LEFT_OUT))
        self.back(node)

    def stop(self, node, table):
        self.note(f"SIGTERM {node.name}")
        node.stop()
        self.quiet()
        self.push(table, codes=(0, LEFT_OUT))
        self.back(node)

    def drain(self, node):
        self.rollout("cluster", "drain", node.name, "--yes")
        self.quiet()
        self.push("prices")
        self.rollout("cluster", "add", node.name, "--yes")
        self.quiet()


def start_clients(clients, names, cluster, directory):
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    arguments = [addresses, str(GROUPS), str(MOST_VERSIONS)]
    for name in names:
        words, _, has_replicas = CLIENTS[name]
        for variant in ["primary", "replicas"] if has_replicas else ["primary"]:
            clients.append(Client(name, variant, words, directory, arguments))
            # One by one: they begin faster than all at once.
            clients[-1].reading.wait(START_S)


def run(names, directory):
    """What the clients tell, and what is wrong with it."""
    cluster = Cluster(Store(directory / "store"), directory, 5, 3, node_timeout=None)
    clients = []
    try:
        events = Events(cluster.start())
        for table in TABLES:
            events.push(table, "--replicas", "3", "--partitions", "16")
        start_clients(clients, names, cluster, directory)
        events.happen()
        ended = [(client, client.end()) for client in clients]
        serving = {one["table"]: one["version"] for one in cluster.status()["tables"]}
    finally:
        for client in clients:
            client.kill()
        cluster.end()
    cluster.check_logs()
    return ended, serving, events


def failures(says):
    return sum(spell["count"] for spell in says["spells"]) - says["wrong"]


def faults(client, says, serving):
    """What a client may not do."""
    if says is None or says["reads"] == 0:
        return ["did not read"]
    found = []
    if says["wrong"]:
        found.append(f"{says['wrong']} wrong answers")
    if says["last"] != serving:
        found.append(f"read {says['last']} at the end, where {serving} serve")
    failed = failures(says)
    if failed > MOST_FAILED_OF.get(client.name, MOST_FAILED) * (says["reads"] + failed):
        found.append(f"{failed} reads failed, {says['reads']} did not")
    return found


def show(ended, serving, events):
    """Prints what came of it, and gives how many clients were at fault."""
    head = ["client", "version", "reads from", "reads", "wrong", "failed", "longest pause ms"]
    rows, notes, bad = [head, ["---"] * 3 + ["---:"] * 4], [], 0
    for client, says in ended:
        wrong = faults(client, says, serving)
        bad += bool(wrong)
        notes += [f"{client.name} {client.variant}: {fault}" for fault in wrong]
        if says is None:
            notes.append(client.log.read_text()[-2000:])
            rows.append([client.name, "", client.variant, "", "", "", ""])
            continue
        counts = [says["reads"], says["wrong"], failures(says), says["longest_pause_ms"]]
        rows.append([says["client"], says["version"], says["variant"], *map(str, counts)])
        for spell in says["spells"]:
            since, until = (spell[end] - events.began for end in ("since", "until"))
            during = f"{since:.1f} to {until:.1f} s, after {events.before(spell['since'])}"
            what = f"{spell['count']} x {spell['kind']}: {spell['text']}"
            notes.append(f"{client.name} {client.variant}: {during}: {what}")
        if says["parts"]:
            what = f"{says['parts']} split MGETs had parts of two versions"
            notes.append(f"{client.name} {client.variant}: {what}")
    print()
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\n" + "\n".join(notes))
    return bad


def there(names):
    """Those of the clients that could be installed."""
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        sys.exit(f"there is no client {unknown[0]}; there are {', '.join(CLIENTS)}")
    missing = [name for name in names if not CLIENTS[name][1].exists()]
    for name in missing:
        print(f"{name} is left out: its packages could not be had (scripts/setup clients)")
    return [name for name in names if name not in missing]


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("clients", nargs="*", default=list(CLIENTS), metavar="CLIENT")
    words.add_argument("--json", type=Path, help="write what the clients told to a file")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-clients-") as directory:
        ended, serving, events = run(there(asked.clients), Path(directory))
        bad = show(ended, serving, events)
        if asked.json:
            asked.json.write_text(json.dumps([says for _, says in ended], indent=1) + "\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
