//! Messages between replicas about copies.
//!
//! Answers to reads are bytes preceded by their checksum; all else is JSON.

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use forebay_engine::live::{AppliedPlace, PartitionContent, PartitionRun};
use forebay_engine::{Bounds, PartitionId, PartitionRange, RunId};
use forebay_replica::{GroupId, PeerId};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// The maximum number of bytes that a request may ask for.
pub const MOST_PART_BYTES: u64 = 1 << 20;
/// The number of bytes that requests ask for: so few that commands do not wait for it long.
pub const PART_BYTES: u64 = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum CopyQuestion {
    /// Asks for a copy of a peer's partition, at this entry of its log or a later one.
    Begin {
        group: GroupId,
        from: PeerId,
        at_least: u64,
    },
    /// Asks for a part of a file, counted as in the offer.
    Read {
        copy: u64,
        file: usize,
        offset: u64,
        bytes: u64,
    },
    /// Reports that the fetched copy of a run cannot be read: the source has to check the run.
    Doubt { copy: u64, run: usize },
    /// Ends a copy that is no longer needed.
    End { copy: u64 },
}

/// The contents of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyOffer {
    pub copy: u64,
    partition: PartitionId,
    bounds: Bounds,
    epoch: u64,
    applied: Option<AppliedPlace>,
    runs: Vec<OfferedRun>,
    /// The files of the runs, in the order of the runs.
    pub files: Vec<OfferedFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfferedRun {
    id: RunId,
    deltas_since_ms: Option<u64>,
    range: Option<Bounds>,
    removed: Vec<Bounds>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedFile {
    /// The index of the run of the file.
    pub run: usize,
    pub is_of_long_values: bool,
    pub len_bytes: u64,
}

impl CopyOffer {
    pub fn new(copy: u64, content: &PartitionContent, files: Vec<OfferedFile>) -> Self {
        let offered = |run: &PartitionRun| OfferedRun {
            id: run.id.clone(),
            deltas_since_ms: run.deltas_since_ms,
            range: run.range.clone(),
            removed: run.removed.clone(),
        };
        Self {
            copy,
            partition: content.range.id,
            bounds: content.range.bounds.clone(),
            epoch: content.epoch,
            applied: content.applied.clone(),
            runs: content.runs.iter().map(offered).collect(),
            files,
        }
    }

    /// Returns the content at the source, if the files are those of its runs.
    pub fn content(&self) -> Option<PartitionContent> {
        let first = |run: usize| OfferedFile {
            run,
            is_of_long_values: false,
            len_bytes: 0,
        };
        let mut named = self.files.iter().map(|file| OfferedFile {
            len_bytes: 0,
            ..*file
        });
        // Each run has one file, which a file of long values may follow.
        let mut next = named.next();
        for run in 0..self.runs.len() {
            if next != Some(first(run)) {
                return None;
            }
            next = named.next();
            if next.is_some_and(|file| file.run == run && file.is_of_long_values) {
                next = named.next();
            }
        }
        let run = |run: &OfferedRun| PartitionRun {
            id: run.id.clone(),
            deltas_since_ms: run.deltas_since_ms,
            range: run.range.clone(),
            removed: run.removed.clone(),
        };
        next.is_none().then(|| PartitionContent {
            range: PartitionRange {
                id: self.partition,
                bounds: self.bounds.clone(),
            },
            epoch: self.epoch,
            applied: self.applied.clone(),
            runs: self.runs.iter().map(run).collect(),
        })
    }
}

/// Returns a part of a file preceded by its XXH3.
pub fn summed(part: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(8 + part.len());
    out.put_u64_le(xxh3_64(part));
    out.put_slice(part);
    out.freeze()
}

/// Returns the part, which must have this number of bytes.
pub fn part_of(mut answer: Bytes, bytes: u64) -> io::Result<Bytes> {
    let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
    if answer.len() as u64 != bytes + 8 {
        return Err(wrong("a part of a copy has another length"));
    }
    let part = answer.split_off(8);
    let is_sound = answer[..] == xxh3_64(&part).to_le_bytes();
    is_sound
        .then_some(part)
        .ok_or_else(|| wrong("a part of a copy was damaged on its way"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(files: &[(usize, bool)]) -> CopyOffer {
        let run = |id: &str| OfferedRun {
            id: RunId::new(id).unwrap(),
            deltas_since_ms: None,
            range: None,
            removed: Vec::new(),
        };
        let files = files.iter().map(|(run, is_of_long_values)| OfferedFile {
            run: *run,
            is_of_long_values: *is_of_long_values,
            len_bytes: 7,
        });
        CopyOffer {
            copy: 1,
            partition: PartitionId(0),
            bounds: Bounds {
                lower: forebay_engine::Bound::Slot(0),
                upper: None,
            },
            epoch: 1,
            applied: Some(AppliedPlace::default()),
            runs: vec![run("000000000000000a"), run("000000000000000b")],
            files: files.collect(),
        }
    }

    #[test]
    fn an_offer_names_the_files_of_its_runs_in_order() {
        for files in [
            &[(0, false), (1, false)][..],
            &[(0, false), (0, true), (1, false), (1, true)],
        ] {
            let offer = offer(files);
            let bytes = crate::wire::to_bytes(&offer).unwrap();
            let read: CopyOffer = crate::wire::from_bytes(&bytes).unwrap();
            assert_eq!(read, offer);
            assert_eq!(read.content().map(|content| content.runs.len()), Some(2));
        }
        for files in [
            &[][..],
            &[(0, false)],
            &[(1, false), (0, false)],
            &[(0, true), (1, false)],
            &[(0, false), (1, false), (2, false)],
            &[(0, false), (0, true), (0, true), (1, false)],
        ] {
            assert_eq!(offer(files).content(), None, "{files:?}");
        }
    }

    #[test]
    fn a_part_damaged_in_transit_is_refused() {
        let answer = summed(b"part");
        assert_eq!(part_of(answer.clone(), 4).unwrap(), &b"part"[..]);
        assert!(part_of(answer.clone(), 5).is_err());
        assert!(part_of(answer.slice(..7), 4).is_err());
        let mut changed = answer.to_vec();
        changed[9] ^= 1;
        assert!(part_of(changed.into(), 4).is_err());
    }
}
