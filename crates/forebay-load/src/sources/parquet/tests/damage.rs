//! Tests that damaged pages are errors: no panics, and no more memory than a page may have.

use arrow_array::BinaryArray;
use bytes::Bytes;
use flate2::Crc;
use parquet::file::metadata::ColumnChunkMetaData;

use super::*;
use crate::sources::blob::guarded;
use crate::sources::parquet::chunks::Chunk;
use crate::sources::parquet::large_page::LargePage;
use crate::sources::parquet::page_header::PageHeader;

/// The one page of a file of 300 rows.
struct OnePage {
    file: Vec<u8>,
    column: ColumnChunkMetaData,
    header: PageHeader,
    start: usize,
}

impl OnePage {
    fn new(version: WriterVersion, packing: Compression) -> OnePage {
        let values = Rng(3).values(300, 20);
        let values: BinaryArray = values.iter().map(Option::as_deref).collect();
        let column: ArrayRef = Arc::new(values);
        let batch = RecordBatch::try_from_iter([("bytes", column)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_compression(packing)
            .set_encoding(Encoding::PLAIN)
            .set_dictionary_enabled(false);
        let file = file(&batch, properties.build());
        let column = load(&file).metadata().row_group(0).column(0).clone();
        let (start, length) = column.byte_range();
        let header = PageHeader::read(&file[start as usize..], length).unwrap();
        assert_eq!(header.length + header.packed_bytes, length);
        let start = (start + header.length) as usize;
        OnePage {
            file,
            column,
            header,
            start,
        }
    }

    fn end(&self) -> usize {
        self.start + self.header.packed_bytes as usize
    }

    fn with_checksum(mut self) -> OnePage {
        let mut checksum = Crc::new();
        checksum.update(&self.file[self.start..self.end()]);
        self.header.checksum = Some(checksum.sum());
        self
    }

    /// Returns the number of rows that the page gives in pieces; `None` if the crate has to read
    /// it.
    fn rows(&self, file: &[u8]) -> Option<Result<u32, String>> {
        let chunk = Arc::new(Chunk::Held(0, Bytes::copy_from_slice(file)));
        let start = self.start as u64;
        let mut page = LargePage::open(&chunk, start, &self.header, &self.column, SMALL)?;
        let (mut rows, mut bytes) = (0, 0);
        loop {
            match page.next() {
                Ok(Some(piece)) => {
                    rows += piece.num_values();
                    bytes += piece.buffer().len() as u64;
                }
                Ok(None) => break,
                Err(error) => return Some(Err(error.to_string())),
            }
            assert!(bytes <= 2 * self.header.unpacked_bytes, "{bytes} bytes");
        }
        Some(Ok(rows))
    }
}

fn all() -> Vec<OnePage> {
    let versions = [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0];
    let page = |version| move |packing: &Compression| OnePage::new(version, *packing);
    let pages = versions.map(|version| packings()[..3].iter().map(page(version)).collect());
    pages.into_iter().flat_map(|pages: Vec<_>| pages).collect()
}

#[test]
fn a_checksum_is_verified_before_the_last_piece() {
    for page in all() {
        assert_eq!(page.rows(&page.file), Some(Ok(300)));
        let page = page.with_checksum();
        assert_eq!(page.rows(&page.file), Some(Ok(300)));
        let step = page.header.packed_bytes as usize / 500 + 1;
        for at in (page.start..page.end()).step_by(step) {
            for bit in [0, 3, 7] {
                let mut file = page.file.clone();
                file[at] ^= 1 << bit;
                let read = page.rows(&file);
                assert!(!matches!(read, Some(Ok(_))), "byte {at}, bit {bit}");
            }
        }
    }
    let mut page = OnePage::new(WriterVersion::PARQUET_2_0, Compression::UNCOMPRESSED);
    page.header.checksum = Some(1);
    let error = page.rows(&page.file).unwrap().unwrap_err();
    assert!(error.contains("checksum mismatch"), "{error}");
}

#[test]
fn headers_that_disagree_with_their_page_give_errors() {
    for make in [-1, 1, 1000, 1 << 30] {
        for mut page in all() {
            page.header.unpacked_bytes = page.header.unpacked_bytes.saturating_add_signed(make);
            let error = page.rows(&page.file).unwrap().unwrap_err();
            let expected = ["cut off", "are left", "is not within"];
            assert!(expected.iter().any(|part| error.contains(part)), "{error}");
        }
    }
    for mut page in all() {
        page.header.packed_bytes -= 1;
        let read = page.rows(&page.file);
        assert!(!matches!(read, Some(Ok(_))), "{read:?}");
    }
}

#[test]
fn flipped_and_truncated_files_give_errors_or_rows() {
    for page in all() {
        let metadata = load(&page.file);
        let (first, length) = page.column.byte_range();
        let read = |file: &[u8]| guarded(|| rows(&group(file, &metadata, 0), &metadata, 0));
        for at in (first..first + length).step_by(length as usize / 100 + 1) {
            let mut file = page.file.clone();
            file[at as usize] ^= 1 << (at % 8);
            _ = read(&file);
            assert!(read(&file[..at as usize]).is_err(), "cut off at {at}");
        }
    }
}
