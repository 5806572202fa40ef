//! The header of a segment: its table, its number, and the segment before it.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

use super::error::LogError;
use crate::name::{MAX_NAME_BYTES, TableName};

/// The greatest format that this program writes and reads.
const GREATEST_FORMAT: u32 = 2;
const MAGIC: &[u8; 8] = b"FBAYLOG\x01";
/// The length of all fields but the name and the checksum.
const FIXED_BYTES: usize = 50;
const SUM_BYTES: usize = 8;
/// The longest header.
pub(super) const MAX_HEADER_BYTES: usize = FIXED_BYTES + MAX_NAME_BYTES + SUM_BYTES;

/// The kind of a log's records. Its number is the format in each segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// Operations on one table.
    Operations = 1,
    /// Entries and promises of groups of replicas.
    Groups = 2,
}

impl LogKind {
    fn format(self) -> u32 {
        self as u32
    }

    /// Returns an error if a valid header is that of a log of another kind.
    fn check(self, format: u32, table: &TableName, path: &Path) -> Result<(), LogError> {
        let own = self.format();
        if format == own {
            return Ok(());
        }
        let (found, wanted) = (Self::content(format), Self::content(own));
        Err(LogError::Foreign {
            table: table.clone(),
            path: path.to_path_buf(),
            problem: format!(
                "it is of format {format}, {found}, and not of format {own}, {wanted}"
            ),
        })
    }

    fn content(format: u32) -> &'static str {
        match format == LogKind::Operations.format() {
            true => "operations on a table",
            false => "records of groups of replicas",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The segment written before this one, 0 if there was none, and how many bytes of it count.
    /// Later bytes of it were never acknowledged.
    pub previous: u64,
    pub previous_end: u64,
    pub header_bytes: u64,
}

pub(super) fn header_bytes(table: &TableName) -> usize {
    FIXED_BYTES + table.as_str().len() + SUM_BYTES
}

pub(super) fn encode(
    table: &TableName,
    table_id: u64,
    kind: LogKind,
    segment: u64,
    (previous, previous_end): (u64, u64),
) -> Vec<u8> {
    let name = table.as_str().as_bytes();
    let mut bytes = Vec::with_capacity(MAX_HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&kind.format().to_le_bytes());
    bytes.extend_from_slice(&(header_bytes(table) as u32).to_le_bytes());
    for number in [table_id, segment, previous, previous_end] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
    bytes.extend_from_slice(name);
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Decodes the header at the beginning of `bytes`; `None` if it is damaged. A valid header of
/// another table, another segment or another format is an error.
pub(super) fn decode(
    bytes: &[u8],
    table: &TableName,
    table_id: u64,
    kind: LogKind,
    segment: u64,
    path: &Path,
) -> Result<Option<Header>, LogError> {
    if bytes.get(..8) != Some(MAGIC) {
        return Ok(None);
    }
    let number = |at: usize| -> Option<u64> {
        Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
    };
    let small = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
    };
    let Some(format) = small(8) else {
        return Ok(None);
    };
    if !(1..=GREATEST_FORMAT).contains(&format) {
        return Err(LogError::Format {
            path: path.to_path_buf(),
            found: format,
            known: GREATEST_FORMAT,
        });
    }
    let length = small(12).map_or(0, |length| length as usize);
    if !(FIXED_BYTES + SUM_BYTES..=MAX_HEADER_BYTES).contains(&length) {
        return Ok(None);
    }
    let sum_at = length - SUM_BYTES;
    let (Some(sum), Some(body)) = (number(sum_at), bytes.get(..sum_at)) else {
        return Ok(None);
    };
    if xxh3_64(body) != sum {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&body[FIXED_BYTES..]).into_owned();
    let found = (number(16), number(24));
    if (&name[..], found) != (table.as_str(), (Some(table_id), Some(segment))) {
        let number = found.1.unwrap_or(0);
        let whose = if name == table.as_str() && number == segment {
            format!("it belongs to an earlier table {name}")
        } else {
            format!("it is segment {number} of table {name}")
        };
        return Err(LogError::Foreign {
            table: table.clone(),
            path: path.to_path_buf(),
            problem: whose,
        });
    }
    kind.check(format, table, path)?;
    Ok(number(32)
        .zip(number(40))
        .map(|(previous, previous_end)| Header {
            previous,
            previous_end,
            header_bytes: length as u64,
        }))
}
