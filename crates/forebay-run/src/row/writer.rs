//! Packs rows, one after another, in reused buffers.

use super::RowError;
#[cfg(doc)]
use super::RowView;
use super::datum::Datum;
use super::pack::{push_ends, push_signed, push_unsigned, push_wide, set_bit, width_code};
use super::schema::{At, Kind, Place, RowSlot, Schema};

/// A writer of rows of one schema: `begin`, set the columns that are not null, `finish`.
///
/// Columns of variable size must be set in rising order. A column that is not set is null (a zero
/// or empty value if the column is not nullable). A caller must not set a column by a method for
/// another class of type: this fails a debug assertion and is ignored otherwise.
#[derive(Debug, Clone)]
pub struct RowWriter {
    places: Vec<Place>,
    /// Variable columns.
    variables: usize,
    head: Vec<u8>,
    /// Ends of the variable fields before the one last set.
    ends: Vec<usize>,
    data: Vec<u8>,
}

impl RowWriter {
    pub fn new(schema: &Schema) -> RowWriter {
        RowWriter {
            places: (0..schema.len())
                .filter_map(|column| schema.place(column))
                .collect(),
            variables: schema.variables(),
            head: vec![0; schema.head_bytes()],
            ends: Vec::with_capacity(schema.variables()),
            data: Vec::new(),
        }
    }

    /// Starts a row, all null.
    #[inline]
    pub fn begin(&mut self) {
        self.head.fill(0);
        self.ends.clear();
        self.data.clear();
    }

    /// Sets a boolean.
    #[inline]
    pub fn bit(&mut self, column: usize, value: bool) {
        match self.claim(column) {
            Some(At::Bit(index)) if value => set_bit(&mut self.head, index as usize),
            Some(At::Bit(_)) => {}
            at => debug_assert!(false, "column {column} at {at:?} is no boolean"),
        }
    }

    /// Sets a column of fixed width; `value` is little-endian and exactly as wide.
    #[inline]
    pub fn fixed(&mut self, column: usize, value: &[u8]) {
        match self.claim(column) {
            Some(At::Fixed { start, width }) if width == value.len() => {
                self.head[start..start + width].copy_from_slice(value);
            }
            at => debug_assert!(
                false,
                "column {column} at {at:?} is not {} wide",
                value.len()
            ),
        }
    }

    /// Sets a 64-bit signed integer or decimal.
    #[inline]
    pub fn signed(&mut self, column: usize, value: i64) {
        self.variable(column, |data| push_signed(data, value));
    }

    /// Sets a 64-bit unsigned integer.
    #[inline]
    pub fn unsigned(&mut self, column: usize, value: u64) {
        self.variable(column, |data| push_unsigned(data, value));
    }

    /// Sets a decimal of 64 bits or more from little-endian two's complement.
    #[inline]
    pub fn wide(&mut self, column: usize, value: &[u8]) {
        self.variable(column, |data| push_wide(data, value));
    }

    /// Sets text, binary of variable size, or a packed list, struct or map.
    #[inline]
    pub fn bytes(&mut self, column: usize, value: &[u8]) {
        self.variable(column, |data| data.extend_from_slice(value));
    }

    /// Sets a column of variable size to the bytes that `write` appends.
    #[inline]
    pub fn variable<T: Default>(
        &mut self,
        column: usize,
        write: impl FnOnce(&mut Vec<u8>) -> T,
    ) -> T {
        match self.claim(column) {
            Some(At::Variable(index)) if index >= self.ends.len() => {
                self.ends.resize(index, self.data.len());
                let written = write(&mut self.data);
                self.ends.push(self.data.len());
                written
            }
            at => {
                debug_assert!(
                    false,
                    "column {column} at {at:?} is not variable, or out of order"
                );
                T::default()
            }
        }
    }

    /// Sets a column from a value of its type, as [`RowView::datum`] returns it; null leaves it
    /// unset.
    pub fn datum(&mut self, column: usize, kind: &Kind, value: &Datum<'_>) -> Result<(), RowError> {
        match (kind, value) {
            (_, Datum::Null) => {}
            (Kind::Bool, Datum::Bool(value)) => self.bit(column, *value),
            (Kind::FixedBinary { .. }, Datum::Bytes(value)) => self.fixed(column, value),
            _ if kind.slot() == RowSlot::Variable => {
                self.variable(column, |data| value.push_variable(kind, data))
                    .ok_or(RowError::Type { column })?;
            }
            _ => {
                let (bytes, width) = value.fixed_bytes(kind).ok_or(RowError::Type { column })?;
                self.fixed(column, &bytes[..width]);
            }
        }
        Ok(())
    }

    /// Appends the row to `out`. Fails, appending nothing, if the row is too large for its ends.
    #[inline]
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), RowError> {
        if self.variables > 1 {
            self.ends.resize(self.variables, self.data.len());
            let stored = self.variables - 1;
            let code = width_code(self.ends[stored - 1]).ok_or(RowError::TooLarge {
                bytes: self.data.len(),
            })?;
            self.head[0] |= code;
            out.extend_from_slice(&self.head);
            push_ends(out, code, &self.ends[..stored]);
        } else {
            out.extend_from_slice(&self.head);
        }
        out.extend_from_slice(&self.data);
        Ok(())
    }

    /// Marks a column as not null.
    #[inline]
    fn claim(&mut self, column: usize) -> Option<At> {
        let place = self.places.get(column)?;
        if let Some(bit) = place.valid_bit {
            set_bit(&mut self.head, bit as usize);
        }
        Some(place.at)
    }
}
