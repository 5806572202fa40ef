//! Reads a row group's pages, and checks their headers against the footer.
//!
//! A page's checksum does not cover its header. A flipped bit there would decode intact bytes as
//! other values. The encoding of each page therefore has to be one that the footer lists for the
//! column. A footer that lists none is accepted (HVR 5.3 writes such). All pages together must have
//! as many values as the footer says. If a column has a dictionary and the footer lists no encoding
//! of keys, pages of keys are read. Files of Parquet.Net 4 are like this.
//!
//! A page also shows how large its values are: see [`BatchLimit`].

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::batch_limit::{BatchLimit, ColumnWidth};
use super::chunk_pages::ChunkPages;
use super::chunks::Chunks;
use super::large_page::PieceSizes;
use super::old_writer::has_short_chunks;

/// One row group, presented as a file.
pub(super) struct CheckedGroup {
    metadata: ParquetMetaData,
    chunks: Chunks,
    limit: Arc<BatchLimit>,
    sizes: PieceSizes,
}

impl CheckedGroup {
    /// Opens a row group. Pages whose values are too large for batches of `limit` end the reading.
    pub(super) fn open(
        metadata: &ParquetMetaData,
        index: usize,
        chunks: Chunks,
        limit: Arc<BatchLimit>,
    ) -> Arc<dyn FileReader> {
        CheckedGroup::open_by(metadata, index, chunks, limit, PieceSizes::USUAL)
    }

    /// Opens a row group, with the size up to which pages are read whole.
    pub(super) fn open_by(
        metadata: &ParquetMetaData,
        index: usize,
        chunks: Chunks,
        limit: Arc<BatchLimit>,
        sizes: PieceSizes,
    ) -> Arc<dyn FileReader> {
        let (whole, group) = (metadata.file_metadata(), metadata.row_group(index));
        let file = FileMetaData::new(
            whole.version(),
            group.num_rows(),
            whole.created_by().map(str::to_owned),
            None,
            whole.schema_descr_ptr(),
            None,
        );
        let metadata = ParquetMetaDataBuilder::new(file).add_row_group(group.clone());
        Arc::new(CheckedGroup {
            metadata: metadata.build(),
            chunks,
            limit,
            sizes,
        })
    }
}

impl FileReader for CheckedGroup {
    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }

    fn num_row_groups(&self) -> usize {
        1
    }

    fn get_row_group(&self, _: usize) -> Result<Box<dyn RowGroupReader + '_>> {
        Ok(Box::new(CheckedColumns(self)))
    }

    fn get_row_iter(&self, _: Option<Type>) -> Result<RowIter<'_>> {
        Err(ParquetError::NYI("rows one by one".to_owned()))
    }
}

struct CheckedColumns<'g>(&'g CheckedGroup);

impl RowGroupReader for CheckedColumns<'_> {
    fn metadata(&self) -> &RowGroupMetaData {
        self.0.metadata.row_group(0)
    }

    fn num_columns(&self) -> usize {
        self.metadata().num_columns()
    }

    fn get_column_page_reader(&self, leaf: usize) -> Result<Box<dyn PageReader>> {
        let column = self.metadata().column(leaf);
        let rows = usize::try_from(self.metadata().num_rows())?;
        let chunk = self.0.chunks.take(leaf)?;
        Ok(Box::new(CheckedPages {
            pages: ChunkPages::open(chunk, column, rows, self.0.sizes)?,
            expected: ExpectedPages::of(column),
            values: 0,
            has_dictionary: false,
            next: None,
            ends_with_values: has_short_chunks(&self.0.metadata),
            width: ColumnWidth::of(column, rows as u64),
            limit: Arc::clone(&self.0.limit),
        }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, _: Option<Type>) -> Result<RowIter<'_>> {
        Err(ParquetError::NYI("rows one by one".to_owned()))
    }
}

/// The footer's description of a column's pages.
struct ExpectedPages {
    encodings: Vec<Encoding>,
    values: u64,
    /// Whether values may repeat, or be null.
    repeats: bool,
    nulls: bool,
}

impl ExpectedPages {
    fn of(column: &ColumnChunkMetaData) -> ExpectedPages {
        let descriptor = column.column_descr();
        ExpectedPages {
            encodings: column.encodings().collect(),
            values: column.num_values().max(0) as u64,
            repeats: descriptor.max_rep_level() > 0,
            nulls: descriptor.max_def_level() > 0,
        }
    }
}

impl ExpectedPages {
    /// Returns whether pages may have an encoding.
    fn lists(&self, encoding: Encoding, has_dictionary: bool) -> bool {
        let is_of_keys =
            |one: &Encoding| matches!(one, Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY);
        let lists_keys = self.encodings.iter().any(is_of_keys);
        self.encodings.is_empty()
            || self.encodings.contains(&encoding)
            || (has_dictionary && is_of_keys(&encoding) && !lists_keys)
    }
}

struct CheckedPages {
    pages: ChunkPages,
    expected: ExpectedPages,
    /// The number of values of the pages read so far.
    values: u64,
    /// Whether the chunk begins with a dictionary.
    has_dictionary: bool,
    /// A page that was read ahead to see what it is.
    next: Option<Page>,
    /// Whether the chunk extends beyond its pages.
    ends_with_values: bool,
    width: ColumnWidth,
    limit: Arc<BatchLimit>,
}

