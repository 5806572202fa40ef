"""Live tables through the server: acknowledged writes are kept, whatever happens to the process."""

import json
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redis
from harness import WAIT_S, is_served, refused, wait_for

DURABILITIES = ["sync", "20ms", "os"]


def test_create_prints_the_table_and_refuses_wrong_options(store):
    made = store.json(
        "create", "t", "--order", "ordered", "--boundary", "g", "--durability", "50ms"
    )
    assert made == {
        "table": "t",
        "mode": "live",
        "order": "ordered",
        "partitions": 2,
        "durability": "50ms",
        "ttl": "per-key",
        "store_created": True,
    }
    assert store.json("create", "d", "--delta", "i64")["ttl"] == "never"
    assert store.json("create", "e", "--ttl", "90m")["ttl"] == "5400000ms"
    ordered = ["create", "u", "--order", "ordered"]
    assert "--boundary" in store.refuse(*ordered, "--partitions", "3", code=2)
    assert "exists already" in store.refuse("create", "t")
    assert "rise" in store.refuse(
        "create", "u", "--order", "ordered", "--boundary", "g", "--boundary", "a", code=2
    )
    assert "--column" in store.refuse("create", "u", "--value", "row", code=2)
    assert "--value bytes" in store.refuse(
        "create", "u", "--value", "list", "--item", "text", "--delta", "i64", code=2
    )
    row = store.json("tables")[-1]
    assert (row["table"], row["mode"], row["rows"]) == ("t", "live", 0)
    for command in [
        ["swap", "t", "1"],
        ["rollback", "t"],
        ["versions", "t"],
        ["diff", "t", "1", "2"],
    ]:
        assert "live" in store.refuse(*command)
    assert "no versions" in store.refuse("get", "t@1", "k")


def test_only_one_process_opens_a_live_table(live):
    live.client().set("kv:a", "1")
    with live.store.serve() as second:
        refused(lambda: second.client().get("kv:a"), "no table 'kv'")
    assert live.client().get("kv:a") == b"1"


def test_a_command_on_a_table_in_use_is_asked_to_retry(store):
    store.run("create", "kv")
    with store.serve() as server:
        for number in range(100):
            server.client().set(f"kv:{number}", "x" * 10_000)
    # The scan holds the table until its output is read.
    first = store.start("scan", "kv", "--limit", "100")
    assert first.stdout.read(1)
    for command in [
        ["compact", "kv"],
        ["verify", "kv"],
        ["get", "kv", "1"],
        ["drop", "kv", "--yes"],
    ]:
        message = store.refuse(*command, code=4)
        assert "live table kv is in use" in message and f"process {first.pid}" in message, message
    assert store.finish(first).code == 0
    assert store.run("compact", "kv").code == 0
    # The first command gets the table, and the other one fails.
    both = [store.start("compact", "kv") for _ in range(2)]
    codes = sorted(store.finish(process).code for process in both)
    assert codes in ([0, 0], [0, 4]), codes
    store.run("verify", "kv")


def test_compacting_by_command_and_by_http(store, tmp_path):
    store.run("create", "kv", "--partitions", "2", "--factor", "32")
    (tmp_path / "token").write_text("a token of some length\n")
    serve = ["--admin-token-file", tmp_path / "token"]
    for _ in range(3):
        with store.serve() as server:
            client = server.client()
            client.mset({f"kv:{i}": i for i in range(100)})
            client.delete("kv:0")
            assert client.dbsize() >= 99
    compacted = store.json("compact", "kv")
    assert compacted == {"table": "kv", "runs": 6, "partitions": 2, "records": 99}
    assert "no versions" in store.refuse("compact", "kv@1")
    with store.serve(*serve) as server:
        client = server.client()
        assert client.dbsize() == 99
        client.set("kv:more", "1")
        assert client.dbsize() == 100
        assert "/v1/tables/kv/compact" in store.refuse("compact", "kv", code=4)
        path = f"http://127.0.0.1:{server.http}/v1/tables/kv/compact"
        request = urllib.request.Request(path, data=b"", method="POST")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(request, timeout=30)
        request.add_header("Authorization", "Bearer a token of some length")
        with urllib.request.urlopen(request, timeout=30) as reply:
            assert json.load(reply) == {"table": "kv", "runs": [1, 1], "records": 100}
        assert client.get("kv:more") == b"1" and client.get("kv:0") is None


