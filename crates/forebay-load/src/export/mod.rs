//! Exports a version's records as a Parquet, CSV, JSON-lines or Arrow file, or as Arrow batches.
//!
//! Tables of rows give their columns, with their types. The key is the first column only if no
//! template makes it from the rows' columns. Tables of bytes, numbers and lists give `key` and
//! `value`. Records are written as they arrive, with memory for at most one row group of a Parquet
//! file. What a format cannot express is refused before anything is written ([`limits`]).

mod batch;
mod build;
mod fixed;
mod ipc;
mod layout;
mod limits;
mod lines;
mod parquet;
mod rows;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::str::FromStr;

use arrow_schema::ArrowError;
use forebay_run::error::named_key;
use forebay_run::row::{Column, Kind, RowError, Schema};

use ipc::IpcWriter;
pub use layout::{ExportValues, NoSuchColumn, TableColumns};
use layout::{Layout, column_is_binary, keys_are_binary};
use lines::{CsvLines, JsonLines};
use parquet::ParquetWriter;
use rows::RowsTo;
pub use rows::{LookupRowsError, ScanBatches, lookup_batches};

/// A file format of exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    Parquet,
    Csv,
    JsonLines,
    /// An Arrow IPC file.
    Arrow,
    ArrowStream,
}

impl ExportFormat {
    /// Returns the format of a file name's ending.
    pub fn of_name(name: &str) -> Option<ExportFormat> {
        ExportFormat::from_str(name.rsplit_once('.')?.1).ok()
    }
}

impl FromStr for ExportFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<ExportFormat, String> {
        match text {
            "parquet" => Ok(ExportFormat::Parquet),
            "csv" => Ok(ExportFormat::Csv),
            "jsonl" => Ok(ExportFormat::JsonLines),
            "arrow" | "feather" | "ipc" => Ok(ExportFormat::Arrow),
            "arrows" => Ok(ExportFormat::ArrowStream),
            _ => Err(format!(
                "'{text}' is not one of parquet, csv, jsonl, arrow, feather, arrows"
            )),
        }
    }
}

/// The content and the form of an export.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions<'a> {
    pub values: ExportValues<'a>,
    /// The columns from which the table's keys and values were made, and the form of the values.
    pub schema: &'a Schema,
    pub value: &'a str,
    /// The template of the keys; `None` if keys may be arbitrary, as in a live table.
    pub key: Option<&'a str>,
    pub format: ExportFormat,
    /// In Parquet and Arrow, keys and bytes values are binary columns even if they could be text.
    pub binary: bool,
}

impl ExportOptions<'_> {
    /// Returns the columns of the file. Keys and bytes values are text if they are known to be
    /// text. In formats that need one type for all values, they are also text if that is likely.
    /// CSV and JSON lines decide for each value.
    fn layout(&self) -> Layout {
        let kind = |binary| if binary { Kind::Binary } else { Kind::Text };
        let each = matches!(self.format, ExportFormat::Csv | ExportFormat::JsonLines);
        let keys = self
            .key
            .is_some_and(|key| keys_are_binary(key, self.schema));
        let bytes = self.key.is_some() && column_is_binary(self.value, self.schema);
        let binary = self.binary || each;
        let (keys, bytes) = (kind(binary || keys), kind(binary || bytes));
        Layout::new(self.values, self.key, keys, bytes)
    }
}

/// An error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("the output cannot be written")]
    Io(#[from] io::Error),
    #[error("the stored value of the key '{key}' cannot be read")]
    Row {
        key: String,
        #[source]
        error: RowError,
    },
    #[error(
        "the {what} of the key '{key}' is not UTF-8, which a text column must be: export them as binary, or to jsonl"
    )]
    NotText { what: &'static str, key: String },
    #[error("column '{column}' ({data_type}) {reason}: export to {instead}")]
    Type {
        column: String,
        data_type: String,
        reason: &'static str,
        instead: &'static str,
    },
    #[error(
        "the value of column '{column}' at the key '{key}' cannot be written: {reason}; export to an .arrow file"
    )]
    Beyond {
        column: String,
        key: String,
        reason: &'static str,
    },
    #[error("rows of these types cannot be written as parquet: {reason}; export to an .arrow file")]
    Parquet { reason: String },
    #[error("rows cannot be made of the stored values")]
    Build(#[from] ArrowError),
}

/// A writer of records to a file, one after another.
pub struct Exporter<W: Write + Send> {
    layout: Layout,
    notes: Vec<String>,
    rows: u64,
    output: Output<W>,
}

enum Output<W: Write + Send> {
    Parquet(Box<RowsTo<ParquetWriter<W>>>),
    Csv(CsvLines<W>),
    JsonLines(JsonLines<W>),
    Arrow(Box<RowsTo<IpcWriter<W>>>),
}

impl<W: Write + Send> Exporter<W> {
    /// Begins a file. `output` should be buffered. If the format cannot express a column's type,
    /// nothing was written to it.
    pub fn new(options: &ExportOptions<'_>, output: W) -> Result<Exporter<W>, ExportError> {
        let layout = options.layout();
        let columns = &layout.columns;
        let notes = limits::check(options.format, columns)?;
        let output = match options.format {
            ExportFormat::Parquet => {
                Output::Parquet(Box::new(ParquetWriter::rows(columns, output)?))
            }
            ExportFormat::Csv => Output::Csv(CsvLines::new(columns, output)?),
            ExportFormat::JsonLines => Output::JsonLines(JsonLines::new(columns, output)),
            ExportFormat::Arrow => {
                Output::Arrow(Box::new(IpcWriter::rows(columns, false, output)?))
            }
            ExportFormat::ArrowStream => {
                Output::Arrow(Box::new(IpcWriter::rows(columns, true, output)?))
            }
        };
        Ok(Exporter {
            layout,
            notes,
            rows: 0,
            output,
        })
    }

    /// Returns the columns of the file, as the table defines them.
    pub fn columns(&self) -> &[Column] {
        &self.layout.columns
    }

    /// Returns the name of the column of keys, if they have their own column.
    pub fn key_column(&self) -> Option<&str> {
        self.layout.key_column().map(|column| column.name.as_str())
    }

    /// Returns notes for users about columns that the format expresses only in part.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Writes a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        self.rows += 1;
        match &mut self.output {
            Output::Parquet(rows) => rows.push(&self.layout, key, value),
            Output::Csv(lines) => lines.push(&self.layout, key, value),
            Output::JsonLines(lines) => lines.push(&self.layout, key, value),
            Output::Arrow(rows) => rows.push(&self.layout, key, value),
        }
    }

    /// Ends the file; returns the number of records and the flushed output.
    pub fn finish(self) -> Result<(u64, W), ExportError> {
        let output = match self.output {
            Output::Parquet(rows) => rows.finish()?,
            Output::Csv(lines) => lines.finish()?,
            Output::JsonLines(lines) => lines.finish()?,
            Output::Arrow(rows) => rows.finish()?,
        };
        Ok((self.rows, output))
    }
}

/// Adds the key of the failed record to an error.
fn row_error(key: &[u8], error: RowError) -> ExportError {
    ExportError::Row {
        key: named_key(key),
        error,
    }
}
