//! Computes figures of each column's values, which the manifest keeps and the gate compares.
//!
//! Counts, mean, standard deviation, minimum and maximum cover all values ([`BatchCounts`], made by
//! the thread that encodes the batch). Quantiles, the most frequent value and the number of
//! different values are estimated from rows drawn at random (`sample`). A sketch over every value
//! of every column would cost more than a push may spend.
//!
//! Profiles can be merged in any order. The result is the same except for the last digits of sums,
//! which are rounded off.

mod finish;
mod moments;
mod numbers;
mod sample;

#[cfg(test)]
mod tests;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, SchemaRef};
use forebay_engine::{ColumnStats, MeasuredColumn};
use forebay_run::row::Schema;
use serde::{Deserialize, Serialize};

use moments::Moments;
use sample::RowSample;

/// A profile of the rows of one push, or of a part of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableProfile {
    columns: Vec<ColumnCounts>,
    sample: RowSample,
}

/// The counts of one column.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnCounts {
    nulls: u64,
    values: u64,
    moments: Moments,
}

/// The counts of one batch, one entry for each column.
#[derive(Debug)]
pub struct BatchCounts(Vec<ColumnCounts>);

/// Returns what the figures of a column of this type measure; `None` if it has neither numbers nor
/// lengths.
pub fn measured(kind: &DataType) -> Option<MeasuredColumn> {
    use DataType as T;
    Some(match kind {
        T::Boolean => MeasuredColumn::Truth,
        T::Timestamp(..) | T::Date32 | T::Date64 => MeasuredColumn::Time,
        T::Null | T::Struct(_) | T::Interval(_) | T::Union(..) => return None,
        T::Dictionary(..) | T::RunEndEncoded(..) => return None,
        T::Utf8 | T::LargeUtf8 | T::Utf8View => MeasuredColumn::Length,
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => {
            MeasuredColumn::Length
        }
        T::List(_) | T::LargeList(_) | T::ListView(_) | T::LargeListView(_) => {
            MeasuredColumn::Length
        }
        T::FixedSizeList(..) | T::Map(..) => MeasuredColumn::Length,
        _ => MeasuredColumn::Number,
    })
}

impl BatchCounts {
    /// Counts the values of a batch. Columns beyond those of the schema are ignored.
    #[inline(never)]
    pub fn of(batch: &RecordBatch, columns: usize) -> Self {
        let mut numbers = Vec::with_capacity(batch.num_rows());
        let mut count = |column: &dyn Array| {
            let nulls = column.logical_null_count() as u64;
            numbers.clear();
            numbers::append_numbers(column, &mut numbers);
            ColumnCounts {
                nulls,
                values: column.len() as u64 - nulls,
                moments: Moments::of(&numbers),
            }
        };
        let columns = batch.columns().iter().take(columns);
        Self(columns.map(|column| count(column)).collect())
    }
}

impl TableProfile {
    /// Creates an empty profile of a table with `columns` columns.
    pub fn new(columns: usize) -> Self {
        Self {
            columns: vec![ColumnCounts::default(); columns],
            sample: RowSample::new(columns),
        }
    }

    /// Adds a batch that was counted before. `first` is the number of its first row. No other row
    /// of the push may have a number from `first` up to `first` plus the batch's length.
    #[inline(never)]
    pub fn add(&mut self, batch: &RecordBatch, counts: &BatchCounts, first: u64) {
        for (sum, of_batch) in self.columns.iter_mut().zip(&counts.0) {
            sum.merge(of_batch);
        }
        self.sample.add(batch, first);
    }

    /// Adds the profile of other rows; `None` if it has another number of columns.
    pub fn merge(&mut self, other: &Self) -> Option<()> {
        if self.columns.len() != other.columns.len() {
            return None;
        }
        for (sum, part) in self.columns.iter_mut().zip(&other.columns) {
            sum.merge(part);
        }
        self.sample.merge(&other.sample)
    }

    /// Limits the sample to `rows` rows, for a sample that is one of many.
    pub fn shrink(&mut self, rows: usize) {
        self.sample.shrink(rows);
    }

    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns the number of nulls of each column, in the order of the schema.
    pub fn nulls(&self) -> Vec<u64> {
        self.columns.iter().map(|column| column.nulls).collect()
    }

    /// Returns the manifest's statistics for the columns of a version with this many rows. Some of
    /// the rows read may have been left out. `arrow` has the types of the batches.
    pub fn stats(&self, schema: &Schema, arrow: &SchemaRef, rows: u64) -> Vec<ColumnStats> {
        let columns = schema.columns().iter().zip(arrow.fields()).enumerate();
        let known = columns.take(self.columns.len());
        let stats = known.map(|(at, (column, field))| {
            let counts = &self.columns[at];
            let values = measured(field.data_type())
                .map(|of| finish::profile(of, counts.values, &counts.moments, &self.sample, at));
            ColumnStats {
                column: column.name.clone(),
                nulls: counts.nulls.min(rows),
                values,
            }
        });
        stats.collect()
    }
}

impl ColumnCounts {
    fn merge(&mut self, other: &Self) {
        self.nulls = self.nulls.saturating_add(other.nulls);
        self.values = self.values.saturating_add(other.values);
        self.moments.merge(&other.moments);
    }
}
