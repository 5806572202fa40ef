"""A push to a real S3 server, and nodes that pull it, beside a plain copy of the same bytes by the AWS library
for Python (boto3, as `aws s3 cp` is made of): parts of 8 MiB, as many at a time as Forebay has."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import common
from common import DATA, REPO, Failed, Report, median_of, say, shown

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


def timed(processes: list[subprocess.Popen], what: str) -> float:
    start = time.monotonic()
    for process in processes:
        _, errors = process.communicate(timeout=600)
        if process.returncode != 0:
            raise Failed(f"{what}: {errors.decode(errors='replace')[-300:]}")
    return time.monotonic() - start


class Round:
    """One server, one directory for everything that is written here."""

    def __init__(self, server, folder: Path, number: int):
        self.store = object_store.RemoteStore(server, folder / "machine", f"round-{number}")
        self.folder, self.server = folder, server

    def forebay(self, *words) -> subprocess.Popen:
        return self.store.start(*words)

    def local(self, *words) -> subprocess.Popen:
        command = [os.environ["FOREBAY"], "--store", self.folder / "local", *words]
        return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def copy(self, way: str, prefix: str, directory: Path, at_once: int) -> subprocess.Popen:
        directory.mkdir(exist_ok=True)
        words = [way, self.server.url, object_store.KEY, object_store.SECRET, object_store.BUCKET, prefix]
        command = [sys.executable, "-c", COPY, *words, str(directory), str(at_once)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def measure(self, file: Path) -> dict:
        push = ["push", "t", file, "--key", "{k}", "--value", "v", "--quiet"]
        out: dict = {}
        out["push_local"] = timed([self.local(*push)], "push to a directory")
        runs = self.folder / "local" / "tables" / "t" / "runs"
        out["bytes"] = sum(path.stat().st_size for path in runs.iterdir())
        os.sync()
        out["push_s3"] = timed([self.forebay(*push)], "push to S3")
        out["copy_up"] = timed([self.copy("up", "copy", runs, 6)], "copying up")
        for nodes in (1, 2):
            where = [self.folder / f"node-{nodes}-{node}" for node in range(nodes)]
            os.sync()
            out[f"pull_{nodes}"] = timed([self.forebay("pull", "t", "--to", path) for path in where], "pull")
            os.sync()
            copies = [self.folder / f"copy-{nodes}-{node}" for node in range(nodes)]
            out[f"copy_down_{nodes}"] = timed([self.copy("down", "copy", path, 4) for path in copies], "copying")
            for path in [*where, *copies]:
                shutil.rmtree(path)
        return out


def measure(report: Report, options) -> None:
    records = 300_000 if options.trial else 3_000_000
    common.need_disk(records * 112 * 10 / 2**30 + 1)
    file = source(records)
    rounds = []
    for number in range(options.rounds):
        say(f"S3: round {number + 1} of {options.rounds}, {records:,} rows")
        with tempfile.TemporaryDirectory(dir=DATA) as name:
            folder = Path(name)
            (folder / "server").mkdir()
            server = object_store.S3Server(folder / "server")
            try:
                rounds.append(Round(server, folder, number).measure(file))
            except Failed as why:
                report.failed("S3", why)
            finally:
                server.kill()
    if rounds:
        write(report, rounds, records)


def write(report: Report, rounds: list[dict], records: int) -> None:
    middle = median_of(rounds)
    size = middle["bytes"]
    report.body["s3"] = {"records": records, "bytes": size, "median": middle, "runs": rounds}
    report.text(
        f"## Push to S3, pull by nodes: {records:,} rows, {size / 1e6:.0f} MB of runs",
        "SeaweedFS on the same machine, which shares its processors with what is measured. The copies are of the same "
        "files by boto3, in parts, as many at a time; started processes and all. A push also reads, sorts, verifies and swaps; "
        "a pull also verifies every page.",
    )
    label = {
        "push_local": "forebay push to a directory",
        "push_s3": "forebay push to S3",
        "copy_up": "copying up what it sent (boto3)",
        "pull_1": "forebay pull, one node",
        "copy_down_1": "copying down (boto3), one",
        "pull_2": "forebay pull, two nodes at once",
        "copy_down_2": "copying down (boto3), two at once",
    }
    rows = []
    for key, text in label.items():
        nodes = 2 if key.endswith("_2") else 1
        rows.append([text, shown(middle[key], 2), shown(size * nodes / middle[key] / 1e6, 0)])
    report.table(["what", "s", "MB/s, of all nodes"], rows)
