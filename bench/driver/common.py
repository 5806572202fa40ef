"""What all drivers share: places, running contenders, medians, the machine, writing results."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
REPO = BENCH.parent
DATA = BENCH / "data"
RESULTS = BENCH / "results"
HARNESS = BENCH / "target" / "release" / "bench"
JAVA_CLASSES = f"{BENCH}/java/target/classes:{BENCH}/java/target/lib/*"


def arguments(description: str, rounds: int = 3, more=None) -> argparse.Namespace:
    """The options of a driver; `more(parser)` adds its own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--trial", action="store_true", help="a tenth of the records, one round")
    parser.add_argument("--rounds", type=int, default=None, help=f"runs of each contender (default {rounds})")
    parser.add_argument("--only", default="", help="only contenders whose name contains this")
    parser.add_argument("--big", action="store_true", help="bench-server: swaps of a table of 10 GB too")
    parser.add_argument("--parts", default="", help="bench-server: only these of redis, swaps, pushes, big (a report of its own); "
                        "bench-live: measure only these of upserts, counting, server, pauses (a report of its own), or paired (with --before); "
                        "bench-distributed: only these of s3, captures, table1, spark; "
                        "bench-cluster: only these of flip, bytes, forward, direct, moving, pushing, redis, scale; "
                        "bench-insert: only these of size, rows, empty, skew, nodes, replicas, latency, moving, simulated; "
                        "bench-place: only these of throughput, latency, shift, or kept alone; bench-cores: only these of push, get, set")
    parser.add_argument("--records", type=int, default=0, help="bench-live: so many upserts, and a tenth of it increments; "
                        "bench-insert, bench-place, bench-cores: so many rows")
    parser.add_argument("--fresh", action="store_true", help="bench-live, bench-distributed, bench-cluster, bench-insert, bench-place: measure again "
                        "what an earlier run of this commit has")
    parser.add_argument("--bytes", type=int, default=0, help="bench-insert: bytes of the partition that is moved")
    parser.add_argument("--before", default="", help="bench-live --parts paired: the binary to compare with")
    parser.add_argument("--cap", type=float, default=900, help="bench-live: seconds after which a contender stops writing; settling and reading "
                        "have parts of it")
    if more:
        more(parser)
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.trial else rounds)
    return options


def picked(text: str, kind: str, known, default=None) -> list[str]:
    """The words of an option, with commas between; all that are known, or the default, where there are none. Ends the program where one is not known."""
    words = [word for word in text.split(",") if word] or list(default or known)
    if unknown := [word for word in words if word not in known]:
        sys.exit(f"bench: no {kind} is called {', '.join(unknown)}: there are {', '.join(known)}")
    return words


def say(text: str) -> None:
    print(f"{datetime.datetime.now():%H:%M:%S}  {text}", flush=True)


class Failed(Exception):
    """A contender's process ended badly."""


