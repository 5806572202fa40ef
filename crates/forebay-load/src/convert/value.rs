//! Reads one value as a number, a moment or a text, by docs/reference/conversions.md.

use arrow_buffer::i256;
use forebay_run::row::{Datum, read_binary_text};
use half::f16;

use super::calendar::{self, Span, WrittenTime};
use super::literal::{Literal, non_finite};
use super::loss::{Fit, Loss};
use super::number::{Number, nearest_f16};
use super::time::{DAY_NS, row_unit_ns};

/// The most characters of a value that a message shows.
const SHOWN_CHARACTERS: usize = 80;

/// Returns the number that a value is, or that its text contains.
#[inline]
fn number(datum: &Datum<'_>) -> Option<Number> {
    match datum {
        Datum::Text(text) => Literal::parse(text)?.number(),
        other => Number::of(other),
    }
}

/// Returns whether a text has the form of a number.
pub(super) fn is_number(text: &str) -> bool {
    Literal::parse(text).is_some()
}

#[inline]
pub(super) fn whole(datum: &Datum<'_>, loss: Loss) -> Fit<i128> {
    match number(datum) {
        Some(number) => number.whole(loss),
        None => Fit::Misfit,
    }
}

pub(super) fn scaled(datum: &Datum<'_>, scale: i32, loss: Loss) -> Fit<i256> {
    match number(datum) {
        Some(number) => number.scaled(scale, loss),
        None => Fit::Misfit,
    }
}

pub(super) fn float64(datum: &Datum<'_>, loss: Loss) -> Fit<f64> {
    match datum {
        Datum::Text(text) => match Literal::parse(text) {
            Some(literal) => literal.float64(loss),
            None => Fit::of(non_finite(text)),
        },
        other => Number::of(other).map_or(Fit::Misfit, |number| number.float64(loss)),
    }
}

pub(super) fn float32(datum: &Datum<'_>, loss: Loss) -> Fit<f32> {
    match datum {
        Datum::Text(text) => match Literal::parse(text) {
            Some(literal) => literal.float32(loss),
            None => Fit::of(non_finite(text).map(|value| value as f32)),
        },
        other => Number::of(other).map_or(Fit::Misfit, |number| number.float32(loss)),
    }
}

pub(super) fn float16(datum: &Datum<'_>, loss: Loss) -> Fit<f16> {
    match datum {
        Datum::Text(text) => match Literal::parse(text) {
            Some(literal) => literal.float16(loss),
            None => Fit::of(non_finite(text).map(nearest_f16)),
        },
        other => Number::of(other).map_or(Fit::Misfit, |number| number.float16(loss)),
    }
}

pub(super) fn truth(datum: &Datum<'_>) -> Option<bool> {
    match datum {
        Datum::Text(text) if text.eq_ignore_ascii_case("true") || *text == "1" => Some(true),
        Datum::Text(text) if text.eq_ignore_ascii_case("false") || *text == "0" => Some(false),
        Datum::Text(_) => None,
        other => Number::of(other)?.truth(),
    }
}

/// Returns nanoseconds since 1970-01-01T00:00:00, in UTC if the wanted type is `zoned`.
pub(super) fn moment_ns(datum: &Datum<'_>, zoned: bool, loss: Loss) -> Fit<i128> {
    match written_ns(datum) {
        Some((nanoseconds, has_zone)) if has_zone == zoned => Fit::Exact(nanoseconds),
        Some((nanoseconds, _)) if loss == Loss::Utc => Fit::Changed(nanoseconds),
        _ => Fit::Misfit,
    }
}

/// Returns nanoseconds since 1970-01-01T00:00:00, and whether the value says that they are in UTC.
fn written_ns(datum: &Datum<'_>) -> Option<(i128, bool)> {
    Some(match datum {
        Datum::Date(days) => (i128::from(*days) * i128::from(DAY_NS), false),
        Datum::Date64(milliseconds) => (i128::from(*milliseconds) * 1_000_000, false),
        Datum::Timestamp { value, unit, zoned } => {
            (i128::from(*value) * i128::from(row_unit_ns(*unit)), *zoned)
        }
        Datum::Text(text) => {
            let written = WrittenTime::parse(text)?;
            (written.utc_ns(), written.offset_s.is_some())
        }
        _ => return None,
    })
}

/// Returns nanoseconds since midnight, less than a day.
pub(super) fn time_ns(datum: &Datum<'_>) -> Fit<i128> {
    let nanoseconds = match datum {
        Datum::Time { value, unit } => Some(i128::from(*value) * i128::from(row_unit_ns(*unit))),
        Datum::Text(text) => calendar::time_of_day(text),
        _ => None,
    };
    Fit::of(nanoseconds.filter(|ns| (0..i128::from(DAY_NS)).contains(ns)))
}

pub(super) fn duration_ns(datum: &Datum<'_>) -> Fit<i128> {
    Fit::of(match datum {
        Datum::Duration { value, unit } => {
            Some(i128::from(*value) * i128::from(row_unit_ns(*unit)))
        }
        Datum::Text(text) => match calendar::span(text) {
            Some((0, days, ns)) => Some(i128::from(days) * i128::from(DAY_NS) + ns),
            _ => None,
        },
        _ => None,
    })
}

pub(super) fn span(datum: &Datum<'_>) -> Option<Span> {
    match datum {
        Datum::Interval {
            months,
            days,
            nanoseconds,
        } => Some((
            i64::from(*months),
            i64::from(*days),
            i128::from(*nanoseconds),
        )),
        Datum::Text(text) => calendar::span(text),
        _ => None,
    }
}

/// Returns the text of a value in the form of replies; `None` if it has none in UTF-8.
pub(super) fn text(datum: &Datum<'_>) -> Option<String> {
    let mut out = Vec::new();
    datum.write_text(&mut out).ok()?;
    String::from_utf8(out).ok()
}

/// Returns the bytes of binary values and of texts. Texts may be in the form in which replies show
/// binary.
pub(super) fn bytes(datum: &Datum<'_>) -> Option<Vec<u8>> {
    match datum {
        Datum::Text(text) => Some(read_binary_text(text.as_bytes()).into_owned()),
        Datum::Bytes(bytes) => Some(bytes.to_vec()),
        _ => None,
    }
}

/// Formats a value for a message.
pub(crate) fn shown(datum: &Datum<'_>) -> String {
    let quoted = |text: &str| {
        let mut short: String = text.chars().take(SHOWN_CHARACTERS).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        format!("{short:?}")
    };
    match datum {
        Datum::Text(text) => quoted(text),
        Datum::Bytes(bytes) => {
            let hex: String = bytes.iter().take(16).map(|b| format!("{b:02x}")).collect();
            let more = if bytes.len() > 16 { "…" } else { "" };
            format!("0x{hex}{more}")
        }
        other => text(other).unwrap_or_else(|| format!("{other:?}")),
    }
}
