"""An export that is pushed again gives the same table, for every type. Other programs read the
files with the correct types."""

import json
import subprocess
import urllib.request

import duckdb
import every_type
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest
from harness import BINARY, LIMIT_S

TEXTS = ["csv", "jsonl"]


def write(table, path):
    with pyarrow.ipc.new_file(path, table.schema) as file:
        file.write_table(table)
    return path


def export(store, target, path, *args):
    """Exports, and saves the output of --json beside the file."""
    seen = store.json("export", target, "--to", path, *args)
    path.with_suffix(".output").write_text(json.dumps(seen))
    return seen


def push_again(store, table, path, columns=False):
    """Pushes an export as a new version, and compares it with version 1."""
    output_file = path.with_suffix(".output")
    types = ["--columns-from", output_file] if columns else []
    push = json.loads(output_file.read_text())["push"]
    result = store.run("push", table, path, *push, *types, "--force", "--json")
    version = json.loads(result.out.splitlines()[-1])["version"]
    return store.json("diff", table, "1", version)


def check_equal(diff, rows=every_type.ROWS):
    counts = [diff[count] for count in ("added", "removed", "changed", "unchanged")]
    assert counts == [0, 0, 0, rows], diff["differences"]
    assert not any(diff["schema"].values()), diff["schema"]


@pytest.fixture
def full(store, tmp_path):
    """A store with a table of every type, and one without types that Parquet lacks."""
    table = every_type.every_type()
    store.push("full", write(table, tmp_path / "full.arrow"))
    without = table.drop_columns(["interval"])
    store.push("parquet", write(without, tmp_path / "parquet.arrow"))
    return store


@pytest.mark.parametrize("kind", ["arrow", "feather", "arrows", "parquet"])
def test_every_type_survives_a_round_trip(full, tmp_path, kind):
    table = "parquet" if kind == "parquet" else "full"
    path = tmp_path / f"out.{kind}"
    seen = export(full, table, path)
    assert seen["push"] == ["--key", "{id}"]
    assert seen["columns"][:2] == ["id:int64", "none:null"]
    check_equal(push_again(full, table, path))


def test_types_can_be_taken_from_a_table(store, tmp_path):
    (tmp_path / "a.csv").write_text("id,n,code\n1,2,007\n")
    types = ["--column", "n:int16", "--column", "code:text"]
    store.push("a", tmp_path / "a.csv", key="{code}", args=types)
    (tmp_path / "b.csv").write_text("code,n,id\n7,3,1\n")
    store.push("b", tmp_path / "b.csv", key="{code}", args=["--columns-from", "a@1"])
    assert store.json("get", "b", "7") == [{"code": "7", "n": 3, "id": 1}]
    store.push(
        "b",
        tmp_path / "b.csv",
        key="{code}",
        args=["--columns-from", "a", "--column", "code:int64", "--gate", "type-changed=report"],
    )
    assert store.json("diff", "b", "1", "2")["schema"]["retyped"] == ["code"]
    message = store.refuse(
        "push", "b", tmp_path / "b.csv", "--key", "{code}", "--columns-from", "no/file"
    )
    assert "no/file is neither a file nor a table" in message
    message = store.refuse(
        "push", "b", tmp_path / "b.csv", "--key", "{code}", "--columns-from", tmp_path / "b.csv"
    )
    assert "is not the output of export --json" in message


def test_seconds_in_parquet_are_seconds(store, tmp_path):
    # pyarrow has to store them as milliseconds, too.
    columns = {"id": [1], "at": pa.array([0], pa.timestamp("s", "Asia/Tokyo")), "t": [[86399]]}
    table = pa.table(columns).set_column(2, "t", pa.array([[86399]], pa.list_(pa.time32("s"))))
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    store.push("t", tmp_path / "t.parquet")
    expected = {"id": 1, "at": "1970-01-01T00:00:00Z", "t": ["23:59:59"]}
    assert store.json("get", "t", "1") == [expected]
    seen = export(store, "t", tmp_path / "t.arrow")["columns"]
    assert seen == ["id:int64", "at:timestamptz(s,Asia/Tokyo)", "t:list(time(s))"]


