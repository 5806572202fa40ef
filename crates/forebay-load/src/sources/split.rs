//! Splits an uncompressed text file into ranges that threads read side by side.
//!
//! The file is gone over once, front to back, to know where records end (a line end within quotes ends none) and how
//! many lines there are before each range. Blocks without quotes cost a search for one and a count of lines.

use std::ops::Range;

use super::blob::Blob;
use super::error::SourceError;
use super::records::Splitter;

/// Bytes that a range has at least, but for the last.
pub(super) const RANGE_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: u64 = 1 << 20;

/// A range of whole records and the line on which it begins.
pub(super) type Part = (Range<u64>, u64);

/// Splits what follows `start`, which lies on `line`, into parts of about `part_bytes`.
pub(super) fn split(
    blob: &Blob,
    start: u64,
    line: u64,
    mut splitter: Splitter,
    part_bytes: u64,
) -> Result<Vec<Part>, SourceError> {
    let size = blob.size_bytes;
    if size.saturating_sub(start) < 2 * part_bytes {
        return Ok(vec![(start..size, line)]);
    }
    let mut parts = Vec::new();
    let (mut part_start, mut part_line) = (start, line);
    let (mut at, mut line) = (start, line);
    while at < size {
        let block = blob
            .read(at..size.min(at + BLOCK_BYTES))
            .map_err(|e| blob.io_error(e))?;
        let due = part_start + part_bytes;
        let before = (due.saturating_sub(at) as usize).min(block.len());
        splitter.skim(&block[..before]);
        let mut taken = before;
        let mut cut = false;
        if before < block.len() {
            let end = splitter.end(&block[before..]);
            cut = end.is_some();
            taken = end.map_or(block.len(), |end| before + end);
        }
        line += block[..taken].iter().filter(|byte| **byte == b'\n').count() as u64;
        at += taken as u64;
        if cut && at < size {
            parts.push((part_start..at, part_line));
            (part_start, part_line) = (at, line);
        }
    }
    parts.push((part_start..size, part_line));
    Ok(parts)
}
