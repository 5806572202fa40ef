//! The index of all groups' entries: group, index, segment and offset.
//!
//! It has what reading the log back would find: written records and recovered records are added in
//! the same way. A group's entries are in the order of their indexes, so those in the oldest
//! segment are its first ones.

use std::collections::{BTreeMap, VecDeque};

use super::record::{EntryPlace, GroupRecord};
use crate::live::log::FramePlace;

/// The approximate bytes of an entry in the log besides its own.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

/// An entry's term, its frame, and its length: 24 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct IndexedEntry {
    pub term: u64,
    segment: u64,
    offset: u32,
    pub bytes: u32,
}

impl IndexedEntry {
    pub fn frame(&self) -> FramePlace {
        FramePlace {
            segment: self.segment,
            offset: u64::from(self.offset),
        }
    }
}

/// The logged state of one group.
#[derive(Debug, Default)]
pub(super) struct GroupIndex {
    /// The place before the first entry.
    before: EntryPlace,
    entries: VecDeque<IndexedEntry>,
    /// The last index whose entry, like all before it, need not be kept.
    trimmed: u64,
    /// The bytes in the log of the entries after `trimmed`.
    needed_bytes: u64,
    /// The segment of the last record that says where the group's log ends; 0 for none.
    end_segment: u64,
    /// The segment of the promise, and the promise.
    promise: Option<(u64, Box<[u8]>)>,
}

/// The part of a group that must be rewritten before a segment and those before it are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NeededLog {
    Nothing,
    /// The end of the group's log.
    End(EntryPlace),
    /// All entries after this one.
    Entries(EntryPlace),
}

impl GroupIndex {
    pub fn before(&self) -> EntryPlace {
        self.before
    }

    pub fn needed_bytes(&self) -> u64 {
        self.needed_bytes
    }

    pub fn promise(&self) -> Option<&[u8]> {
        self.promise.as_ref().map(|(_, bytes)| &**bytes)
    }

    pub fn last(&self) -> EntryPlace {
        let last = self.entries.back().map(|entry| EntryPlace {
            term: entry.term,
            index: self.before.index + self.entries.len() as u64,
        });
        last.unwrap_or(self.before)
    }

