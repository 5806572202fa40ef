//! The frames of a log: records, and marks.
//!
//! A mark says how far the log was durable when the mark was written. A frame is a head of 12 bytes
//! and a body. The head never crosses the bound of a sector, so that a device writes it whole or
//! not at all. A frame that would begin in the last 11 bytes of a sector begins in the next one,
//! after zeros. Both checksums are seeded with the table's id, the segment's number and the frame's
//! offset. So bytes of another file, another segment or another place never pass.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Length and kind (u32), checksum of the head (u32), checksum of the body (u32).
pub(super) const HEAD_BYTES: usize = 12;
/// The unit that a device writes whole or not at all.
pub(super) const SECTOR_BYTES: u64 = 512;
/// The longest body.
pub const MAX_RECORD_BYTES: usize = 1 << 30;
/// A mark's body: a segment's number and an offset in it.
const MARK_BYTES: usize = 16;
/// In the first word of a head: the frame is a mark.
const IS_MARK: u32 = 1 << 31;

/// A place in a log. Places compare in the order of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FramePlace {
    pub segment: u64,
    pub offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Record,
    /// A mark: everything before the place in its body was durable when it was written.
    Mark,
}

/// A valid head of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub kind: Kind,
    pub body_bytes: usize,
    body_sum: u32,
}

/// The seed of a segment's frames.
pub(super) fn segment_seed(table_id: u64, segment: u64) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&table_id.to_le_bytes());
    bytes[8..].copy_from_slice(&segment.to_le_bytes());
    xxh3_64(&bytes)
}

/// Returns where the frame begins that follows a frame ending at `offset`.
pub(super) fn next_start(offset: u64) -> u64 {
    let left = SECTOR_BYTES - offset % SECTOR_BYTES;
    if left < HEAD_BYTES as u64 {
        offset + left
    } else {
        offset
    }
}

/// Appends a record to `buffer`, which is to be written at `offset`. Returns where its frame
/// begins.
pub(super) fn push_record(buffer: &mut Vec<u8>, offset: u64, seed: u64, body: &[u8]) -> u64 {
    push(buffer, offset, seed, 0, body)
}

pub(super) fn push_mark(buffer: &mut Vec<u8>, offset: u64, seed: u64, durable: FramePlace) {
    let mut body = [0; MARK_BYTES];
    body[..8].copy_from_slice(&durable.segment.to_le_bytes());
    body[8..].copy_from_slice(&durable.offset.to_le_bytes());
    push(buffer, offset, seed, IS_MARK, &body);
}

fn push(buffer: &mut Vec<u8>, offset: u64, seed: u64, flag: u32, body: &[u8]) -> u64 {
    let start = next_start(offset + buffer.len() as u64);
    debug_assert!(
        start % SECTOR_BYTES + HEAD_BYTES as u64 <= SECTOR_BYTES,
        "the head of the frame at {start} crosses the bound of a sector"
    );
    debug_assert!(
        !body.is_empty() && body.len() <= MAX_RECORD_BYTES,
        "a frame of {} bytes",
        body.len()
    );
    buffer.resize((start - offset) as usize, 0);
    let seed = seed.wrapping_add(start);
    let length = (body.len() as u32 | flag).to_le_bytes();
    let body_sum = (xxh3_64_with_seed(body, seed) as u32).to_le_bytes();
    buffer.extend_from_slice(&length);
    buffer.extend_from_slice(&head_sum(length, body_sum, seed));
    buffer.extend_from_slice(&body_sum);
    buffer.extend_from_slice(body);
    start
}

fn head_sum(length: [u8; 4], body_sum: [u8; 4], seed: u64) -> [u8; 4] {
    let word =
        u64::from(u32::from_le_bytes(length)) << 32 | u64::from(u32::from_le_bytes(body_sum));
    (xxh3_64_with_seed(&word.to_le_bytes(), seed) as u32).to_le_bytes()
}

/// Decodes the head in `bytes`, which begin at `offset`; `None` if it is not valid.
pub(super) fn head(bytes: &[u8], offset: u64, seed: u64) -> Option<Head> {
    let word = |at: usize| -> Option<[u8; 4]> { bytes.get(at..at + 4)?.try_into().ok() };
    let (length, sum, body_sum) = (word(0)?, word(4)?, word(8)?);
    let word = u32::from_le_bytes(length);
    let body_bytes = (word & !IS_MARK) as usize;
    let kind = match word & IS_MARK {
        0 => Kind::Record,
        _ => Kind::Mark,
    };
    let sound = match kind {
        Kind::Record => (1..=MAX_RECORD_BYTES).contains(&body_bytes),
        Kind::Mark => body_bytes == MARK_BYTES,
    };
    if !sound || head_sum(length, body_sum, seed.wrapping_add(offset)) != sum {
        return None;
    }
    Some(Head {
        kind,
        body_bytes,
        body_sum: u32::from_le_bytes(body_sum),
    })
}

impl Head {
    /// Returns where a frame that begins at `offset` ends.
    pub fn end(&self, offset: u64) -> u64 {
        offset + (HEAD_BYTES + self.body_bytes) as u64
    }

    pub fn has_body(&self, body: &[u8], offset: u64, seed: u64) -> bool {
        xxh3_64_with_seed(body, seed.wrapping_add(offset)) as u32 == self.body_sum
    }
}

/// Decodes the body of a mark.
pub(super) fn marked(body: &[u8]) -> Option<FramePlace> {
    let word = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
    };
    Some(FramePlace {
        segment: word(0)?,
        offset: word(8)?,
    })
}
