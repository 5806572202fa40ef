//! Reads the bytes of a row group's columns.
//!
//! Local files are read on demand. Remote files are requested in advance.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, Bytes};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;
use parquet::file::reader::{ChunkReader, Length};

use crate::sources::blob::{Blob, BlobReader};

/// The bytes requested to read a page's header, which is always smaller.
const HEADER_BYTES: u64 = 8 << 10;
/// The bytes of a file's end that are read at once: enough for most footers.
const TAIL_BYTES: u64 = 64 << 10;
/// Remote columns of a row group are fetched whole if all together are at most this large.
const WHOLE_BYTES: u64 = 32 << 20;
/// Gaps of at most this many bytes between fetched columns are fetched, too: that is cheaper than
/// another request.
const GAP_BYTES: u64 = 512 << 10;
/// The bytes held of larger columns together, in windows of these sizes.
const WINDOWS_BYTES: u64 = 96 << 20;
const WINDOW_BYTES: Range<u64> = 128 << 10..4 << 20;
/// The windows of a column that are fetched ahead.
const AHEAD: usize = 2;

fn beyond() -> ParquetError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

fn range(start: u64, length: usize) -> Result<Range<u64>, ParquetError> {
    let end = start.checked_add(length as u64).ok_or_else(beyond)?;
    Ok(start..end)
}

/// A file whose end is in memory.
#[derive(Debug)]
pub(in crate::sources) struct Tail {
    blob: Blob,
    held_at: u64,
    held: Bytes,
}

impl Tail {
    pub fn of(blob: &Blob) -> Result<Tail, ParquetError> {
        let held_at = blob.size_bytes.saturating_sub(TAIL_BYTES);
        Ok(Tail {
            held: blob.read(held_at..blob.size_bytes)?,
            blob: blob.clone(),
            held_at,
        })
    }
}

impl Length for Tail {
    fn len(&self) -> u64 {
        self.blob.size_bytes
    }
}

impl ChunkReader for Tail {
    type T = BlobReader;

    fn get_read(&self, start: u64) -> Result<BlobReader, ParquetError> {
        Ok(self.blob.reader_by(start..self.blob.size_bytes, TAIL_BYTES))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let range = range(start, length)?;
        if range.start < self.held_at || range.end > self.blob.size_bytes {
            return Ok(self.blob.read(range)?);
        }
        let from = (range.start - self.held_at) as usize;
        Ok(self.held.slice(from..from + length))
    }
}

/// The source of the bytes of one column's chunk.
#[derive(Debug, Clone)]
pub(in crate::sources) enum Chunk {
    /// The file, read at any place, with the bytes around the last header.
    Near(Blob, Arc<Mutex<(u64, Bytes)>>),
    /// Fetched bytes, with their offset.
    Held(u64, Bytes),
    /// A window that moves forward.
    Window(Arc<Mutex<BlobReader>>, u64),
}

/// The chunks of the columns that are read, by the columns' numbers.
#[derive(Debug)]
pub(in crate::sources) struct Chunks(Vec<(usize, Chunk)>);

impl Chunks {
    pub fn open(
        blob: &Blob,
        group: &RowGroupMetaData,
        leaves: impl Iterator<Item = usize>,
    ) -> Result<Chunks, ParquetError> {
        Chunks::open_by(blob, group, leaves, WHOLE_BYTES)
    }

    /// Opens the chunks, with the size up to which columns are fetched whole.
    pub fn open_by(
        blob: &Blob,
        group: &RowGroupMetaData,
        leaves: impl Iterator<Item = usize>,
        whole_bytes: u64,
    ) -> Result<Chunks, ParquetError> {
        let Some(object) = blob.far() else {
            let near = leaves.map(|leaf| (leaf, Chunk::Near(blob.clone(), Arc::default())));
            return Ok(Chunks(near.collect()));
        };
        let mut ranges = Vec::new();
        for leaf in leaves {
            let (start, length) = group.column(leaf).byte_range();
            let end = start.checked_add(length).ok_or_else(beyond)?;
            if end > blob.size_bytes {
                return Err(beyond());
            }
            ranges.push((leaf, start..end));
        }
        let bytes: u64 = ranges
            .iter()
            .map(|(_, range)| range.end - range.start)
            .sum();
        if bytes > whole_bytes {
            return Ok(Chunks(windows(blob, ranges)));
        }
        ranges.sort_by_key(|(_, range)| range.start);
        let mut chunks = Vec::new();
        let mut first = 0;
        while first < ranges.len() {
            let mut end = ranges[first].1.end;
            let next = |at: &usize| ranges.get(*at).is_some();
            let mut last = first + 1;
            while next(&last) && ranges[last].1.start <= end + GAP_BYTES {
                end = end.max(ranges[last].1.end);
                last += 1;
            }
            let start = ranges[first].1.start;
            let held = object.read_at_once(start..end)?;
            let of_span = ranges[first..last].iter();
            chunks.extend(of_span.map(|(leaf, _)| (*leaf, Chunk::Held(start, held.clone()))));
            first = last;
        }
        Ok(Chunks(chunks))
    }

