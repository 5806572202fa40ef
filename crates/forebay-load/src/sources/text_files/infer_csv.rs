//! Infers the types of CSV columns from their values.
//!
//! A type is inferred only if no text is lost by it. `00123`, `+5` and integers beyond 64 bits stay
//! text. So do decimals of more than 17 significant digits, and integers with decimals where a
//! float64 would round one of them. The types are bool (`true`, `false`), int64, float64, date
//! (`2026-11-21`) and timestamp in microseconds (`2026-11-21T10:00:00`), else text. A timestamp may
//! have a blank, a fraction, and `Z` or an offset: then with the zone UTC. A column without any
//! value is text.

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};

use super::infer_number::{Parts, is_float};

/// The type of the values of a column so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::sources) enum Guess {
    /// Only nulls.
    #[default]
    Nothing,
    Bool,
    /// Integers that a float64 holds exactly.
    Int,
    /// Integers, some of which a float64 would round.
    WideInt,
    Float,
    Date,
    Time,
    ZonedTime,
    Text,
}

impl Guess {
    /// Returns the type of a single value.
    pub fn of(value: &[u8]) -> Guess {
        let Ok(text) = std::str::from_utf8(value) else {
            return Guess::Text;
        };
        if text == "true" || text == "false" {
            return Guess::Bool;
        }
        match value.first() {
            Some(b'0'..=b'9' | b'-') => number(text).unwrap_or_else(|| time(text)),
            Some(b'N') if text == "NaN" => Guess::Float,
            _ => Guess::Text,
        }
    }

    /// Returns the type of a column that has values of both.
    pub fn join(self, other: Guess) -> Guess {
        match (self, other) {
            (Guess::Nothing, any) | (any, Guess::Nothing) => any,
            (a, b) if a == b => a,
            (Guess::Int, Guess::WideInt) | (Guess::WideInt, Guess::Int) => Guess::WideInt,
            (Guess::Int, Guess::Float) | (Guess::Float, Guess::Int) => Guess::Float,
            _ => Guess::Text,
        }
    }

    /// Returns whether a column of this type keeps its type with this value.
    pub fn holds(self, value: &[u8]) -> bool {
        let room = match self {
            Guess::Text => return true,
            Guess::Int | Guess::WideInt if is_short_integer(value) => return true,
            Guess::Int => Guess::WideInt,
            other => other,
        };
        room.join(Guess::of(value)) == room
    }

    pub fn data_type(self) -> DataType {
        match self {
            Guess::Nothing => DataType::Null,
            Guess::Bool => DataType::Boolean,
            Guess::Int | Guess::WideInt => DataType::Int64,
            Guess::Float => DataType::Float64,
            Guess::Date => DataType::Date32,
            Guess::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            Guess::ZonedTime => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
            Guess::Text => DataType::Utf8,
        }
    }
}

/// Returns whether this is an integer in canonical form, with few enough digits for 64 bits.
fn is_short_integer(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    match digits {
        [b'0'] => value.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.len() < 18 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Returns int or float if the text is the canonical form of a number.
fn number(text: &str) -> Option<Guess> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.bytes().take_while(u8::is_ascii_digit).count();
    if whole == 0 || (whole > 1 && digits.starts_with('0')) {
        return None;
    }
    if whole == digits.len() {
        return Some(integer(text));
    }
    let parts = Parts::of(text)?;
    Some(if parts.is_exact_float() {
        Guess::Float
    } else {
        Guess::Text
    })
}

fn integer(text: &str) -> Guess {
    match text.parse::<i64>() {
        Ok(0) if text.len() > 1 => Guess::Text,
        Ok(number) if is_float(i128::from(number)) => Guess::Int,
        Ok(_) => Guess::WideInt,
        Err(_) => Guess::Text,
    }
}

/// Returns date, time or text.
fn time(text: &str) -> Guess {
    let bytes = text.as_bytes();
    if !shape(bytes, "dddd-dd-dd") || !is_date(bytes) {
        return Guess::Text;
    }
    if bytes.len() == 10 {
        return Guess::Date;
    }
    let clock = bytes.get(10..).filter(|rest| shape(rest, "Tdd:dd:dd"));
    let Some(rest) = clock.filter(|rest| is_clock(&rest[1..6]) && two(&rest[7..]) < 60) else {
        return Guess::Text;
    };
    let mut rest = &rest[9..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if !(1..=6).contains(&digits) {
            return Guess::Text;
        }
        rest = &fraction[digits..];
    }
    match rest {
        b"" => Guess::Time,
        b"Z" => Guess::ZonedTime,
        [b'+' | b'-', offset @ ..] if offset.len() == 5 && shape(offset, "dd:dd") => {
            if is_clock(offset) {
                Guess::ZonedTime
            } else {
                Guess::Text
            }
        }
        _ => Guess::Text,
    }
}

/// Returns the number of two digits.
fn two(digits: &[u8]) -> u32 {
    match digits {
        [tens, ones, ..] => u32::from(tens - b'0') * 10 + u32::from(ones - b'0'),
        _ => 0,
    }
}

/// Returns whether `dddd-dd-dd` is a day of the calendar.
fn is_date(text: &[u8]) -> bool {
    let (year, month, day) = (
        two(text) * 100 + two(&text[2..]),
        two(&text[5..]),
        two(&text[8..]),
    );
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => 0,
    };
    (1..=days).contains(&day)
}

