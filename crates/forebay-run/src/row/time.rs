//! Formats dates, times, timestamps, durations and intervals as ISO 8601.
//!
//! Fractions of a second always have the digits of the unit (0, 3, 6 or 9). So the texts of one
//! column sort as its times do, for the years 0000 to 9999. Years outside are written with a sign.

use super::decimal::{write_int, write_uint};
use super::schema::TimeUnit;

const SECONDS_A_DAY: i64 = 86_400;

/// Returns year, month (1-12) and day (1-31) of the proleptic Gregorian calendar from days since
/// 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, u32, u32) {
    // Count from 0000-03-01, in eras of 400 years, so that leap days end years and eras.
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month as u32, day)
}

/// Appends `2026-11-21` from days since 1970-01-01.
pub fn write_date(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    if !(0..=9999).contains(&year) {
        out.push(if year < 0 { b'-' } else { b'+' });
    }
    write_padded(year.unsigned_abs(), 4, out);
    out.push(b'-');
    write_padded(u64::from(month), 2, out);
    out.push(b'-');
    write_padded(u64::from(day), 2, out);
}

/// Appends `23:59:59.123` from units since midnight. A value outside a day has more hours
/// (`24:00:00`), or a sign.
pub fn write_time(value: i64, unit: TimeUnit, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    let (value, per_second) = (value.unsigned_abs(), unit.per_second() as u64);
    let seconds = value / per_second;
    write_padded(seconds / 3600, 2, out);
    out.push(b':');
    write_padded(seconds / 60 % 60, 2, out);
    out.push(b':');
    write_padded(seconds % 60, 2, out);
    if unit.digits() > 0 {
        out.push(b'.');
        write_padded(value % per_second, unit.digits() as usize, out);
    }
}

/// Appends `2026-11-21T23:59:59.123Z`, without the `Z` when not zoned.
pub fn write_timestamp(value: i64, unit: TimeUnit, zoned: bool, out: &mut Vec<u8>) {
    let per_day = i128::from(SECONDS_A_DAY) * i128::from(unit.per_second());
    let days = i128::from(value).div_euclid(per_day) as i64;
    let in_day = i128::from(value).rem_euclid(per_day) as i64;
    write_date(days, out);
    out.push(b'T');
    write_time(in_day, unit, out);
    if zoned {
        out.push(b'Z');
    }
}

/// Appends a number with leading zeroes up to `width` (at most 20) digits.
pub(super) fn write_padded(mut value: u64, width: usize, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    while value > 0 {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[at.min(digits.len() - width.min(20))..]);
}

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
