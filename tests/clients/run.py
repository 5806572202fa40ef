"""Runs clients of Redis Cluster against a cluster of five real nodes under maintenance and
failures.

`make test-clients` calls it. Each client is its own program. python/reading.py describes its
arguments and its output. All clients read while tables are replaced and rolled back, and while
nodes are killed, stopped and restarted. The script prints a table. It exits with 1 if a client got
a wrong answer, did not read, or failed too often.
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
# More versions of a table than the script makes.
MOST_VERSIONS = 9
# The exit code of a rollout that excluded nodes.
EXCLUDED = 6
# How long a client may take to start.
START_S = 60
# How long clients read between two events.
QUIET_S = 4
# A node is away for more than half of the time. A client that did not notice would fail a fifth of
# its GETs, and most of its MGETs over slots. That is more than a fifth of all reads. A client that
# fails less than half as often has noticed, however slowly.
MOST_FAILED = 0.1
# redis-cli never notices: it sends each command to one node, and one node in five is away. The
# blocking redis-rs 1.8.1 never retries a part of a split MGET: if a part meets a redirect, the MGET
# fails or panics. All MGETs fail until the client notices that a node is away.
MOST_FAILED_OF = {"redis-cli": 0.2, "redis-rs": 0.2}

PYTHON = [sys.executable]
JAVA = ["java", "-XX:TieredStopAtLevel=1", "-Xmx128m", "-cp"]
JAVA += [f"{HERE}/java/target/classes:{HERE}/java/target/lib/*"]

BUILT = HERE / "java/target/built"
MODULES = HERE / "node/node_modules/installed.json"
RUST = HERE / "rust/target/debug/redis-rs"

# Per client: its command, a file that exists once it is installed, and whether it can read from
# replicas.
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
    """A client that reads until end()."""

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
        """The client's JSON, or None if it printed none."""
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
    """Changes to the cluster, with their times."""

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
        """Runs a command that changes the serving version or the assignment."""
        begun = time.monotonic()
        result = self.store.run(*words, code=None)
        self.note(f"{' '.join(words[:2])}: {time.monotonic() - begun:.1f} s")
        if result.code not in codes:
            raise SystemExit(f"{words}: exit code {result.code}\n{result.err}{result.out}")

    def push(self, table, *more, codes=(0,)):
        """Pushes the next version of a table. Each value holds its version."""
        self.versions[table] += 1
        version = self.versions[table]
        values = [f"{table}:{one} {version}" for one in KEYS]
        source = self.store.path.parent / f"{table}-{version}.parquet"
        pq.write_table(pa.table({"id": KEYS, "value": values}), source)
        words = ["--key", "{id}", "--value", "value", "--force", *more]
        self.rollout("push", table, str(source), *words, codes=codes)

    def wait(self):
        """Lets clients read while nothing happens."""
        time.sleep(QUIET_S)

    def restart(self, node):
        node.start().wait_listening()
        self.cluster.wait_up()
        self.note(f"{node.name} is back")
        self.wait()

    def run(self):
        self.note("nothing happens")
        self.wait()
        self.push("people")
        self.rollout("rollback", "people")
        self.push("prices", "--no-swap")
        self.rollout("swap", "people@2", "prices@2", "--force")
        self.wait()

        self.kill(self.other_than_coordinator(), "people")
        self.rollout("rollback", "people")
        self.stop(self.other_than_coordinator(), "prices")
        self.kill(self.cluster.coordinator(), "people")
        self.drain(self.other_than_coordinator())

        self.push("people")
        self.rollout("rollback", "people", "prices")
        self.wait()

    def other_than_coordinator(self):
        """A node other than the coordinator, another one each time."""
        coordinator = self.cluster.coordinator()
        node = next(node for node in self.turns if node is not coordinator)
        self.turns.remove(node)
        self.turns.append(node)
        return node

    def kill(self, node, table):
        self.note(f"kill -9 {node.name}")
        node.kill()
        self.wait()
        self.push(table, codes=(0, EXCLUDED))
        self.restart(node)

    def stop(self, node, table):
        self.note(f"SIGTERM {node.name}")
        node.stop()
        self.wait()
        self.push(table, codes=(0, EXCLUDED))
        self.restart(node)

    def drain(self, node):
        self.rollout("cluster", "drain", node.name, "--yes")
        self.wait()
        self.push("prices")
        self.rollout("cluster", "add", node.name, "--yes")
        self.wait()


