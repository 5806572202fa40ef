//! Values that a program writes: bytes, numbers, rows, lists.

use std::fmt;

use forebay_run::row::{Datum, Kind};

use super::error::Error;
use super::problem::Problem;

/// A value or a delta to write. Text, bytes, numbers and slices of columns convert with `into`, so
/// that writes accept them directly.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Operand<'a> {
    /// A value of bytes.
    Bytes(&'a [u8]),
    /// A number for a table of whole numbers or of floats.
    I64(i64),
    /// A number for a table of floats; not NaN.
    F64(f64),
    /// A row, by the names of its columns. Missing columns are null.
    Row(&'a [(&'a str, Datum<'a>)]),
    /// The items of a list.
    List(&'a [Datum<'a>]),
}

macro_rules! operand_of {
    ($($from:ty, $value:ident => $to:expr;)*) => {
        $(impl<'a> From<$from> for Operand<'a> {
            fn from($value: $from) -> Self {
                $to
            }
        })*
    };
}

operand_of! {
    &'a [u8], bytes => Operand::Bytes(bytes);
    &'a Vec<u8>, bytes => Operand::Bytes(bytes);
    &'a str, text => Operand::Bytes(text.as_bytes());
    &'a String, text => Operand::Bytes(text.as_bytes());
    i32, number => Operand::I64(number.into());
    u32, number => Operand::I64(number.into());
    i64, number => Operand::I64(number);
    f64, number => Operand::F64(number);
    &'a [(&'a str, Datum<'a>)], columns => Operand::Row(columns);
    &'a Vec<(&'a str, Datum<'a>)>, columns => Operand::Row(columns);
    &'a [Datum<'a>], items => Operand::List(items);
    &'a Vec<Datum<'a>>, items => Operand::List(items);
}

impl<'a, const N: usize> From<&'a [u8; N]> for Operand<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Operand::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [(&'a str, Datum<'a>); N]> for Operand<'a> {
    fn from(columns: &'a [(&'a str, Datum<'a>); N]) -> Self {
        Operand::Row(columns)
    }
}

impl<'a, const N: usize> From<&'a [Datum<'a>; N]> for Operand<'a> {
    fn from(items: &'a [Datum<'a>; N]) -> Self {
        Operand::List(items)
    }
}

/// Formats an operand for messages.
impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Bytes(bytes) => write!(f, "a value of {} bytes", bytes.len()),
            Operand::I64(number) => write!(f, "the number {number}"),
            Operand::F64(number) => write!(f, "the number {number}"),
            Operand::Row(_) => f.write_str("a row"),
            Operand::List(_) => f.write_str("a list"),
        }
    }
}

/// Converts a datum to a column's type. Numbers of another width or sign are converted if their
/// value stays the same.
pub(super) fn fitting<'d>(
    table: &str,
    column: &str,
    kind: &Kind,
    datum: &Datum<'d>,
) -> Result<Datum<'d>, Error> {
    let fits = match (kind.integer(), kind, datum) {
        (Some((signed, bits)), _, Datum::Int(_) | Datum::UInt(_)) => {
            let value = match datum {
                Datum::UInt(value) => i128::from(*value),
                Datum::Int(value) => i128::from(*value),
                _ => 0,
            };
            let bits = bits - u32::from(signed);
            let least = if signed { -(1i128 << bits) } else { 0 };
            let fits = (least..1i128 << bits).contains(&value);
            fits.then_some(match signed {
                true => Datum::Int(value as i64),
                false => Datum::UInt(value as u64),
            })
        }
        (_, Kind::Float64, Datum::Float32(value)) => Some(Datum::Float64((*value).into())),
        (_, Kind::Float64, Datum::Int(value)) => {
            let float = *value as f64;
            (float as i128 == i128::from(*value)).then_some(Datum::Float64(float))
        }
        (_, Kind::Binary, Datum::Text(text)) => Some(Datum::Bytes(text.as_bytes())),
        (_, Kind::FixedBinary { width }, Datum::Bytes(bytes)) => {
            (bytes.len() == *width as usize).then_some(*datum)
        }
        _ if datum.is_of(kind) => Some(*datum),
        _ => None,
    };
    fits.ok_or_else(|| {
        Problem::NotOfColumn {
            table: table.to_owned(),
            column: column.to_owned(),
            datum: named(datum),
            kind: kind.to_string(),
        }
        .into()
    })
}

/// Formats a datum for messages.
pub(super) fn named(datum: &Datum<'_>) -> String {
    match datum {
        Datum::Null => "null".to_owned(),
        Datum::List(_) => "a list".to_owned(),
        Datum::Map(_) => "a map".to_owned(),
        Datum::Row(_) => "a struct".to_owned(),
        Datum::Bytes(bytes) => format!("a value of {} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}
