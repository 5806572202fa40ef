//! Builds batches of several columns.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use forebay_run::row::{Column, Datum};

use super::build::Builder;
use super::fixed::{CellError, parquet_kind};
use crate::types::arrow_field;

/// A builder of batches of several columns.
pub(super) struct BatchBuilder {
    schema: SchemaRef,
    columns: Vec<Builder>,
    rows: usize,
    bytes: usize,
}

impl BatchBuilder {
    /// Creates a builder with the plain Arrow types of columns, or those that Parquet supports.
    pub fn new(columns: &[Column], for_parquet: bool) -> BatchBuilder {
        let field = |column: &Column| match for_parquet {
            false => arrow_field(column),
            true => {
                let kind = parquet_kind(&column.kind);
                arrow_field(&Column::new(column.name.clone(), kind, column.nullable))
            }
        };
        let columns_of = columns.iter();
        BatchBuilder {
            schema: Arc::new(Schema::new(columns_of.map(field).collect::<Vec<_>>())),
            columns: columns
                .iter()
                .map(|column| Builder::new(&column.kind, for_parquet))
                .collect(),
            rows: 0,
            bytes: 0,
        }
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn push(&mut self, column: usize, value: &Datum<'_>) -> Result<(), CellError> {
        self.columns
            .get_mut(column)
            .map_or(Ok(()), |builder| builder.push(value))
    }

    /// Ends a row of about `bytes` bytes.
    pub fn end_row(&mut self, bytes: usize) {
        self.rows += 1;
        self.bytes += bytes;
    }

    /// Returns whether the batch is full, so that the caller should [`BatchBuilder::finish`] it.
    pub fn full(&self) -> bool {
        self.rows >= 8192 || self.bytes >= 8 << 20
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub fn finish(&mut self) -> Result<RecordBatch, ArrowError> {
        let columns: Result<Vec<ArrayRef>, ArrowError> =
            self.columns.iter_mut().map(Builder::finish).collect();
        let rows = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        RecordBatch::try_new_with_options(self.schema.clone(), columns?, &rows)
    }
}
