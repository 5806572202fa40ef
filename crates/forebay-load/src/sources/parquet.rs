//! Parquet files: a unit a row group.

use std::io::{self, Read};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, Length};

use super::BATCH_ROWS;
use super::blob::{Blob, BlobReader, guarded};
use super::error::SourceError;
use super::parquet_types;

/// Bytes asked for when a page's header is read: enough for a header.
const HEADER_BYTES: u64 = 8 << 10;

impl Length for Blob {
    fn len(&self) -> u64 {
        self.size_bytes
    }
}

impl ChunkReader for Blob {
    type T = BlobReader;

    fn get_read(&self, start: u64) -> Result<BlobReader, ParquetError> {
        Ok(self.reader_by(start..self.size_bytes, HEADER_BYTES))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let end = start.checked_add(length as u64);
        let end = end.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(self.read(start..end)?)
    }
}

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
        let mut mark = [0; 4];
        let marked = blob
            .reader_by(0..blob.size_bytes.min(4), 4)
            .read_exact(&mut mark);
        if marked.is_err() || &mark != b"PAR1" {
            return Err(blob.damaged("", "it is no parquet file: it does not begin with PAR1"));
        }
        let options = ArrowReaderOptions::new();
        let metadata = guarded(|| ArrowReaderMetadata::load(blob, options))
            .map_err(|error| blob.damaged("its footer ", error))?;
        let file = metadata.metadata().file_metadata();
        let schema = parquet_types::told(metadata.schema(), file);
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
        let build = || {
            let (blob, metadata) = (blob.clone(), self.metadata.clone());
            let mask = ProjectionMask::roots(
                metadata.metadata().file_metadata().schema_descr(),
                columns.iter().copied(),
            );
            ParquetRecordBatchReaderBuilder::new_with_metadata(blob, metadata)
                .with_row_groups(vec![group.index])
                .with_projection(mask)
                .with_batch_size(BATCH_ROWS)
                .build()
        };
        let mut reader = guarded(build).map_err(damaged)?;
        let mut rows = 0;
        while let Some(batch) = guarded(|| reader.next().transpose()).map_err(damaged)? {
            rows += batch.num_rows() as u64;
            emit(batch)?;
        }
        if rows != group.rows {
            let expected = group.rows;
            return Err(damaged(format!("it has {rows} rows instead of {expected}")));
        }
        Ok(())
    }
}
