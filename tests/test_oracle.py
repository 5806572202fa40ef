"""The model itself: arrays and back, and answers that a person can check."""

import random
from fractions import Fraction

import pyarrow as pa
import pytest
from oracle import arrays, convert, edges, text, types, union
from oracle.trial import SEED

F = Fraction
INT32, F32, F64, DEC = pa.int32(), pa.float32(), pa.float64(), pa.decimal128(10, 2)
BAD, REFUSED = ("bad",), ("refused",)


def layouts(rng):
    yield from types.SCALARS
    yield from (pa.dictionary(pa.int8(), pa.string()), pa.run_end_encoded(pa.int32(), pa.int64()))
    for _ in range(60):
        t = rng.choice(types.SCALARS)
        yield types.pair(t, t, rng, rng.randrange(1, 5))[0]


def test_arrays_return_the_values_that_they_were_built_from():
    rng = random.Random(SEED)
    for t in layouts(rng):
        values = [None, *edges.nested(t, t, rng)[:30], None]
        array = arrays.build(values, t)
        # Not validate(full=True): it refuses dates with a time of day, which files may have.
        array.validate()
        again = arrays.read(array)
        assert arrays.canonical(again) == arrays.canonical(values), f"seed {SEED}: {t}"
        assert arrays.canonical(arrays.read(array[1:])) == arrays.canonical(values[1:]), t


@pytest.mark.parametrize(
    ("value", "a", "b", "wanted"),
    [
        (7.0, F64, INT32, 7),
        (7.5, F64, INT32, BAD),
        (-0.0, F64, INT32, 0),
        (2**53 + 1, pa.int64(), F64, BAD),
        (2**53 + 2, pa.int64(), F64, float(2**53 + 2)),
        (F(1, 2), DEC, F32, 0.5),
        (F(1, 10), DEC, F64, BAD),
        (0.1, F64, pa.decimal256(76, 54), BAD),
        (0.1, F64, pa.decimal256(76, 55), F(0.1)),
        (float("nan"), F64, INT32, BAD),
        (float("inf"), F64, F32, float("inf")),
        (1e300, F64, F32, BAD),
        (2, INT32, pa.bool_(), BAD),
        (1, pa.timestamp("ns"), pa.timestamp("us"), BAD),
        (10**13, pa.timestamp("s"), pa.timestamp("ns"), BAD),
        (5, INT32, pa.timestamp("s"), REFUSED),
        (5, pa.timestamp("s"), pa.timestamp("s", "UTC"), REFUSED),
        (5, pa.timestamp("s", "UTC"), pa.timestamp("ms", "Europe/Berlin"), 5000),
        (86_400, pa.timestamp("s"), pa.date32(), 1),
        (86_401, pa.timestamp("s"), pa.date32(), BAD),
        (1, pa.date32(), pa.timestamp("ns"), 86_400 * 10**9),
        ("7.50", pa.string(), pa.decimal128(10, 1), F(15, 2)),
        ("7.5", pa.string(), INT32, BAD),
        ("1e400", pa.string(), F64, BAD),
        ("0.1", pa.string(), F64, 0.1),
        ("9007199254740993", pa.string(), F64, BAD),
        ("9007199254740993.0", pa.string(), F64, 9007199254740992.0),
        ("2026-11-22T10:20:30Z", pa.string(), pa.timestamp("s"), BAD),
        (b"\xff", pa.binary(), pa.string(), BAD),
        (b"abc", pa.binary(), pa.binary(4), BAD),
        ([1.0, 1.5], pa.list_(F64), pa.list_(INT32), BAD),
        ([1.0], pa.list_(F64), pa.list_(INT32, 2), BAD),
        ({"z": 1}, pa.struct({"z": INT32}), pa.struct({"a": INT32}), REFUSED),
        ({"a": 1}, pa.struct({"a": INT32}), pa.struct({"b": F64, "a": F64}), {"b": None, "a": 1.0}),
    ],
)
def test_conversions_in_the_document(value, a, b, wanted):
    outcome = convert.convert(value, a, b)
    if isinstance(wanted, tuple):
        assert outcome.kind == wanted[0]
    else:
        assert (outcome.kind, arrays.canonical(outcome.value)) == (
            "value",
            arrays.canonical(wanted),
        )


@pytest.mark.parametrize(
    ("value", "a", "b", "how", "wanted"),
    [
        (2.5, F64, INT32, "round", (3, 1)),
        (-2.5, F64, INT32, "round", (-3, 1)),
        (-2.5, F64, INT32, "truncate", (-2, 1)),
        (7.0, F64, INT32, "round", (7, 0)),
        (1e300, F64, F32, "round", BAD),
        (1e300, F64, F32, "null", (None, 1)),
        (2**53 + 1, pa.int64(), F64, "round", (float(2**53), 1)),
        (-1500, pa.timestamp("ms"), pa.timestamp("s"), "truncate", (-2, 1)),
        (-1500, pa.timestamp("ms"), pa.timestamp("s"), "round", (-2, 1)),
        ([1.0, 1.5, 2.5], pa.list_(F64), pa.list_(INT32), "null", ([1, None, None], 2)),
        ("x", pa.string(), INT32, "round", BAD),
        ("x", pa.string(), INT32, "null", (None, 1)),
        (5, pa.timestamp("s"), pa.timestamp("s", "UTC"), "utc", (5, 1)),
    ],
)
def test_conversions_with_a_loss(value, a, b, how, wanted):
    outcome = convert.convert(value, a, b, how)
    if wanted == BAD:
        assert outcome.kind == "bad"
    else:
        assert (outcome.value, outcome.changed) == wanted


def test_texts_of_values():
    assert [text.write(x, F64) for x in (0.1, 1e16, -0.0, 1e-5, 123456.0)] == [
        "0.1",
        "1e16",
        "-0.0",
        "1e-5",
        "123456.0",
    ]
    assert text.write(F(-5, 1000), pa.decimal128(10, 3)) == "-0.005"
    assert text.write(F(12000), pa.decimal128(5, -3)) == "12000"
    assert text.write(-1, pa.timestamp("ms", "UTC")) == "1969-12-31T23:59:59.999Z"
    assert text.write(-719_529, pa.date32()) == "-0001-12-31"


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (pa.int8(), pa.uint8(), pa.int16()),
        (pa.int64(), pa.uint64(), pa.decimal128(20, 0)),
        (pa.int64(), F32, F64),
        (pa.uint16(), F32, F64),
        (DEC, pa.decimal128(5, 4), pa.decimal128(12, 4)),
        (pa.date32(), pa.timestamp("s"), pa.timestamp("s")),
        (pa.timestamp("s", "UTC"), pa.timestamp("ms", "+05:30"), pa.timestamp("ms", "UTC")),
        (pa.timestamp("s", "UTC"), pa.timestamp("s"), None),
        (pa.bool_(), pa.int8(), None),
        (pa.list_(pa.int8()), pa.large_list(pa.int64()), pa.list_(pa.int64())),
    ],
)
def test_types_of_several_files(a, b, wanted):
    for one, other in [(a, b), (b, a)]:
        found = union.united(one, other)
        assert found is None if wanted is None else types.shape(found) == types.shape(wanted)
