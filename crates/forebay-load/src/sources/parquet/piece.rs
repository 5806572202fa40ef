//! Builds a piece of a large page: a page of its own, with some of the rows.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::Page;
use parquet::errors::{ParquetError, Result};

use super::levels::LevelRuns;

/// The part of a piece that its levels may take.
const LEVELS_PART: usize = 64;

pub(super) struct PagePiece {
    /// The space for the levels, followed by the values.
    bytes: Vec<u8>,
    levels_room: usize,
    levels: LevelRuns,
    max_level: u16,
    rows: u32,
    nulls: u32,
    /// The bytes of values in a full piece.
    full_bytes: usize,
}

impl PagePiece {
    /// Creates a piece for a column whose values have the level `max_level`.
    pub fn new(max_level: u16, full_bytes: usize) -> PagePiece {
        let levels_room = match max_level {
            0 => 0,
            _ => (full_bytes / LEVELS_PART).max(2 * LevelRuns::RUN_BYTES),
        };
        PagePiece {
            bytes: vec![0; levels_room],
            levels_room,
            levels: LevelRuns::default(),
            max_level,
            rows: 0,
            nulls: 0,
            full_bytes,
        }
    }

    pub fn is_full(&self) -> bool {
        let has_levels = self.max_level > 0;
        let values = self.bytes.len() - self.levels_room;
        values >= self.full_bytes || has_levels && self.levels.most_bytes() > self.levels_room
    }

    pub fn push_nulls(&mut self, level: u16, rows: u32) {
        self.levels.push(level, rows);
        self.rows += rows;
        self.nulls += rows;
    }

    /// Begins a value of this length, whose bytes [`PagePiece::extend_value`] adds.
    pub fn begin_value(&mut self, length: [u8; 4]) -> Result<()> {
        let needed = 4 + u32::from_le_bytes(length) as usize;
        let free = self.bytes.capacity() - self.bytes.len();
        if needed > free {
            let wanted = needed.max(self.full_bytes + self.levels_room - self.bytes.len());
            self.bytes.try_reserve_exact(wanted).map_err(|_| {
                ParquetError::General(format!(
                    "there is no memory for a value of {needed} bytes: give the process more"
                ))
            })?;
        }
        self.bytes.extend(length);
        self.levels.push(self.max_level, 1);
        self.rows += 1;
        Ok(())
    }

    pub fn extend_value(&mut self, part: &[u8]) {
        self.bytes.extend_from_slice(part);
    }

    pub fn into_page(mut self) -> Page {
        let levels = match self.max_level {
            0 => Vec::new(),
            most => self.levels.encode(most),
        };
        let start = self.levels_room - levels.len();
        self.bytes[start..self.levels_room].copy_from_slice(&levels);
        Page::DataPageV2 {
            buf: Bytes::from(self.bytes).slice(start..),
            num_values: self.rows,
            encoding: Encoding::PLAIN,
            num_nulls: self.nulls,
            num_rows: self.rows,
            def_levels_byte_len: levels.len() as u32,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        }
    }
}