def test_commands_see_the_writes_of_clients(live, tmp_path):
    client = live.client()
    client.mset({f"log:{i:02}": f"v{i}" for i in range(30)})
    client.execute_command("KV.DELTA", "count:c", 5)
    client.hset("people:1", mapping={"name": "Ada", "age": 36})
    client.rpush("list:l", 1, 2)
    live.stop()
    store = live.store
    assert store.json("get", "log", "03", "99") == ["v3", None]
    assert store.json("get", "count", "c") == [5]
    assert store.json("get", "people", "1") == [{"name": "Ada", "age": 36, "score": None}]
    assert store.json("get", "list", "l") == [[1, 2]]
    lines = store.run("scan", "log", "--from", "10", "--limit", "2", "--json").json_lines()
    assert lines == [{"key": "10", "value": "v10"}, {"key": "11", "value": "v11"}]
    out = tmp_path / "log.csv"
    assert store.json("export", "log", "--to", out)["rows"] == 30
    assert out.read_text().splitlines()[1] == "00,v0"
    store.run("export", "count", "--to", tmp_path / "count.csv")
    assert (tmp_path / "count.csv").read_text().splitlines()[1] == "c,5"
    assert store.json("verify", "log")["records"] == 30
    assert store.json("drop", "log", "--yes") == {"table": "log", "dropped": True}
    assert "log" not in [row["table"] for row in store.json("tables")]
    (store.runs("kv") or store.runs("count"))[0].write_bytes(b"no run")
    assert "count" in store.refuse("verify", "count")


def test_strings(live):
    client = live.client(decode_responses=True)
    assert client.set("kv:a", "1") is True and client.get("kv:a") == "1"
    assert client.set("kv:a", "2", nx=True) is None and client.set("kv:b", "2", xx=True) is None
    assert client.set("kv:a", "3", xx=True, get=True) == "1"
    assert client.execute_command("SET", "kv:a", "4", "IFEQ", "3") is True
    assert client.execute_command("SET", "kv:a", "5", "IFEQ", "3") is None
    assert client.execute_command("SET", "kv:none", "5", "IFEQ", "") is None
    assert client.getset("kv:a", "6") == "4" and client.setnx("kv:a", "7") is False
    assert client.append("kv:a", "xyz") == 4 and client.append("kv:new", "n") == 1
    assert client.getdel("kv:new") == "n" and client.getdel("kv:new") is None
    assert client.mset({f"kv:{i}": i for i in range(100)}) is True
    assert client.mget([f"kv:{i}" for i in range(100)]) == [str(i) for i in range(100)]
    assert client.delete(*[f"kv:{i}" for i in range(150)]) == 100
    assert client.exists("kv:1") == 0 and client.get("kv:a") == "6xyz"
    assert client.execute_command("KV.DELTA", "text:a", "one") == "OK"
    assert client.append("text:a", ",two") == 7 and client.get("text:a") == "one,two"
    refused(lambda: client.execute_command("KV.DELTA", "kv:a", "1"), "without a kind of deltas")
    refused(lambda: client.execute_command("SET", "kv:a"), "wrong number")
    refused(lambda: client.execute_command("SET", "kv:a", "1", "NX", "XX"), "syntax error")
    refused(lambda: client.set("nowhere:a", "1"), "no table 'nowhere'")
    refused(lambda: client.set("kv:", "1"), "a key of 0 bytes")
    refused(lambda: client.set("people:1", "x"), "WRONGTYPE", "HSET")


