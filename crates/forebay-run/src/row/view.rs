//! A packed row, read in place.

use super::RowError;
use super::datum::Datum;
use super::pack::{Fields, bit};
use super::schema::{At, Schema};

/// A row of a schema, borrowed from its bytes. Access to any column takes constant time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowView<'a> {
    schema: &'a Schema,
    bytes: &'a [u8],
    fields: Fields<'a>,
}

impl<'a> RowView<'a> {
    /// Checks the parts of fixed size; the variable ones are checked when they are read.
    #[inline]
    pub fn new(schema: &'a Schema, bytes: &'a [u8]) -> Result<RowView<'a>, RowError> {
        let need = schema.head_bytes();
        let Some((head, rest)) = bytes.split_at_checked(need) else {
            return Err(RowError::Cut {
                need,
                got: bytes.len(),
            });
        };
        let variables = schema.variables();
        let code = if variables > 1 {
            head.first().map_or(0, |byte| byte & 3)
        } else {
            0
        };
        Ok(RowView {
            schema,
            bytes,
            fields: Fields::new(rest, code, variables)?,
        })
    }

    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// Returns the packed row.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of columns, nulls included.
    pub fn len(&self) -> usize {
        self.schema.len()
    }

    pub fn is_empty(&self) -> bool {
        self.schema.is_empty()
    }

    /// Returns whether a column is null; one that the schema does not have is null.
    #[inline]
    pub fn is_null(&self, column: usize) -> bool {
        match self.schema.place(column) {
            None => true,
            Some(place) if place.at == At::Nothing => true,
            Some(place) => place
                .valid_bit
                .is_some_and(|index| !bit(self.bytes, index as usize)),
        }
    }

    /// Returns the value of a column; null if the schema has no such column.
    #[inline]
    pub fn datum(&self, column: usize) -> Result<Datum<'a>, RowError> {
        if self.is_null(column) {
            return Ok(Datum::Null);
        }
        let (Some(place), Some(typed)) =
            (self.schema.place(column), self.schema.columns().get(column))
        else {
            return Ok(Datum::Null);
        };
        match place.at {
            At::Nothing => Ok(Datum::Null),
            At::Bit(index) => Ok(Datum::Bool(bit(self.bytes, index as usize))),
            At::Fixed { start, width } => {
                Datum::from_fixed(&typed.kind, &self.bytes[start..start + width])
            }
            At::Variable(index) => Datum::from_variable(&typed.kind, self.fields.get(index)?),
        }
    }

    /// Appends a column as text, as a field of a Redis hash. If it is null, returns `false` and
    /// appends nothing.
    ///
    /// Numbers are decimal, booleans `true` and `false`, dates and times ISO 8601 (timestamps with
    /// a zone in UTC with `Z`). Text and binary are their bytes; lists, structs and maps are JSON.
    #[inline]
    pub fn text(&self, column: usize, out: &mut Vec<u8>) -> Result<bool, RowError> {
        self.datum(column)?.write_text(out)
    }

    /// Appends the row as a JSON object, nulls as `null`.
    pub fn json(&self, out: &mut Vec<u8>) -> Result<(), RowError> {
        Datum::Row(*self).write_json(out)
    }
}
