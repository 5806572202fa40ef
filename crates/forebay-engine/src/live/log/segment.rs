//! Reads a segment: frame after frame, or in search of valid frames after damage.

use std::io;
use std::sync::Arc;

use forebay_io::ReadFile;

use super::frame::{self, HEAD_BYTES, Head, SECTOR_BYTES};

/// How many bytes are read at a time of a segment that is read from its beginning.
const WINDOW_BYTES: u64 = 256 << 10;
/// This many zeros before the end of a sector are treated as bytes that were never written. A
/// record may have them as well. That matters only if it is damaged and nothing says that it was
/// durable.
const UNWRITTEN_BYTES: usize = 16;

/// A segment's file, read through a window.
#[derive(Debug)]
pub(super) struct SegmentReader {
    file: Arc<dyn ReadFile>,
    seed: u64,
    window: Vec<u8>,
    window_start: u64,
    /// How many bytes are read at a time, at least.
    window_bytes: u64,
}

/// The content at a place where a frame should begin.
#[derive(Debug)]
pub(super) enum SegmentFound<'a> {
    Frame(Head, &'a [u8]),
    /// The head is valid. The body is not, or ends after the file's end.
    BadBody(Head),
    BadHead,
}

impl SegmentReader {
    pub fn new(file: Arc<dyn ReadFile>, seed: u64) -> Self {
        Self {
            file,
            seed,
            window: Vec::new(),
            window_start: 0,
            window_bytes: WINDOW_BYTES,
        }
    }

    /// Sets a smaller window, for reads of single frames.
    pub fn with_window(self, window_bytes: u64) -> Self {
        Self {
            window_bytes,
            ..self
        }
    }

    pub fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    /// Returns the bytes from `start` on: `len` of them, or as many as the file has.
    pub fn bytes(&mut self, start: u64, len: u64) -> io::Result<&[u8]> {
        let end = start.saturating_add(len).min(self.len_bytes());
        let start = start.min(end);
        let window_end = self.window_start + self.window.len() as u64;
        if start < self.window_start || end > window_end {
            let until = end.max(start + self.window_bytes).min(self.len_bytes());
            self.window.clear();
            self.window.resize((until - start) as usize, 0);
            self.window_start = start;
            if let Err(error) = self.file.read_exact_at(&mut self.window, start) {
                self.window.clear();
                return Err(error);
            }
        }
        let from = (start - self.window_start) as usize;
        Ok(&self.window[from..from + (end - start) as usize])
    }

    /// Reads the frame at `offset`; the segment ends at `limit`.
    pub fn frame(&mut self, offset: u64, limit: u64) -> io::Result<SegmentFound<'_>> {
        let seed = self.seed;
        let limit = limit.min(self.len_bytes());
        let head_bytes = (HEAD_BYTES as u64).min(limit.saturating_sub(offset));
        let Some(head) = frame::head(self.bytes(offset, head_bytes)?, offset, seed) else {
            return Ok(SegmentFound::BadHead);
        };
        if head.end(offset) > limit {
            return Ok(SegmentFound::BadBody(head));
        }
        let body = self.bytes(offset + HEAD_BYTES as u64, head.body_bytes as u64)?;
        if head.has_body(body, offset, seed) {
            Ok(SegmentFound::Frame(head, body))
        } else {
            Ok(SegmentFound::BadBody(head))
        }
    }

    /// Returns whether the bytes at `offset` look like a write that reached the device only in
    /// part, or not at all. No valid frame begins there. After such a write the file ends too
    /// early, or some sector is as it was before the write, with zeros up to its end.
    pub fn looks_unwritten(&mut self, offset: u64, limit: u64) -> io::Result<bool> {
        let end = match self.frame(offset, limit)? {
            SegmentFound::BadBody(head) => head.end(offset),
            _ => offset + HEAD_BYTES as u64,
        };
        if end > self.len_bytes() {
            return Ok(true);
        }
        let mut start = offset;
        while start < end {
            let sector_end = (start / SECTOR_BYTES + 1) * SECTOR_BYTES;
            let rest = self.bytes(start, sector_end - start)?;
            let zeros = rest.iter().rev().take_while(|byte| **byte == 0).count();
            if zeros >= UNWRITTEN_BYTES.min(rest.len()) {
                return Ok(true);
            }
            start = sector_end;
        }
        Ok(false)
    }

    /// Returns whether only zeros follow.
    pub fn is_zeros_from(&mut self, mut offset: u64) -> io::Result<bool> {
        while offset < self.len_bytes() {
            let bytes = self.bytes(offset, WINDOW_BYTES)?;
            if bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            offset += bytes.len() as u64;
        }
        Ok(true)
    }

    /// Returns the first valid frame at or after `offset`.
    pub fn find_frame(&mut self, mut offset: u64) -> io::Result<Option<(u64, Head)>> {
        let limit = self.len_bytes();
        while offset + HEAD_BYTES as u64 <= limit {
            let start = frame::next_start(offset);
            if let SegmentFound::Frame(head, _) = self.frame(start, limit)? {
                return Ok(Some((start, head)));
            }
            offset = start + 1;
        }
        Ok(None)
    }
}
