//! The end of a group's log in memory, as the library reads it.
//!
//! It also has the range of the older entries, which are in files.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::ids::{PeerId, Place};
use crate::membership::Membership;
use crate::older::OlderEntries;

/// The facts of a partition's state at one place of its log. The engine stores them with that
/// state, and changes both in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotFacts {
    pub place: Place,
    pub membership: Arc<Membership>,
    /// The partition's time at that place.
    pub stamp_ms: u64,
}

#[derive(Debug)]
pub struct Tail {
    hard: HardState,
    /// The group's configuration at the replica's start.
    started: ConfState,
    /// The entries in files.
    older: OlderEntries,
    /// The place of the entry before the first in memory.
    before: Place,
    entries: VecDeque<Entry>,
    /// The facts at the engine's applied entry, of which it can make a copy.
    applied: SnapshotFacts,
    /// Older entries that were fetched, to be sent at once.
    fetched: Vec<Entry>,
    /// The parts of the older entries that have to be sent.
    wanted: RefCell<Vec<WantedPart>>,
}

#[derive(Debug)]
struct WantedPart {
    from: u64,
    to: u64,
    context: GetEntriesContext,
}

/// The most parts that are noted. A peer beyond that asks again at the next heartbeat.
const MOST_WANTED: usize = 16;

impl Tail {
    /// Creates a tail. `entries` are consecutive and start after `before`, up to which `older`
    /// reaches.
    pub fn new(
        hard: HardState,
        applied: SnapshotFacts,
        (older, before): (OlderEntries, Place),
        entries: Vec<Entry>,
    ) -> Self {
        let started = applied.membership.to_raft();
        let tail = Self {
            hard,
            started,
            older,
            before,
            entries: entries.into(),
            applied,
            fetched: Vec::new(),
            wanted: RefCell::default(),
        };
        tail.check();
        tail
    }

    /// Checks that older entries, entries in memory and the state have no gaps.
    fn check(&self) {
        debug_assert!(
            self.older.before().index <= self.before.index,
            "memory begins after {}, but files after {}",
            self.before,
            self.older.before()
        );
        debug_assert_eq!(
            self.older.term(self.before.index),
            Some(self.before.term),
            "files and memory differ in the term of entry {}",
            self.before
        );
        debug_assert!(
            self.entries
                .front()
                .is_none_or(|first| first.index == self.before.index + 1),
            "memory begins after {}, with {:?}",
            self.before,
            self.entries.front()
        );
        debug_assert!(
            self.entries
                .back()
                .is_none_or(|last| last.index == self.last()),
            "memory ends with {:?}, and has {} entries after {}",
            self.entries.back(),
            self.entries.len(),
            self.before
        );
        debug_assert!(
            (self.before.index..=self.last()).contains(&self.applied.place.index),
            "the state is at {}, but memory has entries after {} up to {}",
            self.applied.place,
            self.before,
            self.last()
        );
    }

