//! Durations and intervals as ISO 8601, written and read back.

use super::schema::TimeUnit;
use super::text::{write_int, write_uint};
use super::time::write_padded;

/// Appends `PT3.500S`.
pub(super) fn write_duration(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(b"PT");
    write_seconds(value.unsigned_abs(), unit, out);
}

/// Appends `P1M2DT3.000000000S`, the parts that are not zero, each with its own sign; `PT0S` for none.
pub(super) fn write_interval(months: i32, days: i32, nanoseconds: i64, out: &mut Vec<u8>) {
    out.push(b'P');
    for (count, letter) in [(months, b'M'), (days, b'D')] {
        if count != 0 {
            write_int(i64::from(count), out);
            out.push(letter);
        }
    }
    if nanoseconds != 0 {
        out.push(b'T');
        if nanoseconds < 0 {
            out.push(b'-');
        }
        write_seconds(nanoseconds.unsigned_abs(), TimeUnit::Nanosecond, out);
    } else if months == 0 && days == 0 {
        out.extend_from_slice(b"T0S");
    }
}

fn write_seconds(value: u64, unit: TimeUnit, out: &mut Vec<u8>) {
    let per_second = unit.per_second() as u64;
    write_uint(value / per_second, out);
    if unit.digits() > 0 {
        out.push(b'.');
        write_padded(value % per_second, unit.digits() as usize, out);
    }
    out.push(b'S');
}

/// The duration that a text says: `PT3.500S` or `-PT3.5S`; `None` when the unit does not hold it exactly, and for other
/// parts than seconds.
pub fn read_duration(text: &str, unit: TimeUnit) -> Option<i64> {
    let (negative, text) = strip_sign(text);
    let units = read_seconds(text.strip_prefix("PT")?, unit)?;
    signed(negative, units)
}

/// The months, days and nanoseconds of an interval: `P1M-2DT3.000000000S`, in which a part may be left out, but not all.
pub fn read_interval(text: &str) -> Option<(i32, i32, i64)> {
    let text = text.strip_prefix('P')?;
    let (dates, time) = match text.split_once('T') {
        Some((dates, time)) => (dates, Some(time)),
        None => (text, None),
    };
    let (months, days) = match dates.split_once('M') {
        Some((months, days)) => (Some(months), days),
        None => (None, dates),
    };
    let days = match days {
        "" => None,
        days => Some(days.strip_suffix('D')?),
    };
    if months.is_none() && days.is_none() && time.is_none() {
        return None;
    }
    let count = |text: Option<&str>| text.map_or(Some(0), read_count);
    let nanoseconds = time.map_or(Some(0), |time| {
        let (negative, time) = strip_sign(time);
        signed(negative, read_seconds(time, TimeUnit::Nanosecond)?)
    });
    Some((count(months)?, count(days)?, nanoseconds?))
}

fn strip_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

fn signed(negative: bool, units: u64) -> Option<i64> {
    match negative {
        true => 0_i64.checked_sub_unsigned(units),
        false => i64::try_from(units).ok(),
    }
}

/// A whole number with at most a minus before its digits.
fn read_count(text: &str) -> Option<i32> {
    let (_, digits) = strip_sign(text);
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

/// Units of `3.500S`; zeros beyond the unit's digits are passed over.
fn read_seconds(text: &str, unit: TimeUnit) -> Option<u64> {
    let text = text.strip_suffix('S')?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let width = unit.digits() as usize;
    let (kept, beyond) = fraction.split_at(fraction.len().min(width));
    if beyond.bytes().any(|byte| byte != b'0') {
        return None;
    }
    let units: u64 = match width {
        0 => 0,
        _ => format!("{kept:0<width$}").parse().ok()?,
    };
    let seconds: u64 = whole.parse().ok()?;
    let whole_units = seconds.checked_mul(unit.per_second() as u64)?;
    whole_units.checked_add(units)
}
