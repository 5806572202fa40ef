//! Number values: their stored form, and their decimal text.

use std::io::Write;

use crate::operation::DeltaKind;
use crate::row::write_not_finite;

/// The type of a value of eight bytes, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Number {
    I64,
    F64,
}

/// Bytes or a text that are not a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("a number has 8 bytes, not {0}")]
    Bytes(usize),
    #[error("it is not a whole number from -2^63 to 2^63-1")]
    Integer,
    #[error("it is not a number")]
    Float,
}

impl DeltaKind {
    /// Returns the type of a table's values with such deltas; `None` for joined bytes.
    pub fn number(self) -> Option<Number> {
        match self {
            DeltaKind::Append => None,
            DeltaKind::AddF64 => Some(Number::F64),
            DeltaKind::AddI64 | DeltaKind::AddI64Saturating | DeltaKind::Min | DeltaKind::Max => {
                Some(Number::I64)
            }
        }
    }
}

impl Number {
    /// Appends the decimal text of a stored value.
    pub fn write_text(self, value: &[u8], out: &mut Vec<u8>) -> Result<(), NumberError> {
        let bytes = value
            .try_into()
            .map_err(|_| NumberError::Bytes(value.len()))?;
        let written = match self {
            Number::I64 => write!(out, "{}", i64::from_le_bytes(bytes)),
            Number::F64 => {
                let value = f64::from_le_bytes(bytes);
                if write_not_finite(value, out) {
                    return Ok(());
                }
                write!(out, "{value}")
            }
        };
        // A write to a vector never fails.
        written.map_err(|_| NumberError::Float)
    }

    /// Does [`Number::write_text`] as JSON, with NaN and the infinities as strings.
    pub fn write_json(self, value: &[u8], out: &mut Vec<u8>) -> Result<(), NumberError> {
        let bytes = value
            .try_into()
            .map_err(|_| NumberError::Bytes(value.len()))?;
        if self == Number::F64 && !f64::from_le_bytes(bytes).is_finite() {
            out.push(b'"');
            self.write_text(value, out)?;
            out.push(b'"');
            return Ok(());
        }
        self.write_text(value, out)
    }

    /// Returns the stored value of a decimal text.
    pub fn parse(self, text: &[u8]) -> Result<[u8; 8], NumberError> {
        let text = std::str::from_utf8(text);
        match self {
            Number::I64 => {
                let number = text.ok().and_then(|text| text.parse::<i64>().ok());
                number.map(i64::to_le_bytes).ok_or(NumberError::Integer)
            }
            Number::F64 => {
                let number = text.ok().and_then(|text| text.parse::<f64>().ok());
                let number = number.filter(|number| !number.is_nan());
                number.map(f64::to_le_bytes).ok_or(NumberError::Float)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(number: Number, value: &[u8]) -> String {
        let mut out = Vec::new();
        number.write_text(value, &mut out).expect("a text");
        String::from_utf8(out).expect("decimal text")
    }

    proptest! {
        #[test]
        fn texts_are_read_back(integer in any::<i64>(), float in any::<f64>()) {
            let stored = integer.to_le_bytes();
            prop_assert_eq!(Number::I64.parse(text(Number::I64, &stored).as_bytes()), Ok(stored));
            let stored = float.to_le_bytes();
            prop_assert_eq!(Number::F64.parse(text(Number::F64, &stored).as_bytes()), Ok(stored));
        }
    }

    #[test]
    fn invalid_numbers_are_refused() {
        for wrong in ["", " 1", "1.5", "9223372036854775808", "x", "0x10"] {
            assert_eq!(
                Number::I64.parse(wrong.as_bytes()),
                Err(NumberError::Integer)
            );
        }
        for wrong in ["", "1,5", "nan", "x"] {
            assert_eq!(Number::F64.parse(wrong.as_bytes()), Err(NumberError::Float));
        }
        assert!(Number::I64.parse(b"\xff").is_err());
        assert_eq!(
            Number::I64.write_text(b"short", &mut Vec::new()),
            Err(NumberError::Bytes(5))
        );
    }
}
