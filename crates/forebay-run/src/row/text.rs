//! Formats a scalar as text, for Redis clients and for keys.

use std::io::Write;

use super::datum::{Datum, f16_to_f32};
use super::decimal::{write_decimal, write_decimal256, write_int, write_uint};
use super::time::{write_date, write_duration, write_interval, write_time, write_timestamp};

/// Appends a scalar as text; if it is null or nested, returns `false` and appends nothing.
pub(super) fn write_scalar(value: &Datum<'_>, out: &mut Vec<u8>) -> bool {
    match value {
        Datum::Null | Datum::List(_) | Datum::Row(_) | Datum::Map(_) => return false,
        Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Int(value) => write_int(*value, out),
        Datum::UInt(value) => write_uint(*value, out),
        Datum::Float16(bits) => write_f16(*bits, out),
        Datum::Float32(value) => write_f32(*value, out),
        Datum::Float64(value) => write_f64(*value, out),
        Datum::Decimal { value, scale } => write_decimal(*value, *scale, out),
        Datum::Decimal256 { value, scale } => write_decimal256(value, *scale, out),
        Datum::Date(days) => write_date(i64::from(*days), out),
        Datum::Date64(milliseconds) => write_date64(*milliseconds, out),
        Datum::Time { value, unit } => write_time(*value, *unit, out),
        Datum::Timestamp { value, unit, zoned } => write_timestamp(*value, *unit, *zoned, out),
        Datum::Duration { value, unit } => write_duration(*value, *unit, out),
        Datum::Interval {
            months,
            days,
            nanoseconds,
        } => {
            write_interval(*months, *days, *nanoseconds, out);
        }
        Datum::Text(text) => out.extend_from_slice(text.as_bytes()),
        Datum::Bytes(bytes) => out.extend_from_slice(bytes),
    }
    true
}

/// Appends a date, with the time of day if it has one.
fn write_date64(milliseconds: i64, out: &mut Vec<u8>) {
    const DAY: i64 = 86_400_000;
    if milliseconds.rem_euclid(DAY) == 0 {
        write_date(milliseconds.div_euclid(DAY), out);
    } else {
        write_timestamp(milliseconds, super::TimeUnit::Millisecond, false, out);
    }
}

/// Whole numbers below these are written digit by digit.
const MAX_WHOLE_F16: f64 = (1_u64 << 16) as f64;
const MAX_WHOLE_F32: f64 = (1_u64 << 24) as f64;
const MAX_WHOLE_F64: f64 = (1_u64 << 53) as f64;

/// Appends the shortest digits that parse as the same number; otherwise `NaN`, `Infinity` or
/// `-Infinity`.
fn write_f32(value: f32, out: &mut Vec<u8>) {
    if !write_simple(f64::from(value), MAX_WHOLE_F32, out) {
        let _ = write!(out, "{value:?}"); // Memory does not fail.
    }
}

fn write_f64(value: f64, out: &mut Vec<u8>) {
    if !write_simple(value, MAX_WHOLE_F64, out) {
        let _ = write!(out, "{value:?}"); // Memory does not fail.
    }
}

fn write_f16(bits: u16, out: &mut Vec<u8>) {
    let value = f64::from(f16_to_f32(bits));
    if !write_simple(value, MAX_WHOLE_F16, out) {
        let _ = write!(out, "{:?}", short_f16(bits, value)); // Memory does not fail.
    }
}

/// Returns the number of fewest digits that is nearer to a half-precision float than to any other.
/// REQUIRES: it is finite and no whole number other than -0.0.
fn short_f16(bits: u16, value: f64) -> f64 {
    let size = bits & 0x7fff;
    if size == 0 {
        return value;
    }
    let half = |size: u16| f64::from(f16_to_f32(size));
    let (low, high) = (half(size - 1), half(size + 1));
    let (low, high) = ((low + value.abs()) / 2.0, (value.abs() + high) / 2.0);
    let reads_back = |near: f64| {
        let ties_here = size.is_multiple_of(2) && (near == low || near == high);
        (low < near && near < high) || ties_here
    };
    // Five digits distinguish all half-precision floats.
    let shortest = (0..5).find_map(|digits| {
        let near: f64 = format!("{:.digits$e}", value.abs()).parse().ok()?;
        reads_back(near).then_some(near)
    });
    shortest.map_or(value, |near| near.copysign(value))
}

/// Writes non-finite values, and whole numbers below `limit`, which are frequent, without the
/// search for the shortest digits.
fn write_simple(value: f64, limit: f64, out: &mut Vec<u8>) -> bool {
    let negative_zero = value == 0.0 && value.is_sign_negative();
    let whole = value.abs() < limit && value.fract() == 0.0 && !negative_zero;
    if whole {
        write_int(value as i64, out);
        out.extend_from_slice(b".0");
    }
    whole || write_not_finite(value, out)
}

/// Writes a non-finite value; for a finite one, returns `false` and writes nothing.
pub(crate) fn write_not_finite(value: f64, out: &mut Vec<u8>) -> bool {
    match value {
        f64::INFINITY => out.extend_from_slice(b"Infinity"),
        f64::NEG_INFINITY => out.extend_from_slice(b"-Infinity"),
        _ if value.is_nan() => out.extend_from_slice(b"NaN"),
        _ => return false,
    }
    true
}