    pub fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    /// Appends entries. The first replaces everything from its index on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        debug_assert!(
            first.index > self.applied.place.index,
            "entry {} is appended again, but {} is applied",
            first.index,
            self.applied.place
        );
        let behind = self.place_of(first.index - 1);
        debug_assert!(
            behind.is_some_and(|behind| behind.term <= first.term),
            "entry {} of term {} comes after {behind:?} of a log that ends at {}",
            first.index,
            first.term,
            self.last()
        );
        debug_assert!(
            entries.is_sorted_by(|one, next| one.index + 1 == next.index && one.term <= next.term),
            "entries from {} on do not follow each other",
            first.index
        );
        let kept = first.index.saturating_sub(self.before.index + 1);
        self.entries.truncate(kept as usize);
        self.entries.extend(entries.iter().cloned());
        self.check();
    }

    pub fn set_hard(&mut self, hard: &HardState) {
        debug_assert!(
            self.hard.term <= hard.term && self.hard.commit <= hard.commit,
            "{:?} was promised, and now {hard:?}",
            self.hard
        );
        debug_assert!(
            hard.term > self.hard.term || self.hard.vote == 0 || hard.vote == self.hard.vote,
            "two votes in one term: {:?}, then {hard:?}",
            self.hard
        );
        debug_assert!(
            hard.commit <= self.last(),
            "entries up to {} are decided, and the log ends at {}",
            hard.commit,
            self.last()
        );
        self.hard = hard.clone();
    }

    /// Restarts the log after a copy.
    pub fn install(&mut self, facts: SnapshotFacts) {
        self.check_later(&facts);
        self.older = OlderEntries::none(facts.place);
        self.before = facts.place;
        self.entries.clear();
        self.applied = facts;
    }

    pub fn applied(&self) -> &SnapshotFacts {
        &self.applied
    }

    pub fn set_applied(&mut self, facts: SnapshotFacts) {
        self.check_later(&facts);
        debug_assert_eq!(
            self.place_of(facts.place.index),
            Some(facts.place),
            "what is applied is not what the log has there"
        );
        self.applied = facts;
        self.check();
    }

    /// Checks that the state never goes back.
    fn check_later(&self, facts: &SnapshotFacts) {
        let now = &self.applied;
        debug_assert!(
            now.place.index <= facts.place.index
                && now.place.term <= facts.place.term
                && now.stamp_ms <= facts.stamp_ms,
            "the state is at {} of time {}, and is to be at {} of time {}",
            now.place,
            now.stamp_ms,
            facts.place,
            facts.stamp_ms
        );
    }

    /// Removes applied entries up to this one from memory: they are in files.
    pub fn trim(&mut self, through: u64) {
        let through = through.min(self.applied.place.index).min(self.last());
        while self.before.index < through {
            let Some(entry) = self.entries.pop_front() else {
                return;
            };
            self.before = Place {
                term: entry.term,
                index: entry.index,
            };
            self.older.push(self.before);
        }
        self.check();
    }

    /// Records that entries up to this one cannot be read from files. Those in memory can.
    pub fn forget_older(&mut self, through: u64) {
        self.older.forget(through.min(self.before.index));
    }

    /// Takes the fetched entries, if they are the decided ones.
    pub fn take_fetched(&mut self, entries: Vec<Entry>) -> bool {
        let mut next = entries.first().map_or(0, |first| first.index);
        let follows = |entry: &Entry| {
            let is_it = entry.index == next && self.older.term(next) == Some(entry.term);
            next += 1;
            is_it
        };
        let is_it = entries.iter().all(follows) && next <= self.before.index + 1;
        if is_it {
            self.fetched = entries;
        }
        is_it
    }

    pub fn drop_fetched(&mut self) {
        self.fetched = Vec::new();
    }

    /// Returns the first wanted part: from the first entry up to the second.
    pub fn first_wanted(&self) -> Option<(u64, u64)> {
        let wanted = self.wanted.borrow();
        wanted.first().map(|wanted| (wanted.from, wanted.to))
    }

    /// Returns all waiting parts, the first one last: its next part is for later.
    pub fn take_wanted(&self) -> Vec<GetEntriesContext> {
        let mut wanted = self.wanted.take();
        if !wanted.is_empty() {
            wanted.rotate_left(1);
        }
        wanted.into_iter().map(|wanted| wanted.context).collect()
    }

    pub fn skip_wanted(&self) {
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.is_empty() {
            wanted.remove(0);
        }
    }

    pub fn forget_wanted(&self) {
        self.wanted.borrow_mut().clear();
    }

    /// Returns older entries if they were fetched. Otherwise notes the wanted part.
    fn older_entries(
        &self,
        (low, high): (u64, u64),
        most: u64,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let to = high.min(self.before.index + 1);
        let first = self.fetched.first().map_or(u64::MAX, |entry| entry.index);
        let skip = low.checked_sub(first);
        let found = skip.and_then(|skip| self.fetched.get(skip as usize..));
        if let Some(found) = found.filter(|found| !found.is_empty()) {
            return Ok(fitting(found.iter().take((to - low) as usize), most));
        }
        // Only reads for peers reach back this far.
        if !context.can_async() {
            return Err(StorageError::Compacted.into());
        }
        let mut wanted = self.wanted.borrow_mut();
        if wanted.len() < MOST_WANTED {
            wanted.push(WantedPart {
                from: low,
                to,
                context,
            });
        }
        Err(StorageError::LogTemporarilyUnavailable.into())
    }

    /// Returns the last applied entry to remove so that the later ones have at most this many
    /// bytes.
    pub fn trim_to(&self, most_bytes: u64) -> Option<u64> {
        let applied = self.applied.place.index.saturating_sub(self.before.index);
        let mut kept_bytes = 0;
        let all = self.entries.iter().take(applied as usize);
        let past = all.rev().find(|entry| {
            kept_bytes += Self::size(entry);
            kept_bytes > most_bytes
        });
        past.map(|entry| entry.index)
    }

    pub fn place_of(&self, index: u64) -> Option<Place> {
        if index == self.before.index {
            return Some(self.before);
        }
        let at = index.checked_sub(self.before.index + 1)?;
        let term = self.entries.get(at as usize)?.term;
        Some(Place { term, index })
    }

    fn size(entry: &Entry) -> u64 {
        (entry.data.len() + entry.context.len()) as u64 + 32
    }
}

