//! Figures of the values that come, column by column: what the manifest keeps and the gate
//! compares.
//!
//! Counts, mean, standard deviation, least and greatest value are of all values ([`BatchCounts`],
//! made by the thread that encodes the batch). Quantiles, the most frequent value and the number of
//! different values are estimated from whole rows drawn at random (`sample`): a sketch that sees
//! every value of every column would cost more than a push may pay for it.
//!
//! Profiles are merged in any order with the same result, but for the last digits of sums, which
//! are rounded off.

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

/// What was seen of the rows of one push, or of a part of it.
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

/// The counts of one batch, a column.
#[derive(Debug)]
pub struct BatchCounts(Vec<ColumnCounts>);

/// What the figures of a column of this type are of; none where it has neither numbers nor lengths.
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
    /// Counts the values of a batch. The other columns of a schema that has fewer are passed over.
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
    /// Of tables with so many columns.
    pub fn new(columns: usize) -> Self {
        Self {
            columns: vec![ColumnCounts::default(); columns],
            sample: RowSample::new(columns),
        }
    }

    /// Adds a batch, which was counted before. `first` names its first row: no other row of the
    /// push has that number, or one of those up to the batch's length above it.
    #[inline(never)]
    pub fn add(&mut self, batch: &RecordBatch, counts: &BatchCounts, first: u64) {
        for (sum, of_batch) in self.columns.iter_mut().zip(&counts.0) {
            sum.merge(of_batch);
        }
        self.sample.add(batch, first);
    }

    /// Adds what was seen of other rows; `None` where they have another number of columns.
    pub fn merge(&mut self, other: &Self) -> Option<()> {
        if self.columns.len() != other.columns.len() {
            return None;
        }
        for (sum, part) in self.columns.iter_mut().zip(&other.columns) {
            sum.merge(part);
        }
        self.sample.merge(&other.sample)
    }

    /// Keeps fewer rows of the sample, where it is one of many.
    pub fn shrink(&mut self, rows: usize) {
        self.sample.shrink(rows);
    }

    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// A column, in the order of the schema.
    pub fn nulls(&self) -> Vec<u64> {
        self.columns.iter().map(|column| column.nulls).collect()
    }

    /// What a manifest says of the columns of a version of so many rows, some of those that were
    /// read having been left out. `arrow` has the types of the batches.
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
