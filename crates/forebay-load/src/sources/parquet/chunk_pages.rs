//! Reads the pages of a column chunk.
//!
//! Large pages are read in pieces, so that a page of gigabytes is never in memory as a whole.
//!
//! The crate reads all other pages. For chunks that may have large pages, this module also reads
//! the headers, and the crate skips those pages.

use std::sync::Arc;

use parquet::column::page::{Page, PageReader};
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;

use super::chunks::Chunk;
use super::large_page::{LargePage, PieceSizes};
use super::page_header::{PageHeader, PageKind};

pub(super) struct ChunkPages {
    pages: SerializedPageReader<Chunk>,
    /// The headers of a chunk that may have large pages.
    walk: Option<HeaderWalk>,
    /// The page that is returned in pieces.
    large: Option<LargePage>,
}

/// The position of the crate's reader in a chunk.
struct HeaderWalk {
    chunk: Arc<Chunk>,
    column: ColumnChunkMetaData,
    sizes: PieceSizes,
    at: u64,
    end: u64,
}

impl ChunkPages {
    pub fn open(
        chunk: Chunk,
        column: &ColumnChunkMetaData,
        rows: usize,
        sizes: PieceSizes,
    ) -> Result<ChunkPages> {
        let chunk = Arc::new(chunk);
        let walk = sizes.may_split(column).then(|| {
            let (at, length) = column.byte_range();
            HeaderWalk {
                chunk: Arc::clone(&chunk),
                column: column.clone(),
                sizes,
                at,
                end: at.saturating_add(length),
            }
        });
        Ok(ChunkPages {
            pages: SerializedPageReader::new(chunk, column, rows, None)?,
            walk,
            large: None,
        })
    }

    /// Returns the next page, or the next piece of one.
    pub fn next(&mut self) -> Result<Option<Page>> {
        if let Some(large) = &mut self.large {
            match large.next()? {
                Some(piece) => return Ok(Some(piece)),
                None => self.large = None,
            }
        }
        while let Some(walk) = &mut self.walk {
            let Some(header) = walk.header() else {
                // The end, or content that only the crate may understand.
                self.walk = None;
                break;
            };
            if header.kind == PageKind::Index {
                self.pages.skip_next_page()?;
                walk.pass(&header);
                continue;
            }
            let large = walk.open(&header);
            walk.pass(&header);
            let Some(mut large) = large else {
                break;
            };
            self.pages.skip_next_page()?;
            let piece = large.next()?;
            self.large = Some(large);
            return Ok(piece);
        }
        self.pages.get_next_page()
    }

    /// Returns the bytes of a row of the large page that the last piece belongs to.
    pub fn row_bytes(&self) -> Option<u64> {
        self.large.as_ref().map(|large| large.row_bytes)
    }
}

impl HeaderWalk {
    fn header(&self) -> Option<PageHeader> {
        let left = self.end.checked_sub(self.at).filter(|left| *left > 0)?;
        PageHeader::read(self.chunk.get_read(self.at).ok()?, left)
    }

    fn open(&self, header: &PageHeader) -> Option<LargePage> {
        let start = self.at + header.length;
        let fits = start.checked_add(header.packed_bytes)? <= self.end;
        fits.then(|| LargePage::open(&self.chunk, start, header, &self.column, self.sizes))?
    }

    fn pass(&mut self, header: &PageHeader) {
        self.at = (self.at + header.length).saturating_add(header.packed_bytes);
    }
}
