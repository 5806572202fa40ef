//! Parses dates, times, timestamps, durations and intervals in the text forms that replies use.

use super::time::DAY_NS;

const SECOND_NS: i128 = 1_000_000_000;

/// A date with its written time of day and offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WrittenTime {
    /// Nanoseconds since 1970-01-01T00:00:00 as written, ignoring the offset.
    pub local_ns: i128,
    pub offset_s: Option<i64>,
}

impl WrittenTime {
    /// Reads `2026-11-22`, `2026-11-22T10:20:30.5` (or with a blank, or without seconds), and with
    /// `Z` or an offset.
    pub fn parse(text: &str) -> Option<WrittenTime> {
        let (days, rest) = date(text)?;
        let midnight = i128::from(days) * i128::from(DAY_NS);
        let Some(rest) = rest.strip_prefix(['T', 't', ' ']) else {
            return rest.is_empty().then_some(WrittenTime {
                local_ns: midnight,
                offset_s: None,
            });
        };
        let (of_day, rest) = clock(rest)?;
        Some(WrittenTime {
            local_ns: midnight + of_day,
            offset_s: offset(rest)?,
        })
    }

    /// Returns nanoseconds since 1970-01-01T00:00:00Z. Without an offset the time is taken as UTC.
    pub fn utc_ns(&self) -> i128 {
        self.local_ns - i128::from(self.offset_s.unwrap_or(0)) * SECOND_NS
    }
}

/// Reads a time such as `10:20:30.5`, as nanoseconds since midnight.
pub(super) fn time_of_day(text: &str) -> Option<i128> {
    let (nanoseconds, rest) = clock(text)?;
    rest.is_empty().then_some(nanoseconds)
}

/// Reads a date: days since 1970-01-01, and the rest of the text. Years have four digits, or more
/// after a sign.
fn date(text: &str) -> Option<(i64, &str)> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let signed = rest.len() < text.len();
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    if !(4..=7).contains(&length) || (length > 4 && !signed) {
        return None;
    }
    let year = sign * rest[..length].parse::<i64>().ok()?;
    let (month, rest) = two_digits(rest[length..].strip_prefix('-')?)?;
    let (day, rest) = two_digits(rest.strip_prefix('-')?)?;
    Some((days_of(year, month, day)?, rest))
}

/// Returns the days since 1970-01-01 if the date exists.
pub(super) fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    let valid = (1..=days).contains(&day);
    valid.then(|| days_from_civil(year, month, day))
}

/// Returns the days since 1970-01-01 of a date of the proleptic Gregorian calendar.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that leap days end them.
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn two_digits(text: &str) -> Option<(i64, &str)> {
    let head = text.get(..2)?;
    let valid = head.bytes().all(|byte| byte.is_ascii_digit());
    valid.then_some((head.parse().ok()?, &text[2..]))
}

/// Reads `10:20`, `10:20:30` or `10:20:30.5`: nanoseconds, and the rest of the text.
fn clock(text: &str) -> Option<(i128, &str)> {
    let (hours, rest) = two_digits(text)?;
    let (minutes, rest) = two_digits(rest.strip_prefix(':')?)?;
    let (seconds, rest) = match rest.strip_prefix(':') {
        Some(rest) => two_digits(rest)?,
        None => (0, rest),
    };
    if hours > 23 || minutes > 59 || seconds > 59 {
        return None;
    }
    let (fraction, rest) = fraction(rest)?;
    let whole = i128::from((hours * 60 + minutes) * 60 + seconds) * SECOND_NS;
    Some((whole + fraction, rest))
}

/// Reads the nanoseconds of `.5`, or none. Finer fractions are refused.
fn fraction(text: &str) -> Option<(i128, &str)> {
    let Some(rest) = text.strip_prefix('.') else {
        return Some((0, text));
    };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let digits = rest[..length].trim_end_matches('0');
    if length == 0 || digits.len() > 9 {
        return None;
    }
    let value: i128 = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    Some((
        value * 10_i128.pow(9 - digits.len() as u32),
        &rest[length..],
    ))
}

/// Reads an offset as seconds: empty, `Z`, `+01:00`, `+0100` or `+01`.
#[allow(clippy::option_option, reason = "no offset is not a wrong one")]
fn offset(text: &str) -> Option<Option<i64>> {
    let (sign, rest) = match text.as_bytes().first() {
        None => return Some(None),
        Some(b'Z' | b'z') if text.len() == 1 => return Some(Some(0)),
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        Some(_) => return None,
    };
    let (hours, rest) = two_digits(rest)?;
    let minutes = match rest.strip_prefix(':').unwrap_or(rest) {
        "" if rest.is_empty() => 0,
        rest => match two_digits(rest)? {
            (minutes, "") => minutes,
            _ => return None,
        },
    };
    let valid = hours <= 23 && minutes <= 59;
    valid.then_some(Some(sign * (hours * 60 + minutes) * 60))
}

/// Months, days and nanoseconds.
pub(super) type Span = (i64, i64, i128);

/// Reads `PT3.5S`, `P1M2DT3S`, `-PT1H`: each part at most once, in this order, with a sign of its
/// own or one for all.
pub(super) fn span(text: &str) -> Option<Span> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let rest = rest.strip_prefix('P')?;
    let (dates, clock) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((dates, clock)) => (dates, clock),
        None if rest.is_empty() => return None,
        None => (rest, ""),
    };
    let (years, dates) = part(dates, 'Y')?;
    let (months, dates) = part(dates, 'M')?;
    let (weeks, dates) = part(dates, 'W')?;
    let (days, dates) = part(dates, 'D')?;
    let (hours, clock) = part(clock, 'H')?;
    let (minutes, clock) = part(clock, 'M')?;
    let (seconds, clock) = seconds(clock)?;
    if !dates.is_empty() || !clock.is_empty() {
        return None;
    }
    let months = years.checked_mul(12)?.checked_add(months)?;
    let days = weeks.checked_mul(7)?.checked_add(days)?;
    let minutes = i128::from(hours) * 60 + i128::from(minutes);
    let nanoseconds = minutes * 60 * SECOND_NS + seconds;
    Some((
        months.checked_mul(sign)?,
        days.checked_mul(sign)?,
        i128::from(sign) * nanoseconds,
    ))
}

/// Reads the number before a letter, and returns the rest of the text. The number is zero if the
/// letter does not follow.
fn part(text: &str, letter: char) -> Option<(i64, &str)> {
    let length = number_length(text);
    if length == 0 || !text[length..].starts_with(letter) {
        return Some((0, text));
    }
    Some((text[..length].parse().ok()?, &text[length + 1..]))
}

fn seconds(text: &str) -> Option<(i128, &str)> {
    if text.is_empty() {
        return Some((0, text));
    }
    let length = number_length(text);
    let whole: i128 = text[..length].parse().ok()?;
    let (fraction, rest) = fraction(&text[length..])?;
    let whole_ns = whole.checked_mul(SECOND_NS)?;
    let negative = text.starts_with('-');
    let all = if negative {
        whole_ns - fraction
    } else {
        whole_ns + fraction
    };
    Some((all, rest.strip_prefix('S')?))
}

fn number_length(text: &str) -> usize {
    let sign = usize::from(text.starts_with('-'));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 { 0 } else { sign + digits }
}
