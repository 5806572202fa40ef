//! Formats durations and intervals as ISO 8601.

use super::digits::{write_int, write_uint};
use super::schema::TimeUnit;
use super::time::write_padded;

/// Appends `PT3.500S`.
pub(super) fn write_duration(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(b"PT");
    write_seconds(value.unsigned_abs(), unit, out);
}

/// Appends `P1M2DT3.000000000S`: the parts that are not zero, each with its own sign. Appends
/// `PT0S` if all are zero.
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
