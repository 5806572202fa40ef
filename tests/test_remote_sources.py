"""Sources in buckets and on web servers."""

import gzip
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data import people, person, write
from harness import Store
from object_store import BUCKET, Proxy, access
from web import WebServer


class BucketReader(Store):
    """A local store whose commands reach the bucket."""

    def __init__(self, path, endpoint):
        super().__init__(path)
        self.endpoint = endpoint

    def environment(self):
        return {**super().environment(), **access(self.endpoint)}


@pytest.fixture
def reader(s3_server, tmp_path):
    return BucketReader(tmp_path / "store", s3_server.url)


@pytest.fixture
def put(s3_server, tmp_path):
    """Puts an object below the test's own prefix. put(name, content) returns its URL."""

    def put(name, content):
        key = f"sources/{tmp_path.name}/{name}"
        s3_server.client().put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"s3://{BUCKET}/{key}"

    return put


@pytest.fixture
def web():
    started = []

    def start(**options):
        started.append(WebServer(**options))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def content(table, tmp_path, kind, **options):
    path = tmp_path / f"content.{kind}"
    if kind == "parquet" and options:
        pq.write_table(table, path, **options)
    else:
        write(table, path)
    return path.read_bytes()


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow", "csv.gz"])
def test_every_format_is_read_from_a_bucket(reader, put, tmp_path, kind):
    made = content(people(), tmp_path, kind.removesuffix(".gz"))
    url = put(f"people.{kind}", gzip.compress(made) if kind.endswith(".gz") else made)
    assert reader.push("people", url)["rows"] == 1000
    assert reader.json("get", "people", "0", "999", "1000") == [person(0), person(999), None]
    other_name = url.replace("s3://", "s3a://")
    assert reader.push("other", other_name)["rows"] == 1000


def test_globs_and_directories_of_a_bucket(reader, put, tmp_path):
    for part in range(4):
        part_of = people(100, start=part * 100)
        put(f"t/day={part}/part {part}.parquet", content(part_of, tmp_path, "parquet"))
    put("t/_SUCCESS", b"")
    put("t/day=0/.part-0.parquet.crc", b"crc")
    root = put("t/_temporary/0/x.parquet", b"unfinished").rsplit("/_temporary", 1)[0]
    for source in [root, f"{root}/", f"{root}/**/*.parquet", f"{root}/day=?/*.parquet"]:
        reader.push("people", source, args=["--force"])
        (row,) = reader.json("get", "people", "307")
        assert row == {**person(307), "day": 3}
        assert reader.json("versions", "people")[-1]["rows"] == 400
    one = f"{root}/day=2/part 2.parquet"
    assert reader.push("one", one)["rows"] == 100
    assert "day" not in reader.json("get", "one", "200")[0]
    assert "no file matches" in reader.refuse("push", "x", f"{root}/*.csv", "--key", "{id}")
    message = reader.refuse("push", "x", f"{root}/day=2/part 3.parquet", "--key", "{id}")
    assert "did you mean 'part 2.parquet'?" in message


def test_only_the_footer_and_needed_columns_are_requested(reader, put, s3_server, tmp_path):
    rows = 20_000
    table = pa.table(
        {
            "id": range(rows),
            "wanted": [f"v{i}" for i in range(rows)],
            "waste": [f"{i * 7919 % 1_000_003:07}" * 20 for i in range(rows)],
        }
    )
    made = content(table, tmp_path, "parquet", row_group_size=5_000, compression="none")
    url = put("wide.parquet", made)
    proxy = Proxy(s3_server)
    sent = []
    proxy.after = lambda exchange, status, body: sent.append(len(body)) or (status, body)
    try:
        reader.endpoint = proxy.url
        reader.push("t", url, args=["--value", "wanted"])
    finally:
        proxy.stop()
    assert reader.json("get", "t", "19999") == ["v19999"]
    assert sum(sent) < len(made) / 5


def test_a_push_sends_requests_in_parallel(reader, put, s3_server):
    """One thread reads ahead while it decodes."""
    rows = 20_000
    text = "".join(f"{i},{'x' * 1000}\n" for i in range(rows))
    url = put("big.csv", f"id,pad\n{text}".encode())
    proxy = Proxy(s3_server)
    now, most, lock = [0], [0], threading.Lock()

    def before(exchange):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.05)

    def after(exchange, status, body):
        with lock:
            now[0] -= 1
        return status, body

    proxy.before, proxy.after = before, after
    try:
        reader.endpoint = proxy.url
        assert reader.push("t", url, args=["--threads", "1"])["rows"] == rows
    finally:
        proxy.stop()
    assert most[0] >= 2


