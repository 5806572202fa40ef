//! Limits the rows of a row group that are decoded at once, so that batches stay small.
//!
//! The footer gives an estimate, which determines the size of the first batches. It can be far too
//! low: a dictionary holds a large value once, and large values can be adjacent. Each page is
//! therefore checked against the limit before its values are decoded.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parquet::basic::Type;
use parquet::column::page::Page;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};

use crate::sources::BATCH_ROWS;
use crate::sources::batch_bytes::BATCH_BYTES;

/// The factor by which a page may make batches larger than [`BATCH_BYTES`].
const TOLERANCE: u64 = 8;

/// The most rows of a batch. It decreases when a page has shown larger values.
#[derive(Debug)]
pub(super) struct BatchLimit {
    rows: AtomicUsize,
    /// The limit of the batches that are being decoded now.
    used: usize,
}

impl BatchLimit {
    /// Computes the limit for the leaves of a row group that are read.
    pub fn of(group: &RowGroupMetaData, leaves: impl Iterator<Item = usize>) -> BatchLimit {
        let rows = group.num_rows().max(1) as u64;
        let row_bytes = leaves.map(|leaf| {
            let column = group.column(leaf);
            ColumnWidth::of(column, rows).estimate(column, rows)
        });
        BatchLimit::of_rows(rows_of(row_bytes.sum()))
    }

    pub fn of_rows(rows: usize) -> BatchLimit {
        BatchLimit {
            rows: AtomicUsize::new(rows),
            used: rows,
        }
    }

    pub fn rows(&self) -> usize {
        self.used
    }

    /// Returns the limit for further batches, if a page has shown that these are too large.
    pub fn narrowed(&self) -> Option<BatchLimit> {
        let rows = self.rows.load(Relaxed);
        (rows < self.used).then(|| BatchLimit::of_rows(rows))
    }

    /// Returns half of the limit.
    pub fn halved(&self) -> Option<BatchLimit> {
        (self.used > 1).then(|| BatchLimit::of_rows(self.used / 2))
    }

    /// Fails if rows of this many bytes make batches too large, and narrows the limit.
    pub fn check(&self, row_bytes: u64) -> Result<(), ParquetError> {
        let batch_bytes = row_bytes.saturating_mul(self.used as u64);
        if self.used <= 1 || batch_bytes <= TOLERANCE * BATCH_BYTES as u64 {
            return Ok(());
        }
        self.rows
            .fetch_min(rows_of(row_bytes).min(self.used / 2), Relaxed);
        let rows = self.used;
        Err(ParquetError::General(format!(
            "its values are too large for {rows} rows at once"
        )))
    }
}

fn rows_of(row_bytes: u64) -> usize {
    let rows = BATCH_BYTES as u64 / row_bytes.max(1);
    usize::try_from(rows).map_or(BATCH_ROWS, |rows| rows.clamp(1, BATCH_ROWS))
}

/// The components of the size of a column's rows.
#[derive(Debug)]
pub(super) struct ColumnWidth {
    /// The bytes of a value; for texts and bytes, of the pointer to one.
    value_bytes: u64,
    is_variable: bool,
    /// The average number of values of a row; at least 1.
    values_per_row: u64,
}

impl ColumnWidth {
    pub fn of(column: &ColumnChunkMetaData, rows: u64) -> ColumnWidth {
        let descriptor = column.column_descr();
        let (value_bytes, is_variable) = match descriptor.physical_type() {
            Type::BOOLEAN => (1, false),
            Type::INT32 | Type::FLOAT => (4, false),
            Type::INT64 | Type::DOUBLE => (8, false),
            Type::INT96 => (12, false),
            Type::BYTE_ARRAY => (4, true),
            Type::FIXED_LEN_BYTE_ARRAY => (descriptor.type_length().max(1) as u64, false),
        };
        let values = column.num_values().max(0) as u64;
        ColumnWidth {
            value_bytes,
            is_variable,
            values_per_row: values.div_ceil(rows.max(1)).max(1),
        }
    }

    /// Returns the bytes of a row by the footer.
    fn estimate(&self, column: &ColumnChunkMetaData, rows: u64) -> u64 {
        let fixed = self.values_per_row.saturating_mul(self.value_bytes);
        if !self.is_variable {
            return fixed;
        }
        let stored = column.uncompressed_size().max(0) as u64;
        let decoded = column.unencoded_byte_array_data_bytes().unwrap_or(0).max(0) as u64;
        fixed.saturating_add(stored.max(decoded) / rows.max(1))
    }

    /// Returns the bytes of a row made from a page's values: for a dictionary, of the largest one,
    /// else on average.
    pub fn row_bytes(&self, page: &Page) -> u64 {
        let value = match page {
            _ if !self.is_variable => 0,
            Page::DictionaryPage { buf, .. } => longest(buf),
            page => page.buffer().len() as u64 / u64::from(page.num_values()).max(1),
        };
        let value = value.saturating_add(self.value_bytes);
        self.values_per_row.saturating_mul(value)
    }
}

/// Returns the length of the longest value of a dictionary, in which each follows its length.
fn longest(mut values: &[u8]) -> u64 {
    let mut longest = 0;
    while let Some((length, rest)) = values.split_first_chunk() {
        let length = u32::from_le_bytes(*length);
        let Some(rest) = rest.get(length as usize..) else {
            break;
        };
        longest = longest.max(u64::from(length));
        values = rest;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_values_make_small_batches() {
        let limit = BatchLimit::of_rows(8192);
        assert!(limit.check(4096).is_ok());
        assert!(limit.narrowed().is_none());
        assert!(limit.check(1 << 20).is_err());
        let narrowed = limit.narrowed().unwrap();
        assert_eq!(narrowed.rows(), BATCH_BYTES >> 20);
        // One row is the smallest possible batch.
        assert!(BatchLimit::of_rows(1).check(u64::MAX).is_ok());
        assert!(BatchLimit::of_rows(1).halved().is_none());
    }

    #[test]
    fn a_batch_that_is_too_large_gets_smaller() {
        for rows in [2, 3, 100, 8192] {
            let limit = BatchLimit::of_rows(rows);
            let row_bytes = TOLERANCE * BATCH_BYTES as u64 / rows as u64 + 1;
            assert!(limit.check(row_bytes).is_err(), "{rows}");
            assert!(limit.narrowed().unwrap().rows() < rows, "{rows}");
        }
    }

    #[test]
    fn the_longest_value_of_a_dictionary_is_found() {
        let mut values = Vec::new();
        for length in [3_u32, 70_000, 0, 9] {
            values.extend(length.to_le_bytes());
            values.extend(vec![b'x'; length as usize]);
        }
        assert_eq!(longest(&values), 70_000);
        assert_eq!(longest(&values[..20]), 3);
        assert_eq!(longest(b"ab"), 0);
    }
}
