//! Reads a group's entries from the disk.

use super::index::IndexedEntry;
use super::record::{EntryPlace, GroupRecord, LoggedEntry, RecordReader};
use super::{LogEnds, ReplicaLog, ReplicaLogError};
use crate::live::log::RecordReads;

/// Consecutive entries of a group that are to be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WantedEntries {
    pub group: u64,
    /// The index of the first one.
    first: u64,
    entries: Vec<IndexedEntry>,
}

impl LogEnds {
    /// Returns the entries of `group` after `index`, up to `most_bytes`, but at least one, if there
    /// is any.
    pub fn wanted(&self, group: u64, index: u64, most_bytes: u64) -> WantedEntries {
        let known = self.index.groups.get(&group);
        let (mut entries, mut bytes, mut next) = (Vec::new(), 0, index);
        while let Some(entry) = known.and_then(|known| known.entry(next.saturating_add(1))) {
            bytes += u64::from(entry.bytes);
            if bytes > most_bytes && !entries.is_empty() {
                break;
            }
            entries.push(*entry);
            next += 1;
        }
        WantedEntries {
            group,
            first: index.saturating_add(1),
            entries,
        }
    }
}

impl ReplicaLog {
    /// Reads and checks entries of `group` from `from_index` on: as many as have `most_bytes`
    /// together, but at least one if there is any. None are returned if nothing is logged at
    /// `from_index` yet. An entry that is not kept any more is [`ReplicaLogError::Trimmed`].
    pub fn entries(
        &self,
        group: u64,
        from_index: u64,
        most_bytes: u64,
    ) -> Result<Vec<LoggedEntry>, ReplicaLogError> {
        let mut tried = None;
        loop {
            let wanted = self.find_entries(group, from_index, most_bytes)?;
            let error = match self.read_entries(&wanted) {
                Ok(entries) => return Ok(entries),
                Err(error) => error,
            };
            // A segment may have been removed meanwhile. Its needed records are elsewhere then.
            if tried.replace(wanted) == Some(self.find_entries(group, from_index, most_bytes)?) {
                return Err(error);
            }
        }
    }

    /// Returns the place before the first kept entry of `group`, then that of the first entry of
    /// each later term, up to `through_index`; nothing for an unknown group.
    pub fn terms(&self, group: u64, through_index: u64) -> Vec<EntryPlace> {
        let ends = self.ends.lock();
        let known = ends.index.groups.get(&group);
        known.map_or_else(Vec::new, |known| known.terms(through_index))
    }

    fn find_entries(
        &self,
        group: u64,
        from_index: u64,
        most_bytes: u64,
    ) -> Result<WantedEntries, ReplicaLogError> {
        let ends = self.ends.lock();
        let table = || self.options.table.clone();
        let Some(known) = ends.index.groups.get(&group) else {
            let table = table();
            return Err(ReplicaLogError::NoGroup { table, group });
        };
        let before = known.before().index;
        if from_index <= before {
            return Err(ReplicaLogError::Trimmed {
                table: table(),
                group,
                index: from_index,
                first: before.saturating_add(1),
            });
        }
        Ok(ends.wanted(group, from_index - 1, most_bytes))
    }

    /// Reads the entries. Each frame is read once.
    pub(super) fn read_entries(
        &self,
        wanted: &WantedEntries,
    ) -> Result<Vec<LoggedEntry>, ReplicaLogError> {
        let mut reads = self.log.reads();
        let mut found: Vec<LoggedEntry> = Vec::with_capacity(wanted.entries.len());
        let frames = wanted
            .entries
            .chunk_by(|one, next| one.frame() == next.frame());
        for entries in frames {
            let first = wanted.first + found.len() as u64;
            self.read_frame(&mut reads, wanted.group, first, entries, &mut found)?;
        }
        Ok(found)
    }

    /// Reads `entries`, which are in one frame, the first of them at index `first`.
    fn read_frame(
        &self,
        reads: &mut RecordReads<'_>,
        group: u64,
        first: u64,
        entries: &[IndexedEntry],
        found: &mut Vec<LoggedEntry>,
    ) -> Result<(), ReplicaLogError> {
        let Some(frame) = entries.first().map(IndexedEntry::frame) else {
            return Ok(());
        };
        let payload = reads.payload(frame).map_err(ReplicaLogError::of)?;
        let mut left = (first..).zip(entries).peekable();
        for record in RecordReader::new(payload).map_while(Result::ok) {
            let Some((index, wanted)) = left.peek() else {
                break;
            };
            let term = wanted.term;
            let index = *index;
            match record {
                GroupRecord::Entry {
                    group: of,
                    place,
                    bytes,
                    ..
                } if (of, place) == (group, EntryPlace { term, index }) => {
                    let bytes = bytes.to_vec();
                    found.push(LoggedEntry { place, bytes });
                    left.next();
                }
                _ => {}
            }
        }
        match left.next() {
            None => {
                debug_assert!(
                    found.is_sorted_by(|one, next| one.place.index + 1 == next.place.index
                        && one.place.term <= next.place.term),
                    "entries of group {group} from {first} on do not follow each other"
                );
                Ok(())
            }
            Some((index, _)) => {
                let problem = format!("entry {index} of group {group} is not in it");
                Err(ReplicaLogError::of(reads.damaged(frame, problem)))
            }
        }
    }
}
