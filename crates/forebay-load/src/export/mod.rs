//! Export: the records of a version as a parquet, CSV or JSON-lines file, or as Arrow batches.
//!
//! Tables of rows give their columns, with their types; the key comes first as a column of its own only
//! when its template has columns that the rows lack. Tables of bytes, numbers and lists give `key` and `value`.
//! Records are written as they come, with memory for one row group of a parquet file at most.

mod build;
mod lines;
mod parquet;
mod rows;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::str::FromStr;

use arrow_schema::ArrowError;
use forebay_engine::ValueKind;
use forebay_run::number::Number;
use forebay_run::row::{Column, Datum, Kind, ListView, RowError, RowView, Schema};

use crate::key::KeyTemplate;
use lines::{CsvLines, JsonLines};
use parquet::ParquetRows;
pub use rows::ScanBatches;

/// A file format that can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    Parquet,
    Csv,
    JsonLines,
}

impl ExportFormat {
    /// The format that the ending of a file's name tells.
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
            _ => Err(format!("'{text}' is not one of parquet, csv, jsonl")),
        }
    }
}

/// What the values of a table are.
#[derive(Debug, Clone, Copy)]
pub enum ExportValues<'a> {
    Rows(&'a Schema),
    Bytes,
    /// Numbers of eight bytes.
    Numbers(Number),
    /// Lists of items of a kind.
    Lists(&'a Kind),
}

impl<'a> ExportValues<'a> {
    /// Of a table: what its values are, its columns, and the number that a value is, if it is one.
    pub fn new(kind: &'a ValueKind, schema: &'a Schema, number: Option<Number>) -> Self {
        match (kind, number) {
            (_, Some(number)) => ExportValues::Numbers(number),
            (ValueKind::Row, None) => ExportValues::Rows(schema),
            (ValueKind::List { item, .. }, None) => ExportValues::Lists(item),
            (ValueKind::Bytes { .. } | ValueKind::Number { .. }, None) => ExportValues::Bytes,
        }
    }
}

/// What is exported, and how.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions<'a> {
    pub values: ExportValues<'a>,
    /// The key's template, as the version has it.
    pub key: &'a str,
    pub format: ExportFormat,
    /// In parquet, keys and bytes values are binary columns, not text ones.
    pub binary: bool,
}