def start_clients(clients, names, cluster, directory):
    addresses = ",".join(f"127.0.0.1:{node.port}" for node in cluster.nodes)
    arguments = [addresses, str(GROUPS), str(MOST_VERSIONS)]
    for name in names:
        words, _, has_replicas = CLIENTS[name]
        for variant in ["primary", "replicas"] if has_replicas else ["primary"]:
            clients.append(Client(name, variant, words, directory, arguments))
            # Clients start one by one, because that is faster than all at once.
            clients[-1].reading.wait(START_S)


def run(names, directory):
    """Runs the clients, and returns their results, the serving versions and the events."""
    cluster = Cluster(Store(directory / "store"), directory, 5, 3, node_timeout=None)
    clients = []
    try:
        events = Events(cluster.start())
        for table in TABLES:
            events.push(table, "--replicas", "3", "--partitions", "16")
        start_clients(clients, names, cluster, directory)
        events.run()
        ended = [(client, client.end()) for client in clients]
        serving = {one["table"]: one["version"] for one in cluster.status()["tables"]}
    finally:
        for client in clients:
            client.kill()
        cluster.end()
    cluster.check_logs()
    return ended, serving, events


def failures(result):
    return sum(spell["count"] for spell in result["spells"]) - result["wrong"]


def faults(client, result, serving):
    """The faults of a client."""
    if result is None or result["reads"] == 0:
        return ["did not read"]
    found = []
    if result["wrong"]:
        found.append(f"{result['wrong']} wrong answers")
    if result["last"] != serving:
        found.append(f"read {result['last']} at the end, where {serving} serve")
    failed = failures(result)
    if failed > MOST_FAILED_OF.get(client.name, MOST_FAILED) * (result["reads"] + failed):
        found.append(f"{failed} reads failed, {result['reads']} did not")
    return found


def show(ended, serving, events):
    """Prints the results, and returns the number of faulty clients."""
    head = ["client", "version", "reads from", "reads", "wrong", "failed", "longest pause ms"]
    rows, notes, bad = [head, ["---"] * 3 + ["---:"] * 4], [], 0
    for client, result in ended:
        wrong = faults(client, result, serving)
        bad += bool(wrong)
        notes += [f"{client.name} {client.variant}: {fault}" for fault in wrong]
        if result is None:
            notes.append(client.log.read_text()[-2000:])
            rows.append([client.name, "", client.variant, "", "", "", ""])
            continue
        counts = [result["reads"], result["wrong"], failures(result), result["longest_pause_ms"]]
        rows.append([result["client"], result["version"], result["variant"], *map(str, counts)])
        for spell in result["spells"]:
            since, until = (spell[end] - events.began for end in ("since", "until"))
            during = f"{since:.1f} to {until:.1f} s, after {events.before(spell['since'])}"
            note = f"{spell['count']} x {spell['kind']}: {spell['text']}"
            notes.append(f"{client.name} {client.variant}: {during}: {note}")
        if result["parts"]:
            note = f"{result['parts']} split MGETs had parts of two versions"
            notes.append(f"{client.name} {client.variant}: {note}")
    print()
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print("\n" + "\n".join(notes))
    return bad


def installed(names):
    """The clients that are installed."""
    unknown = [name for name in names if name not in CLIENTS]
    if unknown:
        sys.exit(f"there is no client {unknown[0]}; there are {', '.join(CLIENTS)}")
    missing = [name for name in names if not CLIENTS[name][1].exists()]
    for name in missing:
        print(f"{name} is skipped: its packages are not installed (scripts/setup clients)")
    return [name for name in names if name not in missing]


def main():
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("clients", nargs="*", default=list(CLIENTS), metavar="CLIENT")
    words.add_argument("--json", type=Path, help="write the clients' results to a file")
    asked = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="forebay-clients-") as directory:
        ended, serving, events = run(installed(asked.clients), Path(directory))
        bad = show(ended, serving, events)
        if asked.json:
            asked.json.write_text(json.dumps([result for _, result in ended], indent=1) + "\n")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
