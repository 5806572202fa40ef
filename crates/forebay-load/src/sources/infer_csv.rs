//! Guesses the types of CSV columns from a sample.
//!
//! A type is guessed only when no text is lost by it: `00123`, `+5` and integers beyond 64 bits stay text,
//! as do decimals of more than 17 significant digits. The types are bool (`true`, `false`), int64, float64, date
//! (`2026-11-21`), timestamp in microseconds (`2026-11-21T10:00:00`, also with a blank, a fraction, and `Z` or
//! an offset: then with the zone UTC), else text. A column without any value in the sample is text.

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};

/// What the values of a column have been so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Guess {
    /// Nulls only.
    #[default]
    Nothing,
    Bool,
    Int,
    Float,
    Date,
    Time,
    ZonedTime,
    Text,
}

impl Guess {
    /// What a single value is.
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

    /// What a column is that has values of both.
    pub fn join(self, other: Guess) -> Guess {
        match (self, other) {
            (Guess::Nothing, any) | (any, Guess::Nothing) => any,
            (a, b) if a == b => a,
            (Guess::Int, Guess::Float) | (Guess::Float, Guess::Int) => Guess::Float,
            _ => Guess::Text,
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Guess::Nothing => DataType::Null,
            Guess::Bool => DataType::Boolean,
            Guess::Int => DataType::Int64,
            Guess::Float => DataType::Float64,
            Guess::Date => DataType::Date32,
            Guess::Time => DataType::Timestamp(TimeUnit::Microsecond, None),
            Guess::ZonedTime => DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC"))),
            Guess::Text => DataType::Utf8,
        }
    }
}

/// Int or float, when the text is how that number is written.
fn number(text: &str) -> Option<Guess> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (digits, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
        return None;
    }
    if fraction.is_none() && exponent.is_none() {
        let fits = text.parse::<i64>().is_ok() && text != "-0";
        return Some(if fits { Guess::Int } else { Guess::Text });
    }
    if fraction.is_some_and(|fraction| !all_digits(fraction)) {
        return None;
    }
    let exponent = exponent.map(|text| text.strip_prefix(['+', '-']).unwrap_or(text));
    if exponent.is_some_and(|exponent| !all_digits(exponent)) {
        return None;
    }
    let significant = mantissa
        .bytes()
        .filter(u8::is_ascii_digit)
        .skip_while(|b| *b == b'0')
        .count();
    Some(if significant <= 17 {
        Guess::Float
    } else {
        Guess::Text
    })
}

/// A date, a time or plain text.
fn time(text: &str) -> Guess {
    let bytes = text.as_bytes();
    if !shape(bytes, "dddd-dd-dd") {
        return Guess::Text;
    }
    if bytes.len() == 10 {
        return Guess::Date;
    }
    let Some(rest) = bytes.get(10..).filter(|rest| shape(rest, "Tdd:dd:dd")) else {
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
        offset if offset.len() == 6 && (shape(offset, "+dd:dd") || shape(offset, "-dd:dd")) => {
            Guess::ZonedTime
        }
        _ => Guess::Text,
    }
}

/// Whether bytes begin with a pattern: `d` is a digit, `T` a T or blank, others themselves.
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
            ("192.168.0.1", Guess::Text),
            ("é", Guess::Text),
        ] {
            assert_eq!(Guess::of(text.as_bytes()), guess, "{text}");
        }
        assert_eq!(Guess::Int.join(Guess::Float), Guess::Float);
        assert_eq!(Guess::Int.join(Guess::Date), Guess::Text);
        assert_eq!(Guess::Nothing.join(Guess::Date), Guess::Date);
    }
}
