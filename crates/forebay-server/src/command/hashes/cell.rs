//! Parses texts of clients as values of typed columns and items.

use forebay_run::row::{Datum, Kind};

use crate::command::running::float_text::{FLOAT32_DIGITS, FLOAT64_DIGITS, check_float};
use crate::command::{CommandError, shown};

/// A value of a column, owned.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Bool(bool),
    Int(i64),
    UInt(u64),
    Float32(f32),
    Float64(f64),
    Text(String),
    Bytes(Vec<u8>),
}

impl Cell {
    /// Parses a text as a value of a column of this kind. `name` is the column's, for errors.
    pub fn parse(name: &str, kind: &Kind, text: &[u8]) -> Result<Self, CommandError> {
        let parsed = match kind {
            Kind::Bool => truth(text).map(Cell::Bool),
            Kind::Int8 => signed(text, i8::MIN.into(), i8::MAX.into()),
            Kind::Int16 => signed(text, i16::MIN.into(), i16::MAX.into()),
            Kind::Int32 => signed(text, i32::MIN.into(), i32::MAX.into()),
            Kind::Int64 => signed(text, i64::MIN, i64::MAX),
            Kind::UInt8 => unsigned(text, u8::MAX.into()),
            Kind::UInt16 => unsigned(text, u16::MAX.into()),
            Kind::UInt32 => unsigned(text, u32::MAX.into()),
            Kind::UInt64 => unsigned(text, u64::MAX),
            Kind::Float32 => single(name, text)?.map(Cell::Float32),
            Kind::Float64 => double(name, text)?.map(Cell::Float64),
            Kind::Text => std::str::from_utf8(text)
                .ok()
                .map(|text| Cell::Text(text.to_owned())),
            Kind::Binary => Some(Cell::Bytes(text.to_vec())),
            _ => {
                let problem = "is of a type that commands cannot write: they write text, binary, \
                               booleans and numbers";
                return Err(CommandError::error(format!(
                    "ERR column '{name}' {problem}"
                )));
            }
        };
        parsed.ok_or_else(|| {
            let (text, kind) = (shown(text), format!("{kind:?}").to_lowercase());
            CommandError::error(format!("ERR '{text}' is no {kind} for column '{name}'"))
        })
    }

    pub fn datum(&self) -> Datum<'_> {
        match self {
            Cell::Bool(value) => Datum::Bool(*value),
            Cell::Int(value) => Datum::Int(*value),
            Cell::UInt(value) => Datum::UInt(*value),
            Cell::Float32(value) => Datum::Float32(*value),
            Cell::Float64(value) => Datum::Float64(*value),
            Cell::Text(value) => Datum::Text(value),
            Cell::Bytes(value) => Datum::Bytes(value),
        }
    }
}

fn truth(text: &[u8]) -> Option<bool> {
    match text {
        b"true" | b"1" => Some(true),
        b"false" | b"0" => Some(false),
        _ => None,
    }
}

fn signed(text: &[u8], least: i64, greatest: i64) -> Option<Cell> {
    let value: i64 = parse(text)?;
    (least..=greatest)
        .contains(&value)
        .then_some(Cell::Int(value))
}

fn unsigned(text: &[u8], greatest: u64) -> Option<Cell> {
    let value: u64 = parse(text)?;
    (value <= greatest).then_some(Cell::UInt(value))
}

fn single(name: &str, text: &[u8]) -> Result<Option<f32>, CommandError> {
    let value: Option<f32> = parse(text);
    let wide = value.map(f64::from);
    check_float(text, wide, FLOAT32_DIGITS, &of_column(name)).map(|()| value)
}

fn double(name: &str, text: &[u8]) -> Result<Option<f64>, CommandError> {
    let value = parse(text);
    check_float(text, value, FLOAT64_DIGITS, &of_column(name)).map(|()| value)
}

fn of_column(name: &str) -> String {
    format!(" for column '{name}'")
}

fn parse<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_values_of_their_column_or_are_refused() {
        let parse = |kind, text: &str| Cell::parse("c", &kind, text.as_bytes()).ok();
        assert_eq!(parse(Kind::Int8, "-128"), Some(Cell::Int(-128)));
        assert_eq!(parse(Kind::Int8, "128"), None);
        assert_eq!(
            parse(Kind::UInt64, "18446744073709551615"),
            Some(Cell::UInt(u64::MAX))
        );
        assert_eq!(parse(Kind::UInt8, "-1"), None);
        assert_eq!(parse(Kind::Bool, "true"), Some(Cell::Bool(true)));
        assert_eq!(parse(Kind::Bool, "yes"), None);
        assert_eq!(parse(Kind::Float64, "1.5"), Some(Cell::Float64(1.5)));
        assert_eq!(parse(Kind::Float32, "0.1"), Some(Cell::Float32(0.1)));
        assert_eq!(parse(Kind::Float32, "0.1234567891"), None);
        assert_eq!(parse(Kind::Float32, "1e39"), None);
        assert_eq!(parse(Kind::Float64, "one"), None);
        assert_eq!(parse(Kind::Text, "é"), Some(Cell::Text("é".to_owned())));
        assert_eq!(Cell::parse("c", &Kind::Text, b"\xff").ok(), None);
        assert_eq!(parse(Kind::Date32, "2026-01-01"), None);
    }
}
