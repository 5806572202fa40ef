"""A push to a real S3 server, and nodes that pull it, beside a plain copy of the same bytes. The AWS library for Python
makes the copy (boto3, as `aws s3 cp` is made of): parts of 8 MiB, as many at a time as Forebay has."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
from common import DATA, REPO, Done, Failed, Report, median_of, say, shown

sys.path.insert(0, str(REPO / "tests"))
import object_store  # noqa: E402

COPY = """
import sys, time, pathlib, boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
way, url, key, secret, bucket, prefix, directory, at_once = sys.argv[1:9]
client = boto3.client("s3", endpoint_url=url, region_name="us-east-1", aws_access_key_id=key,
                      aws_secret_access_key=secret, config=Config(max_pool_connections=32))
part = 8 << 20 if way == "up" else 4 << 20
transfer = TransferConfig(multipart_threshold=part, multipart_chunksize=part, max_concurrency=int(at_once))
start = time.monotonic()
if way == "up":
    for path in sorted(pathlib.Path(directory).iterdir()):
        client.upload_file(str(path), bucket, f"{prefix}/{path.name}", Config=transfer)
else:
    for entry in client.list_objects_v2(Bucket=bucket, Prefix=prefix + "/")["Contents"]:
        name = entry["Key"].rsplit("/", 1)[1]
        client.download_file(bucket, entry["Key"], str(pathlib.Path(directory) / name), Config=transfer)
    import os
    os.sync()
