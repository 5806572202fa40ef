//! Writes Parquet output: zstd, row groups of at most 128 Ki rows and about 64 MiB.
//!
//! Columns are written in types that Parquet supports ([`super::fixed::parquet_kind`]), so that all
//! readers interpret them correctly. The file also contains Arrow's schema, which records the
//! table's types: seconds, a date of 64 bits, durations, zones.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema};
use forebay_run::row::Column;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;

use super::ExportError;
use super::rows::{BatchWriter, ExportRows, RowsTo};
use crate::types::arrow_field;

const GROUP_ROWS: usize = 128 << 10;
const GROUP_BYTES: usize = 64 << 20;

pub(super) struct ParquetWriter<W: Write + Send>(ArrowWriter<W>);

impl<W: Write + Send> ParquetWriter<W> {
    pub fn rows(columns: &[Column], output: W) -> Result<RowsTo<Self>, ExportError> {
        let rows = ExportRows::new(columns, true);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(GROUP_ROWS))
            .build();
        let reported = reported_schema(columns, rows.schema());
        add_encoded_arrow_schema_to_metadata(&reported, &mut properties);
        let options = ArrowWriterOptions::new()
            .with_properties(properties)
            .with_skip_arrow_metadata(true);
        let schema = rows.schema().clone();
        let writer = ArrowWriter::try_new_with_options(output, schema, options).map_err(failed)?;
        Ok(RowsTo::new(rows, ParquetWriter(writer)))
    }
}

impl<W: Write + Send> BatchWriter for ParquetWriter<W> {
    type Output = W;

    fn write(&mut self, batch: &RecordBatch) -> Result<(), ExportError> {
        self.0.write(batch).map_err(failed)?;
        if self.0.in_progress_size() >= GROUP_BYTES {
            self.0.flush().map_err(failed)?;
        }
        Ok(())
    }

    fn end(self) -> Result<W, ExportError> {
        self.0.into_inner().map_err(failed)
    }
}

/// Returns the schema with the table's types. Decimals have the type of the file: readers take a
/// scale from this schema without checking the file's own.
fn reported_schema(columns: &[Column], file: &Schema) -> Schema {
    let fields = columns.iter().zip(file.fields());
    let fields = fields.map(|(column, file)| reported_field(&arrow_field(column), file));
    Schema::new(fields.collect::<Vec<Field>>())
}

fn reported_field(table: &Field, file: &Field) -> Field {
    let pairs = |table: &Fields, file: &Fields| -> Fields {
        let pairs = table.iter().zip(file);
        pairs
            .map(|(table, file)| reported_field(table, file))
            .collect()
    };
    let pair = |table: &Field, file: &Field| Arc::new(reported_field(table, file));
    let data_type = match (table.data_type(), file.data_type()) {
        (table, file) if table.is_decimal() && table != file => file.clone(),
        (DataType::List(table), DataType::List(file)) => DataType::List(pair(table, file)),
        (DataType::FixedSizeList(table, length), DataType::FixedSizeList(file, _)) => {
            DataType::FixedSizeList(pair(table, file), *length)
        }
        (DataType::Struct(table), DataType::Struct(file)) => DataType::Struct(pairs(table, file)),
        (DataType::Map(table, sorted), DataType::Map(file, _)) => {
            DataType::Map(pair(table, file), *sorted)
        }
        (table, _) => table.clone(),
    };
    table.clone().with_data_type(data_type)
}

/// Distinguishes errors of the output from types that Parquet lacks.
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