def run(command: list, seconds: float = 300, env: dict | None = None) -> str:
    """Runs a command to its end; its standard output. Raises Failed with the end of its errors."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=seconds, env={**os.environ, **(env or {})}
        )
    except subprocess.TimeoutExpired as slow:
        raise Failed(f"{Path(words[0]).name} took more than {seconds} s") from slow
    except OSError as error:
        raise Failed(str(error)) from error
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).strip().splitlines()[-3:]
        raise Failed(f"{Path(words[0]).name} {words[1] if len(words) > 1 else ''}: {' / '.join(tail)}")
    return done.stdout


def run_json(command: list, seconds: float = 300, env: dict | None = None) -> dict:
    return json.loads(run(command, seconds, env).strip().splitlines()[-1])


def harness(*words, seconds: float = 300) -> dict:
    return run_json([HARNESS, *words], seconds)


def ensure_set(name: str, records: int, value_bytes: int, keys: str = "hex", salt: int = 0) -> Path:
    """The flat set of that name, generated the first time. Another salt: the same keys, other values."""
    path = DATA / name
    if not path.with_suffix(".json").exists():
        say(f"generating {name}: {records:,} records with values of {value_bytes} bytes")
        harness(
            "gen", "--records", records, "--value-bytes", value_bytes, "--keys", keys,
            "--salt", salt, "--out", path,
        )
    return path


def median_of(runs: list[dict]) -> dict:
    """Field by field, over the runs that have the field; nested objects and texts from the first."""
    out = {}
    for key, first in (runs[0] if runs else {}).items():
        numbers = [run[key] for run in runs if isinstance(run.get(key), (int, float))]
        out[key] = statistics.median(numbers) if numbers else first
    return out


def free_gib(path: Path) -> float:
    return shutil.disk_usage(path).free / 2**30


def need_disk(gib: float) -> None:
    DATA.mkdir(exist_ok=True)
    if free_gib(DATA) < gib:
        sys.exit(f"bench: {gib:.0f} GiB of free disk are needed under bench/data, there are {free_gib(DATA):.0f}")


def machine() -> dict:
    """The shape of the machine; never its name."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    total = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
    load = os.getloadavg()[0]
    return {
        "cores": os.cpu_count(),
        "processor": cpu[0].split(":")[1].strip() if cpu else platform.machine(),
        "memory_gib": round(total / 2**20, 1),
        "kernel": ".".join(platform.release().split("-")[0].split(".")[:3]),
        "load_before": round(load, 2),
    }


def commit() -> str:
    """The commit measured, marked when the tree differs from it."""
    head = subprocess.run(
        ["git", "-C", REPO, "describe", "--always", "--dirty", "--abbrev=10"],
        capture_output=True,
        text=True,
    )
    # A copy of the files has no history.
    return head.stdout.strip() or os.environ.get("BENCH_COMMIT", "unknown")


def package_version(package: str) -> str:
    out = subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], capture_output=True, text=True)
    return out.stdout.strip() or "not a Debian package here"


def python_version(package: str) -> str:
    return importlib.metadata.version(package)


def crate_version(crate: str) -> str:
    lock = (BENCH / "Cargo.lock").read_text().split("[[package]]")
    for block in lock:
        if f'\nname = "{crate}"\n' in block:
            return block.split('version = "')[1].split('"')[0]
    return "?"


