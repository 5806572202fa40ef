"""Spark for the tests: sessions of three kinds, one after another, and faults for them."""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from tempfile import mkdtemp

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

HOME = Path(pyspark.__file__).parent
# The processes are short-lived: optimized code and parallel garbage collection do not pay off.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
KINDS = {
    # Two threads of one process; a failed task runs once more.
    "local": {"spark.master": "local[2,2]"},
    # Two executors, processes of their own.
    "cluster": {"spark.master": "local-cluster[2,1,1024]", "spark.executor.memory": "512m"},
    # A master and two workers that already run, each with one executor. A slow task runs on both
    # at the same time.
    "standalone": {
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.3",
        "spark.speculation.minTaskRuntime": "3s",
    },
}
COMMON = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.session.timeZone": "Europe/Berlin",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}


class Sparks:
    """Sessions of the kinds that tests ask for. One exists at a time, in one Java process."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.kind = self.session = self.standalone = None
        # The Java process and its children read these when they start.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

    def get(self, kind):
        if kind != self.kind:
            self.stop()
            builder = SparkSession.builder.config("spark.local.dir", str(self.directory / "spark"))
            for name, value in {**COMMON, **KINDS[kind]}.items():
                builder = builder.config(name, value)
            if kind == "standalone":
                self.standalone = Standalone(Path(mkdtemp(dir=self.directory)))
                builder = builder.master(self.standalone.url)
            self.session, self.kind = builder.getOrCreate(), kind
            self.session.sparkContext.setLogLevel("OFF")
        return self.session

    def stop(self):
        if self.session is not None:
            for name in self.session.sparkContext.getConf().getAll():
                self.session.builder._options.pop(name[0], None)
            self.session.stop()
        if self.standalone is not None:
            self.standalone.stop()
        self.kind = self.session = self.standalone = None

    def close(self):
        """Ends the session and the Java process."""
        self.stop()
        gateway = SparkContext._gateway
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(90)
            SparkContext._gateway = SparkContext._jvm = None


class Standalone:
    """A master and two workers, each a process with its own address, as if on two machines.

    Spark never runs a task twice on one machine."""

    def __init__(self, directory):
        self.directory = directory
        self.processes = []
        self.url = None
        master = self._start("Master", "127.0.0.1", "--webui-port", "0")
        for line in master.stderr:
            found = re.search(r"Starting Spark master at (spark://\S+)", line)
            if found:
                self.url = found[1]
                break
        assert self.url, "the master did not start"
        threading.Thread(target=master.stderr.read, daemon=True).start()
        self.workers = [self.start_worker(number) for number in range(2)]

    def start_worker(self, number):
        words = ["--webui-port", "0", "--cores", "1", "--memory", "1g"]
        words += ["--work-dir", str(self.directory / f"worker-{number}"), self.url]
        worker = self._start("Worker", f"127.0.0.{1 + number}", *words)
        threading.Thread(target=worker.stderr.read, daemon=True).start()
        return worker

    def _start(self, what, host, *words):
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": host,
            "SPARK_HOME": str(HOME),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA,
        }
        name = f"org.apache.spark.deploy.{what.lower()}.{what}"
        line = [str(HOME / "bin" / "spark-class"), name, "--host", host, "--port", "0"]
        process = subprocess.Popen(
            [*line, *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


def children(pid):
    """Returns the child processes of a process, and their children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *children(child)]
    return found


def executors(*parents):
    """Returns the executors among the descendants of processes; this process is the default."""

    def is_one(pid):
        try:
            return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    return [pid for parent in parents or [os.getpid()] for pid in children(parent) if is_one(pid)]


def kill(pid):
    """Kills a process and its descendants."""
    for each in [pid, *children(pid)]:
        try:
            os.kill(each, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Meanwhile:
    """Runs an action in a thread once a condition holds; its failure fails the test."""

    def __init__(self, condition, action):
        self.condition, self.action = condition, action
        self.done, self.failure, self.over = False, None, threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self.over.wait(0.02):
                if self.condition():
                    self.action()
                    self.done = True
                    return
        except BaseException as error:
            self.failure = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.over.set()
        self.thread.join()
        if self.failure is not None:
            raise self.failure
        assert self.done or kind is not None, "the condition of the test never held"


def manifest(path, table="t", version=1):
    """Returns the manifest of a version in a store in a directory."""
    file = Path(path, "tables", table, "versions", f"{version}.manifest")
    return json.loads(file.read_text().rsplit("\n", 2)[0])


def counted(path, table="t"):
    """Returns the counts of a manifest, without figures of samples: tasks draw other rows."""
    drawn = ("range", "common", "distinct", "looked_at")
    made = manifest(path, table)
    stats = [
        {
            **column,
            "values": {
                name: n for name, n in (column["values"] or {}).items() if name not in drawn
            },
        }
        for column in made["stats"]
    ]
    return made["totals"], made["schema"], stats


def runs(path, table="t"):
    """Returns the checksums of a table's runs, sorted."""
    folder = Path(path, "tables", table, "runs")
    return sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir())


def skew(path, table="t", version=1):
    """Returns the ratio of the largest partition to the mean, and the number of partitions."""
    sizes = [part["totals"]["bytes"] for part in manifest(path, table, version)["partitions"]]
    found = max(sizes) / (sum(sizes) / len(sizes))
    print(f"{table}: max/mean {found:.3f}: {sizes}")
    return found, len(sizes)
