//! A value as text: what a Redis client reads, and what keys are made of.

use std::io::Write;

use super::datum::{Datum, f16_to_f32};
use super::decimal::{write_decimal, write_decimal256};
use super::time::{write_date, write_duration, write_interval, write_time, write_timestamp};
use super::{RowError, json};

impl Datum<'_> {
    /// Appends the value as text, as [`super::RowView::text`] describes; false, and nothing appended, when null.
    pub fn write_text(&self, out: &mut Vec<u8>) -> Result<bool, RowError> {
        write(self, out)
    }

    /// Appends the value as JSON.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), RowError> {
        json::write(self, out)
    }
}

pub(super) fn write(value: &Datum<'_>, out: &mut Vec<u8>) -> Result<bool, RowError> {
    match value {
        Datum::Null => return Ok(false),
        Datum::Bool(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Datum::Int(value) => write_int(*value, out),
        Datum::UInt(value) => write_uint(*value, out),
        Datum::Float16(bits) => write_f32(f16_to_f32(*bits), out),
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
        Datum::List(_) | Datum::Row(_) | Datum::Map(_) => json::write(value, out)?,
    }
    Ok(true)
}

/// A date, with the time of day when there is one.
fn write_date64(milliseconds: i64, out: &mut Vec<u8>) {
    const DAY: i64 = 86_400_000;
    if milliseconds.rem_euclid(DAY) == 0 {
        write_date(milliseconds.div_euclid(DAY), out);
    } else {
        write_timestamp(milliseconds, super::TimeUnit::Millisecond, false, out);
    }
}

pub(super) fn write_int(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    write_uint(value.unsigned_abs(), out);
}

pub(super) fn write_uint(mut value: u64, out: &mut Vec<u8>) {
    let mut digits = [0_u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The shortest digits that read back as the same number; `NaN`, `inf` and `-inf` otherwise.
fn write_f32(value: f32, out: &mut Vec<u8>) {
    if !write_whole(f64::from(value), MAX_WHOLE_F32, out) {
        let _ = write!(out, "{value:?}"); // Memory does not fail.
    }
}

fn write_f64(value: f64, out: &mut Vec<u8>) {
    if !write_whole(value, MAX_WHOLE_F64, out) {
        let _ = write!(out, "{value:?}"); // Memory does not fail.
    }
}

/// Whole numbers below these are written digit by digit.
const MAX_WHOLE_F32: f64 = (1_u64 << 24) as f64;
const MAX_WHOLE_F64: f64 = (1_u64 << 53) as f64;

/// Writes whole numbers below `limit`, which are many, without the search for the shortest digits.
fn write_whole(value: f64, limit: f64, out: &mut Vec<u8>) -> bool {
    let negative_zero = value == 0.0 && value.is_sign_negative();
    let whole = value.abs() < limit && value.fract() == 0.0 && !negative_zero;
    if whole {
        write_int(value as i64, out);
        out.extend_from_slice(b".0");
    }
    whole
}
