//! Reads a cell of scalar type as a value, for keys and text values.

use forebay_run::row::{Datum, Kind, RowError};

use super::cells::{Cells, Values};

/// Returns the value of a cell; null if the cell is null or nested.
#[inline]
pub(crate) fn scalar<'a>(
    cells: &'a Cells<'a>,
    kind: &'a Kind,
    row: usize,
) -> Result<Datum<'a>, RowError> {
    if cells.is_null(row) {
        return Ok(Datum::Null);
    }
    Ok(match &cells.values {
        Values::Null | Values::List { .. } | Values::Struct(_) => Datum::Null,
        Values::Bool(array) => Datum::Bool(array.value(row)),
        Values::Fixed { bytes, width } => {
            Datum::from_fixed(kind, &bytes[row * width..(row + 1) * width])?
        }
        Values::FixedBinary(array) => Datum::Bytes(array.value(row)),
        Values::Int64(values) => Datum::Int(values[row]),
        Values::UInt64(values) => Datum::UInt(values[row]),
        Values::Wide { bytes, width } => {
            Datum::from_variable(kind, &bytes[row * width..(row + 1) * width])?
        }
        Values::Text(array) => Datum::Text(array.value(row)),
        Values::LargeText(array) => Datum::Text(array.value(row)),
        Values::TextView(array) => Datum::Text(array.value(row)),
        Values::Binary(array) => Datum::Bytes(array.value(row)),
        Values::LargeBinary(array) => Datum::Bytes(array.value(row)),
        Values::BinaryView(array) => Datum::Bytes(array.value(row)),
    })
}
