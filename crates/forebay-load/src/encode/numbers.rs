//! Writes values that are one number, which deltas can add to.

use std::sync::Arc;

use forebay_run::number::Number;
use forebay_run::row::{Datum, Kind, Schema};

use super::bad_row::BadRow;
use super::{EncodeError, Encoded, ValueWriter};
use crate::convert::cells::Cells;
use crate::convert::scalar::scalar;
use crate::convert::{exact_float64, shown};

/// Returns the writer of a column of numbers; refuses other columns.
pub(super) fn number_writer(
    schema: &Schema,
    index: usize,
    column: String,
    number: Number,
) -> Result<(ValueWriter, Encoded), EncodeError> {
    let kind = &schema.columns()[index].kind;
    let whole = kind.integer().is_some();
    let float = number == Number::F64 && matches!(kind, Kind::Float32 | Kind::Float64);
    if !(whole || float) {
        let (wanted, type_name) = match number {
            Number::I64 => ("whole numbers", "int64"),
            Number::F64 => ("numbers", "float64"),
        };
        return Err(EncodeError::NumberType {
            column,
            kind: kind.to_string(),
            wanted,
            type_name,
        });
    }
    let name = Arc::from(column.as_str());
    let writer = ValueWriter::Number {
        index,
        name,
        kind: kind.clone(),
        number,
    };
    Ok((writer, Encoded::Number { column, number }))
}

/// Appends a cell as a number of eight bytes.
pub(super) fn write_number(
    cells: &Cells<'_>,
    kind: &Kind,
    row: usize,
    number: Number,
    column: &Arc<str>,
    out: &mut Vec<u8>,
) -> Result<(), BadRow> {
    let datum = scalar(cells, kind, row).map_err(|error| BadRow::Unreadable {
        reason: error.to_string(),
    })?;
    let no_number = |value: String, wanted| BadRow::NoNumber {
        column: column.clone(),
        value,
        wanted,
    };
    let bytes = match (number, datum) {
        (Number::I64, Datum::Int(value)) => value.to_le_bytes(),
        (Number::I64, Datum::UInt(value)) => i64::try_from(value)
            .map_err(|_| no_number(value.to_string(), "whole numbers below 2^63"))?
            .to_le_bytes(),
        (Number::F64, datum) => match exact_float64(&datum) {
            Some(value) if value.is_nan() => {
                return Err(BadRow::NanNumber {
                    column: column.clone(),
                });
            }
            Some(value) => value.to_le_bytes(),
            None => {
                return Err(no_number(
                    shown(&datum),
                    "float64, which does not hold it exactly",
                ));
            }
        },
        (Number::I64, other) => return Err(no_number(shown(&other), "whole numbers")),
    };
    out.extend_from_slice(&bytes);
    Ok(())
}
