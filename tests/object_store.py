"""A real S3 server for the tests (SeaweedFS), stores in it, and a proxy that counts requests and
injects faults."""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from harness import WAIT_S, Store
from web import HttpServer

KEY, SECRET, BUCKET = "test", "testsecret", "bucket"

# The status of an exchange that was cut short.
CUT = -1


def weed():
    """The server's program from its package."""
    return str(Path(sys.executable).with_name("weed"))


# Above the ports of clusters (cluster.py). The server also opens ports 10,000 above these, which
# are still below the ephemeral ports. While the server is dead, no client's connection takes one.
FIRST_PORT, LAST_PORT, GUARD_ABOVE = 20_000, 22_700, 5_000


def free_ports(count):
    """Free ports, and sockets that reserve them."""
    chance = random.Random(f"{os.getpid()} {time.monotonic_ns()}")
    ports, guards = [], []
    while len(ports) < count:
        port = chance.randrange(FIRST_PORT, LAST_PORT)
        guard = socket.socket()
        try:
            guard.bind(("127.0.0.1", port + GUARD_ABOVE))
            for taken in (port, port + 10_000):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", taken))
        except OSError:
            guard.close()
            continue
        ports.append(port)
        guards.append(guard)
    return ports, guards


class S3Server:
    """SeaweedFS on free ports of this machine."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.process = None
        identity = {
            "name": KEY,
            "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.start_on_free_ports()

    def start_on_free_ports(self):
        """Tries other ports if another process takes a port first."""
        for left in reversed(range(3)):
            self.ports, self.guards = free_ports(4)
            shutil.rmtree(self.directory / "data", ignore_errors=True)
            (self.directory / "data").mkdir()
            try:
                return self.start()
            except AssertionError as error:
                if not left or "address already in use" not in str(error):
                    raise
                self.kill()
                (self.directory / "weed.log").unlink()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports[0]}"

    def start(self):
        s3, master, volume, filer = self.ports
        words = [
            *[weed(), "server", f"-dir={self.directory}/data"],
            *["-ip=127.0.0.1", "-ip.bind=127.0.0.1"],
            *["-s3", f"-s3.config={self.directory}/s3.json", f"-s3.port={s3}"],
            *[f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}"],
            # By default the server refuses writes when less than a hundredth of the disk is free.
            *["-master.volumeSizeLimitMB=64", "-volume.max=50", "-volume.minFreeSpace=1MiB"],
            *["-s3.port.iceberg=0", "-s3.port.lance=0"],
        ]
        with (self.directory / "weed.log").open("ab") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + WAIT_S
        while True:
            try:
                names = [bucket["Name"] for bucket in self.client().list_buckets()["Buckets"]]
                if BUCKET not in names:
                    self.client().create_bucket(Bucket=BUCKET)
                self.client().put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
                return
            except Exception as error:
                if self.process.poll() is not None or time.monotonic() > end:
                    log = (self.directory / "weed.log").read_text(errors="replace")
                    raise AssertionError(f"no S3 server: {error}\n{log[-4000:]}") from error
                time.sleep(0.2)

    def client(self):
        """A client that is not Forebay's."""
        options = Config(retries={"max_attempts": 1}, connect_timeout=5, read_timeout=20)
        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            config=options,
        )

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self):
        self.kill()
        for guard in self.guards:
            guard.close()

    def ensure(self):
        """Starts the server again if a failed test left it dead."""
        if self.process.poll() is not None:
            self.start()


def access(endpoint):
    """The environment variables with which commands reach the bucket."""
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
    }