@pytest.mark.parametrize("kind", TEXTS)
def test_text_survives_a_round_trip(store, tmp_path, kind):
    table = every_type.every_type()
    store.push("t", write(table, tmp_path / "t.arrow"))
    path = tmp_path / f"out.{kind}"
    export(store, "t", path)
    check_equal(push_again(store, "t", path, columns=True))


@pytest.mark.parametrize("kind", TEXTS)
def test_maps_with_nested_keys_survive_a_round_trip(store, tmp_path, kind):
    point = pa.struct([("x", pa.int64()), ("raw", pa.binary())])
    by_point = pa.map_(point, pa.list_(pa.float32()))
    by_list = pa.map_(pa.list_(pa.int32()), by_point)
    points = [[({"x": 1, "raw": b"\xff"}, [1.5, None]), ({"x": None, "raw": None}, None)], []]
    lists = [[([1, None], points[0]), ([], None)], None]
    columns = {
        "id": [1, 2],
        "points": pa.array(points, by_point),
        "lists": pa.array(lists, by_list),
        "within": pa.array([[points[0], None], []], pa.list_(by_point)),
    }
    store.push("t", write(pa.table(columns), tmp_path / "t.arrow"))
    path = tmp_path / f"out.{kind}"
    export(store, "t", path)
    check_equal(push_again(store, "t", path, columns=True), rows=2)


def test_text_files_hold_every_value(full, tmp_path):
    export(full, "full", tmp_path / "out.jsonl")
    export(full, "full", tmp_path / "out.csv")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    rows = {row["id"]: row for row in lines}
    column = lambda name: [rows[i][name] for i in range(every_type.ROWS)]  # noqa: E731
    assert column("text") == [*every_type.TEXTS[:-1], None]
    assert column("uint64")[2] == 2**64 - 1 and column("int64")[2:4] == [-(2**63), 2**63 - 1]
    assert column("float64")[:5] == ["NaN", "Infinity", "-Infinity", -0.0, 0.1]
    assert column("float16")[:7] == ["NaN", "Infinity", "-Infinity", -0.0, 0.1, 65504.0, 6e-8]
    assert column("binary")[:4] == [
        "",
        "abc",
        {"base64": "/wA="},
        {"base64": "eyJiYXNlNjQiOiJaZz09In0="},
    ]
    assert column("date32")[:5] == [
        "0001-01-01",
        "1969-12-31",
        "2026-10-20",
        "9999-12-31",
        "+12000-01-01",
    ]
    assert column("timestamp_ns")[3] == "2262-04-11T23:47:16.854775807"
    assert column("timestamp_s_berlin")[1] == "1969-12-31T23:59:59Z"
    assert column("duration_ms")[:3] == ["PT0.000S", "PT0.001S", "-PT1.500S"]
    assert column("interval")[:2] == ["P1M-2DT3.000000001S", "PT0S"]
    assert column("list")[:4] == [[], [None], [1, None, 2**31 - 1], None]
    assert column("map_of_bytes")[0] == {'{"base64":"/w=="}': 1, "a": 2}
    assert column("five_deep")[1][2]["m"]["k"][0]["f"] == "NaN"
    # With the right options DuckDB distinguishes quoted empty fields from empty ones.
    texts = duckdb.sql(
        f"select id, text, none from read_csv('{tmp_path}/out.csv', header = true, "
        "all_varchar = true, allow_quoted_nulls = false, nullstr = '', delim = ',', "
        "quote = '\"', escape = '\"', new_line = '\\n')"
    ).fetchall()
    expected = [(str(i), text, None) for i, text in enumerate([*every_type.TEXTS[:-1], None])]
    assert sorted(texts) == expected


def stored(array):
    """A column as comparable values: integers for times and floats, text for nested values."""
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    kind = pa.types
    if kind.is_floating(array.type) or (
        kind.is_temporal(array.type) and not kind.is_interval(array.type)
    ):
        return array.view(f"int{array.type.bit_width}").to_pylist()
    values = array.to_pylist()
    return repr(values) if pa.types.is_nested(array.type) else values