def test_numbers(live):
    client = live.client(decode_responses=True)
    for table in ["count", "kv"]:
        assert client.incr(f"{table}:n") == 1 and client.incrby(f"{table}:n", 41) == 42
        assert client.decr(f"{table}:n", 2) == 40 and client.get(f"{table}:n") == "40"
        client.set(f"{table}:n", 2**63 - 1)
        refused(lambda table=table: client.incr(f"{table}:n"), "overflow")
    client.execute_command("KV.DELTA", "count:n", 1)
    assert client.get("count:n") == str(-(2**63))
    refused(lambda: client.set("count:n", "many"), "not an integer")
    refused(lambda: client.execute_command("KV.DELTA", "count:n", "1.5"), "not an integer")
    refused(lambda: client.append("count:n", "1"), "WRONGTYPE", "KV.DELTA")
    refused(lambda: client.incrbyfloat("count:n", 1.5), "whole numbers")
    assert client.incrbyfloat("float:f", 1.5) == 1.5 and client.incrbyfloat("float:f", 1.5) == 3
    client.execute_command("KV.DELTA", "float:f", "-0.25")
    assert client.get("float:f") == "2.75"
    refused(lambda: client.incr("float:f"), "not an integer")
    client.set("kv:x", "abc")
    refused(lambda: client.incr("kv:x"), "not an integer")
    refused(lambda: client.incrbyfloat("kv:x", 1), "not a valid float")


def test_keys_expire_as_in_redis(live):
    client = live.client(decode_responses=True)
    values = {
        "kv:a": lambda key: client.set(key, "1"),
        "text:a": lambda key: client.set(key, "1"),
        "list:a": lambda key: client.rpush(key, 1),
        "people:a": lambda key: client.hset(key, "age", 1),
    }
    live.store.run("create", "ttl", "--ttl", "1h")
    live.store.run("create", "counter", "--delta", "i64", "--ttl", "per-key")
    live.store.run("create", "joined", "--delta", "append", "--ttl", "per-key")
    wait_for(lambda: is_served(client, "joined") and is_served(client, "counter"), "the new tables")
    assert client.ttl("kv:absent") == -2 and client.expire("kv:absent", 10) == 0
    for key, make in values.items():
        make(key)
        if key == "text:a":
            refused(lambda key=key: client.expire(key, 10), "do not expire", "--ttl per-key")
            refused(lambda key=key: client.set(key, 1, ex=10), "do not expire", "--ttl per-key")
            assert client.ttl(key) == -1 and client.persist(key) == 0
            continue
        assert client.ttl(key) == -1 and client.expire(key, 100) == 1
        assert 99 <= client.ttl(key) <= 100
        # Changes of a part of the value keep the expiry.
        if key == "kv:a":
            client.incr(key), client.append(key, "2"), client.incrbyfloat(key, 1)
        elif key == "list:a":
            client.rpush(key, 2), client.lpush(key, 0), client.lpop(key)
        else:
            client.hset(key, "name", "Ada"), client.hincrby(key, "age", 1), client.hdel(key, "name")
        assert 99_000 < client.pttl(key) <= 100_000 and client.persist(key) == 1
        assert client.ttl(key) == -1 and client.pexpire(key, 20) == 1
        wait_for(lambda key=key: client.exists(key) == 0, "the key expires")
        assert client.ttl(key) == -2 and client.get(key) is None and client.type(key) == "none"
        make(key)
        assert client.ttl(key) == -1
    # A write sets the table's TTL. PERSIST and EXPIRE change it for a key.
    client.set("ttl:a", "x"), client.append("ttl:a", "y")
    assert 3599 <= client.ttl("ttl:a") <= 3600
    assert client.expire("ttl:a", 10) == 1 and client.append("ttl:a", "z") == 3
    assert 9 <= client.ttl("ttl:a") <= 10 and client.persist("ttl:a") == 1
    assert client.ttl("ttl:a") == -1 and client.expiretime("ttl:a") == -1
    client.append("ttl:a", "!"), client.set("ttl:a", "w", keepttl=True)
    assert client.ttl("ttl:a") == -1 and client.persist("ttl:a") == 0
    client.set("ttl:a", "v")
    assert 3599 <= client.ttl("ttl:a") <= 3600
    # KV.DELTA does not read the value, so the sum gets the table's TTL, here none.
    client.set("counter:n", 5, ex=100)
    assert client.incr("counter:n") == 6 and 99 <= client.ttl("counter:n") <= 100
    client.execute_command("KV.DELTA", "counter:n", 2)
    assert client.get("counter:n") == "8" and client.ttl("counter:n") == -1
    client.set("joined:a", "x", px=100_000), client.append("joined:a", "y")
    assert client.get("joined:a") == "xy" and 99 <= client.ttl("joined:a") <= 100


