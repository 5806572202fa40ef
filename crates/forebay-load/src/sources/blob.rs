//! Bytes of source files, read in ranges through an object store.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Runtime;

use super::error::SourceError;

/// Bytes that a sequential reader asks for at once.
const WINDOW_BYTES: u64 = 1 << 20;

/// The store that sources come from and the runtime that waits for it.
#[derive(Debug)]
pub(super) struct Store {
    pub objects: Arc<dyn ObjectStore>,
    pub runtime: Runtime,
}

/// One file.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub store: Arc<Store>,
    pub path: Path,
    /// The name that messages use.
    pub name: Arc<str>,
    pub size_bytes: u64,
}

impl Blob {
    /// Reads a range; an error when the file is shorter.
    pub fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        if range.end > self.size_bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let length = range.end - range.start;
        let read = self.store.objects.get_range(&self.path, range);
        let bytes = self
            .store
            .runtime
            .block_on(read)
            .map_err(io::Error::other)?;
        if bytes.len() as u64 != length {
            return Err(io::Error::other("the file changed while it was read"));
        }
        Ok(bytes)
    }

    pub fn io_error(&self, error: io::Error) -> SourceError {
        SourceError::Io {
            file: self.name.to_string(),
            error,
        }
    }

    pub fn damaged(&self, place: impl Into<String>, reason: impl ToString) -> SourceError {
        SourceError::Damaged {
            file: self.name.to_string(),
            place: place.into(),
            reason: reason.to_string(),
        }
    }

    /// Reads a range from front to back.
    pub fn reader(&self, range: Range<u64>) -> BlobReader {
        self.reader_by(range, WINDOW_BYTES)
    }

    /// The same, asking for `window` bytes at once.
    pub fn reader_by(&self, range: Range<u64>, window: u64) -> BlobReader {
        let at = range.start;
        BlobReader {
            blob: self.clone(),
            range,
            at,
            window,
            held: Bytes::new(),
            held_at: at,
        }
    }
}

/// Reads a range of a file through a window.
#[derive(Debug)]
pub(super) struct BlobReader {
    blob: Blob,
    range: Range<u64>,
    at: u64,
    window: u64,
    held: Bytes,
    held_at: u64,
}

impl Read for BlobReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.at >= self.range.end || out.is_empty() {
            return Ok(0);
        }
        let held = self.held_at..self.held_at + self.held.len() as u64;
        if !held.contains(&self.at) {
            let want = self.window.max(out.len() as u64);
            let end = self.range.end.min(self.at.saturating_add(want));
            self.held = self.blob.read(self.at..end)?;
            self.held_at = self.at;
        }
        let from = (self.at - self.held_at) as usize;
        let length = out.len().min(self.held.len() - from);
        out[..length].copy_from_slice(&self.held[from..from + length]);
        self.at += length as u64;
        Ok(length)
    }
}

impl Seek for BlobReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => self.range.start.checked_add(at),
            SeekFrom::End(by) => self.range.end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        match target {
            Some(at) if at >= self.range.start => {
                self.at = at;
                Ok(at - self.range.start)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// Runs a decoder that may panic on damaged input, and makes an error's reason of it.
pub(super) fn guarded<T, E: ToString>(decode: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    // What the decoder held is dropped with it: nothing half-done is seen again.
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("its decoder gave up on the content".to_owned()),
    }
}
