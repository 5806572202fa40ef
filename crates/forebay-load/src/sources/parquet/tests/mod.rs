//! Tests that pages read in pieces have the rows that the crate reads from whole pages.

mod damage;

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ParquetRecordBatchReader, RowSelection, RowSelector,
};
use parquet::arrow::{ArrowWriter, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::{Compression, Encoding, GzipLevel, ZstdLevel};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::reader::FileReader;

use super::batch_limit::BatchLimit;
use super::chunks::Chunks;
use super::large_page::PieceSizes;
use super::pages::CheckedGroup;
use crate::sources::blob::{Blob, Storage};
use crate::sources::spool::Spool;

const SMALL: PieceSizes = PieceSizes {
    whole_bytes: 256,
    piece_bytes: 64,
};

/// Random numbers (xorshift).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit.max(1) as u64) as usize
    }

    /// Mostly short values, sometimes empty or longer than a page that is read whole.
    fn value(&mut self) -> Vec<u8> {
        let length = match self.below(10) {
            0 => 0,
            1 => self.below(2000),
            _ => self.below(40),
        };
        let letter = b'a' + self.below(26) as u8;
        vec![letter; length]
    }

    fn values(&mut self, rows: usize, nulls: usize) -> Vec<Option<Vec<u8>>> {
        let value = |_| (self.below(100) >= nulls).then(|| self.value());
        (0..rows).map(value).collect()
    }

    fn texts(&mut self, rows: usize, nulls: usize) -> StringArray {
        let mut texts = StringBuilder::new();
        for value in self.values(rows, nulls) {
            texts.append_option(value.map(|value| String::from_utf8(value).unwrap()));
        }
        texts.finish()
    }

    fn batch(&mut self, rows: usize) -> RecordBatch {
        let mut bytes = BinaryBuilder::new();
        for value in self.values(rows, 30) {
            bytes.append_option(value);
        }
        let half = [10, 50, 98][self.below(3)];
        let inner = Arc::new(self.texts(rows, half));
        let field = Field::new("text", DataType::Utf8, true);
        let present = NullBuffer::from_iter((0..rows).map(|_| self.below(4) > 0));
        let nested = StructArray::new(vec![field].into(), vec![inner], Some(present));
        let ids = Int64Array::from_iter_values(0..rows as i64);
        let columns: [(&str, ArrayRef, bool); 6] = [
            ("id", Arc::new(ids), false),
            ("required", Arc::new(self.texts(rows, 0)), false),
            ("text", Arc::new(self.texts(rows, half)), true),
            ("bytes", Arc::new(bytes.finish()), true),
            ("nested", Arc::new(nested), true),
            ("nulls", Arc::new(self.texts(rows, 100)), true),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }
}

fn file(batch: &RecordBatch, properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    bytes
}

fn blob(bytes: &[u8]) -> Blob {
    let spooled = Spool::default().keep("-", "it", || Ok(bytes)).unwrap();
    Blob {
        size_bytes: bytes.len() as u64,
        storage: Storage::Spooled(spooled),
        name: "it".into(),
    }
}

/// A row group of a file, whose large pages are read in pieces.
fn group(bytes: &[u8], metadata: &ArrowReaderMetadata, index: usize) -> Arc<dyn FileReader> {
    let metadata = metadata.metadata();
    let group = metadata.row_group(index);
    let chunks = Chunks::open(&blob(bytes), group, 0..group.num_columns()).unwrap();
    let limit = Arc::new(BatchLimit::of_rows(100));
    CheckedGroup::open_by(metadata, index, chunks, limit, SMALL)
}

fn load(bytes: &[u8]) -> ArrowReaderMetadata {
    let bytes = bytes::Bytes::copy_from_slice(bytes);
    ArrowReaderMetadata::load(&bytes, Default::default()).unwrap()
}

/// Returns the rows after the first `passed` of a row group, in batches of at most 100.
fn rows(
    group: &Arc<dyn FileReader>,
    metadata: &ArrowReaderMetadata,
    passed: usize,
) -> Result<Vec<RecordBatch>, String> {
    let schema = metadata.parquet_schema();
    let fields = Some(metadata.schema().fields());
    let levels =
        parquet_to_arrow_field_levels(schema, ProjectionMask::all(), fields.cloned().as_ref());
    let rows = group.metadata().row_group(0).num_rows() as usize;
    let rest = (passed > 0).then(|| {
        let rest = RowSelector::select(rows - passed);
        RowSelection::from(vec![RowSelector::skip(passed), rest])
    });
    let levels = levels.map_err(|error| error.to_string())?;
    let reader = ParquetRecordBatchReader::try_new_with_row_groups(&levels, group, 100, rest);
    let batches: Result<Vec<_>, _> = reader.map_err(|error| error.to_string())?.collect();
    batches.map_err(|error| error.to_string())
}

