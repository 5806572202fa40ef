//! Turns records into Arrow batches, for files and for programs that read a table through Arrow.

use std::io::Write;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use forebay_engine::Scan;
use forebay_run::error::named_key;
use forebay_run::row::{Column, Datum, Kind, RowError};

use super::batch::BatchBuilder;
use super::fixed::CellError;
use super::layout::{Layout, NoSuchColumn, TableColumns};
use super::{ExportError, row_error};

/// A builder of rows from records, one after another.
pub(super) struct ExportRows {
    builder: BatchBuilder,
    names: Vec<String>,
    text: Vec<bool>,
}

/// A writer of batches to a file of some format.
pub(super) trait BatchWriter {
    type Output: Write;

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ExportError>;

    /// Ends the file.
    fn end(self) -> Result<Self::Output, ExportError>;
}

/// A writer of records to a file of batches.
pub(super) struct RowsTo<W> {
    rows: ExportRows,
    writer: W,
}

impl<W: BatchWriter> RowsTo<W> {
    pub fn new(rows: ExportRows, writer: W) -> RowsTo<W> {
        RowsTo { rows, writer }
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        self.rows.push(layout, key, value)?;
        match self.rows.full() {
            true => self.writer.write(&self.rows.finish()?),
            false => Ok(()),
        }
    }

    /// Ends the file; returns the flushed output.
    pub fn finish(mut self) -> Result<W::Output, ExportError> {
        if !self.rows.is_empty() {
            self.writer.write(&self.rows.finish()?)?;
        }
        let mut output = self.writer.end()?;
        output.flush()?;
        Ok(output)
    }
}

/// An error of one record.
enum RecordFailure {
    Row(RowError),
    NotText(usize),
    /// The index of a column, and why the file's type does not hold its value.
    Beyond(usize, &'static str),
}

impl From<RowError> for RecordFailure {
    fn from(error: RowError) -> RecordFailure {
        RecordFailure::Row(error)
    }
}

impl ExportRows {
    /// Creates a builder with the plain Arrow types of columns, or those that Parquet supports.
    pub fn new(columns: &[Column], for_parquet: bool) -> ExportRows {
        let text = columns.iter().map(|column| column.kind == Kind::Text);
        let names = columns.iter().map(|column| column.name.clone());
        ExportRows {
            builder: BatchBuilder::new(columns, for_parquet),
            names: names.collect(),
            text: text.collect(),
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        self.builder.schema()
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        let (builder, text) = (&mut self.builder, &self.text);
        let pushed = layout.record::<RecordFailure>(key, value, |column, value| {
            // Keys and bytes values have no declared type.
            if let (Datum::Bytes(bytes), Some(true)) = (value, text.get(column))
                && std::str::from_utf8(bytes).is_err()
            {
                return Err(RecordFailure::NotText(column));
            }
            builder.push(column, value).map_err(|error| match error {
                CellError::Row(error) => RecordFailure::Row(error),
                CellError::Beyond(reason) => RecordFailure::Beyond(column, reason),
            })
        });
        pushed.map_err(|error| match error {
            RecordFailure::Row(error) => row_error(key, error),
            RecordFailure::NotText(column) => ExportError::NotText {
                what: if layout.is_key(column) {
                    "text"
                } else {
                    "value"
                },
                key: named_key(key),
            },
            RecordFailure::Beyond(column, reason) => ExportError::Beyond {
                column: self.names.get(column).cloned().unwrap_or_default(),
                key: named_key(key),
                reason,
            },
        })?;
        builder.end_row(key.len() + value.len());
        Ok(())
    }

    /// Appends a row of nulls.
    fn push_absent(&mut self) -> Result<(), ExportError> {
        for column in 0..self.names.len() {
            let pushed = self.builder.push(column, &Datum::Null);
            pushed.map_err(|_| ArrowError::ComputeError("a null is refused".to_owned()))?;
        }
        self.builder.end_row(0);
        Ok(())
    }

    /// Returns whether the batch is full, so that the caller should [`ExportRows::finish`] it.
    pub fn full(&self) -> bool {
        self.builder.full()
    }

    pub fn is_empty(&self) -> bool {
        self.builder.is_empty()
    }

    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        self.builder.finish()
    }
}

/// An error of looked-up records that cannot become batches.
#[derive(Debug, thiserror::Error)]
pub enum LookupRowsError {
    #[error(transparent)]
    Column(#[from] NoSuchColumn),
    #[error(transparent)]
    Row(#[from] ExportError),
}

/// Returns looked-up records as batches, with the columns of a scan. All columns may be null, and
/// are null for a key without a value.
pub fn lookup_batches<'a>(
    columns: &TableColumns<'_>,
    records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Result<(SchemaRef, Vec<RecordBatch>), LookupRowsError> {
    let layout = columns.layout()?.nullable();
    let mut rows = ExportRows::new(&layout.columns, false);
    let mut batches = Vec::new();
    for (key, value) in records {
        match value {
            Some(value) => rows.push(&layout, key, value)?,
            None => rows.push_absent()?,
        }
        if rows.full() {
            batches.push(rows.finish().map_err(ExportError::from)?);
        }
    }
    if !rows.is_empty() {
        batches.push(rows.finish().map_err(ExportError::from)?);
    }
    Ok((rows.schema().clone(), batches))
}

/// An iterator over a table's record batches, with the columns of an export; values of bytes are
/// binary.
pub struct ScanBatches {
    scan: Scan,
    /// The number of records left to return.
    left: u64,
    layout: Layout,
    rows: ExportRows,
    ended: bool,
}

impl ScanBatches {
    /// Returns at most `limit` records of the scan. If keys are text, a key that is not UTF-8 ends
    /// the scan with an error.
    pub fn new(
        scan: Scan,
        columns: &TableColumns<'_>,
        limit: u64,
    ) -> Result<ScanBatches, NoSuchColumn> {
        let layout = columns.layout()?;
        let rows = ExportRows::new(&layout.columns, false);
        Ok(ScanBatches {
            scan,
            left: limit,
            layout,
            rows,
            ended: false,
        })
    }

    /// Returns the next batch of records.
    fn fill(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let external = |error| ArrowError::ExternalError(error);
        while self.left > 0 && !self.rows.full() {
            if !self
                .scan
                .advance()
                .map_err(|error| external(error.into()))?
            {
                self.left = 0;
                break;
            }
            self.left -= 1;
            let (key, value) = (self.scan.key(), self.scan.value());
            let pushed = self.rows.push(&self.layout, key, value);
            pushed.map_err(|error| external(error.into()))?;
        }
        if self.rows.is_empty() {
            return Ok(None);
        }
        self.rows.finish().map(Some)
    }
}

impl Iterator for ScanBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.fill().transpose();
        self.ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}

impl RecordBatchReader for ScanBatches {
    fn schema(&self) -> SchemaRef {
        self.rows.schema().clone()
    }
}
