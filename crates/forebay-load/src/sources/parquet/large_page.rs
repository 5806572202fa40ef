//! Reads a large page of texts or bytes in pieces: pages of some of its rows each.
//!
//! Plain values follow one another, each after its length, so a page can be split at any row. Its
//! checksum covers all of it. The last piece is returned only after the checksum was verified.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::{Compression, Type};
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;

use super::chunks::Chunk;
use super::levels::Levels;
use super::page_header::{PageHeader, PageKind};
use super::piece::PagePiece;
use super::unpacking::{PackedPage, Unpacker};

/// The unpacked bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// A page with more bytes of levels than this is left to the crate.
const MOST_LEVELS_BYTES: u64 = 16 << 20;

/// The numbers of encodings in headers.
const PLAIN: i32 = 0;
const RLE: i32 = 3;

/// The size up to which pages are read whole, and the size of pieces.
#[derive(Debug, Clone, Copy)]
pub(super) struct PieceSizes {
    pub whole_bytes: u64,
    pub piece_bytes: usize,
}

impl PieceSizes {
    pub const USUAL: PieceSizes = PieceSizes {
        whole_bytes: 16 << 20,
        piece_bytes: 4 << 20,
    };

    /// Returns whether a chunk may have pages that can be read in pieces.
    pub fn may_split(&self, column: &ColumnChunkMetaData) -> bool {
        let descriptor = column.column_descr();
        u64::try_from(column.uncompressed_size()).is_ok_and(|bytes| bytes > self.whole_bytes)
            && descriptor.physical_type() == Type::BYTE_ARRAY
            && descriptor.max_rep_level() == 0
            && Unpacker::is_for(column.compression())
    }
}

pub(super) struct LargePage {
    unpacked: BufReader<Unpacker>,
    /// The unpacked bytes left to read.
    left: u64,
    /// `None` for a column whose values are never null.
    levels: Option<Levels>,
    max_level: u16,
    /// The current run of rows, which are not in a piece yet, with their level.
    run: (u16, u32),
    /// The number of rows that are not in a piece yet.
    rows_left: u32,
    nulls: u32,
    /// The number of nulls by the header, if it has one.
    expected_nulls: Option<u32>,
    piece_bytes: usize,
    /// The average unpacked bytes of a row.
    pub row_bytes: u64,
}

/// The state of a page before its values are read.
struct PageStart {
    unpacker: Unpacker,
    /// The unpacked bytes of the values.
    left: u64,
    levels: Option<Bytes>,
    rows: u32,
    nulls: Option<u32>,
}

impl LargePage {
    /// Opens the page of `header`, which begins at `start`. Returns `None` if the page is small, or
    /// cannot be read in pieces.
    pub fn open(
        chunk: &Arc<Chunk>,
        start: u64,
        header: &PageHeader,
        column: &ColumnChunkMetaData,
        sizes: PieceSizes,
    ) -> Option<LargePage> {
        if header.unpacked_bytes <= sizes.whole_bytes {
            return None;
        }
        let max_level = u16::try_from(column.column_descr().max_def_level()).ok()?;
        let packed = PackedPage::new(chunk, start, header.packed_bytes, header.checksum);
        let compression = column.compression();
        let begun = match header.kind {
            PageKind::DataV2 { .. } => PageStart::of_v2(header, packed, compression, max_level),
            _ => PageStart::of_v1(header, packed, compression, max_level),
        }?;
        let mut unpacked = BufReader::with_capacity(READ_BYTES, begun.unpacker);
        // Pages that cannot be unpacked in this way, for example with too large a window of zstd,
        // are left to the crate.
        unpacked.fill_buf().ok()?;
        Some(LargePage {
            unpacked,
            left: begun.left,
            levels: begun.levels.map(|bytes| Levels::new(bytes, max_level)),
            max_level,
            run: (0, 0),
            rows_left: begun.rows,
            nulls: 0,
            expected_nulls: begun.nulls,
            piece_bytes: sizes.piece_bytes,
            row_bytes: header.unpacked_bytes.checked_div(u64::from(begun.rows))?,
        })
    }

    /// Returns the next piece; `None` after the last one.
    pub fn next(&mut self) -> Result<Option<Page>> {
        if self.rows_left == 0 {
            return Ok(None);
        }
        let mut piece = PagePiece::new(self.max_level, self.piece_bytes);
        while self.rows_left > 0 && !piece.is_full() {
            if self.run.1 == 0 {
                self.run = match &mut self.levels {
                    Some(levels) => levels.next(self.rows_left)?,
                    None => (0, self.rows_left),
                };
            }
            let (level, rows) = self.run;
            let taken = if level < self.max_level {
                piece.push_nulls(level, rows);
                self.nulls += rows;
                rows
            } else {
                self.read_value(&mut piece)?;
                1
            };
            self.run.1 -= taken;
            self.rows_left -= taken;
        }
        if self.rows_left == 0 {
            self.finish()?;
        }
        Ok(Some(piece.into_page()))
    }

