//! Reads Parquet files: one unit for each row group.
//!
//! The checksums of pages are verified if the file has them. The crate does so, and `unpacking` for
//! large pages, which `chunk_pages` returns in pieces. Checksums cover a page's content, not its
//! header, so `pages` checks headers against the footer. `chunks` fetches the bytes.

mod batch_limit;
mod chunk_pages;
pub(super) mod chunks;
mod int96;
mod interval;
mod large_page;
mod levels;
mod old_writer;
mod page_header;
mod pages;
mod piece;
mod reading;
mod retype;
#[cfg(test)]
mod tests;
mod unpacking;
mod unstored;

use arrow_array::RecordBatch;
use arrow_schema::{Metadata, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};

use super::blob::{Blob, guarded};
use super::content;
use super::error::SourceError;
use super::format::Format;
use super::parquet_types;
use super::wide_integers;
use crate::uuid::with_parquet_marks;
use chunks::Tail;
use reading::{GroupColumns, GroupReader};

/// A parquet file's footer.
#[derive(Debug, Clone)]
pub(super) struct ParquetFile {
    metadata: ArrowReaderMetadata,
    /// The columns with the types that their writer had for them.
    schema: SchemaRef,
}

/// The position and size of one row group.
#[derive(Debug, Clone)]
pub(super) struct RowGroup {
    pub index: usize,
    pub rows: u64,
    /// The number of rows in the previous row groups.
    pub rows_before: u64,
    /// The compressed bytes.
    pub bytes: u64,
}

impl ParquetFile {
    pub fn describe(blob: &Blob) -> Result<ParquetFile, SourceError> {
        content::expect(blob, Format::Parquet)?;
        let options = ArrowReaderOptions::new();
        let load = || {
            let metadata = ArrowReaderMetadata::load(&Tail::of(blob)?, options.clone())?;
            match old_writer::has_short_chunks(metadata.metadata()) {
                true => old_writer::with_whole_chunks(&metadata, blob.size_bytes, options.clone()),
                false => Ok(metadata),
            }
        };
        let metadata = guarded(load).map_err(|reason| {
            let plain = options.clone().with_skip_arrow_metadata(true);
            let reason = match guarded(|| ArrowReaderMetadata::load(&Tail::of(blob)?, plain)) {
                Ok(read) => wide_integers::named_in(reason, read.metadata().file_metadata()),
                Err(_) => reason,
            };
            blob.undecoded("its footer ", reason)
        })?;
        let fields = metadata.schema().fields();
        if let Some(reason) = unstored::reason(metadata.parquet_schema(), fields) {
            return Err(blob.undecoded("", reason));
        }
        let file = metadata.metadata().file_metadata();
        let decoded = retype::without_dictionaries(metadata.schema().fields());
        let schema = SchemaRef::from(Schema::new(interval::whole(&decoded)));
        let schema = parquet_types::reported(&schema, file);
        let schema = with_parquet_marks(&schema, metadata.parquet_schema());
        Ok(ParquetFile { metadata, schema })
    }

    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns the writer's metadata.
    pub fn metadata(&self) -> &Metadata {
        self.metadata.schema().metadata()
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

    /// Reads the columns at `columns` (ascending) of a row group.
    pub fn read<E: From<SourceError>>(
        &self,
        blob: &Blob,
        group: &RowGroup,
        columns: &[usize],
        emit: &mut dyn FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<(), E> {
        let place = || format!("row group {} ", group.index);
        let undecoded = |reason: String| E::from(blob.undecoded(place(), reason));
        let columns = GroupColumns {
            blob,
            metadata: &self.metadata,
            group,
            columns,
            fields: self.schema.fields(),
        };
        let mut reader = GroupReader::open(columns).map_err(undecoded)?;
        while let Some(batch) = reader.next().map_err(undecoded)? {
            emit(batch)?;
        }
        if reader.rows != group.rows {
            let (rows, expected) = (reader.rows, group.rows);
            let reason = format!("it has {rows} rows instead of {expected}");
            return Err(blob.damaged(place(), reason).into());
        }
        Ok(())
    }
}
