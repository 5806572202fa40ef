//! A row group's pages, whose headers have to agree with the footer.
//!
//! A page's checksum does not cover its header, so that a damaged one might have sound bytes
//! decoded as something else: each encoding has to be one that the footer names for the column, and
//! the values of all pages together as many as it says.

use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::bloom_filter::Sbbf;
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, ParquetMetaData, ParquetMetaDataBuilder, RowGroupMetaData,
};
use parquet::file::reader::{FileReader, RowGroupReader};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;

use super::chunks::{Chunk, Chunks};

/// One row group, as a file of its own.
pub(super) struct CheckedGroup {
    metadata: ParquetMetaData,
    chunks: Chunks,
}

impl CheckedGroup {
    pub(super) fn open(
        metadata: &ParquetMetaData,
        index: usize,
        chunks: Chunks,
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
        let chunk = Arc::new(self.0.chunks.take(leaf)?);
        Ok(Box::new(CheckedPages {
            pages: SerializedPageReader::new(chunk, column, rows, None)?,
            expected: Expected::of(column),
            values: 0,
            next: None,
        }))
    }

    fn get_column_bloom_filter(&self, _: usize) -> Option<&Sbbf> {
        None
    }

    fn get_row_iter(&self, _: Option<Type>) -> Result<RowIter<'_>> {
        Err(ParquetError::NYI("rows one by one".to_owned()))
    }
}

/// What the footer says of a column's pages.
struct Expected {
    encodings: Vec<Encoding>,
    values: u64,
    /// Whether values may repeat, or be null.
    repeats: bool,
    nulls: bool,
}

impl Expected {
    fn of(column: &ColumnChunkMetaData) -> Expected {
        let descriptor = column.column_descr();
        Expected {
            encodings: column.encodings().collect(),
            values: column.num_values().max(0) as u64,
            repeats: descriptor.max_rep_level() > 0,
            nulls: descriptor.max_def_level() > 0,
        }
    }
}

struct CheckedPages {
    pages: SerializedPageReader<Chunk>,
    expected: Expected,
    /// Those of the pages that were read.
    values: u64,
    /// A page that was read to see what it is.
    next: Option<Page>,
}

impl CheckedPages {
    fn read(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        match &page {
            Some(page) => self.check(page)?,
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
            return match plain {
                true => Ok(()),
                false => wrong("that its dictionary is encoded"),
            };
        }
        let encoding = page.encoding();
        if !expected.encodings.contains(&encoding) {
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
            let levels = u64::from(*def_levels_byte_len) + u64::from(*rep_levels_byte_len);
            let absent = (!expected.repeats && *rep_levels_byte_len > 0)
                || (!expected.nulls && *def_levels_byte_len > 0);
            if absent || levels > buf.len() as u64 || num_nulls > num_values {
                return wrong("levels that the column cannot have");
            }
        }
        Ok(())
    }
}

impl Iterator for CheckedPages {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Result<Page>> {
        self.get_next_page().transpose()
    }
}

/// The next page is read and checked before anything is said of it: the crate's own look at a
/// header alone gives up by a panic when parts of it are missing.
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
