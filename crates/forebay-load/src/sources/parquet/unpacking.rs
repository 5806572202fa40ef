//! Unpacks a page's bytes while they are read.
//!
//! Neither the packed page nor the unpacked one is in memory as a whole.

use std::io::{self, BufRead, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use flate2::Crc;
use flate2::bufread::MultiGzDecoder;
use parquet::basic::Compression;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::ChunkReader;

use super::chunks::Chunk;

/// The packed bytes that are read at once.
const READ_BYTES: u64 = 256 << 10;

/// A page as stored in the file. Its checksum is computed as it is read.
pub(super) struct PackedPage {
    chunk: Arc<Chunk>,
    at: u64,
    end: u64,
    held: Bytes,
    checksum: Option<(Crc, u32)>,
}

impl PackedPage {
    /// Opens `length` bytes from `start` on, with the checksum `expected`, if any.
    pub fn new(chunk: &Arc<Chunk>, start: u64, length: u64, expected: Option<u32>) -> PackedPage {
        PackedPage {
            chunk: Arc::clone(chunk),
            at: start,
            end: start.saturating_add(length),
            held: Bytes::new(),
            checksum: expected.map(|expected| (Crc::new(), expected)),
        }
    }

    /// Reads the rest, and verifies the checksum.
    fn finish(&mut self) -> Result<()> {
        io::copy(self, &mut io::sink())?;
        match &self.checksum {
            Some((found, expected)) if found.sum() != *expected => Err(ParquetError::General(
                "Page CRC checksum mismatch".to_owned(),
            )),
            _ => Ok(()),
        }
    }
}

impl BufRead for PackedPage {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.held.is_empty() && self.at < self.end {
            let length = READ_BYTES.min(self.end - self.at);
            let read = self.chunk.get_bytes(self.at, length as usize);
            self.held = read.map_err(io::Error::other)?;
            self.at += length;
            if let Some((found, _)) = &mut self.checksum {
                found.update(&self.held);
            }
        }
        Ok(&self.held)
    }

    fn consume(&mut self, amount: usize) {
        self.held.advance(amount);
    }
}

impl Read for PackedPage {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let held = self.fill_buf()?;
        let length = held.len().min(out.len());
        out[..length].copy_from_slice(&held[..length]);
        self.consume(length);
        Ok(length)
    }
}

/// A reader of the unpacked bytes of a page.
pub(super) enum Unpacker {
    Plain(PackedPage),
    Zstd(zstd::stream::read::Decoder<'static, PackedPage>),
    Gzip(Box<MultiGzDecoder<PackedPage>>),
}

impl Unpacker {
    /// Returns whether pages with this compression can be unpacked as they are read. Snappy and LZ4
    /// are made for blocks in memory.
    pub fn is_for(compression: Compression) -> bool {
        matches!(
            compression,
            Compression::UNCOMPRESSED | Compression::ZSTD(_) | Compression::GZIP(_)
        )
    }

    /// Opens a page. Returns `None` if pages with this compression cannot be unpacked as they are
    /// read.
    pub fn open(compression: Compression, packed: PackedPage) -> Option<Unpacker> {
        Some(match compression {
            Compression::UNCOMPRESSED => Unpacker::Plain(packed),
            Compression::ZSTD(_) => {
                Unpacker::Zstd(zstd::stream::read::Decoder::with_buffer(packed).ok()?)
            }
            Compression::GZIP(_) => Unpacker::Gzip(Box::new(MultiGzDecoder::new(packed))),
            _ => return None,
        })
    }

    /// Verifies the page's checksum, after everything was unpacked.
    pub fn finish(&mut self) -> Result<()> {
        match self {
            Unpacker::Plain(packed) => packed.finish(),
            Unpacker::Zstd(decoder) => decoder.get_mut().finish(),
            Unpacker::Gzip(decoder) => decoder.get_mut().finish(),
        }
    }
}

impl Read for Unpacker {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Unpacker::Plain(packed) => packed.read(out),
            Unpacker::Zstd(decoder) => decoder.read(out),
            Unpacker::Gzip(decoder) => decoder.read(out),
        }
    }
}