/// Returns the number of data pages of a column, and the bytes of the largest one.
fn pages(group: &Arc<dyn FileReader>, leaf: usize) -> (usize, usize) {
    let columns = group.get_row_group(0).unwrap();
    let pages = columns.get_column_page_reader(leaf).unwrap();
    let data = pages.map(Result::unwrap).filter(|page| page.is_data_page());
    let bytes: Vec<usize> = data.map(|page| page.buffer().len()).collect();
    (bytes.len(), bytes.into_iter().max().unwrap_or(0))
}

fn check(bytes: &[u8], expected: &RecordBatch, rng: &mut Rng) {
    let metadata = load(bytes);
    let mut first = 0;
    for index in 0..metadata.metadata().num_row_groups() {
        let group_rows = metadata.metadata().row_group(index).num_rows() as usize;
        for passed in [0, rng.below(group_rows)] {
            let group = group(bytes, &metadata, index);
            let batches = rows(&group, &metadata, passed).unwrap();
            let schema = &batches[0].schema();
            let found = arrow_select::concat::concat_batches(schema, &batches).unwrap();
            let expected = expected.slice(first + passed, group_rows - passed);
            assert_eq!(found.columns(), expected.columns());
        }
        first += group_rows;
    }
    assert_eq!(first, expected.num_rows());
}

fn packings() -> [Compression; 5] {
    [
        Compression::UNCOMPRESSED,
        Compression::ZSTD(ZstdLevel::default()),
        Compression::GZIP(GzipLevel::default()),
        Compression::SNAPPY,
        Compression::LZ4_RAW,
    ]
}

#[test]
fn pieces_have_the_rows_of_whole_pages() {
    for seed in 1..=12 {
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            for packing in packings() {
                println!("seed {seed}, {version:?}, {packing:?}");
                let mut rng = Rng(seed * 0x9e37_79b9);
                let batch = rng.batch(700);
                let properties = WriterProperties::builder()
                    .set_writer_version(version)
                    .set_compression(packing)
                    .set_encoding(Encoding::PLAIN)
                    .set_dictionary_enabled(seed % 3 == 0)
                    .set_dictionary_page_size_limit(1000)
                    .set_data_page_size_limit([500, 20_000, 1 << 20][seed as usize % 3])
                    .set_write_batch_size(50)
                    .set_max_row_group_row_count(Some(400));
                check(&file(&batch, properties.build()), &batch, &mut rng);
            }
        }
    }
}

#[test]
fn large_pages_come_in_pieces() {
    let batch = Rng(7).batch(700);
    for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
        for packing in &packings()[..3] {
            let properties = WriterProperties::builder()
                .set_writer_version(version)
                .set_compression(*packing)
                .set_encoding(Encoding::PLAIN)
                .set_dictionary_enabled(false);
            let bytes = file(&batch, properties.build());
            let metadata = load(&bytes);
            let group = group(&bytes, &metadata, 0);
            for leaf in 1..5 {
                let (count, most_bytes) = pages(&group, leaf);
                assert!(count > 50, "column {leaf}");
                // A value, the size of a piece, and levels.
                assert!(most_bytes < 2004 + 2 * SMALL.piece_bytes, "{most_bytes}");
            }
            assert_eq!((pages(&group, 0).0, pages(&group, 5).0), (1, 1));
        }
    }
}

/// Metadata whose footer lists other encodings of the first column.
fn with_encodings(of: &ArrowReaderMetadata, encodings: Vec<Encoding>) -> ArrowReaderMetadata {
    let mut builder = of.metadata().as_ref().clone().into_builder();
    let group = builder.take_row_groups().remove(0);
    let mut columns = group.columns().to_vec();
    let column = columns
        .remove(0)
        .into_builder()
        .set_encodings(encodings)
        .build()
        .unwrap();
    columns.insert(0, column);
    let group = group
        .into_builder()
        .set_column_metadata(columns)
        .build()
        .unwrap();
    let metadata = builder.set_row_groups(vec![group]).build();
    ArrowReaderMetadata::try_new(Arc::new(metadata), Default::default()).unwrap()
}

#[test]
fn keys_of_a_dictionary_are_read_though_the_footer_lists_none() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a", "a"]));
    let batch = RecordBatch::try_from_iter([("t", texts)]).unwrap();
    for (has_dictionary, listed, is_read) in [
        (true, vec![Encoding::PLAIN, Encoding::RLE], true),
        (
            true,
            vec![Encoding::PLAIN, Encoding::PLAIN_DICTIONARY],
            false,
        ),
        (false, vec![Encoding::PLAIN, Encoding::RLE], true),
        (false, vec![Encoding::RLE_DICTIONARY], false),
        (false, vec![], true),
    ] {
        let properties = WriterProperties::builder().set_dictionary_enabled(has_dictionary);
        let bytes = file(&batch, properties.build());
        let metadata = with_encodings(&load(&bytes), listed.clone());
        let read = rows(&group(&bytes, &metadata, 0), &metadata, 0);
        assert_eq!(
            read.is_ok(),
            is_read,
            "{has_dictionary} {listed:?}: {read:?}"
        );
        assert!(read.is_err() || read.is_ok_and(|read| read == [batch.clone()]));
    }
}
