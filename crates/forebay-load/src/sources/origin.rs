//! Where rows come from, for messages.

use std::fmt;
use std::sync::Arc;

/// A place within a file, as a person counts: from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Line(u64),
    Row(u64),
    BatchRow { batch: u64, row: u64 },
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(formatter, "line {line}"),
            Place::Row(row) => write!(formatter, "row {row}"),
            Place::BatchRow { batch, row } => write!(formatter, "record batch {batch}, row {row}"),
        }
    }
}

/// Where the rows of a batch come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: Arc<str>,
    /// The number within its unit of the batch's first row, from 0, rejected rows not counted.
    pub first_row: u64,
    pub(super) places: Places,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    Lines(Vec<u64>),
    /// The number in the file of the batch's first row, from 0.
    Rows(u64),
    Batch(u64),
}

impl Origin {
    /// The place of a row of the batch.
    pub fn place(&self, row: usize) -> Place {
        match &self.places {
            Places::Lines(lines) => Place::Line(lines.get(row).copied().unwrap_or_default()),
            Places::Rows(first) => Place::Row(first + row as u64 + 1),
            Places::Batch(batch) => Place::BatchRow {
                batch: batch + 1,
                row: row as u64 + 1,
            },
        }
    }
}

/// A record that its source could not make a row of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject<'a> {
    pub file: &'a Arc<str>,
    pub place: Place,
    pub reason: String,
    /// The record as it stands in the file, without its line end.
    pub record: &'a [u8],
}
