"""The types: a list of plain ones, random nested ones, and their names for --column."""

import pyarrow as pa

from oracle.convert import family, is_fixed_list, unwrap

UNITS = ("s", "ms", "us", "ns")
ZONES = ("UTC", "Europe/Berlin", "+05:30")

INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(7, 2), pa.decimal32(9, 0), pa.decimal64(18, 4), pa.decimal64(12, -3)]
DECIMALS += [
    pa.decimal128(10, 0),
    pa.decimal128(12, 2),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
]
DECIMALS += [pa.decimal128(5, 5), pa.decimal128(9, -4), pa.decimal256(76, 0), pa.decimal256(60, 30)]
CLOCKS = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
TIMESTAMPS = [pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "UTC")]
TIMESTAMPS += [pa.timestamp("us", zone) for zone in ZONES[1:]]
DURATIONS = [pa.duration(unit) for unit in UNITS]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BINARIES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(4)]

SCALARS = [
    *INTEGERS,
    *FLOATS,
    *DECIMALS,
    pa.bool_(),
    pa.date32(),
    pa.date64(),
    *CLOCKS,
    *TIMESTAMPS,
    *DURATIONS,
]
SCALARS += [*TEXTS, *BINARIES, pa.month_day_nano_interval(), pa.null()]

LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


# Columns of types that --column cannot name may be null throughout.
NAMED = (0.1, 0)


def plain(t):
    """The type that a table stores: without dictionaries and run ends, in plain layouts."""
    t = unwrap(t)
    kind = family(t)
    if kind == "text":
        return pa.string()
    if kind == "binary":
        return t if pa.types.is_fixed_size_binary(t) else pa.binary()
    if kind == "list":
        item = t.value_field.with_type(plain(t.value_type))
        return pa.list_(item, t.list_size) if is_fixed_list(t) else pa.list_(item)
    if kind == "struct":
        return pa.struct([field.with_type(plain(field.type)) for field in t])
    if kind == "map":
        return pa.map_(plain(t.key_type), t.item_field.with_type(plain(t.item_type)))
    return t


def shape(t, digits=True):
    """The common part of two types: all but item names and nullability, and without `digits` the
    digits of decimals."""
    t = unwrap(t)
    kind = family(t)
    if kind == "list":
        return ("list", t.list_size if is_fixed_list(t) else None, shape(t.value_type, digits))
    if kind == "struct":
        return ("struct", *((field.name, shape(field.type, digits)) for field in t))
    if kind == "map":
        return ("map", shape(t.key_type, digits), shape(t.item_type, digits))
    if pa.types.is_decimal(t):
        return ("decimal", t.precision if digits else None, t.scale)
    return str(plain(t))


WORDS = {
    pa.bool_(): "bool",
    pa.float16(): "float16",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.string(): "text",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
    **{t: str(t) for t in INTEGERS},
}


def word(t):
    """The word of --column for a type, or None."""
    if t in WORDS:
        return WORDS[t]
    kind = family(t)
    if (
        pa.types.is_decimal128(t)
        and t.precision <= 38
        or pa.types.is_decimal256(t)
        and t.precision > 38
    ):
        return f"decimal({t.precision},{t.scale})"
    if kind in ("time", "duration"):
        return f"{kind}({t.unit})"
    if kind == "timestamp" and t.tz in (None, "UTC"):
        return f"timestamp{'tz' if t.tz else ''}({t.unit})"
    if kind == "list" and isinstance(t, pa.ListType):
        return wrap("list({})", word(t.value_type))
    if kind == "struct":
        names = [wrap(f"{field.name} {{}}", word(field.type)) for field in t]
        return None if None in names else f"struct({', '.join(names)})"
    if kind == "map":
        return wrap(
            "map({})",
            wrap(f"{word(t.key_type)}, {{}}", word(t.item_type)) if word(t.key_type) else None,
        )
    return None


def wrap(form, inner):
    return None if inner is None else form.format(inner)


# A message may use a type's word, or Arrow's name.
MESSAGE_WORDS = {
    "number": lambda t: (
        ["decimal"] if pa.types.is_decimal(t) else [str(t).replace("halffloat", "float16")]
    ),
    "text": lambda t: ["text", "utf8"],
    "null": lambda t: ["null"],
    "interval": lambda t: ["interval"],
}


def words_for(t):
    """Lower-case words, one of which must stand in a message that names the type. For a nested
    type, one part is enough."""
    t = unwrap(t)
    kind = family(t)
    if kind in ("list", "struct", "map"):
        return [""]
    if pa.types.is_floating(t):
        return [f"float{t.bit_width}"]
    return MESSAGE_WORDS.get(kind, lambda t: [kind])(t)


def pair(a, b, rng, depth, strict=(0.1, 0.1)):
    """Nests two types `depth` times in the same random way, with other layouts, field orders and
    extra fields. Shares of `strict` of the inner parts may not be null."""
    if depth == 0:
        return a, b
    pairs = zip((a, b), strict, strict=True)
    nulls = [pa.types.is_null(t) or rng.random() >= share for t, share in pairs]
    form = rng.randrange(5)
    if form < 2:
        a, b = pa.field("item", a, nulls[0]), pa.field("item", b, nulls[1])
        a = rng.choice([*LISTS, lambda item: pa.list_(item, 2)])(a)
        b = (
            rng.choice([pa.list_, lambda item: pa.list_(item, 2)])(b)
            if rng.random() < 0.3
            else pa.list_(b)
        )
    elif form < 4:
        ours = [pa.field("x", a, nulls[0]), pa.field("y", pa.int16()), pa.field("z", pa.string())]
        theirs = [pa.field("x", b, nulls[1]), pa.field("y", pa.int64()), pa.field("z", pa.string())]
        if rng.random() < 0.5:
            theirs.append(pa.field("missing", pa.float64()))
        rng.shuffle(ours)
        rng.shuffle(theirs)
        a, b = pa.struct(ours), pa.struct(theirs)
    else:
        a, b = pa.map_(pa.string(), a), pa.map_(pa.large_string(), b)
    return pair(a, b, rng, depth - 1, strict)
