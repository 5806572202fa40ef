//! Removes segments from the front, so that no group keeps the log long.
//!
//! 1. The needed records of the oldest segment are rewritten at the end: promises, ends of groups'
//!    logs, and all needed entries of a group whose first one is there, if they are small. The
//!    rewritten records of a group have all that the segment had of it. So reading the log back
//!    gives the same state with the segment or without it.
//! 2. The log is synced, whatever its durability.
//! 3. The state says that the next segment is the first that counts, and is synced.
//! 4. The file is removed.
//!
//! A crash in between leaves some records twice, or a file that the next opening removes.

use std::ops::Bound;

use super::index::NeededLog;
use super::record::{EntryDraft, EntryPlace, GroupRecords, LoggedEntry};
use super::spare::is_full;
use super::state::LogState;
use super::{LogEnds, ReplicaLog, ReplicaLogError};

/// The needed entries of one group are rewritten if they are at most this fraction of a segment.
const SMALL_SHARE: u64 = 4;
/// About how many bytes are rewritten at a time: writers wait for it.
const BATCH_BYTES: u64 = 256 << 10;

/// The result of [`ReplicaLog::remove_unneeded`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RemovedSegments {
    pub removed_bytes: u64,
    /// A group with so many entries in the oldest segment that are not trimmed that this segment
    /// cannot be removed. The caller must flush its partition, and trim it.
    pub held_by: Option<u64>,
}

/// The records of one group that must be rewritten.
#[derive(Debug)]
struct Rewrite {
    group: u64,
    begins: Option<EntryPlace>,
    entries: Vec<LoggedEntry>,
    promise: Option<Vec<u8>>,
}

impl ReplicaLog {
    /// Removes the oldest segments while the log has more than `keep_bytes` of unneeded entries:
    /// trimmed and replaced ones, which may still be sent to peers. Needed records are rewritten
    /// first, and synced. After an error the log is as good as before. A full disk needs room for
    /// the rewritten records, or [spare](ReplicaLog::keep_spare) room.
    pub fn remove_unneeded(&self, keep_bytes: u64) -> Result<RemovedSegments, ReplicaLogError> {
        let mut spare = self.removing.lock();
        let mut removed = RemovedSegments::default();
        let Some((_, newest)) = self.log.ended() else {
            return Ok(removed);
        };
        while let Some((segment, _)) = self.log.ended().filter(|(oldest, _)| *oldest <= newest) {
            let needed = self.ends.lock().index.needed_bytes();
            let size = self.size_bytes();
            if size.saturating_sub(needed) <= keep_bytes {
                break;
            }
            removed.held_by = self.holder_of(segment);
            if removed.held_by.is_some() {
                break;
            }
            match self.write_again(segment) {
                Err(error) if is_full(&error) && self.give_spare(&mut spare) => {
                    self.write_again(segment)?;
                }
                written => written?,
            }
            self.log.sync()?;
            debug_assert!(
                self.log
                    .ended()
                    .is_some_and(|(oldest, _)| oldest == segment),
                "segment {segment} was removed meanwhile"
            );
            self.forget_through(segment)?;
            removed.removed_bytes += size.saturating_sub(self.size_bytes());
        }
        Ok(removed)
    }

    /// Returns the group for which `segment` cannot be removed, as it needs too much of it.
    fn holder_of(&self, segment: u64) -> Option<u64> {
        let ends = self.ends.lock();
        let limit = self.segment_bytes();
        let mut all = 0;
        for (group, known) in &ends.index.groups {
            if let NeededLog::Entries(_) = known.needed_log(segment) {
                let needed = known.needed_bytes();
                all += needed;
                if needed > limit / SMALL_SHARE || all > limit {
                    return Some(*group);
                }
            }
        }
        None
    }

    /// Rewrites what all groups need of `segment` and those before it. Their need does not grow
    /// meanwhile, as these are not written any more.
    fn write_again(&self, segment: u64) -> Result<(), ReplicaLogError> {
        let mut from = Bound::Unbounded;
        loop {
            let mut ends = self.ends.lock();
            let (batch, last) = self.next_rewrites(&ends, segment, from)?;
            if !batch.is_empty() {
                let records: Vec<GroupRecords<'_>> = batch.iter().map(Rewrite::records).collect();
                self.write(&mut ends, &records)?;
            }
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => return Ok(()),
            }
        }
    }

    /// Returns the next records to rewrite, of the groups in `from`, and the last group that was
    /// checked, if others follow.
    fn next_rewrites(
        &self,
        ends: &LogEnds,
        segment: u64,
        from: Bound<u64>,
    ) -> Result<(Vec<Rewrite>, Option<u64>), ReplicaLogError> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (group, known) in ends.index.groups.range((from, Bound::Unbounded)) {
            let promise = known.needed_promise(segment).map(<[u8]>::to_vec);
            let (begins, entries) = match known.needed_log(segment) {
                NeededLog::Nothing if promise.is_none() => continue,
                NeededLog::Nothing => (None, Vec::new()),
                NeededLog::End(end) => (Some(end), Vec::new()),
                NeededLog::Entries(behind) => {
                    let wanted = ends.wanted(*group, behind.index, u64::MAX);
                    (Some(behind), self.read_entries(&wanted)?)
                }
            };
            bytes += known.needed_bytes() + promise.as_ref().map_or(0, Vec::len) as u64;
            batch.push(Rewrite {
                group: *group,
                begins,
                entries,
                promise,
            });
            if bytes > BATCH_BYTES {
                return Ok((batch, Some(*group)));
            }
        }
        Ok((batch, None))
    }

    /// Removes `segment` and those before it, of which nothing is needed.
    fn forget_through(&self, segment: u64) -> Result<(), ReplicaLogError> {
        let first_segment = segment + 1;
        {
            let mut state = self.state.lock();
            let moved = LogState {
                first_segment,
                ..state.state
            };
            let written = state.write(&*self.disk, moved);
            written.map_err(|error| self.options.refused(state.path(), error))?;
        }
        let mut ends = self.ends.lock();
        if cfg!(debug_assertions) {
            ends.index.check_unneeded(segment);
        }
        ends.index.forget_through(segment);
        drop(ends);
        Ok(self.log.remove_before(first_segment)?)
    }
}

impl Rewrite {
    fn records(&self) -> GroupRecords<'_> {
        let entries = self.entries.iter().map(|entry| EntryDraft {
            place: entry.place,
            bytes: &entry.bytes,
        });
        GroupRecords {
            group: self.group,
            is_gone: false,
            begins: self.begins,
            entries: entries.collect(),
            promise: self.promise.as_deref(),
        }
    }
}