    fn read_value(&mut self, piece: &mut PagePiece) -> Result<()> {
        let mut length = [0; 4];
        let read = self.unpacked.read_exact(&mut length);
        read.map_err(unpacked_error)?;
        let value_bytes = u32::from_le_bytes(length);
        let after = self.left.checked_sub(4 + u64::from(value_bytes));
        self.left = after.ok_or_else(|| {
            ParquetError::General(format!(
                "a value of {value_bytes} bytes is not within its page"
            ))
        })?;
        piece.begin_value(length)?;
        let mut missing = value_bytes as usize;
        while missing > 0 {
            let held = self.unpacked.fill_buf().map_err(unpacked_error)?;
            if held.is_empty() {
                return Err(cut_off());
            }
            let taken = missing.min(held.len());
            piece.extend_value(&held[..taken]);
            self.unpacked.consume(taken);
            missing -= taken;
        }
        Ok(())
    }

    /// After the last value, verifies that the page agrees with its header.
    fn finish(&mut self) -> Result<()> {
        let mut rest = self.unpacked.by_ref().take(self.left + 1);
        let rest = io::copy(&mut rest, &mut io::sink()).map_err(unpacked_error)?;
        if rest < self.left {
            return Err(cut_off());
        }
        if rest > self.left {
            return Err(ParquetError::General(
                "bytes are left after a page's values".to_owned(),
            ));
        }
        self.unpacked.get_mut().finish()?;
        match self.expected_nulls {
            Some(expected) if expected != self.nulls => Err(ParquetError::General(format!(
                "a page's header says {expected} nulls, its levels {}",
                self.nulls
            ))),
            _ => Ok(()),
        }
    }
}

impl PageStart {
    /// Reads levels that are packed together with the values, after their length.
    fn of_v1(
        header: &PageHeader,
        packed: PackedPage,
        compression: Compression,
        max_level: u16,
    ) -> Option<PageStart> {
        let PageKind::Data {
            values: rows,
            encoding: PLAIN,
            definition_encoding,
        } = header.kind
        else {
            return None;
        };
        let mut begun = PageStart {
            unpacker: Unpacker::open(compression, packed)?,
            left: header.unpacked_bytes,
            levels: None,
            rows,
            nulls: None,
        };
        if max_level > 0 {
            let mut length = [0; 4];
            begun.unpacker.read_exact(&mut length).ok()?;
            let length = u64::from(u32::from_le_bytes(length));
            if definition_encoding != RLE {
                return None;
            }
            begun.left = begun.left.checked_sub(4 + length)?;
            begun.levels = Some(read_levels(&mut begun.unpacker, length)?);
        }
        Some(begun)
    }

    /// Reads levels that precede the packed part.
    fn of_v2(
        header: &PageHeader,
        mut packed: PackedPage,
        compression: Compression,
        max_level: u16,
    ) -> Option<PageStart> {
        let PageKind::DataV2 {
            values: rows,
            nulls,
            encoding: PLAIN,
            definition_bytes,
            repetition_bytes: 0,
            is_packed,
        } = header.kind
        else {
            return None;
        };
        // Some writers store levels for a column that has none.
        if (definition_bytes > 0) != (max_level > 0) {
            return None;
        }
        let left = header.unpacked_bytes.checked_sub(definition_bytes)?;
        let levels = match max_level {
            0 => None,
            _ => Some(read_levels(&mut packed, definition_bytes)?),
        };
        let unpacker = match is_packed {
            true => Unpacker::open(compression, packed)?,
            false => Unpacker::Plain(packed),
        };
        Some(PageStart {
            unpacker,
            left,
            levels,
            rows,
            nulls: Some(nulls),
        })
    }
}

/// Returns `None` if there are fewer bytes, or too many to hold.
fn read_levels(input: &mut dyn Read, length: u64) -> Option<Bytes> {
    if length > MOST_LEVELS_BYTES {
        return None;
    }
    let mut bytes = Vec::new();
    let read = input.take(length).read_to_end(&mut bytes).ok()?;
    (read as u64 == length).then(|| bytes.into())
}

fn cut_off() -> ParquetError {
    ParquetError::EOF("a page's values are cut off".to_owned())
}

fn unpacked_error(error: io::Error) -> ParquetError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => cut_off(),
        _ => error.into(),
    }
}