def test_expiries_are_read_from_the_log_and_from_runs(store):
    store.run("create", "t")
    for sign in [signal.SIGKILL, signal.SIGTERM]:
        with store.serve() as server:
            client = server.client(decode_responses=True)
            client.set("t:long", 1, ex=1000), client.set("t:short", 1, px=300)
            client.set("t:late", 1, pxat=2**50), client.set("t:never", 1)
            server.process.send_signal(sign)
            server.process.wait()
            server.stop = lambda: 0
        time.sleep(0.3)
        with store.serve() as server:
            client = server.client(decode_responses=True)
            assert client.exists("t:long", "t:short", "t:never") == 2
            assert 990 < client.ttl("t:long") <= 1000 and client.ttl("t:never") == -1
            assert client.pexpiretime("t:late") == 2**50 and client.ttl("t:short") == -2


def test_rows_and_lists(live):
    client = live.client(decode_responses=True)
    assert client.hset("people:1", mapping={"name": "Ada", "age": 36}) == 2
    assert client.hset("people:1", mapping={"age": 37, "score": 1.5}) == 1
    assert client.hgetall("people:1") == {"name": "Ada", "age": "37", "score": "1.5"}
    assert client.hincrby("people:1", "age", 5) == 42
    assert client.hincrbyfloat("people:1", "score", 0.5) == 2
    assert client.hsetnx("people:1", "age", 1) == 0 and client.hdel("people:1", "age", "none") == 1
    assert client.hsetnx("people:1", "age", 1) == 1
    refused(lambda: client.hset("people:1", "shoe", 1), "no column 'shoe'")
    refused(lambda: client.hset("people:1", "age", "old"), "no int64", "age")
    holds = "WRONGTYPE table 'kv' holds bytes, not rows: GET reads them, SET changes them"
    assert refused(lambda: client.hset("kv:1", "age", 1)) == holds
    refused(lambda: client.hset("count:n", "age", 1), "WRONGTYPE", "numbers", "INCRBY")
    assert client.hget("people:1", "age") == "1"
    assert client.hdel("people:1", "name", "age", "score") == 3 and client.exists("people:1") == 0
    assert client.rpush("list:l", 2, 3) == 2 and client.lpush("list:l", 1, 0) == 4
    assert client.lrange("list:l", 0, -1) == ["0", "1", "2", "3"]
    assert client.lpop("list:l") == "0" and client.rpop("list:l", 2) == ["3", "2"]
    assert client.rpop("list:l") == "1" and client.lpop("list:l") is None
    assert client.exists("list:l") == 0 and client.rpushx("list:l", 1) == 0
    refused(lambda: client.rpush("list:l", "x"), "no int64")
    refused(lambda: client.rpush("people:1", 1), "WRONGTYPE", "rows, not lists", "HSET")


def test_ranges_scans_and_their_deletion(live):
    client = live.client(decode_responses=True)
    client.mset({f"log:{i:03}": i for i in range(300)})
    assert sorted(client.scan_iter("log:*")) == [f"log:{i:03}" for i in range(300)]
    following, items = client.execute_command("KV.RANGE", "log:010", "+", "LIMIT", 2, "KEYS")
    assert (following, items) == ("(log:011", ["log:010", "log:011"])
    assert client.execute_command("KV.DELRANGE", "log:100", "(log:200") == 100
    assert client.execute_command("KV.DELRANGE", "log:100", "(log:200") == 0
    assert client.exists("log:099", "log:100", "log:199", "log:200") == 2
    assert client.execute_command("KV.DELRANGE", "(log:200", "log:209", "NOCOUNT") == "OK"
    assert client.exists("log:200", "log:201", "log:209", "log:210") == 2
    refused(lambda: client.execute_command("KV.DELRANGE", "log:a", "+", "COUNT"), "syntax")
    refused(lambda: client.execute_command("KV.DELRANGE", "kv:a", "+"), "hashed")
    keys = []
    following = "log:01"
    while following:
        following, items = client.execute_command(
            "KV.RANGE", following, "*log:01", "LIMIT", 3, "KEYS"
        )
        keys += items
    assert keys == [f"log:{i:03}" for i in range(10, 20)]
    _, items = client.execute_command("KV.RANGE", "log:01", "*log:01", "REV", "LIMIT", 2, "KEYS")
    assert items == ["log:019", "log:018"]
    refused(lambda: client.execute_command("KV.DELRANGE", "*log:01", "+"), "ends a range")
    seen = live.store.run("scan", "log", "--prefix", "01").out.splitlines()
    assert [line.split("\t")[0] for line in seen] == [f"{i:03}" for i in range(10, 20)]
    assert "cannot be used with" in live.store.refuse(
        "scan", "log", "--prefix", "0", "--from", "1", code=2
    )
    assert "--prefix" in live.store.refuse("scan", "kv", "--prefix", "0")
    client.mset({f"kv:{i}": i for i in range(300)})
    assert sorted(client.scan_iter("kv:*")) == sorted(f"kv:{i}" for i in range(300))
    assert client.randomkey() is not None


