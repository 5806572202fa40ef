//! Encodes the rows of Arrow batches as keys and values.
//!
//! A [`RowEncoder`] is compiled for one Arrow schema, key template and choice of value; each thread
//! has its own clone. It splits arrays once a batch, and reuses its buffers from row to row.

mod bad_row;
mod keys;
mod numbers;
mod operations;
mod packer;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_schema::{FieldRef, SchemaRef};
use forebay_run::number::Number;
use forebay_run::operation::Operation;
use forebay_run::row::{Kind, Schema};
use serde::{Deserialize, Serialize};

pub use bad_row::BadRow;
pub use operations::{Expiry, OperationChoice, Verb};

use crate::convert::cells::Cells;
use crate::convert::scalar::scalar;
use crate::key::KeyTemplate;
use crate::near;
use crate::types::{TypeError, plain_schema, row_schema};
use keys::KeyWriter;
use numbers::{number_writer, write_number};
use operations::Operations;
use packer::{ListPacker, RowPacker};

/// The part of a row that is stored as the value.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueChoice {
    /// All columns.
    #[default]
    Row,
    /// One column: lists as a list, text and binary as their bytes, other scalars as text, structs
    /// and maps refused.
    Column(String),
    /// One column of numbers, as numbers of 8 bytes.
    Number { column: String, number: Number },
}

impl ValueChoice {
    /// Returns the only column that is stored, if there is one.
    pub fn column(&self) -> Option<&str> {
        match self {
            ValueChoice::Row => None,
            ValueChoice::Column(column) | ValueChoice::Number { column, .. } => Some(column),
        }
    }
}

/// The form of the stored values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoded {
    Row,
    Bytes { column: String },
    Number { column: String, number: Number },
    List { column: String, item: Kind },
}

/// An error of a schema whose rows cannot be stored as requested.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error(transparent)]
    Type(#[from] TypeError),
    #[error("{what} names the column '{column}', which the source does not have{}; it has: {}{why}",
        near::hint(column, columns.iter().map(String::as_str)), near::listed(columns.iter().map(String::as_str)))]
    UnknownColumn {
        what: &'static str,
        column: String,
        columns: Vec<String>,
        /// The reason why the column is missing, if known.
        why: String,
    },
    #[error("the column '{column}' cannot be part of the key: it {reason}")]
    KeyType {
        column: String,
        reason: &'static str,
    },
    #[error(
        "the column '{column}' cannot be the value by itself: it is a {kind}; store the whole row instead"
    )]
    ValueType { column: String, kind: &'static str },
    #[error(
        "the column '{column}' holds {kind}, and deltas of this kind add {wanted}; give its type by {}",
        near::column_option(column, type_name)
    )]
    NumberType {
        column: String,
        kind: String,
        wanted: &'static str,
        type_name: &'static str,
    },
    #[error("the operation column '{column}' has to be text: insert, update, delete or delta")]
    OperationType { column: String },
    #[error(
        "the column '{column}' cannot say when rows expire: it has to be a time, or a number of seconds after the push"
    )]
    ExpiryType { column: String },
    #[error("the column '{column}' has nulls, though its file says that it has none")]
    UnexpectedNull { column: String },
    #[error("a batch has columns of other types than its source announced")]
    BatchType,
}

impl EncodeError {
    /// Adds the known reason why a column is missing.
    pub(crate) fn explained(mut self, why_lacking: impl Fn(&str) -> String) -> Self {
        if let Self::UnknownColumn { column, why, .. } = &mut self {
            *why = why_lacking(column);
        }
        self
    }
}

/// An encoder of rows as keys and values.
#[derive(Debug, Clone)]
pub struct RowEncoder {
    /// The Arrow schema, without dictionaries and run ends.
    arrow: SchemaRef,
    schema: Schema,
    encoded: Encoded,
    template: KeyTemplate,
    keys: KeyWriter,
    values: ValueWriter,
    operations: Option<Operations>,
    /// The operation of the current row.
    verb: Verb,
    key: Vec<u8>,
    value: Vec<u8>,
}

