"""Run files are truncated, changed or deleted while they serve. Reads return an error or the
correct value, and the server continues."""

import json
import os
import random
import shutil
import urllib.error
import urllib.request

import pytest
import redis
from data import people, person, write
from harness import wait_for

SEED = int(os.environ.get("FOREBAY_TEST_SEED", random.SystemRandom().randrange(2**32)))
ROWS = 3000


@pytest.fixture
def table(store, tmp_path):
    store.push("people", write(people(ROWS), tmp_path / "people.parquet"))
    store.push("sound", write(people(10), tmp_path / "sound.parquet"))
    return store


def run_file(store, table="people"):
    (path,) = [path for path in store.runs(table) if path.suffix == ".run"]
    return path


def read_all(server):
    """Reads every key, and returns the number of correct values and of errors. A wrong value fails
    the test."""
    client = server.client(decode_responses=True)
    right = errors = 0
    for i in range(0, ROWS, 7):
        try:
            fields = client.hgetall(f"people:{i}")
        except redis.exceptions.ResponseError as error:
            assert "damaged" in str(error).lower() or "cannot" in str(error).lower(), error
            errors += 1
            continue
        expected = {name: str(value) for name, value in person(i).items() if value is not None}
        expected["score"] = f"{i / 4:g}"
        got = {**fields, "score": f"{float(fields['score']):g}"}
        assert got == expected
        right += 1
    client.close()
    return right, errors


