"""What the parts of `make bench-cluster` share: tables to push, clusters of real processes, processor time, medians."""

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import common
from common import DATA, REPO

os.environ.setdefault("FOREBAY_TEST_LIMIT_S", "600")
sys.path.insert(0, str(REPO / "tests"))
import object_store  # noqa: E402
from cluster import Cluster  # noqa: E402
from harness import Store  # noqa: E402

TABLE = "key"


def source(records: int, seed: int) -> Path:
    """A Parquet file of keys of 12 digits and values of 100 characters that do not compress. Another seed: the same
    keys, other values."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"cluster-{records}-{seed}.parquet"
    if path.exists():
        return path
    DATA.mkdir(exist_ok=True)
    chance = numpy.random.default_rng(seed)
    keys = numpy.char.zfill(numpy.arange(records).astype(str), 12)
    values = chance.integers(33, 127, (records, 100), numpy.uint8).tobytes()
    offsets = numpy.arange(0, (records + 1) * 100, 100, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(values)]
    column = pyarrow.Array.from_buffers(pyarrow.string(), records, buffers)
    table = pyarrow.table({"k": pyarrow.array(keys), "v": column})
    unfinished = path.with_suffix(".unfinished")
    pyarrow.parquet.write_table(table, unfinished, compression="none", use_dictionary=False)
    unfinished.rename(path)
    return path


def push(store: Store, file: Path, *args) -> dict:
    return store.push(TABLE, file, key="{k}", args=["--value", "v", *args])


@contextlib.contextmanager
def folder():
    """A directory among the data that goes with the block."""
    DATA.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(dir=DATA, prefix="cluster-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def directory_cluster(count: int, zones: int = 3, start: bool = True, args: tuple = ()):
    """Nodes over a store in a directory."""
    with folder() as path:
        made = Cluster(Store(path / "store"), path, count, zones, args, node_timeout=None)
        try:
            yield made.start() if start else made
        finally:
            made.end()


@contextlib.contextmanager
def bucket_cluster(count: int, zones: int = 3):
    """Nodes over a bucket of a real S3 server, each through a proxy of its own, and the commands through another one:
    (cluster, {name of the node, or "command": proxy})."""
    with folder() as path:
        (path / "server").mkdir()
        server = object_store.S3Server(path / "server")
        proxies = {}
        try:
            proxies["command"] = object_store.Proxy(server)
            store = object_store.RemoteStore(server, path / "command", "shop", proxies["command"].url)
            made = Cluster(store, path, count, zones, node_timeout=None)
            for node in made.nodes:
                proxies[node.name] = object_store.Proxy(server)
                node.store = store.through(proxies[node.name].url, f"machine-{node.name}")
            try:
                yield made.start(), proxies
            finally:
                made.end()
        finally:
            for proxy in proxies.values():
                proxy.stop()
            server.kill()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, its own and the kernel's for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def on_core(core: int):
    """What is started in the block runs on that core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def pin(pid: int, core: int) -> None:
    """A process runs on that core from now on."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), {core})


def middle(numbers) -> float | None:
    numbers = [number for number in numbers if number is not None]
    return statistics.median(numbers) if numbers else None


def quantile(ordered: list, part: float) -> float:
    """Of numbers in order, of which there is one at least: as much as this part of them is no more than."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def spread(numbers: list, digits: int = 1, factor: float = 1.0) -> str:
    """The median, and the least and the most."""
    if not numbers:
        return "-"
    low, high = min(numbers), max(numbers)
    return f"{common.shown(middle(numbers), digits, factor)} ({common.shown(low, digits, factor)} to {common.shown(high, digits, factor)})"