class Process:
    """A server of ours, ended when the block ends."""

    def __init__(self, command: list, log: Path, **more):
        self.log = log.open("w")
        self.child = subprocess.Popen(
            [str(word) for word in command], stdout=self.log, stderr=subprocess.STDOUT, **more
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    @property
    def pid(self) -> int:
        return self.child.pid

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(30)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        self.log.close()

    def wait_until(self, ready, seconds: float, what: str) -> None:
        """Polls `ready` until it answers true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.child.poll() is not None:
                raise Failed(f"{what} ended by itself; see {self.log.name}")
            try:
                if ready():
                    return
            except Exception:  # noqa: BLE001 - not ready yet, whatever it was
                pass
            time.sleep(0.05)
        raise Failed(f"{what} was not ready within {seconds} s")


def memory_of(pid: int) -> dict:
    """Resident bytes of a process: what only it holds (anonymous) and what the page cache could drop."""
    fields = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(("VmRSS", "VmHWM", "RssAnon", "RssFile")):
            name, rest = line.split(":")
            fields[name] = int(rest.split()[0]) * 1024
    return {
        "resident_bytes": fields.get("VmRSS", 0),
        "anonymous_bytes": fields.get("RssAnon", 0),
        "file_bytes": fields.get("RssFile", 0),
        "peak_bytes": fields.get("VmHWM", 0),
    }


def as_lines(body: dict) -> str:
    """JSON with a line for each item of the two outer levels."""
    def item(value) -> str:
        if not isinstance(value, dict) or len(value) < 2:
            return json.dumps(value)
        inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items())
        return f"{{\n{inner}\n }}"

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {item(value)}" for key, value in body.items()) + "\n}\n"


class Report:
    """Collects one bench's results; `write` makes the JSON, the table and gives the place of the drawing."""

    def __init__(self, name: str, title: str, options: argparse.Namespace):
        self.title = title
        self.trial = options.trial
        self.name = name
        self.started = time.monotonic()
        self.body: dict = {
            "bench": name,
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}",
            "command": f"make bench-{name}" + (" TRIAL=1" if options.trial else ""),
            "rounds": options.rounds,
            "commit": commit(),
            "machine": machine(),
        }
        self.lines: list[str] = []
        self.failures: list[str] = []

    def failed(self, what: str, why: Exception) -> None:
        say(f"  {what} failed: {why}")
        self.failures.append(f"{what}: {why}")

    def text(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def warn_of_load(self) -> None:
        load = self.body["machine"]["load_before"]
        if load > 1:
            self.text(f"**Other programs kept the cores busy (load {load} before the run): times are longer than they would be. "
                      "To be run again on a quiet machine.**")

    def table(self, head: list[str], rows: list[list]) -> None:
        self.lines.append("| " + " | ".join(head) + " |")
        self.lines.append("|" + "|".join([" --- "] + [" ---: "] * (len(head) - 1)) + "|")
        self.lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
        self.lines.append("")

    def targets(self, rows: list[tuple]) -> None:
        """Rows of (what, measured, limit, unit); a target is met when measured <= limit."""
        met = []
        for what, measured, limit, unit in rows:
            if measured is None:
                verdict = "not measured"
            else:
                verdict = "met" if measured <= limit else "**missed**"
            got = "-" if measured is None else f"{measured:.3g}{unit}"
            met.append([what, got, f"at most {limit:g}{unit}", verdict])
        self.body.setdefault("targets", []).extend(
            {"what": w, "measured": m, "limit": limit, "unit": u} for w, m, limit, u in rows
        )
        self.table(["target", "measured", "limit", ""], met)

    def write(self, draw=None) -> None:
        folder = DATA / "trial" if self.trial else RESULTS
        folder.mkdir(parents=True, exist_ok=True)
        self.body["seconds"] = round(time.monotonic() - self.started, 1)
        self.body["failures"] = self.failures
        base = folder / f"{self.body['date']}-{self.name}"
        base.with_suffix(".json").write_text(as_lines(self.body))
        drawing = []
        if draw:
            draw(base)
            drawing = [f"![{self.title}]({base.name}.svg)", ""]
        base.with_suffix(".md").write_text("\n".join([*self._head(), *drawing, *self.lines]).rstrip() + "\n")
        say(f"written: {base}.json, .md" + (", .svg" if draw else ""))

    def _head(self) -> list[str]:
        m = self.body["machine"]
        head = [
            f"# {self.title}",
            "",
            f"{self.body['date']}, `{self.body['command']}` at {self.body['commit']}, {self.body['rounds']} round(s), "
            f"medians. Machine: {m['cores']} cores ({m['processor']}), {m['memory_gib']} GiB, "
            f"Linux {m['kernel']}; load before the run {m['load_before']}. It took {self.body['seconds']} s.",
            "",
        ]
        if "versions" in self.body:
            head += ["Versions: " + ", ".join(f"{k} {v}" for k, v in self.body["versions"].items()) + ".", ""]
        if self.failures:
            head += ["Did not run: " + "; ".join(self.failures) + ".", ""]
        return head


def fresh(name: str) -> Path:
    """An empty directory of that name among the data."""
    path = DATA / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


class Done:
    """What was measured of this commit, kept as soon as it is there: a run that was interrupted, or that took only some
    parts or contenders, is gone on with."""

    def __init__(self, name: str, fresh: bool):
        self.path = DATA / f"{name}-done.json"
        self.results = {}
        if not fresh and self.path.exists():
            kept = json.loads(self.path.read_text())
            if kept["commit"] == commit():
                self.results = kept["results"]

    @staticmethod
    def key(*words) -> str:
        return " ".join(str(word) for word in words)

    def put(self, key: str, result: dict) -> None:
        self.results[key] = result
        text = json.dumps({"commit": commit(), "results": self.results})
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return None if ours is None or not theirs else ours / theirs


def shown(number, digits: int = 0, factor: float = 1.0) -> str:
    if not isinstance(number, (int, float)):
        return "-"
    return f"{number * factor:,.{digits}f}"
