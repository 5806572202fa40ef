//! Reads and writes definition levels, which say which rows of a page have a value.
//!
//! A page stores them in runs of one level, and in groups of eight that are packed bit by bit. The
//! pieces of a page store only runs.

use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};

/// A reader of the levels of a page.
pub(super) struct Levels {
    bytes: Bytes,
    most: u16,
    run: Run,
}

enum Run {
    Same { level: u16, left: u64 },
    Packed { bits: Bytes, at: usize },
}

fn cut_off() -> ParquetError {
    ParquetError::EOF("a page's definition levels are cut off".to_owned())
}

/// Returns the bits of a level, if `most` is the highest one.
fn bit_width(most: u16) -> usize {
    (u16::BITS - most.leading_zeros()) as usize
}

impl Levels {
    /// Creates a reader for a column whose highest level is `most`.
    pub fn new(bytes: Bytes, most: u16) -> Levels {
        Levels {
            bytes,
            most,
            run: Run::Same { level: 0, left: 0 },
        }
    }

    /// Returns the next level, and the number of rows that have it: at most `rows`.
    pub fn next(&mut self, rows: u32) -> Result<(u16, u32)> {
        let width = bit_width(self.most);
        let (level, count) = loop {
            match &mut self.run {
                Run::Same { level, left } if *left > 0 => {
                    let count = u64::from(rows).min(*left);
                    *left -= count;
                    break (*level, count as u32);
                }
                Run::Packed { bits, at } if *at + width <= bits.len() * 8 => {
                    let bit = |at: usize| u16::from(bits[at / 8] >> (at % 8) & 1);
                    let level = (0..width).map(|nth| bit(*at + nth) << nth).sum();
                    *at += width;
                    break (level, rows.min(1));
                }
                _ => self.begin(width)?,
            }
        };
        if level > self.most {
            return Err(ParquetError::General(format!(
                "a page has a definition level of {level}, which is not within {}",
                self.most
            )));
        }
        Ok((level, count))
    }

    /// Begins the next run.
    fn begin(&mut self, width: usize) -> Result<()> {
        let mut header = 0_u64;
        let mut shift = 0;
        loop {
            let byte = self.bytes.try_get_u8().map_err(|_| cut_off())?;
            header |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 35 {
                return Err(cut_off());
            }
        }
        let length = header >> 1;
        self.run = if header & 1 == 1 {
            let bytes = length.saturating_mul(width as u64);
            // Some writers omit the last bytes, of levels that are not needed.
            let held = bytes.min(self.bytes.len() as u64) as usize;
            let bits = self.bytes.split_to(held);
            Run::Packed { bits, at: 0 }
        } else {
            let mut level = [0; 2];
            let bytes = width.div_ceil(8);
            let stored = (self.bytes.len() >= bytes).then(|| self.bytes.split_to(bytes));
            level[..bytes].copy_from_slice(&stored.ok_or_else(cut_off)?);
            Run::Same {
                level: u16::from_le_bytes(level),
                left: length,
            }
        };
        Ok(())
    }
}

/// The levels of a piece.
#[derive(Default)]
pub(super) struct LevelRuns(Vec<(u16, u32)>);

impl LevelRuns {
    /// The most bytes in which a run is stored.
    pub const RUN_BYTES: usize = 7;

    pub fn push(&mut self, level: u16, count: u32) {
        match self.0.last_mut() {
            Some((last, held)) if *last == level => *held += count,
            _ => self.0.push((level, count)),
        }
    }

    /// Returns the most bytes of the levels after one more is pushed.
    pub fn most_bytes(&self) -> usize {
        (self.0.len() + 1) * LevelRuns::RUN_BYTES
    }

    /// Encodes the levels in the form of a page of a column whose highest level is `most`.
    pub fn encode(&self, most: u16) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (level, count) in &self.0 {
            let mut header = u64::from(*count) << 1;
            while header >= 0x80 {
                encoded.push(header as u8 | 0x80);
                header >>= 7;
            }
            encoded.push(header as u8);
            encoded.extend(&level.to_le_bytes()[..bit_width(most).div_ceil(8)]);
        }
        encoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], most: u16, rows: u32) -> Result<Vec<(u16, u32)>> {
        let mut levels = Levels::new(Bytes::copy_from_slice(bytes), most);
        let mut runs = LevelRuns::default();
        let mut left = rows;
        while left > 0 {
            let (level, count) = levels.next(left)?;
            runs.push(level, count);
            left -= count;
        }
        Ok(runs.0)
    }

    #[test]
    fn levels_come_in_runs() {
        // Five of 1, then a group of eight: 0, 0, 1, 1, 0, 1, 0, 1.
        let bytes = [10, 1, 3, 0b1010_1100];
        let expected = [(1, 5), (0, 2), (1, 2), (0, 1), (1, 1), (0, 1), (1, 1)];
        assert_eq!(all(&bytes, 1, 13).unwrap(), expected);
        assert_eq!(all(&bytes, 1, 3).unwrap(), [(1, 3)]);
        // Levels of two bits: 3, 0, 1, 2.
        let bytes = [3, 0b1001_0011, 0];
        let expected = [(3, 1), (0, 1), (1, 1), (2, 1), (0, 4)];
        assert_eq!(all(&bytes, 3, 8).unwrap(), expected);
    }

    #[test]
    fn encoded_levels_are_read_back() {
        for most in [1, 2, 3, 255, 256, 1000] {
            let runs = [(most, 1), (0, u32::MAX - 1000), (1, 127), (most, 128)];
            let mut written = LevelRuns::default();
            for (level, count) in runs {
                written.push(level, count);
                assert!(written.encode(most).len() + LevelRuns::RUN_BYTES <= written.most_bytes());
            }
            let rows = runs.iter().map(|(_, count)| count).sum();
            assert_eq!(all(&written.encode(most), most, rows).unwrap(), written.0);
        }
    }

    #[test]
    fn damaged_levels_give_errors() {
        let bytes = [10, 1, 3, 0b1010_1100];
        for length in 0..bytes.len() {
            assert!(all(&bytes[..length], 1, 13).is_err(), "{length}");
        }
        assert!(all(&bytes, 1, 14).is_err());
        assert!(all(&[10, 2], 1, 5).is_err());
        assert!(all(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 1, 5).is_err());
        assert!(all(&[0, 1, 0, 1], 1, 5).is_err());
    }
}