def test_a_table_of_floats_stores_numbers_exactly(store):
    store.run("create", "f", "--delta", "f64")
    with store.serve() as server:
        client = server.client(decode_responses=True)
        for text in ("9007199254740993", "1e-400", "1e400", "0.1234567890123456789012"):
            refused(lambda text=text: client.set("f:x", text), "another number")
            refused(
                lambda text=text: client.execute_command("KV.DELTA", "f:x", text), "another number"
            )
        refused(lambda: client.execute_command("KV.DELTA", "f:x", "-inf"), "Infinity")
        assert client.get("f:x") is None
        assert client.set("f:x", "0.1") and client.get("f:x") == "0.1"
        assert client.incrbyfloat("f:x", 1e22) == 1e22
        assert client.set("f:x", "9007199254740992") and client.incrbyfloat("f:x", 2) == 2**53 + 2


def test_a_float_of_32_bits_is_returned_as_stored(store):
    store.run("create", "f", "--value", "row", "--column", "x:float32")
    with store.serve() as server:
        client = server.client(decode_responses=True)
        seen = client.execute_command("HINCRBYFLOAT", "f:1", "x", "16777217.1")
        assert float(seen) == 16777218 and float(client.hget("f:1", "x")) == float(seen)
        assert client.hincrbyfloat("f:1", "x", "0.1") == float(client.hget("f:1", "x"))
        refused(lambda: client.execute_command("HINCRBYFLOAT", "f:1", "x", "1e39"), "Infinity")
        assert client.hdel("f:1", "none") == 0


def test_ioredis_writes(live):
    words = ["node", Path(__file__).parent / "node/write.mjs", str(live.port)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["set"], seen["incr"], seen["nx"]) == ("OK", 2, None)
    assert 99 <= seen["ttl"] <= 100 and 99 <= seen["kept"] <= 100
    assert seen["persist"] == [1, -1] and seen["gone"] == [1, None]
    assert seen["many"] == list(range(1, 201)) and seen["deleted"] == 2
    assert seen["multi"][:2] == ["OK", 2] and seen["multi"][2].startswith("WRONGTYPE")
    assert seen["multi"][3] == "2" and seen["across"].startswith("CROSSSLOT")
    assert seen["hash"] == [2, {"name": "Ada", "age": "36"}]
    assert seen["list"] == [3, ["1", "2", "3"]] and seen["bytes"] == [0, 255, 13, 10]


