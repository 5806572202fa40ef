"""Keys of all lengths and of any bytes: UUIDs, hex.

On the command line, over HTTP and by Redis clients.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
import uuid

import pyarrow as pa
import pyarrow.parquet
import pytest
import redis
from data import write

# The longest key.
LONGEST = 8192
LENGTHS = [1, 127, 128, 1000, 1023, 1024, 1025, 2048, 4095, 4096, 4097, 8000, LONGEST]
IDS = [uuid.UUID(int=n * 0x0123456789ABCDEF0123456789ABCDEF % 2**128) for n in range(1, 300)]


def long_keys():
    """Two keys of each length, which share most of their bytes."""
    return [("k" * length)[: length - 1] + tail for length in LENGTHS for tail in "ab"]


def get(server, table, key):
    """The row of a key over HTTP, or None."""
    path = f"v1/tables/{table}/rows/{urllib.parse.quote(key, safe='')}"
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http}/{path}", timeout=30) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        assert error.code == 404, error.read()
        return None


@pytest.mark.parametrize("order", ["hashed", "ordered"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_long_keys_in_batch_tables(store, tmp_path, order, compression):
    keys = long_keys()
    others = [f"short/{n}" for n in range(3000)]
    columns = {"k": [*keys, *others], "n": list(range(len(keys) + len(others)))}
    path = write(pa.table(columns), tmp_path / "long.parquet")
    words = ["--order", order, "--compression", compression, "--memory", "1M"]
    assert store.push("t", path, key="{k}", args=words)["rows"] == len(columns["k"])
    assert store.json("verify", "t")["rows"] == len(columns["k"])
    found = store.json("get", "t", *keys, "k" * 4094 + "c")
    assert [row and row["n"] for row in found] == [*range(len(keys)), None]
    lines = store.run("scan", "t", "--json").out.splitlines()
    assert {json.loads(line)["key"] for line in lines} == set(columns["k"])
    # Merges with later changes keep the rows.
    change = {"k": [keys[-1], keys[3]], "n": [-1, -2]}
    changes = write(pa.table(change), tmp_path / "changes.parquet")
    for _ in range(3):
        store.run("push", "t", changes, "--onto", "current", "--force")
    store.run("compact", "t")
    assert [row["n"] for row in store.json("get", "t", keys[-1], keys[3], keys[4])] == [-1, -2, 4]
    with store.serve() as server:
        client = server.client()
        assert [client.hget(f"t:{key}", "n") for key in keys[4:8]] == [b"4", b"5", b"6", b"7"]
        assert client.hget(f"t:{keys[-1]}", "n") == b"-1"
        assert get(server, "t", keys[-2])["n"] == len(keys) - 2


def test_a_too_long_key_is_a_bad_row(store, tmp_path):
    path = write(pa.table({"k": ["a", "b" * (LONGEST + 1)]}), tmp_path / "long.parquet")
    message = store.refuse("push", "t", path, "--key", "{k}")
    assert f"{LONGEST + 1} bytes" in message and f"{LONGEST} is the limit" in message
    assert store.push("t", path, key="{k}", args=["--bad-rows", "skip"])["rejected"] == 1


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_long_keys_in_live_tables(store, tmp_path, order):
    keys = long_keys()
    store.run("create", "t", "--order", order, "--durability", "os", "--factor", "2")
    with store.serve() as server:
        client = server.client()
        for n, key in enumerate(keys):
            client.set(f"t:{key}", n)
        for length in (LONGEST + 1, 20_000):
            with pytest.raises(redis.ResponseError, match=f"keys have 1 to {LONGEST}"):
                client.set("t:" + "k" * length, "x")
        assert [int(client.get(f"t:{key}")) for key in keys] == list(range(len(keys)))
    # Keys from the log and from runs, merged.
    loaded = pa.table({"k": keys[::2], "v": ["loaded"] * len(keys[::2])})
    path = write(loaded, tmp_path / "l.parquet")
    store.run("load", "t", path, "--key", "{k}", "--value", "v")
    store.run("compact", "t")
    store.run("verify", "t")
    expected = ["loaded" if n % 2 == 0 else str(n) for n in range(len(keys))]
    assert store.json("get", "t", *keys) == expected
    with store.serve() as server:
        assert server.client().get(f"t:{keys[-2]}") == b"loaded"
        assert get(server, "t", keys[-1]) == str(len(keys) - 1)


@pytest.fixture
def ids(tmp_path):
    """UUIDs as Parquet's logical type, as Arrow's extension type, and as bytes."""
    raw = [one.bytes for one in IDS]
    columns = {
        "id": pa.array(raw, pa.uuid()),
        "raw": pa.array(raw, pa.binary(16)),
        "any": pa.array([bytes([n % 256]) * (n % 5 + 1) + one[:4] for n, one in enumerate(raw)]),
        "n": range(len(raw)),
    }
    table = pa.table(columns)
    arrow = write(table, tmp_path / "ids.arrow")
    pyarrow.parquet.write_table(table, tmp_path / "ids.parquet", store_schema=False)
    return [tmp_path / "ids.parquet", arrow]


def test_uuids_as_text_in_templates(store, ids):
    for path in ids:
        table = path.suffix[1:]
        for template, settled, key in [
            ("{id:uuid}", "{id:uuid}", str(IDS[5])),
            ("u/{id}", "u/{id:uuid}", f"u/{IDS[5]}"),
            ("{raw:uuid}/{n:03}", "{raw:uuid}/{n:03}", f"{IDS[5]}/005"),
            ("{n}/{id:hex}", "{n}/{id:hex}", f"5/{IDS[5].hex}"),
            ("{raw:hex}", "{raw:hex}", IDS[5].hex),
        ]:
            store.push(table, path, key=template, args=["--force"])
            assert store.json("get", table, key)[0]["n"] == 5, template
            with store.serve() as server:
                url = f"http://127.0.0.1:{server.http}/v1/tables/{table}"
                assert json.load(urllib.request.urlopen(url))["key"] == settled
        # Changes match rows by the same keys, however the template is given.
        store.push(table, path, key="u/{id}", args=["--force"])
        for key in ([], ["--key", "u/{id}"], ["--key", "u/{id:uuid}"]):
            store.run("push", table, path, "--onto", "current", *key)
        assert len(store.run("scan", table).out.splitlines()) == len(IDS)
        refused = store.refuse("push", table, path, "--onto", "current", "--key", "u/{id:hex}")
        assert "u/{id:uuid}" in refused
        message = store.refuse("push", table, path, "--key", "u/{raw}")
        assert "'raw'" in message and ":uuid}" in message and ":hex}" in message
        store.run("create", f"live-{table}")
        words = ["load", f"live-{table}", path, "--key", "u/{id}", "--value", "n"]
        message = store.run(*words, code=None)
        assert message.code == 0, message.err
        assert store.json("get", f"live-{table}", f"u/{IDS[7]}") == ["7"]


@pytest.mark.parametrize("order", ["hashed", "ordered"])
def test_binary_keys_by_command_http_and_redis(store, ids, order):
    store.push("t", ids[0], key="{id}", args=["--order", order])
    words = [str(IDS[3]), IDS[4].hex, f"0x{IDS[5].hex.upper()}", "00"]
    found = store.json("get", "t", "--hex", *words)
    assert [row and row["n"] for row in found] == [3, 4, 5, None]
    message = store.refuse("get", "t", "--hex", "xyz", code=2)
    assert "'xyz'" in message and "00ff" in message
    scanned = store.run("scan", "t", "--hex", "--json").out
    lines = [json.loads(line) for line in scanned.splitlines()]
    assert {line["key_hex"]: line["value"]["n"] for line in lines} == {
        one.hex: n for n, one in enumerate(IDS)
    }
    assert store.run("scan", "t", "--hex").out.splitlines()[0].split("\t")[0] == lines[0]["key_hex"]
    if order == "ordered":
        ranked = sorted(IDS, key=lambda one: one.bytes)
        words = ["scan", "t", "--hex", "--json", "--from", str(ranked[10]), "--to", ranked[20].hex]
        found = [json.loads(line)["key_hex"] for line in store.run(*words).out.splitlines()]
        assert found == [one.hex for one in ranked[10:20]]
    with store.serve() as server:
        client = server.client()
        for n, one in enumerate(IDS):
            assert client.hget(b"t:" + one.bytes, "n") == str(n).encode()
            assert get(server, "t", one.bytes)["n"] == n
        assert get(server, "t", b"\xff" * 16) is None


def test_keys_of_unusual_bytes(store):
    keys = [b"\x00", b"/", b"%", b"%2F", b"a/b/", b"\xff\xfe", b"\n", b" ", b"?", b"#", b"..", b"+"]
    keys.append("é".encode())
    bounds = ["--boundary", "2f", "--boundary", "ff"]
    store.run("create", "t", "--order", "ordered", "--hex", *bounds, "--durability", "os")
    with store.serve() as server:
        client = server.client()
        for n, key in enumerate(keys):
            client.set(b"t:" + key, n)
        for n, key in enumerate(keys):
            assert get(server, "t", key) == str(n), key
        assert get(server, "t", b"") is None and get(server, "t", b"\x00\x00") is None
    for n, key in enumerate(keys):
        assert store.json("get", "t", "--hex", key.hex()) == [str(n)]
    assert "no key" in store.run("get", "t", "--hex", "0", code=2).err
    lines = store.run("scan", "t", "--hex").out.splitlines()
    assert [line.split("\t")[0] for line in lines] == sorted(key.hex() for key in keys)