print(time.monotonic() - start)
"""


def source(records: int) -> Path:
    """A Parquet file of keys of 12 digits and values of 100 characters that do not compress."""
    import numpy
    import pyarrow
    import pyarrow.parquet

    path = DATA / f"s3-{records}.parquet"
    if path.exists():
        return path
    chance = numpy.random.default_rng(7)
    keys = numpy.char.zfill(numpy.arange(records).astype(str), 12)
    values = (chance.integers(33, 127, (records, 100), numpy.uint8)).tobytes()
    offsets = numpy.arange(0, (records + 1) * 100, 100, dtype=numpy.int32)
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(values)]
    column = pyarrow.Array.from_buffers(pyarrow.string(), records, buffers)
    table = pyarrow.table({"k": pyarrow.array(keys), "v": column})
    pyarrow.parquet.write_table(table, path, compression="none", use_dictionary=False)
    return path


def copy(server, way: str, prefix: str, directory: Path, at_once: int) -> subprocess.Popen:
    """A copy of a directory's files to or from the server, under way; it prints how long it took without its start."""
    directory.mkdir(exist_ok=True)
    words = [way, server.url, object_store.KEY, object_store.SECRET, object_store.BUCKET, prefix]
    command = [sys.executable, "-c", COPY, *words, str(directory), str(at_once)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Round:
    """One server, one directory for everything that is written here."""

    def __init__(self, server, folder: Path, number: int):
        self.store = object_store.RemoteStore(server, folder / "machine", f"round-{number}")
        self.folder, self.server = folder, server
        self.out: dict = {}

    def timed(self, what: str, processes) -> None:
        """How long the processes took, and whose processor time that was."""
        os.sync()
        start, served, own = time.monotonic(), cpu_seconds(self.server.process.pid), children_cpu_seconds()
        for process in processes():
            _, errors = process.communicate(timeout=600)
            if process.returncode != 0:
                raise Failed(f"{what}: {errors.decode(errors='replace')[-300:]}")
        self.out[what] = time.monotonic() - start
        self.out[f"{what}_cpu"] = children_cpu_seconds() - own
        self.out[f"{what}_server_cpu"] = cpu_seconds(self.server.process.pid) - served

    def local(self, *words) -> subprocess.Popen:
        command = [os.environ["FOREBAY"], "--store", self.folder / "local", *words]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def copies(self, way: str, prefix: str, directories: list[Path], at_once: int) -> list[subprocess.Popen]:
        return [copy(self.server, way, prefix, directory, at_once) for directory in directories]

    def measure(self, file: Path) -> dict:
        push = ["push", "--create", "t", file, "--key", "{k}", "--value", "v", "--quiet"]
        self.timed("push_local", lambda: [self.local(*push)])
        runs = self.folder / "local" / "tables" / "t" / "runs"
        sizes = {path.name: path.stat().st_size for path in runs.iterdir()}
        self.out["bytes"] = sum(sizes.values())
        self.timed("push_s3", lambda: [self.store.start(*push)])
        self.timed("copy_up", lambda: self.copies("up", "copy", [runs], 6))
        for nodes in (1, 2):
            where = [self.folder / f"node-{nodes}-{node}" for node in range(nodes)]
            self.timed(f"pull_{nodes}", lambda: [self.store.start("pull", "t", "--to", path) for path in where])
            copies = [self.folder / f"copy-{nodes}-{node}" for node in range(nodes)]
            self.timed(f"copy_down_{nodes}", lambda: self.copies("down", "copy", copies, 4))
            for path in where:
                check(path / "tables" / "t" / "runs", sorted(sizes.values()))
            for path in copies:
                check(path, sorted(sizes.values()))
            for path in [*where, *copies]:
                shutil.rmtree(path)
        return self.out


def check(directory: Path, sizes: list[int]) -> None:
    """The files that came are as long as those that were sent; pulls have compared their content."""
    found = sorted(path.stat().st_size for path in directory.iterdir())
    if found != sizes:
        raise Failed(f"{directory.name} has files of {found} bytes, not {sizes}")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(report: Report, options, done: Done, run: bool) -> None:
    records = 300_000 if options.trial else 3_000_000
    rounds = []
    for number in range(options.rounds):
        key = Done.key("s3", records, number)
        if run and key not in done.results:
            say(f"S3: round {number + 1} of {options.rounds}, {records:,} rows")
            try:
                done.put(key, one(records, number))
            except Failed as why:
                report.failed("S3", why)
        if key in done.results:
            rounds.append(done.results[key])
    if rounds:
        write(report, rounds, records)


def one(records: int, number: int) -> dict:
    common.need_disk(records * 112 * 10 / 2**30 + 1)
    file = source(records)
    with tempfile.TemporaryDirectory(dir=DATA) as name:
        folder = Path(name)
        (folder / "server").mkdir()
        server = object_store.S3Server(folder / "server")
        try:
            return Round(server, folder, number).measure(file)
        finally:
            server.kill()


LABELS = {
    "push_local": "forebay push to a directory",
    "push_s3": "forebay push to S3",
    "copy_up": "copying up what it sent (boto3)",
    "pull_1": "forebay pull, one node",
    "copy_down_1": "copying down (boto3), one",
    "pull_2": "forebay pull, two nodes at once",
    "copy_down_2": "copying down (boto3), two at once",
}


def nodes(what: str) -> int:
    return 2 if what.endswith("_2") else 1


def write(report: Report, rounds: list[dict], records: int) -> None:
    middle = median_of(rounds)
    size = middle["bytes"]
    report.body["s3"] = {"records": records, "bytes": size, "median": middle, "runs": rounds}
    report.text(
        f"## Push to S3, pull by nodes: {records:,} rows, {size / 1e6:.0f} MB of runs",
        "",
        "SeaweedFS on the same machine, which shares its processors with what is measured: on a machine of its own its time "
        "would not count. The copies are of the same files by boto3, in parts, as many at a time (6 up, 4 down); started processes and all. "
        "A push also reads and sorts the rows and builds and reads back the runs, which is most of what the push to a directory takes, "
        "and sends runs while it builds the next ones; a pull also verifies every page and syncs.",
    )
    report.table(
        ["what", "s", "MB/s, of all nodes", "processor s, its own", "processor s, the server's"],
        [
            [text, shown(middle[what], 2), shown(size * nodes(what) / middle[what] / 1e6), shown(middle[f"{what}_cpu"], 2),
             shown(middle[f"{what}_server_cpu"], 2)]
            for what, text in LABELS.items()
        ],
    )
