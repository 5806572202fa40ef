//! Reads files of parquet-mr before 1.2.9.
//!
//! In a column chunk's size their footers do not count the header of the dictionary page
//! (PARQUET-816).

use std::sync::Arc;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, RowGroupMetaData};

/// The most bytes of a dictionary page's header.
const HEADER_BYTES: u64 = 100;
const FIXED_IN: [u32; 3] = [1, 2, 9];

/// Returns whether a file's column chunks may be longer than the footer says.
pub(super) fn has_short_chunks(metadata: &ParquetMetaData) -> bool {
    let writer = metadata.file_metadata().created_by().unwrap_or_default();
    let Some(version) = writer.strip_prefix("parquet-mr") else {
        return false;
    };
    let version = version.trim_start().trim_start_matches("version ");
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let numbers = version
        .split(|c: char| !is_of_number(c))
        .next()
        .unwrap_or_default();
    let mut parts = numbers.split('.').map_while(|part| part.parse().ok());
    let version: [u32; 3] = std::array::from_fn(|_| parts.next().unwrap_or(0));
    version < FIXED_IN
}

/// Returns the metadata with chunks extended as far as they may reach. Their pages end when all
/// values are read.
pub(super) fn with_whole_chunks(
    metadata: &ArrowReaderMetadata,
    file_bytes: u64,
    options: ArrowReaderOptions,
) -> Result<ArrowReaderMetadata> {
    let mut builder = metadata.metadata().as_ref().clone().into_builder();
    let groups: Result<Vec<_>> = (builder.take_row_groups().into_iter())
        .map(|group| with_whole_columns(group, file_bytes))
        .collect();
    let whole = builder.set_row_groups(groups?).build();
    ArrowReaderMetadata::try_new(Arc::new(whole), options)
}

fn with_whole_columns(group: RowGroupMetaData, file_bytes: u64) -> Result<RowGroupMetaData> {
    let columns: Result<Vec<ColumnChunkMetaData>> = (group.columns().iter())
        .map(|column| {
            let (start, bytes) = column.byte_range();
            let most = file_bytes.saturating_sub(start);
            let whole = bytes.saturating_add(HEADER_BYTES).min(most);
            let builder = column.clone().into_builder();
            builder.set_total_compressed_size(whole as i64).build()
        })
        .collect();
    group.into_builder().set_column_metadata(columns?).build()
}

#[cfg(test)]
mod tests {
    use parquet::basic::Type as Physical;
    use parquet::file::metadata::{FileMetaData, ParquetMetaDataBuilder};
    use parquet::schema::types::{SchemaDescriptor, Type};

    use super::*;

    #[test]
    fn writers_are_known_by_name_and_version() {
        let of = |writer: Option<&str>| {
            let column = Type::primitive_type_builder("a", Physical::INT32)
                .build()
                .unwrap();
            let group = Type::group_type_builder("schema").with_fields(vec![Arc::new(column)]);
            let schema = SchemaDescriptor::new(Arc::new(group.build().unwrap()));
            let writer = writer.map(str::to_owned);
            let file = FileMetaData::new(1, 0, writer, None, Arc::new(schema), None);
            has_short_chunks(&ParquetMetaDataBuilder::new(file).build())
        };
        for old in [
            "parquet-mr",
            "parquet-mr version 1.2.8 (build 1)",
            "parquet-mr version 1.2",
        ] {
            assert!(of(Some(old)), "{old}");
        }
        for new in [
            "parquet-mr version 1.2.9",
            "parquet-mr version 1.13.1 (build x)",
            "impala 1.0",
        ] {
            assert!(!of(Some(new)), "{new}");
        }
        assert!(!of(None));
    }
}