# Types that Parquet changes. All others stay as in the table.
IN_PARQUET = {
    "date64": pa.date32(),
    "time_s": pa.time32("ms"),
    "timestamp_s": pa.timestamp("ms"),
    "timestamp_s_utc": pa.timestamp("ms", "UTC"),
    "timestamp_s_berlin": pa.timestamp("ms", "Europe/Berlin"),
    "timestamp_s_2": pa.timestamp("ms", "+02:00"),
}


def test_pyarrow_reads_parquet_and_arrow_with_correct_types(full, tmp_path):
    export(full, "parquet", tmp_path / "out.parquet")
    export(full, "full", tmp_path / "out.arrow")
    parquet = pyarrow.parquet.read_table(tmp_path / "out.parquet").sort_by("id")
    arrow = pa.ipc.open_file(tmp_path / "out.arrow").read_all().sort_by("id")
    source = every_type.every_type()
    for name in source.column_names:
        plain = arrow.schema.field(name).type
        nested, encoded = pa.types.is_nested(plain), name == "runs"
        expected = source[name] if nested or encoded else source[name].cast(plain)
        expected = expected.to_pylist() if encoded else stored(expected)
        assert stored(arrow[name]) == expected, name
        if name not in parquet.column_names or nested:
            continue
        kept = IN_PARQUET.get(name, plain)
        assert parquet.schema.field(name).type == kept, name
        assert stored(parquet[name]) == stored(arrow[name].cast(kept)), name
    for name in (
        "list",
        "large_list",
        "list3",
        "lists",
        "struct",
        "map",
        "map_of_rows",
        "five_deep",
    ):
        assert stored(parquet[name]) == stored(arrow[name]), name


DUCKDB = {
    "none": '"NULL"',
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "uint64": "UBIGINT",
    "float16": "FLOAT",
    "float64": "DOUBLE",
    "decimal32_3": "DECIMAL(9,3)",
    "decimal128_0": "DECIMAL(38,0)",
    "date32": "DATE",
    "date64": "DATE",
    "time_s": "TIME",
    "time_us": "TIME",
    "time_ns": "TIME_NS",
    "timestamp_s": "TIMESTAMP",
    "timestamp_us": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamp_s_berlin": "TIMESTAMP WITH TIME ZONE",
    "timestamp_us_2": "TIMESTAMP WITH TIME ZONE",
    "duration_s": "BIGINT",
    "text": "VARCHAR",
    "binary": "BLOB",
    "binary3": "BLOB",
    "lists": "VARCHAR[][]",
    "list3": "BIGINT[]",
    "map": "MAP(VARCHAR, BIGINT)",
    "five_deep": 'STRUCT(m MAP(VARCHAR, STRUCT("at" TIMESTAMP, raw BLOB, f FLOAT)[]))[]',
}


def test_duckdb_reads_parquet_with_correct_types(full, tmp_path):
    export(full, "parquet", tmp_path / "out.parquet")
    file = f"'{tmp_path}/out.parquet'"
    types = {name: kind for name, kind, *_ in duckdb.sql(f"describe from {file}").fetchall()}
    assert {name: types[name] for name in DUCKDB} == DUCKDB
    ask = lambda what: duckdb.sql(f"select {what} from {file} order by id").fetchall()  # noqa: E731
    assert ask("timestamp_s::text")[3:5] == [("9999-12-31 23:59:59",), ("12000-01-01 00:00:00",)]
    assert ask("epoch_us(timestamp_s_berlin)")[2] == (1792540799_000_000,)
    assert ask("time_s::text, time_ns::text")[2] == ("23:59:59", "23:59:59.999999999")
    assert ask("isnan(float16), isinf(float32)")[:2] == [(True, False), (False, True)]
    assert ask("text is null, text = ''")[0] == (False, True) and ask("text is null")[7] == (True,)
    assert ask('"binary"')[2] == (b"\xff\x00",)
    assert ask("five_deep[3].m['k'][1].raw")[1] == (b"\xff",)


