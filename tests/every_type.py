"""One table with every Arrow type that Python can make. Its values are those that formats lose:
limits, nulls beside empty values, NaN, distant times."""

import datetime
import decimal

import pyarrow as pa

ROWS = 8
NAN, INF = float("nan"), float("inf")
UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
# Seconds since 1970 of the years 1, 1969, 2026, 9999 and 12000.
FAR = [-62135596800, -1, 1792540799, 253402300799, 316516204800]


def counted(values, data_type):
    """An array of integers in the type's storage, with nulls at the end."""
    width = pa.int32() if data_type.bit_width == 32 else pa.int64()
    values = [*values, *[None] * (ROWS - len(values))]
    return pa.array(values, width).view(data_type)


def listed(values, data_type):
    return pa.array([*values, *[None] * (ROWS - len(values))], data_type)


def numbers():
    columns = {"none": pa.nulls(ROWS), "bool": listed([True, False], pa.bool_())}
    for bits in (8, 16, 32, 64):
        top = 2 ** (bits - 1)
        columns[f"int{bits}"] = listed([0, -1, -top, top - 1], getattr(pa, f"int{bits}")())
        columns[f"uint{bits}"] = listed([0, 1, 2 * top - 1], getattr(pa, f"uint{bits}")())
    odd = [NAN, INF, -INF, -0.0, 0.1]
    columns["float16"] = listed([*odd, 65504.0, 6e-8], pa.float16())
    columns["float32"] = listed([*odd, 3.4028234663852886e38, 1e-45], pa.float32())
    columns["float64"] = listed([*odd, 1.7976931348623157e308, 5e-324], pa.float64())
    for bits, digits in ((32, 9), (64, 18), (128, 38), (256, 76)):
        make = getattr(pa, f"decimal{bits}")
        for scale in (0, 3):
            most = decimal.Decimal((0, (9,) * digits, -scale))
            least = decimal.Decimal((1, (0, 0, 1), -scale))
            columns[f"decimal{bits}_{scale}"] = listed(
                [most, most.copy_negate(), least, 0], make(digits, scale)
            )
    return columns


def times():
    days = [seconds // 86400 for seconds in FAR]
    columns = {
        "date32": counted([*days, -(2**31), 2**31 - 1], pa.date32()),
        "date64": counted([day * 86_400_000 for day in days], pa.date64()),
    }
    for unit, per_second in UNITS.items():
        last = 86400 * per_second - 1
        make = pa.time32 if unit in ("s", "ms") else pa.time64
        columns[f"time_{unit}"] = counted([0, 1, last], make(unit))
        columns[f"duration_{unit}"] = counted(
            [0, 1, -3 * per_second // 2, 2**63 - 1, -(2**63)], pa.duration(unit)
        )
        moments = [second * per_second + (1 if unit == "ns" else 0) for second in FAR]
        if unit == "ns":
            moments = [-(2**63), -1, 1792540799123456789, 2**63 - 1]
        for name, zone in (
            ("", None),
            ("_utc", "UTC"),
            ("_berlin", "Europe/Berlin"),
            ("_2", "+02:00"),
        ):
            columns[f"timestamp_{unit}{name}"] = counted(moments, pa.timestamp(unit, zone))
    return columns


TEXTS = ["", "a", 'a,"b"\r\nc', "NaN", "null", " x\t", '{"base64":"Zg=="}', "007 \u2028é😀"]
BINARY = [b"", b"abc", b"\xff\x00", b'{"base64":"Zg=="}', b'"', None]


def texts():
    return {
        "text": pa.array([*TEXTS[:-1], None], pa.string()),
        "large_text": pa.array([None, *TEXTS[1:]], pa.large_string()),
        "text_view": pa.array(TEXTS, pa.string_view()),
        "words": pa.array(["a", "b", None, "a", "", "b", "a", "a"]).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays([3, 5, ROWS], ["x", None, ""]),
        "binary": listed(BINARY, pa.binary()),
        "large_binary": listed(BINARY, pa.large_binary()),
        "binary_view": listed(BINARY, pa.binary_view()),
        "binary3": listed([b"abc", b"\xff\x00\xfe"], pa.binary(3)),
    }


def nested():
    item = pa.struct([("at", pa.timestamp("s")), ("raw", pa.binary()), ("f", pa.float32())])
    at = datetime.datetime(2026, 11, 22, 10)
    one = {"at": at, "raw": b"\xff", "f": NAN}
    none = {"at": None, "raw": None, "f": None}
    deep = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(item)))]))
    return {
        "list": listed([[], [None], [1, None, 2**31 - 1]], pa.list_(pa.int32())),
        "large_list": listed([[], ["", None]], pa.large_list(pa.string())),
        "list_view": listed([[], [1.5, NAN]], pa.list_view(pa.float64())),
        "list3": listed([[1, None, 3]], pa.list_(pa.int64(), 3)),
        "lists": listed([[], [[]], [None], [["a"], []]], pa.list_(pa.list_(pa.string()))),
        "struct": listed([one, none], item),
        "map": listed([[], [("", 1), ("k", None)]], pa.map_(pa.string(), pa.int64())),
        "map_of_days": listed(
            [[(datetime.date(2026, 1, 1), [1])]], pa.map_(pa.date32(), pa.list_(pa.int8()))
        ),
        "map_of_bytes": listed([[(b"\xff", 1), (b"a", 2)]], pa.map_(pa.binary(), pa.int64())),
        "map_of_rows": listed(
            [[({"a": 1}, "x")]], pa.map_(pa.struct([("a", pa.int64())]), pa.string())
        ),
        "five_deep": listed([[], [{"m": []}, None, {"m": [("k", [one, none, None])]}]], deep),
    }


def intervals():
    spans = [(1, -2, 3_000_000_001), (0, 0, 0), (-(2**31), 2**31 - 1, -(2**63))]
    return {
        "interval": listed([pa.MonthDayNano(span) for span in spans], pa.month_day_nano_interval())
    }


def every_type():
    """All columns, and an id."""
    ids = {"id": pa.array(range(ROWS), pa.int64())}
    return pa.table({**ids, **numbers(), **times(), **texts(), **nested(), **intervals()})
