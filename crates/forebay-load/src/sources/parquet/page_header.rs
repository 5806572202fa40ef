//! Reads the header of a page: a struct in Thrift's compact protocol.
//!
//! The crate also reads it, but does not expose it. A header that this module does not understand
//! is left to the crate, whose errors say what is wrong.

use std::io::{self, Read};

/// The types of fields in the compact protocol.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const INTEGERS: [u8; 3] = [4, 5, 6];
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const STRUCT: u8 = 12;

/// The most nested structs.
const DEPTH: usize = 4;
/// The most numbers in a header.
const NUMBERS: usize = 64;

const DATA_PAGE: i32 = 0;
const INDEX_PAGE: i32 = 1;
const DATA_PAGE_V2: i32 = 3;

/// The content of a header.
#[derive(Debug, PartialEq)]
pub(super) struct PageHeader {
    /// The bytes of the header.
    pub length: u64,
    /// The bytes of the page as stored in the file.
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    pub checksum: Option<u32>,
    pub kind: PageKind,
}

#[derive(Debug, PartialEq)]
pub(super) enum PageKind {
    Data {
        values: u32,
        encoding: i32,
        definition_encoding: i32,
    },
    DataV2 {
        values: u32,
        nulls: u32,
        encoding: i32,
        definition_bytes: u64,
        repetition_bytes: u64,
        is_packed: bool,
    },
    Index,
    Other,
}

impl PageHeader {
    /// Reads a header of at most `most` bytes. Returns `None` if it is not understood.
    pub fn read(input: impl Read, most: u64) -> Option<PageHeader> {
        let mut fields = Fields {
            input: input.take(most),
            numbers: Vec::new(),
        };
        fields.read(0, 0).ok()?;
        let length = most - fields.input.limit();
        let number = |within, field| fields.number(within, field);
        let size = |within, field| u64::try_from(number(within, field)?).ok();
        let count = |within, field| u32::try_from(number(within, field)?).ok();
        let kind = match number(0, 1)? {
            DATA_PAGE => PageKind::Data {
                values: count(5, 1)?,
                encoding: number(5, 2)?,
                definition_encoding: number(5, 3)?,
            },
            DATA_PAGE_V2 => PageKind::DataV2 {
                values: count(8, 1)?,
                nulls: count(8, 2)?,
                encoding: number(8, 4)?,
                definition_bytes: size(8, 5)?,
                repetition_bytes: size(8, 6)?,
                is_packed: number(8, 7) != Some(0),
            },
            INDEX_PAGE => PageKind::Index,
            _ => PageKind::Other,
        };
        Some(PageHeader {
            length,
            packed_bytes: size(0, 3)?,
            unpacked_bytes: size(0, 2)?,
            checksum: number(0, 4).map(|checksum| checksum as u32),
            kind,
        })
    }
}

/// The numbers of a struct and of the structs nested in it.
struct Fields<R> {
    input: io::Take<R>,
    /// Each number with its field, and the field of the outermost struct that contains it (0 for
    /// none).
    numbers: Vec<(i16, i16, i32)>,
}

fn refused() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl<R: Read> Fields<R> {
    fn number(&self, within: i16, field: i16) -> Option<i32> {
        let mut numbers = self.numbers.iter();
        let found = numbers.find(|(of, id, _)| (*of, *id) == (within, field));
        found.map(|(_, _, number)| *number)
    }

    fn read(&mut self, depth: usize, within: i16) -> io::Result<()> {
        let mut field = 0_i16;
        loop {
            let head = self.byte()?;
            let (step, kind) = (head >> 4, head & 15);
            if kind == 0 {
                return Ok(());
            }
            field = match step {
                0 => i16::try_from(self.signed()?).map_err(|_| refused())?,
                step => field.checked_add(i16::from(step)).ok_or_else(refused)?,
            };
            match kind {
                TRUE => self.keep(depth, within, field, 1)?,
                FALSE => self.keep(depth, within, field, 0)?,
                BYTE => self.pass(1)?,
                kind if INTEGERS.contains(&kind) => {
                    let number = self.signed()?;
                    self.keep(depth, within, field, number)?;
                }
                DOUBLE => self.pass(8)?,
                BINARY => {
                    let length = self.varint()?;
                    self.pass(length)?;
                }
                STRUCT if depth < DEPTH => {
                    let within = if depth == 0 { field } else { within };
                    self.read(depth + 1, within)?;
                }
                // A header has no lists and no maps.
                _ => return Err(refused()),
            }
        }
    }

    /// Records a number. Those of statistics, which are nested deeper, are ignored.
    fn keep(&mut self, depth: usize, within: i16, field: i16, number: i64) -> io::Result<()> {
        if depth > 1 {
            return Ok(());
        }
        // If a field occurs twice, it is unclear which value counts.
        if self.numbers.len() == NUMBERS || self.number(within, field).is_some() {
            return Err(refused());
        }
        let number = i32::try_from(number).map_err(|_| refused())?;
        self.numbers.push((within, field, number));
        Ok(())
    }

    fn pass(&mut self, length: u64) -> io::Result<()> {
        let passed = io::copy(&mut self.input.by_ref().take(length), &mut io::sink())?;
        if passed < length {
            return Err(refused());
        }
        Ok(())
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(refused())
    }

    fn signed(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header as written by pyarrow, with statistics.
    const HEADER: [u8; 36] = [
        0x15, 0x00, // data page
        0x15, 0x80, 0x01, // 64 bytes
        0x15, 0x50, // 40 bytes
        0x15, 0x01, // checksum of -1
        0x1c, // data page's header
        0x15, 0x0a, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, // 5 values, plain, levels in runs
        0x1c, // statistics
        0x36, 0x02, // 1 null
        0x28, 0x04, b'l', b'a', b's', b't', // largest value
        0x18, 0x01, b'a', // smallest
        0x11, 0x12, // booleans
        0x00, // end of statistics
        0x00, // end of the data page's header
        0x00, // end
        0xff, // a byte of the page
    ];

    #[test]
    fn a_header_gives_sizes_and_the_kind_of_page() {
        let header = PageHeader::read(&HEADER[..], 1000).unwrap();
        let expected = PageHeader {
            length: 35,
            packed_bytes: 40,
            unpacked_bytes: 64,
            checksum: Some(u32::MAX),
            kind: PageKind::Data {
                values: 5,
                encoding: 0,
                definition_encoding: 3,
            },
        };
        assert_eq!(header, expected);
    }

    #[test]
    fn headers_that_are_cut_off_or_odd_are_not_understood() {
        for most in 0..35 {
            assert_eq!(PageHeader::read(&HEADER[..], most), None, "{most}");
            assert_eq!(PageHeader::read(&HEADER[..most as usize], 1000), None);
        }
        let twice = [0x15, 0x00, 0x05, 0x02, 0x02, 0x15, 0x02, 0x15, 0x02, 0x00];
        assert_eq!(PageHeader::read(&twice[..], 1000), None);
        let endless = [0x1c; 4096];
        assert_eq!(PageHeader::read(&endless[..], 5000), None);
        let list = [0x19, 0xf5, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(PageHeader::read(&list[..], 1000), None);
    }
}
