//! Parquet files: a unit a row group.
//!
//! The checksums of pages are verified where the file has them (the crate does so); they cover a
//! page's content, not its header, which `pages` holds against the footer. `chunks` brings the
//! bytes.

pub(super) mod chunks;
mod int96;
mod interval;
mod pages;
mod retype;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::arrow::{ProjectionMask, parquet_to_arrow_field_levels};

use super::BATCH_ROWS;
use super::blob::{Blob, guarded};
use super::content;
use super::error::SourceError;
use super::format::Format;
use super::parquet_types;
use crate::uuid::with_parquet_marks;
use chunks::{Chunks, Tail};
use pages::CheckedGroup;

/// A parquet file's footer.
#[derive(Debug, Clone)]
pub(super) struct ParquetFile {
    metadata: ArrowReaderMetadata,
    /// The columns with the types that their writer had for them.
    schema: SchemaRef,
}

/// One row group.
#[derive(Debug, Clone)]
pub(super) struct RowGroup {
    pub index: usize,
    pub rows: u64,
    /// Rows of the row groups before.
    pub rows_before: u64,
    /// Compressed bytes.
    pub bytes: u64,
}

impl ParquetFile {
    pub fn describe(blob: &Blob) -> Result<ParquetFile, SourceError> {
        content::expect(blob, Format::Parquet)?;
        let options = ArrowReaderOptions::new();
        let load = || ArrowReaderMetadata::load(&Tail::of(blob)?, options);
        let metadata = guarded(load).map_err(|error| blob.damaged("its footer ", error))?;
        let file = metadata.metadata().file_metadata();
        let schema = SchemaRef::from(Schema::new(interval::whole(metadata.schema().fields())));
        let schema = parquet_types::told(&schema, file);
        let schema = with_parquet_marks(&schema, metadata.parquet_schema());
        Ok(ParquetFile { metadata, schema })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub fn row_groups(&self) -> Vec<RowGroup> {
        let mut rows_before = 0;
        let groups = self.metadata.metadata().row_groups().iter().enumerate();
        groups
            .map(|(index, group)| {
                let rows = group.num_rows().max(0) as u64;
                let bytes = group.compressed_size().max(0) as u64;
                let before = rows_before;
                rows_before += rows;
                RowGroup {
                    index,
                    rows,
                    rows_before: before,
                    bytes,
                }
            })
            .collect()
    }

    /// What decodes columns of a row group, as of the types of `fields`.
    fn reader(
        &self,
        blob: &Blob,
        group: &RowGroup,
        columns: &[usize],
        fields: &Fields,
    ) -> Result<ParquetRecordBatchReader, String> {
        guarded(|| {
            let metadata = self.metadata.metadata();
            let schema = metadata.file_metadata().schema_descr();
            let mask = ProjectionMask::roots(schema, columns.iter().copied());
            let leaves = (0..schema.num_columns()).filter(|leaf| mask.leaf_included(*leaf));
            let chunks = Chunks::open(blob, metadata.row_group(group.index), leaves)?;
            let levels = parquet_to_arrow_field_levels(schema, mask, Some(fields))?;
            let checked = CheckedGroup::open(metadata, group.index, chunks);
            ParquetRecordBatchReader::try_new_with_row_groups(&levels, &checked, BATCH_ROWS, None)
        })
    }

    /// Reads the columns at `columns` (ascending) of a row group.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        group: &RowGroup,
        columns: &[usize],
        emit: &mut dyn FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let damaged =
            |reason: String| E::from(blob.damaged(format!("row group {} ", group.index), reason));
        let fields = self.metadata.schema().fields();
        let reader = self.reader(blob, group, columns, fields);
        let mut reader = reader.map_err(damaged)?;
        let metadata = self.metadata.metadata();
        let wide = int96::columns(metadata.file_metadata().schema_descr(), columns);
        let in_seconds =
            (!wide.is_empty()).then(|| self.reader(blob, group, &wide, &int96::in_seconds(fields)));
        let mut in_seconds = in_seconds.transpose().map_err(damaged)?;
        let intervals = interval::columns(fields, self.schema.fields(), columns);
        let in_months = (!intervals.is_empty())
            .then(|| self.reader(blob, group, &intervals, &interval::in_months(fields)));
        let mut in_months = in_months.transpose().map_err(damaged)?;
        let mut rows = 0;
        while let Some(mut batch) = guarded(|| reader.next().transpose()).map_err(damaged)? {
            rows += batch.num_rows() as u64;
            if let Some(seconds) = &mut in_seconds
                && let Some(seconds) = guarded(|| seconds.next().transpose()).map_err(damaged)?
            {
                int96::check(&batch, &seconds).map_err(damaged)?;
            }
            if let Some(months) = &mut in_months
                && let Some(months) = guarded(|| months.next().transpose()).map_err(damaged)?
            {
                let whole = interval::with_months(&batch, &months);
                batch = whole.map_err(|error| damaged(error.to_string()))?;
            }
            emit(batch)?;
        }
        if rows != group.rows {
            let expected = group.rows;
            return Err(damaged(format!("it has {rows} rows instead of {expected}")));
        }
        Ok(())
    }
}