def test_increments_of_many_clients_all_count(live):
    def add(key):
        client = live.client()
        for _ in range(20):
            with client.pipeline(transaction=False) as pipe:
                for _ in range(10):
                    pipe.incr(key)
                    pipe.execute_command("KV.DELTA", "count:" + key.split(":")[1], 2)
                pipe.execute()

    threads = [threading.Thread(target=add, args=("kv:n",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert live.client().get("kv:n") == b"800" and live.client().get("count:n") == b"1600"


@pytest.mark.parametrize("durability", DURABILITIES)
def test_nothing_acknowledged_is_lost_by_kill_9(store, durability):
    store.run("create", "t", "--durability", durability)
    store.run("create", "n", "--durability", durability, "--delta", "i64")
    acknowledged = {}
    for round_ in range(3):
        server = store.serve()
        stop = threading.Event()

        def write(number, server=server, round_=round_, stop=stop):
            client = server.client()
            try:
                for i in range(100_000):
                    key = f"t:{round_}-{number}-{i % 50}"
                    with client.pipeline(transaction=False) as pipe:
                        pipe.set(key, i)
                        pipe.execute_command("KV.DELTA", f"n:{round_}-{number}", 1)
                        pipe.execute()
                    acknowledged[key] = i
                    acknowledged[f"n:{round_}-{number}"] = i + 1
                    if i == 200 and number == 0:
                        stop.set()
            except redis.ConnectionError:
                pass

        threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        assert stop.wait(WAIT_S)
        server.process.send_signal(signal.SIGKILL)
        for thread in threads:
            thread.join()
        server.stop()
    with store.serve() as server:
        client = server.client()
        for key, value in acknowledged.items():
            found = int(client.get(key))
            # Writes under way when the server died may exist, too. Texts may be fifty writes newer,
            # and numbers one larger.
            after = value + (1 if key.startswith("n:") else 50)
            assert found in (value, after), (key, value, found)


def test_a_server_that_ends_gracefully_leaves_no_log(store):
    store.run("create", "t", "--durability", "os")
    with store.serve() as server:
        client = server.client()
        with client.pipeline(transaction=False) as pipe:
            for i in range(2000):
                pipe.set(f"t:{i}", i)
            pipe.execute()
    assert store.json("tables")[0]["rows"] == 2000
    with store.serve() as server:
        assert server.client().get("t:1999") == b"1999"


def test_a_table_created_later_is_served(store):
    with store.serve("--create") as server:
        client = server.client()
        refused(lambda: client.set("late:a", 1), "no table 'late'")
        store.run("create", "late")

        def served():
            try:
                return client.set("late:a", 1)
            except redis.ResponseError:
                return False

        wait_for(served, "the new table")


def test_metrics_info_and_http_of_live_tables(live):
    import urllib.request

    client = live.client(decode_responses=True)
    client.set("kv:a", "1")
    client.execute_command("KV.DELTA", "count:a", 3)

    def page(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{live.http}{path}") as answer:
            return answer.read().decode()

    client.execute_command("KV.DELRANGE", "log:a", "+")
    metrics = page("/metrics")
    assert 'forebay_command_seconds_count{table="log",command="kv.delrange"} 1' in metrics
    assert 'forebay_page_cache_misses_total{table="log"} 0' in metrics
    assert 'forebay_live_log_bytes{table="kv"}' in metrics
    assert 'forebay_live_refuses_writes{table="kv"} 0' in metrics
    tables = {table["table"]: table for table in json.loads(page("/v1/tables"))["tables"]}
    assert tables["kv"]["mode"] == "live" and tables["kv"]["log_bytes"] > 0
    assert json.loads(page("/v1/tables/count"))["delta"] == "add_i64"
    assert json.loads(page("/v1/tables/kv/rows/a")) == "1"
    assert json.loads(page("/v1/tables/count/rows/a")) == 3
    assert client.info("keyspace")["table_kv"]["durability"] == "sync"
    described = client.command()
    assert "write" in described["set"]["flags"] and "readonly" in described["get"]["flags"]


def test_a_user_without_the_verb_does_not_write(store, tmp_path):
    import hashlib

    store.run("create", "t")
    users = tmp_path / "users.json"
    sha = hashlib.sha256(b"secret").hexdigest()
    entry = {"password_sha256": sha, "tables": ["t"]}
    reader = {"name": "reader", "verbs": ["read"], **entry}
    writer = {"name": "writer", "verbs": ["write"], **entry}
    users.write_text(json.dumps({"users": [reader, writer]}))
    with store.serve("--users", users) as server:
        reads = server.client(username="reader", password="secret")
        writes = server.client(username="writer", password="secret")
        assert writes.set("t:a", "1") is True
        for call in [
            lambda: reads.set("t:a", "2"),
            lambda: reads.delete("t:a"),
            lambda: reads.mset({"t:a": 1}),
            lambda: reads.execute_command("KV.DELRANGE", "t:a", "+"),
        ]:
            with pytest.raises(redis.exceptions.NoPermissionError):
                call()
        with pytest.raises(redis.exceptions.NoPermissionError):
            writes.get("t:a")
        # A transaction does not reveal whether the key exists, either.
        for hidden in ["t:a", "absent:a"]:
            with writes.pipeline(transaction=True) as multi:
                multi.set("t:a", "3").get(hidden)
                with pytest.raises(redis.exceptions.NoPermissionError):
                    multi.execute()
        assert reads.get("t:a") == b"1"
