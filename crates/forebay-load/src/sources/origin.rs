//! Defines the origins of rows, for messages.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::Schema;

/// A place within a file, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Line(u64),
    /// An element of a JSON array.
    Element(u64),
    Row(u64),
    BatchRow {
        batch: u64,
        row: u64,
    },
    /// The offset from the file's beginning, from 0.
    Byte(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Line(line) => write!(formatter, "line {line}"),
            Place::Element(element) => write!(formatter, "element {element}"),
            Place::Row(row) => write!(formatter, "row {row}"),
            Place::Byte(at) => write!(formatter, "byte {at}"),
            Place::BatchRow { batch, row } => write!(formatter, "record batch {batch}, row {row}"),
        }
    }
}

/// The origin of the rows of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    pub file: Arc<str>,
    /// The number within its unit of the batch's first row, from 0, not counting rejected rows.
    pub first_row: u64,
    pub(super) places: Places,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Places {
    Lines(Vec<u64>),
    Elements(Vec<u64>),
    /// The number in the file of the batch's first row, from 0.
    Rows(u64),
    /// The number in the file of the record batch, and in that of the first row, from 0.
    Batch {
        batch: u64,
        first: u64,
    },
}

impl Places {
    /// Returns the places of some of the rows.
    pub(super) fn slice(&self, rows: Range<usize>) -> Places {
        let from = rows.start as u64;
        match self {
            Places::Lines(lines) => Places::Lines(lines.get(rows).unwrap_or_default().to_vec()),
            Places::Elements(numbers) => {
                Places::Elements(numbers.get(rows).unwrap_or_default().to_vec())
            }
            Places::Rows(first) => Places::Rows(first + from),
            Places::Batch { batch, first } => Places::Batch {
                batch: *batch,
                first: first + from,
            },
        }
    }
}

impl Origin {
    /// Returns the place of a row of the batch.
    pub fn place(&self, row: usize) -> Place {
        match &self.places {
            Places::Lines(lines) => Place::Line(lines.get(row).copied().unwrap_or_default()),
            Places::Elements(numbers) => {
                Place::Element(numbers.get(row).copied().unwrap_or_default())
            }
            Places::Rows(first) => Place::Row(first + row as u64 + 1),
            Places::Batch { batch, first } => Place::BatchRow {
                batch: batch + 1,
                row: first + row as u64 + 1,
            },
        }
    }
}

/// A record that its source could not turn into a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject<'a> {
    pub file: &'a Arc<str>,
    pub place: Place,
    pub reason: String,
    /// The column of the invalid value, if another type would hold it.
    pub column: Option<String>,
    /// The record as written in the file, without its line end; for formats that are not text, as
    /// JSON.
    pub record: &'a [u8],
}

/// Returns the column named at the beginning of a reason: `the column 'price' ...`.
pub(super) fn culprit(schema: &Schema, reason: &str) -> Option<String> {
    let named = reason.strip_prefix("the column '")?;
    // Text holds any value that is not nested.
    let fields = schema.fields().iter();
    let fields = fields
        .filter(|field| !field.data_type().is_nested())
        .map(|field| field.name());
    let mut named = fields.filter(|name| {
        let rest = named.strip_prefix(name.as_str());
        rest.is_some_and(|rest| rest.starts_with('\''))
    });
    named.next().cloned()
}

/// Returns a row as JSON for people to read; `null` if that fails.
pub(crate) fn row_as_json(batch: &RecordBatch, row: usize) -> Vec<u8> {
    let mut writer = arrow_json::LineDelimitedWriter::new(Vec::new());
    let written = writer
        .write(&batch.slice(row, 1))
        .and_then(|()| writer.finish());
    match written {
        Ok(()) => writer.into_inner().trim_ascii_end().to_vec(),
        Err(_) => b"null".to_vec(),
    }
}
