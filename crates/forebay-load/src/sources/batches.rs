//! Reads record batches that another part of the program hands over, in place of files.
//!
//! A reader returns batches one after another. Threads take turns to pull from it, and share each
//! batch: it is split into slices, in the order of the rows. Each slice is a unit with its own
//! number.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{RecordBatch, RecordBatchIterator, RecordBatchReader};
use arrow_schema::SchemaRef;

use super::error::SourceError;

/// The most rows of a slice.
const SLICE_ROWS: usize = 16 << 10;

/// A reader of record batches. It can be read once; clones share it.
#[derive(Clone)]
pub struct Batches {
    /// The name in messages, like that of a file.
    pub name: Arc<str>,
    /// The number of rows, if known in advance, for progress.
    pub rows: Option<u64>,
    schema: SchemaRef,
    pull: Arc<Mutex<Pull>>,
}

struct Pull {
    reader: Box<dyn RecordBatchReader + Send>,
    /// The rest of the last batch.
    rest: Option<RecordBatch>,
    /// The number of slices and rows returned.
    slices: u32,
    rows: u64,
}

/// A part of a batch.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub batch: RecordBatch,
    pub number: u32,
    pub rows_before: u64,
}

impl fmt::Debug for Batches {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Batches({}: {})", self.name, self.schema)
    }
}

impl Batches {
    pub fn new(
        name: &str,
        rows: Option<u64>,
        reader: impl RecordBatchReader + Send + 'static,
    ) -> Batches {
        Batches {
            name: name.into(),
            rows,
            schema: reader.schema(),
            pull: Arc::new(Mutex::new(Pull {
                reader: Box::new(reader),
                rest: None,
                slices: 0,
                rows: 0,
            })),
        }
    }

    /// Creates a reader of one batch that follows this many rows of the same source.
    pub fn of_batch(name: &str, batch: RecordBatch, rows_before: u64) -> Batches {
        let (rows, schema) = (batch.num_rows() as u64, batch.schema());
        let batches = Self::new(
            name,
            Some(rows),
            RecordBatchIterator::new([Ok(batch)], schema),
        );
        let mut pull = batches.pull.lock().unwrap_or_else(PoisonError::into_inner);
        pull.rows = rows_before;
        drop(pull);
        batches
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the next slice to the calling thread.
    pub(super) fn next(&self) -> Result<Option<Slice>, SourceError> {
        let mut pull = self.pull.lock().unwrap_or_else(PoisonError::into_inner);
        let batch = match pull.rest.take() {
            Some(rest) => rest,
            None => match pull.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => return Ok(None),
                Err(reason) => {
                    return Err(SourceError::Batches {
                        file: self.name.to_string(),
                        row: pull.rows,
                        reason,
                    });
                }
            },
        };
        Ok(Some(pull.cut(batch)))
    }
}

impl Pull {
    /// Returns the next batch that has rows.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, String> {
        loop {
            match self.reader.next() {
                None => return Ok(None),
                Some(Ok(batch)) if batch.num_rows() == 0 => {}
                Some(Ok(batch)) => return Ok(Some(batch)),
                Some(Err(error)) => return Err(error.to_string()),
            }
        }
    }

    fn cut(&mut self, batch: RecordBatch) -> Slice {
        let rows = batch.num_rows().min(SLICE_ROWS);
        if rows < batch.num_rows() {
            self.rest = Some(batch.slice(rows, batch.num_rows() - rows));
        }
        let slice = Slice {
            batch: batch.slice(0, rows),
            number: self.slices,
            rows_before: self.rows,
        };
        self.slices += 1;
        self.rows += rows as u64;
        slice
    }
}