def test_columns_of_a_row_group_are_requested_together(reader, put, s3_server, tmp_path):
    rows = 2_000
    table = pa.table({f"c{i}": pa.array(range(rows)) for i in range(40)} | {"id": range(rows)})
    url = put("a.parquet", content(table, tmp_path, "parquet", row_group_size=1_000))
    proxy = Proxy(s3_server)
    try:
        reader.endpoint = proxy.url
        assert reader.push("t", url)["rows"] == rows
    finally:
        proxy.stop()
    data = [exchange for exchange in proxy.exchanges if "a.parquet" in exchange.path]
    assert len(data) < 12


def test_an_object_that_changes_during_a_push_ends_it(reader, put, s3_server, tmp_path):
    url = put("a.parquet", content(people(5000), tmp_path, "parquet", compression="none"))
    other = content(people(5000, version=2), tmp_path, "parquet", compression="none")
    proxy = Proxy(s3_server)
    gets = []

    def before(exchange):
        if exchange.method == "GET" and "a.parquet" in exchange.path:
            gets.append(exchange)
            if len(gets) == 3:
                put("a.parquet", other)

    proxy.before = before
    try:
        reader.endpoint = proxy.url
        message = reader.refuse("push", "t", url, "--key", "{id}")
    finally:
        proxy.stop()
    assert "changed while it was read" in message


def test_failed_requests_to_a_bucket_are_retried(reader, put, s3_server, tmp_path):
    url = put("a.parquet", content(people(), tmp_path, "parquet"))
    proxy = Proxy(s3_server)
    seen = []

    def before(exchange):
        seen.append(exchange)
        return 503 if len(seen) % 3 == 1 else None

    proxy.before = before
    try:
        reader.endpoint = proxy.url
        assert reader.push("t", url)["rows"] == 1000
    finally:
        proxy.stop()


def test_missing_objects_and_invalid_urls_are_reported(reader, put):
    put("x.csv", b"id\n1\n")
    message = reader.refuse("push", "t", f"s3://{BUCKET}/nothing/here.csv", "--key", "{id}")
    assert "there is no such file or directory" in message
    assert "BUCKET" in reader.refuse("push", "t", "s3:///x.csv", "--key", "{id}")
    message = reader.refuse("push", "t", "ftp://host/x.csv", "--key", "{id}")
    assert "sources are paths" in message


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "arrow"])
@pytest.mark.parametrize("ranges", [True, False])
def test_every_format_is_read_from_a_web_server(store, web, tmp_path, kind, ranges):
    server = web(ranges=ranges)
    server.files[f"/data/my people.{kind}"] = content(people(), tmp_path, kind)
    url = f"{server.url}/data/my%20people.{kind}?token=secret-token"
    assert store.push("people", url)["rows"] == 1000
    assert store.json("get", "people", "0", "999") == [person(0), person(999)]
    assert {query for _, _, query, _ in server.requests} == {"token=secret-token"}
    whole = [span for _, _, _, span in server.requests if span is None]
    assert (len(whole) == 0) == ranges
    manifests = [path.read_bytes() for path in store.path.rglob("*") if path.is_file()]
    assert not any(b"secret-token" in manifest for manifest in manifests)


def test_requests_to_a_web_server_are_retried_and_its_errors_reported(store, web, tmp_path):
    server = web(fail_first=2)
    server.files["/a.csv"] = content(people(), tmp_path, "csv")
    server.files["/download"] = content(people(), tmp_path, "parquet")
    server.files["/empty.csv"] = b""
    server.files["/page.jsonl"] = b"<!doctype html><title>Sign in</title>"
    assert store.push("a", f"{server.url}/a.csv", f"{server.url}/a.csv")["rows"] == 1000
    assert store.push("b", f"{server.url}/download")["rows"] == 1000
    message = store.refuse("push", "x", f"{server.url}/none.csv?k=secret", "--key", "{id}")
    assert "no such file" in message and "secret" not in message
    assert "it is empty" in store.refuse("push", "x", f"{server.url}/empty.csv", "--key", "{id}")
    assert "HTML page" in store.refuse("push", "x", f"{server.url}/page.jsonl", "--key", "{id}")
    for name in ["", "/data/", "/*.csv"]:
        message = store.refuse("push", "x", f"{server.url}{name}", "--key", "{id}")
        assert "cannot be listed" in message


def test_a_truncated_answer_of_a_web_server_is_an_error(store, web, tmp_path):
    server = web(ranges=False, cut=10)
    server.files["/a.csv"] = content(people(), tmp_path, "csv")
    message = store.refuse("push", "x", f"{server.url}/a.csv", "--key", "{id}")
    assert "/a.csv: cannot be read" in message