def http(server, path):
    """The status and the object of an HTTP answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def check_serves(server):
    assert server.alive()
    assert server.client(decode_responses=True).hget("sound:3", "id") == "3"


@pytest.mark.parametrize("left", [0, 1, 4096, 0.5, 0.99])
def test_a_truncated_file_under_a_running_server(table, left):
    path = run_file(table)
    with table.serve() as server:
        read_all(server)
        size = path.stat().st_size
        os.truncate(path, left if isinstance(left, int) else int(size * left))
        read_all(server)
        check_serves(server)
    assert "damaged" in table.refuse("verify", "people").lower()


def test_flipped_bits_under_a_running_server(table):
    print(f"FOREBAY_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    path = run_file(table)
    with table.serve() as server:
        # Pages are changed before their first read, because a checked page is trusted while it
        # stays in memory.
        with path.open("r+b") as file:
            for _ in range(20):
                at = chance.randrange(path.stat().st_size)
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 1 << chance.randrange(8)]))
        read_all(server)
        check_serves(server)
    assert "people" in table.refuse("verify", "people")


def test_any_flipped_byte_is_found_by_verify(table):
    print(f"FOREBAY_TEST_SEED={SEED}")
    chance = random.Random(SEED + 1)
    path = run_file(table)
    whole = path.read_bytes()
    # The footer and the index always, and some pages.
    places = [0, len(whole) - 1, len(whole) - 20, len(whole) - 200]
    places += [chance.randrange(len(whole)) for _ in range(20)]
    for at in places:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        message = table.refuse("verify", "people")
        assert path.name in message, f"byte {at}: {message}"
    path.write_bytes(whole)
    assert table.json("verify", "people")["rows"] == ROWS


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_damaged_manifest_is_named(table, cut):
    path = table.path / "tables" / "people" / "versions" / "1.manifest"
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    assert "1.manifest" in table.refuse("get", "people", "1")
    assert table.json("get", "sound", "1") == [person(1)]
    path.write_bytes(whole.replace(b"1000", b"1001").replace(b"3000", b"3001"))
    assert "1.manifest" in table.refuse("get", "people", "1")
    path.write_bytes(whole)
    assert table.json("get", "people", "1") == [person(1)]


def test_a_deleted_run_is_named(table):
    run_file(table).unlink()
    table.refuse("get", "people", "1")
    with table.serve() as server:
        check_serves(server)


def test_a_table_with_a_damaged_pointer_is_not_ready(table):
    pointer = table.path / "tables" / "people" / "current"
    whole = pointer.read_bytes()

    def ready(server, of="/tables/people"):
        status, answer = http(server, f"/ready{of}")
        return status, answer["problems"]

    with table.serve() as server:
        assert ready(server) == (200, [])
        pointer.write_bytes(whole[:-1])
        wait_for(lambda: ready(server)[0] == 503, "the damage is seen")
        (problem,) = ready(server, "/tables")[1]
        assert ready(server, "/tables/people") == (503, [problem])
        assert ready(server, "") == (200, []), "the server answers its rows"
        assert ready(server, "/tables/nobody") == (503, ['there is no table "nobody" here'])
        assert "table people serves version 1, but the pointer" in problem, problem
        assert str(pointer) in problem
        assert server.client().hget("people:3", "id") == b"3", "the serving version continues"
        pointer.write_bytes(whole)
        wait_for(lambda: ready(server) == (200, []), "the pointer is whole again")
        pointer.unlink()
        wait_for(lambda: ready(server)[0] == 503, "the missing pointer is seen")
        assert ready(server, "") == (200, []) and "current" in ready(server)[1][0]
        pointer.write_bytes(whole[:-1])
    with table.serve() as server:
        # For a minute the server waits in case the problem ends by itself.
        status, (problem,) = ready(server, "")
        assert status == 503 and "table people does not serve: the pointer" in problem, problem
        check_serves(server)
        # The message gives this advice.
        pointer.unlink()
        table.run("swap", "people", "1")
        wait_for(lambda: ready(server) == (200, []), "the new pointer is seen")


def test_a_damaged_table_hides_no_other(table, source):
    table.push("others", source(10))
    pointer = table.path / "tables" / "people" / "current"
    pointer.write_bytes(pointer.read_bytes()[:-1])
    seen = {info["table"]: info for info in table.json("tables")}
    others, people = seen["others"], seen["people"]
    assert (others["table"], others["serving"], others["rows"]) == ("others", 1, 10)
    assert "problem" not in others
    assert people["serving"] is None and "current" in people["problem"]
    assert "current" in table.run("tables").out


def stray_file(tables):
    (tables / "README").write_text("mine\n")
    (tables / ".DS_Store").write_bytes(b"\0\1")
    (tables / "caf\udce9").mkdir()


def pointer_is_a_directory(tables):
    pointer = tables / "people" / "current"
    pointer.unlink()
    pointer.mkdir()


def versions_are_a_file(tables):
    shutil.rmtree(tables / "people" / "versions")
    (tables / "people" / "versions").write_text("")


def table_is_a_loop(tables):
    shutil.rmtree(tables / "people")
    (tables / "people").symlink_to("people")


def test_a_plain_file_among_the_tables_is_ignored(table):
    stray_file(table.path / "tables")
    assert [info["table"] for info in table.json("tables")] == ["people", "sound"]
    assert "there is no table README" in table.refuse("get", "README", "1")
    with table.serve() as server:
        check_serves(server)
        assert http(server, "/ready/tables")[0] == 200
        status, served = http(server, "/v1/tables")
        assert status == 200
        assert [info["table"] for info in served["tables"]] == ["people", "sound"]
    assert "README" not in server.log.read_text()


@pytest.mark.parametrize(
    "damage, named",
    [
        (pointer_is_a_directory, "current"),
        (versions_are_a_file, "versions"),
        (table_is_a_loop, "people"),
    ],
)
def test_an_unreadable_table_hides_no_other(table, damage, named):
    damage(table.path / "tables")
    people, sound = table.json("tables")
    assert (sound["table"], sound["serving"], "problem" in sound) == ("sound", 1, False)
    assert people["table"] == "people" and named in people["problem"]
    assert named in table.run("tables").out
    with table.serve() as server:
        check_serves(server)
        status, ready = http(server, "/ready/tables")
        (problem,) = ready["problems"]
        assert status == 503 and "table people does not serve: cannot" in problem, problem
        served = {info["table"]: info for info in http(server, "/v1/tables")[1]["tables"]}
        assert named in served["people"]["problem"] and served["sound"]["problem"] is None
    assert "people" in server.log.read_text()


def test_an_unreadable_live_manifest_hides_no_other(table):
    table.run("create", "clicks", "--delta", "i64")
    manifest = table.path / "tables" / "clicks" / "live"
    manifest.unlink()
    manifest.mkdir()
    clicks = table.json("tables")[0]
    assert (clicks["table"], clicks["mode"]) == ("clicks", "live") and "live" in clicks["problem"]
    with table.serve() as server:
        check_serves(server)
        status, ready = http(server, "/ready/tables")
        assert status == 503 and any("clicks" in problem for problem in ready["problems"])


def test_a_link_to_a_table_or_a_copy_of_it_is_not_changed(table, source):
    tables = table.path / "tables"
    (tables / "link").symlink_to("people")
    shutil.copytree(tables / "people", tables / "copy")
    for name in ("link", "copy"):
        for words in (
            ["drop", name, "--yes"],
            ["push", name, source(10), "--key", "{id}", "--force"],
        ):
            message = table.refuse(*words)
            assert "has versions of table people" in message and "nothing was changed" in message
    assert table.json("get", "people", "1") == [person(1)]
    assert [info["version"] for info in table.json("versions", "people")] == [1]


def test_an_export_does_not_overwrite_the_store(table):
    manifest = table.path / "tables" / "people" / "versions" / "1.manifest"
    for path in (manifest, table.path / "forebay.json", table.path / "tables" / "new.csv"):
        words = ["export", "people", "--to", path, "--format", "csv"]
        assert "the place of a file of a store" in table.refuse(*words)
    assert table.json("get", "people", "1") == [person(1)]