class RemoteStore(Store):
    """A store in the bucket, and the commands on it. `path` is a local directory."""

    def __init__(self, server, path, prefix, endpoint=None):
        super().__init__(path)
        self.path.mkdir(exist_ok=True)
        self.server, self.prefix = server, prefix
        self.endpoint = endpoint or server.url
        self.work = self.path / "work"

    def through(self, endpoint, name="other"):
        """The same store, as if from another machine."""
        return RemoteStore(self.server, self.path.with_name(name), self.prefix, endpoint)

    def environment(self):
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **access(self.endpoint),
            "FOREBAY_STORE": f"s3://{BUCKET}/{self.prefix}",
            "FOREBAY_WORK_DIR": str(self.work),
            "RUST_BACKTRACE": "0",
        }

    def keys(self, below=""):
        """The store's objects, named relative to the prefix."""
        pages = self.server.client().get_paginator("list_objects_v2")
        prefix = f"{self.prefix}/{below}"
        found = pages.paginate(Bucket=BUCKET, Prefix=prefix)
        names = [entry["Key"] for page in found for entry in page.get("Contents", [])]
        return sorted(name.removeprefix(f"{self.prefix}/") for name in names)

    def read(self, name):
        found = self.server.client().get_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}")
        return found["Body"].read()

    def content(self, name):
        try:
            return self.read(name)
        except ClientError:
            return None

    def write(self, name, content):
        client = self.server.client()
        client.put_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}", Body=content)

    def empty(self):
        """Deletes everything, as by mistake. The documents of the whole store go last: while tables
        remain, a node would write them again."""
        client = self.server.client()
        while names := self.keys():
            for name in sorted(names, key=lambda name: name.count("/"), reverse=True):
                client.delete_object(Bucket=BUCKET, Key=f"{self.prefix}/{name}")

    def unfinished_uploads(self):
        """Uploads that have parts. If a kill interrupts an upload before its start is noted, it has
        none."""
        client, prefix = self.server.client(), self.prefix
        found = client.list_multipart_uploads(Bucket=BUCKET, Prefix=prefix).get("Uploads", [])

        def parts(entry):
            upload = {"Key": entry["Key"], "UploadId": entry["UploadId"]}
            return client.list_parts(Bucket=BUCKET, **upload).get("Parts", [])

        return [entry["Key"] for entry in found if parts(entry)]

    def versions(self, table):
        return [entry["version"] for entry in self.json("versions", table)]


class Exchange:
    """One request that went through the proxy."""

    def __init__(self, method, path, length):
        self.method, self.path, self.length = method, path, length
        self.status = None
        # The request's body, until it is answered.
        self.body = None

    @property
    def part(self):
        """The key and part number of a part upload."""
        path, _, query = self.path.partition("?")
        fields = dict(field.partition("=")[::2] for field in query.split("&"))
        if self.method == "PUT" and "partNumber" in fields:
            return (path, int(fields["partNumber"]))
        return None


class Proxy(HttpServer):
    """Forwards requests to the S3 server, counts them, and injects faults.

    before(exchange) may sleep, or return a status that is answered at once. after(exchange, status,
    body) returns the status and body for the client. If that body is shorter than announced, the
    proxy sends it and cuts the connection.
    """

    def __init__(self, server):
        self.exchanges, self.server = [], server
        self.before = lambda exchange: None
        self.after = lambda exchange, status, body: (status, body)
        super().__init__()

    def handle(self, handler):
        length = int(handler.headers.get("Content-Length", 0))
        exchange = Exchange(handler.command, handler.path, length)
        with self.lock:
            self.exchanges.append(exchange)
        body = handler.rfile.read(length) if length else None
        if body is not None and len(body) < length:
            exchange.status = CUT
            handler.close_connection = True
            return
        exchange.body = body
        status = self.before(exchange)
        headers, found = [], b""
        if status is None:
            try:
                status, headers, found = self.ask(handler, self.server, body)
            except (OSError, http.client.HTTPException):
                exchange.status, exchange.body = CUT, None
                handler.close_connection = True
                return
        full = len(found)
        status, found = self.after(exchange, status, found)
        exchange.status, exchange.body = status, None
        try:
            self.answer(handler, status, headers, found, max(full, len(found)))
        except OSError:
            handler.close_connection = True

    @staticmethod
    def ask(handler, server, body):
        connection = http.client.HTTPConnection("127.0.0.1", server.ports[0], timeout=60)
        try:
            connection.putrequest(
                handler.command, handler.path, skip_host=True, skip_accept_encoding=True
            )
            for name, value in handler.headers.items():
                if name.lower() != "connection":
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    @staticmethod
    def answer(handler, status, headers, body, length):
        handler.send_response(status)
        for name, value in headers:
            skipped = ["connection", "transfer-encoding", "date", "server"]
            if name.lower() == "content-length" and handler.command == "HEAD":
                handler.send_header(name, value)
            elif name.lower() not in [*skipped, "content-length"]:
                handler.send_header(name, value)
        if handler.command != "HEAD":
            handler.send_header("Content-Length", str(length))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)
        handler.wfile.flush()
        if len(body) < length:
            handler.close_connection = True

    def parts(self, since=0):
        """The parts that were sent and accepted, as (key, number), from the exchange `since` on."""
        with self.lock:
            sent = [exchange for exchange in self.exchanges[since:] if exchange.status == 200]
        return [exchange.part for exchange in sent if exchange.part]