impl CheckedPages {
    fn read(&mut self) -> Result<Option<Page>> {
        if self.ends_with_values && self.values == self.expected.values {
            return Ok(None);
        }
        let page = self.pages.next()?;
        match &page {
            Some(page) => {
                self.check(page)?;
                let row_bytes = self.pages.row_bytes();
                let row_bytes = row_bytes.unwrap_or_else(|| self.width.row_bytes(page));
                self.limit.check(row_bytes)?;
            }
            None if self.values != self.expected.values => {
                return Err(ParquetError::General(format!(
                    "its pages have {} values, the footer says {}",
                    self.values, self.expected.values
                )));
            }
            None => {}
        }
        Ok(page)
    }

    fn check(&mut self, page: &Page) -> Result<()> {
        let expected = &self.expected;
        let wrong = |what: &str| {
            Err(ParquetError::General(format!(
                "a page's header says {what}"
            )))
        };
        if let Page::DictionaryPage { encoding, .. } = page {
            let plain = matches!(encoding, Encoding::PLAIN | Encoding::PLAIN_DICTIONARY);
            self.has_dictionary = true;
            return match plain {
                true => Ok(()),
                false => wrong("that its dictionary is encoded"),
            };
        }
        let encoding = page.encoding();
        if !expected.lists(encoding, self.has_dictionary) {
            return wrong(&format!("{encoding}, which the footer does not"));
        }
        self.values += u64::from(page.num_values());
        if self.values > expected.values {
            return wrong("more values than the footer");
        }
        if let Page::DataPageV2 {
            buf,
            num_values,
            num_nulls,
            def_levels_byte_len,
            rep_levels_byte_len,
            ..
        } = page
        {
            let repetitions = buf.get(..*rep_levels_byte_len as usize);
            let end = u64::from(*rep_levels_byte_len) + u64::from(*def_levels_byte_len);
            let definitions = buf.get(*rep_levels_byte_len as usize..end as usize);
            // Some writers store levels for a column that has none; all of them are 0 then.
            let fits = |levels: Option<&[u8]>, has_levels: bool| {
                levels.is_some_and(|levels| has_levels || are_zeros(levels, *num_values))
            };
            let fit = fits(repetitions, expected.repeats) && fits(definitions, expected.nulls);
            if !fit || num_nulls > num_values {
                return wrong("levels that the column cannot have");
            }
        }
        Ok(())
    }
}

/// Returns whether bytes are absent, or the encoding (runs and packed groups of one bit, or of
/// none) of `count` levels that all are 0.
fn are_zeros(bytes: &[u8], count: u32) -> bool {
    bytes.is_empty() || [0, 1].iter().any(|width| hold_zeros(bytes, count, *width))
}

fn hold_zeros(mut bytes: &[u8], count: u32, bit_width: u64) -> bool {
    let mut held = 0_u64;
    while !bytes.is_empty() {
        let Some((header, rest)) = read_varint(bytes) else {
            return false;
        };
        let is_packed = header & 1 == 1;
        let length = header >> 1;
        if length == 0 {
            return false;
        }
        held = held.saturating_add(if is_packed {
            length.saturating_mul(8)
        } else {
            length
        });
        let zeros = if is_packed {
            length * bit_width
        } else {
            bit_width
        };
        let zeros = usize::try_from(zeros).unwrap_or(usize::MAX);
        match rest.split_at_checked(zeros) {
            Some((zeros, after)) if zeros.iter().all(|byte| *byte == 0) => bytes = after,
            _ => return false,
        }
    }
    let padded = u64::from(count).next_multiple_of(8);
    (u64::from(count)..=padded).contains(&held)
}

fn read_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

/// A page reader that reads and checks the next page before it describes it. The crate's own peek
/// reads only a header, and panics if parts of it are missing.
impl PageReader for CheckedPages {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        match self.next.take() {
            Some(page) => Ok(Some(page)),
            None => self.read(),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next.as_ref().map(|page| PageMetadata {
            num_rows: match page {
                Page::DataPageV2 { num_rows, .. } => Some(*num_rows as usize),
                _ => None,
            },
            num_levels: page.is_data_page().then(|| page.num_values() as usize),
            is_dict: page.is_dictionary_page(),
        }))
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.get_next_page().map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needless_levels_are_zeros() {
        // One run of 68: without a value, and with a value of one byte.
        assert!(are_zeros(&[0x88, 0x01], 68));
        assert!(are_zeros(&[0x88, 0x01, 0], 68));
        assert!(!are_zeros(&[0x88, 0x01, 1], 68));
        assert!(!are_zeros(&[0x88, 0x01], 60));
        // Nine groups of eight.
        assert!(are_zeros(&[0x13, 0, 0, 0, 0, 0, 0, 0, 0, 0], 68));
        assert!(!are_zeros(&[0x13, 0, 0, 0, 4, 0, 0, 0, 0, 0], 68));
        assert!(are_zeros(&[], 68));
        assert!(!are_zeros(&[0x88], 68));
    }
}