/// Returns whether `dd:dd` are hours and minutes.
fn is_clock(text: &[u8]) -> bool {
    two(text) < 24 && two(&text[3..]) < 60
}

/// Returns whether bytes begin with a pattern: `d` is a digit, `T` a T or blank, others themselves.
fn shape(bytes: &[u8], pattern: &str) -> bool {
    bytes.len() >= pattern.len()
        && bytes
            .iter()
            .zip(pattern.bytes())
            .all(|(byte, pattern)| match pattern {
                b'd' => byte.is_ascii_digit(),
                b'T' => matches!(byte, b'T' | b' '),
                other => *byte == other,
            })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses_lose_no_text() {
        for (text, guess) in [
            ("0", Guess::Int),
            ("-17", Guess::Int),
            ("00123", Guess::Text),
            ("+5", Guess::Text),
            ("-0", Guess::Text),
            ("9223372036854775808", Guess::Text),
            ("1.50", Guess::Float),
            ("-2e-7", Guess::Float),
            ("1.", Guess::Text),
            ("9007199254740993", Guess::WideInt),
            ("1e400", Guess::Text),
            ("1e-400", Guess::Text),
            ("1e5", Guess::Float),
            ("1e", Guess::Text),
            ("0.123456789012345678", Guess::Text),
            ("NaN", Guess::Float),
            ("true", Guess::Bool),
            ("True", Guess::Text),
            ("2026-11-21", Guess::Date),
            ("2026-11-21 10:00:00", Guess::Time),
            ("2026-11-21T10:00:00.123456", Guess::Time),
            ("2026-11-21T10:00:00.1234567", Guess::Text),
            ("2026-11-21T10:00:00+01:00", Guess::ZonedTime),
            ("2026-11-21T10:00:00Z", Guess::ZonedTime),
            ("2026-11-21x", Guess::Text),
            ("2026-02-29", Guess::Text),
            ("2024-02-29", Guess::Date),
            ("2026-13-01", Guess::Text),
            ("2026-11-21T24:00:00", Guess::Text),
            ("2026-11-21T10:00:60", Guess::Text),
            ("2026-11-21T10:00:00+01:75", Guess::Text),
            ("192.168.0.1", Guess::Text),
            ("é", Guess::Text),
        ] {
            assert_eq!(Guess::of(text.as_bytes()), guess, "{text}");
        }
        assert_eq!(Guess::Int.join(Guess::Float), Guess::Float);
        assert_eq!(Guess::Int.join(Guess::Date), Guess::Text);
        assert_eq!(Guess::Nothing.join(Guess::Date), Guess::Date);
        assert_eq!(Guess::Int.join(Guess::WideInt), Guess::WideInt);
        assert_eq!(Guess::WideInt.join(Guess::Float), Guess::Text);
        assert!(Guess::Int.holds(b"9007199254740993") && !Guess::Int.holds(b"01"));
        assert!(Guess::Int.holds(b"-123456789012345678") && Guess::Int.holds(b"0"));
        assert!(!Guess::Int.holds(b"-0") && !Guess::Int.holds(b"9223372036854775808"));
        assert!(Guess::Float.holds(b"5") && !Guess::Float.holds(b"9007199254740993"));
        assert!(Guess::Text.holds(b"x") && !Guess::Nothing.holds(b"x"));
    }
}
