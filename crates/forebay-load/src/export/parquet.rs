//! Parquet output: zstd, row groups of at most 128 Ki rows and about 64 MiB.
//!
//! Parquet has no decimals of negative scale: such columns are written with the scale 0.

use std::io::Write;
use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use forebay_run::row::Column;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::rows::Rows;
use super::{ExportError, Layout};
use crate::convert::conform;

const GROUP_ROWS: usize = 128 << 10;
const GROUP_BYTES: usize = 64 << 20;

pub(super) struct ParquetRows<W: Write + Send> {
    rows: Rows,
    /// The schema of the file.
    schema: SchemaRef,
    writer: ArrowWriter<W>,
}

impl<W: Write + Send> ParquetRows<W> {
    pub fn new(columns: &[Column], output: W) -> Result<ParquetRows<W>, ExportError> {
        let rows = Rows::new(columns);
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let schema = file_schema(rows.schema());
        let writer =
            ArrowWriter::try_new(output, schema.clone(), Some(properties)).map_err(failed)?;
        Ok(ParquetRows {
            rows,
            schema,
            writer,
        })
    }

    pub fn push(&mut self, layout: &Layout, key: &[u8], value: &[u8]) -> Result<(), ExportError> {
        self.rows.push(layout, key, value)?;
        if self.rows.full() {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let batch = conform(&self.rows.finish()?, &self.schema)?;
        self.writer.write(&batch).map_err(failed)?;
        if self.writer.in_progress_size() >= GROUP_BYTES {
            self.writer.flush().map_err(failed)?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<W, ExportError> {
        if !self.rows.is_empty() {
            self.flush()?;
        }
        let mut output = self.writer.into_inner().map_err(failed)?;
        output.flush()?;
        Ok(output)
    }
}

/// The schema with columns of decimals of negative scale brought to the scale 0.
fn file_schema(schema: &SchemaRef) -> SchemaRef {
    let plain = |field: &Arc<Field>| {
        let data_type = match field.data_type() {
            DataType::Decimal32(precision, scale @ ..0)
            | DataType::Decimal64(precision, scale @ ..0)
            | DataType::Decimal128(precision, scale @ ..0)
            | DataType::Decimal256(precision, scale @ ..0) => {
                match precision.saturating_add(scale.unsigned_abs()).min(76) {
                    precision @ ..=38 => DataType::Decimal128(precision, 0),
                    precision => DataType::Decimal256(precision, 0),
                }
            }
            other => other.clone(),
        };
        field.as_ref().clone().with_data_type(data_type)
    };
    Arc::new(Schema::new(
        schema.fields().iter().map(plain).collect::<Vec<Field>>(),
    ))
}

/// Tells errors of the output from types that parquet lacks.
fn failed(error: ParquetError) -> ExportError {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(error) => ExportError::Io(*error),
            Err(other) => ExportError::Parquet {
                reason: other.to_string(),
            },
        },
        other => ExportError::Parquet {
            reason: other.to_string(),
        },
    }
}
