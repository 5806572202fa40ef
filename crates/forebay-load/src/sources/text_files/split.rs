//! Splits an uncompressed text file into ranges that threads read in parallel.
//!
//! The module scans the file once, front to back, to find where records end (a line end within
//! quotes ends none). It also counts the lines before each range. For blocks without quotes this
//! only searches for a quote and counts lines.

use std::ops::Range;

use super::splitter::Splitter;
use crate::sources::blob::Blob;
use crate::sources::error::SourceError;

/// The fewest bytes of a range, except the last.
pub(in crate::sources) const RANGE_BYTES: u64 = 8 << 20;
const BLOCK_BYTES: u64 = 1 << 20;

/// A range of whole records, and the line or element number at which it begins.
pub(in crate::sources) type Part = (Range<u64>, u64);

/// Splits the text from `start`, which is on line `number`, into parts of about `part_bytes`.
pub(in crate::sources) fn split(
    blob: &Blob,
    start: u64,
    number: u64,
    mut splitter: Splitter,
    part_bytes: u64,
) -> Result<Vec<Part>, SourceError> {
    let size = blob.size_bytes;
    if size.saturating_sub(start) < 2 * part_bytes {
        return Ok(vec![(start..size, number)]);
    }
    let mut parts = Vec::new();
    let (mut part_start, mut part_number) = (start, number);
    let (mut at, mut number) = (start, number);
    while at < size {
        let block = blob
            .read(at..size.min(at + BLOCK_BYTES))
            .map_err(|e| blob.io_error(e))?;
        let due = part_start + part_bytes;
        let before = (due.saturating_sub(at) as usize).min(block.len());
        number += splitter.skim(&block[..before]);
        let mut taken = before;
        let mut cut = false;
        if before < block.len() {
            let end = splitter.end(&block[before..]);
            cut = end.is_some();
            taken = end.map_or(block.len(), |end| before + end);
        }
        let array = matches!(splitter, Splitter::Elements { .. });
        if cut || !array {
            number += splitter.count(&block[before..taken]);
        }
        at += taken as u64;
        // Text after an array belongs to the part that ends it.
        if cut && at < size && !(array && splitter.closed()) {
            parts.push((part_start..at, part_number));
            (part_start, part_number) = (at, number);
        }
    }
    parts.push((part_start..size, part_number));
    Ok(parts)
}
