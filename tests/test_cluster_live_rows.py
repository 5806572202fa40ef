"""`forebay load --insert rows` into live tables of a cluster. The command sends rows as writes to
the leading nodes, in any order, by many clients, even if a process dies."""

import datetime
import decimal
import hashlib
import json
import os
import random

import pyarrow
import pyarrow.parquet
import pytest
import redis
from harness import wait_for
from secured import certificate
from test_cluster_live_load import answered, get_all, loads, staged

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.randrange(1 << 30)))
LIVE = ["--mode", "live", "--durability", "os"]
ORDERED = [*LIVE, "--order", "ordered", "--boundary", "k05000", "--boundary", "k10000"]
HASHED = [*LIVE, "--partitions", "4"]
ROWS = 20_000
# The load of these rows (about 0.6 MB) is slow, so that nodes die during it.
SLOW = ["--rate", "60K"]


def names(count=ROWS):
    return [f"k{number:05}" for number in range(count)]


def write(path, columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def source(path, value="new", count=ROWS):
    """Rows of keys in random order, and the expected value of each key."""
    chance = random.Random(SEED)
    keys = names(count)
    values = {key: f"{value}-{chance.randbytes(10).hex()}" for key in keys}
    shuffled = chance.sample(keys, count)
    write(path, {"id": shuffled, "v": [values[key] for key in shuffled]})
    return path, [values[key] for key in keys]


def words(table, path, *more):
    return ["load", table, path, "--key", "{id}", "--insert", "rows", *more]


@pytest.fixture
def three(shared):
    made = shared(3)
    made.store.run("create", "t", *ORDERED, "--replicas", "3")
    made.wait_whole("t")
    return made


def check(made, values, table="t"):
    for node in (made.nodes[0], made.nodes[-1]):
        assert answered(node, names(len(values)), table) == values, f"seed {SEED}"
    with made.nodes[0].through_gateway(socket_timeout=60) as client:
        count = sum(1 for _ in client.scan_iter(match=f"{table}:*", count=5000))
    assert count == len(values)


def versions(node, table, keys):
    """For each key, the hash of its stored bytes and expiry, from KV.GETV."""
    with node.through_gateway(socket_timeout=60) as client:
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.execute_command("KV.GETV", f"{table}:{key}")
        return [version for version, _ in pipeline.execute()]


OPTIONS = [
    [],
    ["--order", "sorted", "--clients", "7", "--batch-rows", "100"],
    ["--order", "random", "--seed", "7", "--clients", "5"],
    ["--order", "source", "--clients", "4", "--batch-rows", "50"],
    ["--order", "source", "--clients", "1", "--memory", "1M", "--threads", "1"],
    ["--order", "random", "--clients", "2", "--memory", "1M", "--threads", "3"],
]


def option_sets():
    """Each set of options with one kind of table, and nightly with both."""
    for number, how in enumerate(OPTIONS):
        for order in ("ordered", "hashed"):
            is_first = (number % 2 == 0) == (order == "ordered")
            marks = [] if is_first else [pytest.mark.nightly]
            yield pytest.param(how, order, marks=marks, id=" ".join([order, *how]))


@pytest.mark.parametrize(("how", "order"), list(option_sets()))
def test_all_rows_are_loaded_in_any_order(three, tmp_path, how, order):
    made, table = three, "t"
    if order == "hashed":
        table = "h"
        made.store.run("create", "h", *HASHED, "--replicas", "3")
    path, values = source(tmp_path / "rows.parquet")
    done = made.store.json(*words(table, path, *how))
    assert (done["rows"], done["updates"], done["rejected"]) == (ROWS, ROWS, 0)
    insert = done["insert"]
    assert insert["order"] == (how[1] if how else "sorted")
    assert insert["clients"] == (int(how[how.index("--clients") + 1]) if how else 3)
    assert insert["requests"] >= ROWS / insert["batch_rows"]
    check(made, values, table)
    assert loads(made) == [] and staged(made, table) == []


def test_rows_are_loaded_one_by_one_in_random_order(three, tmp_path):
    path, values = source(tmp_path / "rows.parquet", count=2000)
    how = ["--order", "random", "--clients", "1", "--batch-rows", "1"]
    done = three.store.json(*words("t", path, *how))
    assert done["rows"] == 2000 and done["insert"]["requests"] == 2000
    check(three, values)


ROW_COLUMNS = {
    "n": pyarrow.array([1, None, -5, 2**62, 0] * 40),
    "f": pyarrow.array([0.1, float("nan"), None, -0.0, 1e300] * 40),
    "d": pyarrow.array([datetime.date(2026, 11, day + 1) for day in range(20)] * 10),
    "m": pyarrow.array([decimal.Decimal("1.50"), None] * 100, pyarrow.decimal128(12, 2)),
    "l": pyarrow.array([["a", None, ""], [], None, ["b" * 300]] * 50),
    "b": pyarrow.array([b"\xff\x00", b""] * 100),
}


def test_rows_and_runs_load_equal_values(three, tmp_path):
    """Compares byte for byte: rows of many types, numbers, and values that expire."""
    made = three
    keys = names(200)
    many = write(tmp_path / "rows.parquet", {"id": keys, **ROW_COLUMNS})
    types = ["n:int64", "f:float64", "d:date", "m:decimal(12, 2)", "l:list(text)", "b:binary"]
    columns = [word for column in types for word in ("--column", column)]
    later = datetime.datetime(2031, 1, 1)
    moments = [later if at % 3 else None for at in range(200)]
    numbers = write(tmp_path / "numbers.parquet", {"id": keys, "v": list(range(200))})
    until = write(tmp_path / "until.parquet", {"id": keys, "v": keys, "until": moments})
    for table, create, path, load in [
        ("r", ["--value", "row", *columns], many, []),
        ("n", ["--delta", "i64"], numbers, []),
        ("e", ["--ttl", "per-key"], until, ["--ttl-column", "until", "--value", "v"]),
    ]:
        for name in (table, f"{table}2"):
            made.store.run("create", name, *HASHED, *create, "--replicas", "3")
        first = made.store.json("load", table, path, "--key", "{id}", *load)
        second = made.store.json(*words(f"{table}2", path, *load))
        for field in first.keys() - {"seconds", "table"}:
            assert second[field] == first[field], (table, field)
        stored = versions(made.nodes[0], table, keys)
        assert len(set(stored)) > 4 and b"0" * 32 not in stored
        assert versions(made.nodes[0], f"{table}2", keys) == stored, table


def test_rows_can_insert_update_delete_and_add(three, tmp_path):
    made = three
    made.store.run("create", "n", *HASHED, "--delta", "i64", "--replicas", "3")
    base = write(tmp_path / "base.parquet", {"id": names(100), "v": [10] * 100})
    made.store.run(*words("n", base))
    operations = ["insert", "update", "delete", "delta"]
    rows = {
        "id": names(200),
        "v": [5] * 200,
        "op": [operations[at % 4] for at in range(200)],
    }
    path = write(tmp_path / "rows.parquet", rows)
    done = made.store.json(*words("n", path, "--op", "op", "--value", "v", "--order", "random"))
    counts = {field: done[field] for field in ("inserts", "updates", "deletes", "deltas")}
    assert counts == dict.fromkeys(counts, 50) and done["rows"] == 200
    before = ["10", "5", None, "15"] * 25
    assert answered(made.nodes[1], names(200), "n") == before + ["5", "5", None, "5"] * 25
    # Operations on one key apply in the order of the source, wherever they are combined.
    again = {
        "id": ["k00000"] * 4 + ["k00001"] * 3,
        "v": [1, 1, 7, 1, 1, 1, 1],
        "op": ["delta", "delete", "insert", "delta", "delete", "delta", "delta"],
    }
    path = write(tmp_path / "again.parquet", again)
    for order, rows in (("sorted", 2), ("source", 7)):
        how = ["--op", "op", "--value", "v", "--order", order]
        done = made.store.json(*words("n", path, *how))
        assert (done["rows"], done["rows"] + done["duplicates"]) == (rows, 7)
        assert answered(made.nodes[0], names(2), "n") == ["8", "2"]


def test_a_plan_is_carried_out_before_rows_are_sent(three, tmp_path):
    made = three
    # All rows belong to one partition with one replica.
    made.store.run("create", "one", *LIVE, "--order", "ordered", "--replicas", "1")
    made.wait_whole("one")
    path, values = source(tmp_path / "rows.parquet")
    done = [None]

    def is_loaded():
        # Nodes report the size of new partitions some seconds later.
        more = ["--plan", "always", "--partition-bytes", "64K", "--json"]
        result = made.store.run(*words("one", path, *more), code=None)
        assert result.code == 0 or "ask again" in result.err, result.err
        done[0] = result
        return result.code == 0

    wait_for(is_loaded, "the rows are loaded", 120, 0.5)
    assert done[0].json()["rows"] == ROWS
    assert made.ask_coordinator()["live"]["tables"]["one"]["partitions"] > 1
    check(made, values, "one")


def wait_begun(made, table="t"):
    """Waits until some rows are loaded."""

    def is_some():
        try:
            with made.nodes[-1].through_gateway(socket_timeout=5) as client:
                return client.dbsize() > 1000
        except redis.RedisError:
            return False

    wait_for(is_some, "rows are loaded")


@pytest.mark.parametrize(
    "order", ["sorted", pytest.param("source", marks=pytest.mark.nightly)]
)
def test_nodes_that_die_in_turn_lose_no_row(three, tmp_path, order):
    made = three
    path, values = source(tmp_path / "rows.parquet")
    how = ["--order", order, "--clients", "6", "--batch-rows", "20", *SLOW]
    command = made.store.start(*words("t", path, *how, "--json"))
    wait_begun(made)
    for node in made.nodes[:2]:
        node.kill()
        node.start().wait_listening()
        made.wait_whole("t")
    done = made.store.finish(command)
    assert done.code == 0, done.err
    assert done.json()["rows"] == ROWS
    check(made, values)


def test_a_killed_load_leaves_rows_and_can_be_repeated(three, tmp_path):
    made = three
    path, values = source(tmp_path / "rows.parquet")
    command = made.store.start(*words("t", path, "--order", "random", "--batch-rows", "10", *SLOW))
    wait_begun(made)
    command.kill()
    command.communicate()
    before = get_all(made.nodes[0], names())
    some = [value for value in before if value is not None]
    assert 0 < len(some) < ROWS
    assert all(value in (None, wanted) for value, wanted in zip(before, values, strict=True))
    assert made.store.json(*words("t", path))["rows"] == ROWS
    check(made, values)
    assert staged(made) == []


def test_deltas_are_never_added_twice(three, tmp_path):
    """A node dies during the load. Every delta is added once, or the error names those with an
    unknown outcome."""
    made = three
    made.store.run("create", "n", *ORDERED, "--delta", "i64", "--replicas", "3")
    path = write(tmp_path / "rows.parquet", {"id": names(), "v": [3] * ROWS})
    command = made.store.start(
        *words("n", path, "--as", "delta", "--batch-rows", "20", "--clients", "6", *SLOW)
    )
    wait_begun(made)
    made.nodes[0].kill()
    done = made.store.finish(command)
    made.nodes[0].start().wait_listening()
    values = answered(made.nodes[1], names(), "n")
    assert set(values) <= {None, "3"}, f"seed {SEED}"
    if done.code != 0:
        assert "nobody knows whether" in done.err and "from key " in done.err, done.err
        assert "rows are in n, and stay" in done.err and "--insert runs" in done.err
    else:
        assert set(values) == {"3"}


def test_bad_rows_end_a_load_before_it_sends_rows(three, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("id,v\n" + "".join(f"{'' if at == 900 else at},x\n" for at in range(1000)))
    assert "line 902" in three.store.refuse(*words("t", path))
    assert answered(three.nodes[0], [str(at) for at in range(1000)]) == [None] * 1000
    done = three.store.json(*words("t", path, "--bad-rows", "skip"))
    assert (done["rows"], done["rejected"]) == (999, 1)


def test_wrong_options_are_refused_with_advice(three, tmp_path):
    made = three
    path, _ = source(tmp_path / "rows.parquet", count=100)
    refuse = made.store.refuse
    load = ["load", "t", path, "--key", "{id}"]
    for option in (["--order", "random"], ["--clients", "2"], ["--batch-rows", "1"]):
        assert f"{option[0]} goes with --insert rows" in refuse(*load, *option, code=2)
    assert "--clients is 1 to" in refuse(*words("t", path, "--clients", "2000"), code=2)
    assert "--batch-rows is 1 to" in refuse(*words("t", path, "--batch-rows", "70000"), code=2)
    assert "--order random" in refuse(*words("t", path, "--seed", "3"), code=2)
    first = ["--order", "source", "--duplicates", "first"]
    assert "--order sorted" in refuse(*words("t", path, *first), code=2)
    made.store.push("b", path)
    seen = refuse(*words("b", path), code=2)
    assert "--insert rows is about the nodes of a cluster" in seen and "b is no live" in seen
    login = tmp_path / "login"
    assert "cannot read" in refuse(*words("t", path, "--login", login))
    login.write_text("nobody")
    assert "is not one line, user:password" in refuse(*words("t", path, "--login", login), code=2)
    assert answered(made.nodes[0], names(100)) == [None] * 100


def test_insert_rows_needs_a_cluster(store, tmp_path):
    path, _ = source(tmp_path / "rows.parquet", count=100)
    store.run("create", "t", *LIVE)
    seen = store.refuse(*words("t", path), code=2)
    assert "t is no live table of one" in seen


@pytest.fixture
def login(tmp_path):
    """A login of a user who may write to `t`, and the users file."""
    users, file = tmp_path / "users.json", tmp_path / "login"
    secret = hashlib.sha256(b"wonder42").hexdigest()
    loader = {"name": "loader", "password_sha256": secret, "tables": ["t"]}
    users.write_text(json.dumps({"users": [{**loader, "verbs": ["read", "write"]}]}))
    file.write_text("loader:wonder42\n")
    return file, users


def load_once_ready(made, *line):
    """Loads, once restarted nodes have found each other."""
    done = [None]

    def is_done():
        done[0] = made.store.run(*line, "--json", code=None)
        assert done[0].code == 0 or "no node of the cluster reports" in done[0].err, done[0].err
        return done[0].code == 0

    wait_for(is_done, "rows are loaded")
    return done[0].json()


def test_a_load_uses_a_login_for_nodes_with_users(three, tmp_path, login):
    made, (login, users) = three, login
    made.store.run("create", "u", *ORDERED, "--replicas", "3")
    made.restart("--users", users)
    for node in made.nodes:
        wait_for(node.is_ready, "the node is ready")
    path, _ = source(tmp_path / "rows.parquet", count=500)
    seen = made.store.refuse(*words("t", path))
    assert "--login" in seen and "NOAUTH" in seen, seen
    wrong = tmp_path / "wrong"
    wrong.write_text("loader:wrong\n")
    assert "WRONGPASS" in made.store.refuse(*words("t", path, "--login", wrong))
    assert made.store.json(*words("t", path, "--login", login))["rows"] == 500
    seen = made.store.refuse(*words("u", path, "--login", login))
    assert "NOPERM" in seen and "--login" in seen, seen


def test_a_load_uses_tls_for_nodes_with_tls(three, tmp_path, login):
    made, (login, users) = three, login
    ca, ca_key = certificate(tmp_path, "ca")
    signed = ["-CA", ca, "-CAkey", ca_key, "-addext", "basicConstraints=critical,CA:FALSE"]
    cert, key = certificate(tmp_path, "node", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    mine, mine_key = certificate(tmp_path, "loader", *signed)
    tls = ["--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca]
    made.restart("--users", users, *tls)
    path, _ = source(tmp_path / "rows.parquet", count=500)
    how = ["--login", login, "--tls-ca", ca]
    shown = ["--tls-cert", mine, "--tls-key", mine_key]
    assert load_once_ready(made, *words("t", path, *how, *shown))["rows"] == 500
    assert "no node of the cluster reports" in made.store.refuse(*words("t", path, *how))
    other, _ = certificate(tmp_path, "other")
    how = ["--login", login, "--tls-ca", other, *shown]
    seen = made.store.refuse(*words("t", path, *how))
    assert "invalid peer certificate" in seen, seen
    seen = made.store.refuse(*words("t", path, "--tls-ca", key), code=2)
    assert "has no certificate in PEM form" in seen, seen