/// Returns as many entries as fit in this many bytes, at least one.
fn fitting<'a>(entries: impl Iterator<Item = &'a Entry>, most_bytes: u64) -> Vec<Entry> {
    let mut size = 0;
    let fits = |entry: &&Entry| {
        let is_first = size == 0;
        size += Tail::size(entry);
        is_first || size <= most_bytes
    };
    entries.take_while(fits).cloned().collect()
}

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.started.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.older.before().index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let most = max_size.into().unwrap_or(u64::MAX);
        if low <= self.before.index {
            return self.older_entries((low, high), most, context);
        }
        let skip = (low - self.before.index - 1) as usize;
        let asked = self.entries.iter().skip(skip).take((high - low) as usize);
        Ok(fitting(asked, most))
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.place_of(index) {
            Some(place) => Ok(place.term),
            None if index < self.before.index => {
                let term = self.older.term(index);
                term.ok_or(StorageError::Compacted.into())
            }
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.older.before().index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Returns only the place: the peer that receives it asks for the runs.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let place = self.applied.place;
        // A peer installs a copy only of a group that it belongs to.
        let knows_peer = self.applied.membership.contains(PeerId(to));
        if place.index == 0 || place.index < request_index || !knows_peer {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (place.index, place.term);
        metadata.set_conf_state(self.applied.membership.to_raft());
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use raft::Error;

    use super::*;

    fn entry(term: u64, index: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.term, entry.index) = (term, index);
        entry
    }

    /// Entries 11 to 20 in files; from 16 on, they have a later term.
    fn tail() -> Tail {
        let at = |term, index| Place { term, index };
        let older = OlderEntries::new(at(2, 10), [at(3, 16)]).unwrap();
        let applied = SnapshotFacts {
            place: at(3, 20),
            ..SnapshotFacts::default()
        };
        Tail::new(
            HardState::default(),
            applied,
            (older, at(3, 20)),
            vec![entry(3, 21)],
        )
    }

    fn read(tail: &Tail, low: u64, high: u64) -> raft::Result<Vec<u64>> {
        let found = tail.entries(low, high, u64::MAX, GetEntriesContext::empty(true))?;
        Ok(found.iter().map(|entry| entry.index).collect())
    }

    #[test]
    fn entries_in_files_are_fetched_first() {
        let mut tail = tail();
        let waits = Err(Error::Store(StorageError::LogTemporarilyUnavailable));
        assert_eq!(tail.first_index(), Ok(11));
        assert_eq!([10, 15, 16].map(|at| tail.term(at)), [Ok(2), Ok(2), Ok(3)]);
        assert_eq!(read(&tail, 21, 22), Ok(vec![21]));
        assert_eq!(read(&tail, 15, 22), waits);
        assert_eq!(tail.first_wanted(), Some((15, 21)), "memory has the rest");
        assert!(tail.take_fetched(vec![entry(2, 15), entry(3, 16)]));
        assert_eq!(tail.take_wanted().len(), 1);
        assert_eq!(read(&tail, 15, 22), Ok(vec![15, 16]));
        assert_eq!(read(&tail, 17, 22), waits);
        tail.drop_fetched();
        tail.forget_older(15);
        let gone = Err(Error::Store(StorageError::Compacted));
        assert_eq!(read(&tail, 15, 22), gone, "only a copy has the entry");
        assert_eq!(read(&tail, 16, 22), waits);
    }

    #[test]
    fn fetched_entries_that_do_not_fit_the_log_are_refused() {
        let mut tail = tail();
        assert!(!tail.take_fetched(vec![entry(3, 15), entry(3, 16)]));
        assert!(!tail.take_fetched(vec![entry(2, 14), entry(3, 16)]));
        assert!(!tail.take_fetched(vec![entry(3, 20), entry(3, 21)]));
        assert_eq!(
            read(&tail, 15, 17),
            Err(Error::Store(StorageError::LogTemporarilyUnavailable))
        );
    }
}