SPARK = {
    "none": "int",
    "bool": "boolean",
    "int8": "tinyint",
    "uint8": "smallint",
    "uint64": "decimal(20,0)",
    "float32": "float",
    "float64": "double",
    "decimal32_3": "decimal(9,3)",
    "decimal128_0": "decimal(38,0)",
    "date32": "date",
    "date64": "date",
    "timestamp_s": "timestamp_ntz",
    "timestamp_us": "timestamp_ntz",
    "timestamp_s_berlin": "timestamp",
    "timestamp_us_2": "timestamp",
    "duration_s": "bigint",
    "text": "string",
    "binary": "binary",
    "binary3": "binary",
    "list3": "array<bigint>",
    "map": "map<string,bigint>",
    "five_deep": "array<struct<m:map<string,array<struct<at:timestamp_ntz,raw:binary,f:float>>>>>",
}
# Spark refuses a file with a column of these types.
NOT_IN_SPARK = [
    "float16",
    "decimal256_0",
    "time_s",
    "time_us",
    "time_ns",
    "timestamp_ns",
    "timestamp_ns_utc",
]


@pytest.mark.nightly
def test_spark_reads_parquet_with_correct_types(store, tmp_path):
    from pyspark.sql import SparkSession

    table = every_type.every_type()
    store.push("t", write(table.select(["id", *SPARK]), tmp_path / "t.arrow"))
    export(store, "t", tmp_path / "t.parquet")
    for name in NOT_IN_SPARK:
        store.push("u", write(table.select(["id", name]), tmp_path / "u.arrow"), args=["--force"])
        export(store, "u", tmp_path / f"{name}.parquet")
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.driver.host", "127.0.0.1").config(
        "spark.sql.session.timeZone", "UTC"
    )
    spark = builder.getOrCreate()
    try:
        frame = spark.read.parquet(str(tmp_path / "t.parquet")).orderBy("id")
        types = dict(frame.dtypes)
        assert {name: types[name] for name in SPARK} == SPARK
        texts = frame.selectExpr(
            "cast(timestamp_s as string)", "cast(date64 as string)", "text"
        ).collect()
        assert tuple(texts[3]) == ("9999-12-31 23:59:59", "9999-12-31", "NaN")
        assert tuple(texts[0])[2] == "" and tuple(texts[7])[2] is None
        for name in NOT_IN_SPARK:
            with pytest.raises(Exception, match="TYPE|PRECISION"):
                spark.read.parquet(str(tmp_path / f"{name}.parquet")).collect()
    finally:
        spark.stop()


KINDS = {
    "texts": (
        {"id": ["a", "b/ü", "007"], "v": ["1.50", "", "2026-01-01"]},
        "{id}",
        ["--value", "v"],
    ),
    "bytes": (
        {"id": ["a", "b", "c"], "v": [b"\xff", b"", b'{"base64":""}']},
        "{id}",
        ["--value", "v"],
    ),
    "binary keys": (
        {"id": [b"\xff\x00", b"a", b"1e5"], "v": ["x", "y", "z"]},
        "{id}",
        ["--value", "v"],
    ),
    "times": (
        {"id": [1, -2, 2**62], "v": ["x", "y", "z"]},
        "{id:be}",
        ["--value", "v", "--order", "ordered"],
    ),
    "numbers": (
        {"id": [1, 2, 3], "v": [2**63 - 1, -(2**63), 0]},
        "k{id}",
        ["--value", "v", "--delta", "i64"],
    ),
    "floats": (
        {"id": [1, 2, 3], "v": [0.1, -0.0, 1e300]},
        "k{id}",
        ["--value", "v", "--delta", "f64"],
    ),
    "lists": ({"id": [1, 2, 3], "v": [["", None], [], ["x"]]}, "{id:03}", ["--value", "v"]),
    "ordered rows": ({"id": [1, 2, 3], "v": [None, "", "x"]}, "{id:03}/{{", ["--order", "ordered"]),
}
FORMATS = ["arrow", "parquet", *TEXTS]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("table", KINDS)
def test_every_kind_of_table_survives_a_round_trip(store, tmp_path, table, kind):
    columns, key, args = KINDS[table]
    store.push("t", write(pa.table(columns), tmp_path / "t.arrow"), key=key, args=args)
    path = tmp_path / f"out.{kind}"
    export(store, "t", path)
    diff = push_again(store, "t", path, columns=kind in TEXTS)
    counts = [diff[what] for what in ("added", "removed", "changed", "unchanged")]
    assert counts == [0, 0, 0, 3], diff["differences"]