    pub fn take(&self, leaf: usize) -> Result<Chunk, ParquetError> {
        let found = self.0.iter().find(|(of, _)| *of == leaf);
        let missing = || ParquetError::General(format!("column {leaf} was not asked for"));
        Ok(found.ok_or_else(missing)?.1.clone())
    }
}

/// Starts fetching each column's first window immediately.
fn windows(blob: &Blob, ranges: Vec<(usize, Range<u64>)>) -> Vec<(usize, Chunk)> {
    let share = WINDOWS_BYTES / (ranges.len().max(1) * (1 + AHEAD)) as u64;
    let window = share.clamp(WINDOW_BYTES.start, WINDOW_BYTES.end);
    let open = |(leaf, range): (usize, Range<u64>)| {
        let end = range.end;
        let mut reader = blob.reader_by(range, window).ahead(AHEAD);
        reader.begin();
        (leaf, Chunk::Window(Arc::new(Mutex::new(reader)), end))
    };
    ranges.into_iter().map(open).collect()
}

impl Length for Chunk {
    fn len(&self) -> u64 {
        match self {
            Chunk::Near(blob, _) => blob.size_bytes,
            Chunk::Held(start, held) => start + held.len() as u64,
            Chunk::Window(_, end) => *end,
        }
    }
}

impl ChunkReader for Chunk {
    type T = ChunkRead;

    fn get_read(&self, start: u64) -> Result<ChunkRead, ParquetError> {
        Ok(match self {
            Chunk::Near(blob, last) => {
                // In a chunk that may have large pages, each header is read twice.
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.0 != start || last.1.is_empty() {
                    let end = blob.size_bytes.min(start.saturating_add(HEADER_BYTES));
                    *last = (start, blob.read(start..end)?);
                }
                let reader = blob.reader_by(start..blob.size_bytes, HEADER_BYTES);
                ChunkRead::Near(reader.holding(last.1.clone()))
            }
            Chunk::Held(at, held) => {
                let from = start
                    .checked_sub(*at)
                    .filter(|from| *from <= held.len() as u64);
                ChunkRead::Held(held.slice(from.ok_or_else(beyond)? as usize..))
            }
            Chunk::Window(reader, end) => ChunkRead::Window(reader.clone(), start..*end),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let range = range(start, length)?;
        if range.end > self.len() {
            return Err(beyond());
        }
        match self {
            Chunk::Near(blob, _) => Ok(blob.read(range)?),
            Chunk::Held(at, held) => {
                let from = start.checked_sub(*at).ok_or_else(beyond)? as usize;
                Ok(held.slice(from..from + length))
            }
            Chunk::Window(reader, _) => {
                let mut bytes = vec![0; length];
                read_at(reader, start, |reader| reader.read_exact(&mut bytes))?;
                Ok(bytes.into())
            }
        }
    }
}

fn read_at<R>(
    reader: &Mutex<BlobReader>,
    at: u64,
    read: impl FnOnce(&mut BlobReader) -> io::Result<R>,
) -> io::Result<R> {
    let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
    let from = at
        .checked_sub(reader.start())
        .ok_or(io::ErrorKind::InvalidInput)?;
    reader.seek(SeekFrom::Start(from))?;
    read(&mut reader)
}

/// A reader of a chunk from a given place.
#[derive(Debug)]
pub(in crate::sources) enum ChunkRead {
    Near(BlobReader),
    Held(Bytes),
    Window(Arc<Mutex<BlobReader>>, Range<u64>),
}

impl Read for ChunkRead {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            ChunkRead::Near(reader) => reader.read(out),
            ChunkRead::Held(held) => {
                let length = out.len().min(held.len());
                held.copy_to_slice(&mut out[..length]);
                Ok(length)
            }
            ChunkRead::Window(reader, range) => {
                let rest = (range.end.saturating_sub(range.start)) as usize;
                let length = out.len().min(rest);
                let out = &mut out[..length];
                let read = read_at(reader, range.start, |reader| reader.read(out))?;
                range.start += read as u64;
                Ok(read)
            }
        }
    }
}