#[derive(Debug, Clone)]
enum ValueWriter {
    Row(RowPacker),
    Bytes {
        index: usize,
        name: Arc<str>,
        kind: Kind,
    },
    Number {
        index: usize,
        name: Arc<str>,
        kind: Kind,
        number: Number,
    },
    List {
        index: usize,
        name: Arc<str>,
        packer: ListPacker,
    },
}

impl RowEncoder {
    /// Creates an encoder whose rows update their keys.
    pub fn new(
        schema: &SchemaRef,
        key: &KeyTemplate,
        value: &ValueChoice,
    ) -> Result<RowEncoder, EncodeError> {
        Self::beside(schema, Vec::new(), key, value, None)
    }

    /// Creates an encoder for rows of `stored` and further columns, which the key and the choice of
    /// operations may name. Without that choice rows update their keys.
    pub fn beside(
        stored: &SchemaRef,
        extra: Vec<FieldRef>,
        key: &KeyTemplate,
        value: &ValueChoice,
        choice: Option<&OperationChoice>,
    ) -> Result<RowEncoder, EncodeError> {
        let arrow = joined(stored, extra);
        let schema = row_schema(&plain_schema(stored))?;
        let all = row_schema(&arrow)?;
        let template = key.settled(&arrow);
        let keys = KeyWriter::new(&all, &template)?;
        let (values, encoded) = value_writer(&schema, value)?;
        let operations = choice.map(|choice| Operations::new(&all, &schema, choice));
        let (key, value) = (Vec::new(), Vec::new());
        Ok(RowEncoder {
            arrow,
            operations: operations.transpose()?,
            schema,
            encoded,
            template,
            keys,
            values,
            verb: Verb::Update,
            key,
            value,
        })
    }

    /// Returns the key template, with all forms settled by the source.
    pub fn template(&self) -> &KeyTemplate {
        &self.template
    }

    /// Returns the columns that batches must have.
    pub fn batch_schema(&self) -> &SchemaRef {
        &self.arrow
    }

    /// Returns the schema of the source's rows. If rows are the values, they are packed by it.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Returns the form of the values.
    pub fn encoded(&self) -> &Encoded {
        &self.encoded
    }