    /// Returns the entry at `index`, if it is kept.
    pub fn entry(&self, index: u64) -> Option<&IndexedEntry> {
        let at = index.checked_sub(self.before.index)?.checked_sub(1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// Returns the place before the first entry, then the first entry of each other term, up to
    /// `through`.
    pub fn terms(&self, through: u64) -> Vec<EntryPlace> {
        let mut terms = vec![self.before];
        let entries = (self.before.index + 1..=through).zip(&self.entries);
        for (index, IndexedEntry { term, .. }) in entries {
            if terms.last().is_some_and(|last| last.term != *term) {
                terms.push(EntryPlace { term: *term, index });
            }
        }
        terms
    }

    /// Returns the place at `index`, which may be that before the first entry.
    pub fn place_of(&self, index: u64) -> Option<EntryPlace> {
        if index == self.before.index {
            return Some(self.before);
        }
        let term = self.entry(index)?.term;
        Some(EntryPlace { term, index })
    }

    pub fn trim(&mut self, through: u64) {
        let through = through.min(self.last().index);
        while self.trimmed < through {
            self.trimmed += 1;
            self.needed_bytes -= self.entry(self.trimmed).map_or(0, needed_bytes_of);
        }
        self.check();
    }

    /// Checks that the trimmed position is among the entries, and that those after it are the
    /// needed ones.
    #[inline]
    fn check(&self) {
        let last = self.last().index;
        debug_assert!(
            (self.before.index..=last).contains(&self.trimmed),
            "entries after {} up to {last} are kept, but trimmed up to {}",
            self.before,
            self.trimmed
        );
        debug_assert_eq!(
            self.needed_bytes == 0,
            self.trimmed == last,
            "{} bytes are needed of entries after {} up to {last}",
            self.needed_bytes,
            self.trimmed
        );
        debug_assert!(
            self.end_segment > 0 || self.entries.is_empty(),
            "{} entries lie in no segment",
            self.entries.len()
        );
        debug_assert!(
            (self.entries.back()).is_none_or(|last| last.segment <= self.end_segment),
            "the last entry is after segment {}, in which the group's log ends",
            self.end_segment
        );
    }

    /// Returns what would be lost with `segment` and those before it.
    pub fn needed_log(&self, segment: u64) -> NeededLog {
        let lies_there = |entry: &IndexedEntry| entry.segment <= segment;
        if self.entries.back().is_none_or(lies_there) && self.trimmed >= self.last().index {
            return match self.end_segment {
                1.. if self.end_segment <= segment => NeededLog::End(self.last()),
                _ => NeededLog::Nothing,
            };
        }
        let first_needed = self.entry(self.trimmed.max(self.before.index) + 1);
        if first_needed.is_some_and(lies_there) {
            let index = self.trimmed.max(self.before.index);
            return NeededLog::Entries(self.place_of(index).unwrap_or(self.before));
        }
        NeededLog::Nothing
    }

    /// Returns the promise, if it would be lost with `segment` and those before it.
    pub fn needed_promise(&self, segment: u64) -> Option<&[u8]> {
        let promise = self.promise.as_ref().filter(|(at, _)| *at <= segment);
        promise.map(|(_, bytes)| &**bytes)
    }

    /// Removes all that is in `segment` and those before it.
    fn forget_through(&mut self, segment: u64) {
        while let Some(entry) = self.entries.front()
            && entry.segment <= segment
        {
            self.before = EntryPlace {
                term: entry.term,
                index: self.before.index + 1,
            };
            self.entries.pop_front();
        }
        if self.entries.capacity() > 64 && self.entries.capacity() / 4 > self.entries.len() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }

    /// Adds an entry, which replaces the one at its index and all later ones. If it is before all
    /// known entries, or not adjacent to the last, the group's log begins with it.
    fn put(&mut self, entry: IndexedEntry, term_before: u64, index: u64) {
        let is_behind = index > self.before.index && index <= self.last().index + 1;
        if !is_behind || self.end_segment == 0 {
            let term = term_before;
            let index = index - 1;
            self.begin(EntryPlace { term, index }, entry.segment);
        }
        while self.last().index >= index {
            if let Some(gone) = self.entries.pop_back()
                && self.last().index >= self.trimmed
            {
                self.needed_bytes -= needed_bytes_of(&gone);
            }
        }
        debug_assert_eq!(
            self.last().index + 1,
            index,
            "entry {index} of segment {} comes after {}",
            entry.segment,
            self.last()
        );
        debug_assert!(
            (self.entries.back())
                .is_none_or(|last| last.term <= entry.term && last.frame() <= entry.frame()),
            "entry {index}, {entry:?}, comes after {:?}",
            self.entries.back()
        );
        self.trimmed = self.trimmed.min(index - 1);
        self.end_segment = entry.segment;
        self.needed_bytes += needed_bytes_of(&entry);
        self.entries.push_back(entry);
        self.check();
    }

    fn begin(&mut self, behind: EntryPlace, segment: u64) {
        self.before = behind;
        self.entries.clear();
        (self.trimmed, self.needed_bytes) = (behind.index, 0);
        self.end_segment = segment;
    }
}

fn needed_bytes_of(entry: &IndexedEntry) -> u64 {
    u64::from(entry.bytes) + ENTRY_OVERHEAD_BYTES
}

/// The logged state of all groups.
#[derive(Debug, Default)]
pub(super) struct LogIndex {
    pub groups: BTreeMap<u64, GroupIndex>,
}

impl LogIndex {
    /// Adds a record that was read back, if it can follow the earlier ones. A group's first record
    /// may follow records that are gone.
    pub fn replay(&mut self, frame: FramePlace, record: GroupRecord<'_>) -> Result<(), String> {
        if let GroupRecord::Entry {
            group,
            term_before,
            place,
            ..
        } = record
            && let Some(known) = self.groups.get(&group)
            && known.end_segment > 0
        {
            let before = known.last();
            if place.index > before.index + 1 {
                return Err(format!(
                    "entry {place} of group {group} follows entry {before}"
                ));
            }
            let found = known.place_of(place.index - 1);
            if let Some(found) = found.filter(|found| found.term != term_before) {
                return Err(format!(
                    "entry {place} of group {group} was written after one of term {term_before}, \
                     but comes after entry {found}"
                ));
            }
        }
        self.apply(frame, record)
    }

    /// Adds a record of the frame at `frame`, which begins below 4 GiB.
    pub fn apply(&mut self, frame: FramePlace, record: GroupRecord<'_>) -> Result<(), String> {
        let segment = frame.segment;
        let offset = u32::try_from(frame.offset);
        let offset = offset.map_err(|_| "a frame begins beyond 4 GiB".to_owned())?;
        let group = record.group();
        match record {
            GroupRecord::Gone { .. } => {
                self.groups.remove(&group);
            }
            GroupRecord::Begins { behind, .. } => {
                let known = self.groups.entry(group).or_default();
                known.begin(behind, segment);
            }
            GroupRecord::Promise { bytes, .. } => {
                let known = self.groups.entry(group).or_default();
                known.promise = Some((segment, bytes.into()));
            }
            GroupRecord::Entry {
                term_before,
                place,
                bytes,
                ..
            } => {
                let bytes = u32::try_from(bytes.len());
                let entry = IndexedEntry {
                    term: place.term,
                    segment,
                    offset,
                    bytes: bytes.map_err(|_| "an entry has more than 4 GiB".to_owned())?,
                };
                let known = self.groups.entry(group).or_default();
                known.put(entry, term_before, place.index);
            }
        }
        Ok(())
    }

    /// Returns the bytes of the log that all groups need.
    pub fn needed_bytes(&self) -> u64 {
        self.groups.values().map(GroupIndex::needed_bytes).sum()
    }

    /// Checks that nothing of `segment` and those before it is needed any more.
    pub fn check_unneeded(&self, segment: u64) {
        for (group, known) in &self.groups {
            debug_assert_eq!(
                known.needed_log(segment),
                NeededLog::Nothing,
                "segments up to {segment} go, and group {group} needs them"
            );
            debug_assert!(
                known.needed_promise(segment).is_none(),
                "segments up to {segment} go, and a promise of group {group} with them"
            );
        }
    }

    /// Removes all that is in `segment` and those before it.
    pub fn forget_through(&mut self, segment: u64) {
        for group in self.groups.values_mut() {
            group.forget_through(segment);
        }
    }
}