def test_a_live_table_survives_a_round_trip(store, tmp_path):
    store.run("create", "people", "--value", "row", "--column", "key:text", "--column", "age:int64")
    with store.serve() as server:
        client = server.client()
        client.hset("people:1", mapping={"key": "Ada", "age": 36})
        client.hset("people:2", mapping={"key": "Bo"})
    path = tmp_path / "people.arrow"
    seen = export(store, "people", path)
    # The rows have a column with the key's name, which is not the key.
    assert seen["push"] == ["--key", "{_key}"]
    assert seen["columns"] == ["_key:text", "key:text", "age:int64"]
    store.run("create", "again", "--value", "row", "--column", "key:text", "--column", "age:int64")
    store.run("load", "again", path, *seen["push"])
    assert store.json("get", "again", "1", "2") == store.json("get", "people", "1", "2")
    assert store.json("get", "again", "1") == [{"key": "Ada", "age": 36}]


def test_standard_output(full, tmp_path):
    words = [BINARY, "export", "full", "--to", "-"]
    run = lambda *args: subprocess.run(  # noqa: E731
        [*words, *args], env=full.environment(), capture_output=True, timeout=LIMIT_S, check=False
    )
    stream = run("--format", "arrow")
    table = pa.ipc.open_stream(stream.stdout).read_all()
    assert table.num_rows == every_type.ROWS and b"in standard output" in stream.stderr
    lines = run("--format", "jsonl", "--quiet")
    assert len(lines.stdout.splitlines()) == every_type.ROWS and lines.stderr == b""
    assert run().returncode != 0 and b"--format" in run().stderr
    assert b"both write to standard output" in run("--format", "csv", "--json").stderr
    full.run("export", "full", "--to", tmp_path / "plain", "--format", "arrow")
    assert pa.ipc.open_file(tmp_path / "plain").read_all().num_rows == every_type.ROWS


def test_a_type_that_a_format_lacks_is_reported_before_any_write(full, tmp_path):
    path = tmp_path / "new" / "out.parquet"
    path.parent.mkdir()
    message = full.refuse("export", "full", "--to", path)
    assert "column 'interval' (interval) is an interval" in message and ".arrow" in message
    assert list(path.parent.iterdir()) == []
    noted = full.run("export", "parquet", "--to", path).err
    assert "column 'duration_ns' (duration(ns)) is written as whole numbers" in noted


def test_nan_and_infinities_have_one_form_everywhere(store, tmp_path):
    odd = [float("nan"), float("inf"), float("-inf"), -0.0]
    table = pa.table({"id": [0, 1, 2, 3], "f": pa.array(odd, pa.float32()), "l": [odd] * 4})
    source = write(table, tmp_path / "t.arrow")
    store.push("rows", source)
    store.push("lists", source, args=["--value", "l"])
    store.push("texts", source, args=["--value", "f"])
    shown = ["NaN", "Infinity", "-Infinity", -0.0]
    rows = [{"id": i, "f": f, "l": shown} for i, f in enumerate(shown)]
    assert store.json("get", "rows", "0", "1", "2", "3") == rows
    scanned = [line["value"] for line in store.run("scan", "rows", "--json").json_lines()]
    assert sorted(scanned, key=lambda row: row["id"]) == rows
    assert store.json("get", "lists", "0") == [shown]
    with store.serve() as server:
        client = server.client()
        assert [json.loads(client.get(f"rows:{i}")) for i in range(4)] == rows
        texts = [b"NaN", b"Infinity", b"-Infinity", b"-0.0"]
        assert [client.hget(f"rows:{i}", "f") for i in range(4)] == texts
        assert [client.get(f"texts:{i}") for i in range(4)] == texts
        assert client.lrange("lists:0", 0, -1) == texts
        assert json.loads(client.get("lists:0")) == shown
        url = f"http://127.0.0.1:{server.http}/v1/tables/rows/rows/1"
        with urllib.request.urlopen(url, timeout=30) as reply:
            assert json.load(reply) == rows[1]
    export(store, "rows", tmp_path / "out.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(lines, key=lambda row: row["id"]) == rows