    /// Encodes a batch, row by row. `accept` gets the row's index, key and operation; `reject` gets
    /// its index and its error. An error of either ends the batch and is returned.
    ///
    /// REQUIRES: the batch's columns are those of [`RowEncoder::batch_schema`], by position.
    pub fn encode<E: From<EncodeError>>(
        &mut self,
        batch: &RecordBatch,
        mut accept: impl FnMut(usize, &[u8], Operation<'_>) -> Result<(), E>,
        mut reject: impl FnMut(usize, BadRow) -> Result<(), E>,
    ) -> Result<(), E> {
        let columns = batch.columns().iter().map(|column| column.data_type());
        if !columns.eq(self.arrow.fields().iter().map(|field| field.data_type())) {
            return Err(EncodeError::BatchType.into());
        }
        let cells = Cells::of_batch(batch).ok_or(EncodeError::BatchType)?;
        let row_by_row = self
            .operations
            .as_ref()
            .is_some_and(Operations::checks_nulls);
        for (column, cells) in self.schema.columns().iter().zip(&cells) {
            if cells.has_nulls() && !column.nullable && !row_by_row {
                return Err(EncodeError::UnexpectedNull {
                    column: column.name.clone(),
                }
                .into());
            }
        }
        for row in 0..batch.num_rows() {
            match self.encode_row(&cells, row) {
                Ok(()) => {}
                Err(bad) => {
                    reject(row, bad)?;
                    continue;
                }
            }
            match self.operation(&cells, row) {
                Ok(operation) => accept(row, &self.key, operation)?,
                Err(bad) => reject(row, bad)?,
            }
        }
        Ok(())
    }

    /// Builds the row's key and value.
    #[inline]
    fn encode_row(&mut self, cells: &[Cells<'_>], row: usize) -> Result<(), BadRow> {
        self.key.clear();
        self.value.clear();
        self.keys.write(cells, row, &mut self.key)?;
        if let Some(operations) = &self.operations {
            self.verb = operations.verb(cells, row)?;
            if self.verb == Verb::Delete {
                return Ok(());
            }
            operations.check_nulls(cells, row)?;
        }
        self.values.write(cells, row, &mut self.value)
    }

    #[inline]
    fn operation(&self, cells: &[Cells<'_>], row: usize) -> Result<Operation<'_>, BadRow> {
        match &self.operations {
            None => Ok(Operation::Update(&self.value)),
            Some(operations) => operations.operation(self.verb, &self.value, cells, row),
        }
    }
}

impl ValueWriter {
    #[inline]
    fn write(&mut self, cells: &[Cells<'_>], row: usize, out: &mut Vec<u8>) -> Result<(), BadRow> {
        let written = match self {
            ValueWriter::Row(packer) => packer.pack(cells, row, out),
            ValueWriter::Bytes { index, name, .. }
            | ValueWriter::Number { index, name, .. }
            | ValueWriter::List { index, name, .. }
                if cells[*index].is_null(row) =>
            {
                return Err(BadRow::NullValue {
                    column: name.clone(),
                });
            }
            ValueWriter::Bytes { index, kind, .. } => scalar(&cells[*index], kind, row)
                .and_then(|value| value.write_text(out))
                .map(|_| ()),
            ValueWriter::Number {
                index,
                name,
                kind,
                number,
            } => return write_number(&cells[*index], kind, row, *number, name, out),
            ValueWriter::List { index, packer, .. } => packer.pack(&cells[*index], row, out),
        };
        written.map_err(|error| BadRow::Unreadable {
            reason: error.to_string(),
        })
    }
}

/// Returns the columns of a schema and `extra`, without dictionaries and run ends.
fn joined(schema: &SchemaRef, extra: Vec<FieldRef>) -> SchemaRef {
    let fields = schema.fields().iter().cloned().chain(extra);
    plain_schema(&Arc::new(arrow_schema::Schema::new(
        fields.collect::<Vec<FieldRef>>(),
    )))
}

fn value_writer(
    schema: &Schema,
    value: &ValueChoice,
) -> Result<(ValueWriter, Encoded), EncodeError> {
    let Some(name) = value.column() else {
        return Ok((ValueWriter::Row(RowPacker::new(schema)), Encoded::Row));
    };
    let index = find(schema, name, "the choice of value")?;
    let (column, name) = (name.to_owned(), Arc::from(name));
    if let ValueChoice::Number { number, .. } = value {
        return number_writer(schema, index, column, *number);
    }
    let refuse = |kind| EncodeError::ValueType {
        column: column.clone(),
        kind,
    };
    Ok(match &schema.columns()[index].kind {
        Kind::List { item, .. } => {
            let packer = ListPacker::new(&item.kind);
            let encoded = Encoded::List {
                column,
                item: item.kind.clone(),
            };
            (
                ValueWriter::List {
                    index,
                    name,
                    packer,
                },
                encoded,
            )
        }
        Kind::Struct { .. } => return Err(refuse("struct")),
        Kind::Map { .. } => return Err(refuse("map")),
        Kind::Null => return Err(refuse("column of nothing but nulls")),
        kind => (
            ValueWriter::Bytes {
                index,
                name,
                kind: kind.clone(),
            },
            Encoded::Bytes { column },
        ),
    })
}

/// Returns the position of a column, or an error that lists the existing columns.
fn find(schema: &Schema, name: &str, what: &'static str) -> Result<usize, EncodeError> {
    schema
        .column_index(name)
        .ok_or_else(|| EncodeError::UnknownColumn {
            what,
            column: name.to_owned(),
            columns: schema
                .columns()
                .iter()
                .map(|column| column.name.clone())
                .collect(),
            why: String::new(),
        })
}
