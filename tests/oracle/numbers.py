"""Conversions of numbers in exact arithmetic: exact, rounded or truncated."""

import math
from fractions import Fraction

import pyarrow as pa

from oracle import Bad

INTEGERS = {
    pa.int8(): (-(1 << 7), (1 << 7) - 1),
    pa.int16(): (-(1 << 15), (1 << 15) - 1),
    pa.int32(): (-(1 << 31), (1 << 31) - 1),
    pa.int64(): (-(1 << 63), (1 << 63) - 1),
    pa.uint8(): (0, (1 << 8) - 1),
    pa.uint16(): (0, (1 << 16) - 1),
    pa.uint32(): (0, (1 << 32) - 1),
    pa.uint64(): (0, (1 << 64) - 1),
}

# Bits of the significand, and the exponents of the least and the greatest normal number.
FLOATS = {
    pa.float16(): (11, -14, 15),
    pa.float32(): (24, -126, 127),
    pa.float64(): (53, -1022, 1023),
}

# The digits of a text that still give its nearest float.
DIGITS = {pa.float16(): 5, pa.float32(): 9, pa.float64(): 17}


def power(base, exponent):
    """base to an integer power, exactly."""
    return Fraction(base) ** exponent


def whole(x, how):
    """An integer near x: x itself, or its rounded or truncated value by `how`."""
    if x.denominator == 1:
        return x.numerator
    if how == "round":
        # Halves round away from zero.
        size = math.floor(abs(x) + Fraction(1, 2))
        return size if x > 0 else -size
    if how == "truncate":
        return math.trunc(x)
    raise Bad


def greatest(data_type):
    """The greatest finite number of a type of floats."""
    bits, _, high = FLOATS[data_type]
    return (2 - power(2, 1 - bits)) * power(2, high)


def float_near(x, data_type, how):
    """The float of the type that equals x (a Fraction), or the nearest one (ties to even), or the
    next towards zero. A result beyond the greatest number is bad, and so is a truncated x beyond
    it."""
    if x == 0:
        return Fraction(0)
    bits, low, _ = FLOATS[data_type]
    exponent = max(binary_exponent(x), low)
    step = power(2, exponent - bits + 1)
    count = x / step
    if count.denominator != 1:
        if how == "round":
            count = Fraction(round(count))
        elif how == "truncate":
            count = Fraction(math.trunc(count))
        else:
            raise Bad
    near = count * step
    if abs(near) > greatest(data_type) or (how == "truncate" and abs(x) > greatest(data_type)):
        raise Bad
    return near


def binary_exponent(x):
    """The e with 2^e <= |x| < 2^(e+1)."""
    x = abs(x)
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if power(2, guess) <= x else guess - 1


def special(value):
    """NaN or an infinity."""
    return isinstance(value, float) and not math.isfinite(value)


def exact(value):
    """A finite number as an exact Fraction."""
    return Fraction(value)


def put(value, data_type, how=None):
    """A number (int, bool, Fraction, float) as a value of a numeric type or bool."""
    if data_type in FLOATS:
        if isinstance(value, float) and (special(value) or value == 0):
            return value
        x = exact(value)
        # A value that rounds to zero keeps its sign.
        return math.copysign(float(float_near(x, data_type, how)), x)
    if special(value):
        raise Bad
    x = exact(value)
    if pa.types.is_boolean(data_type):
        if x not in (0, 1):
            raise Bad
        return x == 1
    if data_type in INTEGERS:
        low, high = INTEGERS[data_type]
        number = whole(x, how)
        if not low <= number <= high:
            raise Bad
        return number
    scale = power(10, data_type.scale)
    number = whole(x * scale, how)
    if abs(number) >= 10**data_type.precision:
        raise Bad
    return number / scale


def is_number(data_type):
    return data_type in INTEGERS or data_type in FLOATS or pa.types.is_decimal(data_type)