/// Why an export failed.
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
        "the {what} of the key '{key}' is not UTF-8, which a text column of parquet must be: export them as binary, or to jsonl"
    )]
    NotText { what: &'static str, key: String },
    #[error("rows of these types cannot be written as parquet: {reason}; export to jsonl or csv")]
    Parquet { reason: String },
    #[error("rows cannot be made of the stored values")]
    Build(#[from] ArrowError),
}

/// Writes records to a file, one after another.
pub struct Exporter<W: Write + Send> {
    layout: Layout,
    rows: u64,
    output: Output<W>,
}

enum Output<W: Write + Send> {
    Parquet(Box<ParquetRows<W>>),
    Csv(CsvLines<W>),
    JsonLines(JsonLines<W>),
}

/// The columns of the file and where they come from.
#[derive(Debug, Clone)]
struct Layout {
    columns: Vec<Column>,
    /// Whether the first column is the key.
    with_key: bool,
    values: Values,
}

#[derive(Debug, Clone)]
enum Values {
    Rows(Schema),
    Bytes,
    Numbers(Number),
    Lists(Kind),
}

impl Layout {
    /// `key_kind` and `bytes_kind` are text or binary: what keys are, and values of bytes.
    fn new(export: ExportValues<'_>, key: &str, key_kind: Kind, bytes_kind: Kind) -> Layout {
        let (values, mut columns) = match export {
            ExportValues::Rows(schema) => (Values::Rows(schema.clone()), schema.columns().to_vec()),
            ExportValues::Bytes => (Values::Bytes, vec![Column::new("value", bytes_kind, false)]),
            ExportValues::Numbers(number) => {
                let kind = match number {
                    Number::I64 => Kind::Int64,
                    Number::F64 => Kind::Float64,
                };
                (
                    Values::Numbers(number),
                    vec![Column::new("value", kind, false)],
                )
            }
            ExportValues::Lists(item) => {
                let item_column = Box::new(Column::new("item", item.clone(), true));
                let kind = Kind::List {
                    item: item_column,
                    length: None,
                };
                (
                    Values::Lists(item.clone()),
                    vec![Column::new("value", kind, false)],
                )
            }
        };
        let with_key = match export {
            ExportValues::Rows(schema) => !key_is_in(key, schema),
            _ => true,
        };
        if with_key {
            let mut name = "key".to_owned();
            while columns.iter().any(|column| column.name == name) {
                name.insert(0, '_');
            }
            columns.insert(0, Column::new(name, key_kind, false));
        }
        Layout {
            columns,
            with_key,
            values,
        }
    }

    /// Calls `put` with each column's position and value.
    fn record<E: From<RowError>>(
        &self,
        key: &[u8],
        value: &[u8],
        mut put: impl FnMut(usize, &Datum<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = usize::from(self.with_key);
        if self.with_key {
            put(0, &Datum::Bytes(key))?;
        }
        match &self.values {
            Values::Bytes => put(first, &Datum::Bytes(value)),
            Values::Numbers(number) => put(first, &number_datum(*number, value)?),
            Values::Lists(item) => put(first, &Datum::List(ListView::new(item, value)?)),
            Values::Rows(schema) => {
                let row = RowView::new(schema, value)?;
                for index in 0..row.len() {
                    put(first + index, &row.datum(index)?)?;
                }
                Ok(())
            }
        }
    }
}

fn number_datum(number: Number, value: &[u8]) -> Result<Datum<'static>, RowError> {
    let bytes: [u8; 8] = value.try_into().map_err(|_| RowError::Width {
        got: value.len(),
        limit: 8,
    })?;
    Ok(match number {
        Number::I64 => Datum::Int(i64::from_le_bytes(bytes)),
        Number::F64 => Datum::Float64(f64::from_le_bytes(bytes)),
    })
}

/// Whether all columns of a template are columns of the rows.
fn key_is_in(template: &str, schema: &Schema) -> bool {
    let template = template.parse::<KeyTemplate>();
    template.is_ok_and(|key| {
        key.columns()
            .all(|column| schema.column_index(column).is_some())
    })
}

impl<W: Write + Send> Exporter<W> {
    /// Begins a file. `output` should be buffered.
    pub fn new(options: &ExportOptions<'_>, output: W) -> Result<Exporter<W>, ExportError> {
        let plain = if options.binary {
            Kind::Binary
        } else {
            Kind::Text
        };
        let layout = Layout::new(options.values, options.key, plain.clone(), plain);
        let output = match options.format {
            ExportFormat::Parquet => {
                Output::Parquet(Box::new(ParquetRows::new(&layout.columns, output)?))
            }
            ExportFormat::Csv => Output::Csv(CsvLines::new(&layout.columns, output)?),
            ExportFormat::JsonLines => Output::JsonLines(JsonLines::new(&layout.columns, output)),
        };
        Ok(Exporter {
            layout,
            rows: 0,
            output,
        })
    }

    /// Writes a record.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        self.rows += 1;
        match &mut self.output {
            Output::Parquet(rows) => rows.push(&self.layout, key, value),
            Output::Csv(lines) => lines.push(&self.layout, key, value),
            Output::JsonLines(lines) => lines.push(&self.layout, key, value),
        }
    }

    /// Ends the file; gives the number of records and the output, flushed.
    pub fn finish(self) -> Result<(u64, W), ExportError> {
        let output = match self.output {
            Output::Parquet(rows) => rows.finish()?,
            Output::Csv(lines) => lines.finish()?,
            Output::JsonLines(lines) => lines.finish()?,
        };
        Ok((self.rows, output))
    }
}

/// Names the key of a record that failed.
fn row_error(key: &[u8], error: RowError) -> ExportError {
    ExportError::Row {
        key: String::from_utf8_lossy(key).into_owned(),
        error,
    }
}
