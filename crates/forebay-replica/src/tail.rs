//! The end of a group's log in memory, as the library reads it.

use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Storage, StorageError};

use crate::ids::{PeerId, Place};
use crate::membership::Membership;

/// What the state of a partition at one place of its log is. The engine keeps it with that state,
/// and changes both in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotFacts {
    pub place: Place,
    pub membership: Arc<Membership>,
    /// The partition's time there.
    pub stamp_ms: u64,
}

#[derive(Debug)]
pub struct Tail {
    hard: HardState,
    /// The group as the replica was started with it.
    started: ConfState,
    /// Where the entry before the first lies.
    before: Place,
    entries: VecDeque<Entry>,
    /// What the engine has applied, and can make a copy of.
    applied: SnapshotFacts,
}

impl Tail {
    /// `entries` are consecutive, and begin at `before.index + 1` or later than nothing.
    pub fn new(
        hard: HardState,
        applied: SnapshotFacts,
        before: Place,
        entries: Vec<Entry>,
    ) -> Self {
        let started = applied.membership.to_raft();
        Self {
            hard,
            started,
            before,
            entries: entries.into(),
            applied,
        }
    }

    pub fn last(&self) -> u64 {
        self.before.index + self.entries.len() as u64
    }

    /// Takes entries, whose first replaces what was there from its index on.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let kept = first.index.saturating_sub(self.before.index + 1);
        self.entries.truncate(kept as usize);
        self.entries.extend(entries.iter().cloned());
    }

    pub fn set_hard(&mut self, hard: &HardState) {
        self.hard = hard.clone();
    }

    /// Begins anew behind a copy.
    pub fn install(&mut self, facts: SnapshotFacts) {
        self.before = facts.place;
        self.entries.clear();
        self.applied = facts;
    }

    pub fn applied(&self) -> &SnapshotFacts {
        &self.applied
    }

    pub fn set_applied(&mut self, facts: SnapshotFacts) {
        self.applied = facts;
    }

    /// Forgets entries that are applied, up to this one.
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
        }
    }

    /// The last applied entry that need not be kept where the others take no more bytes than this.
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

impl Storage for Tail {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard.clone(), self.started.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.before.index {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let most = max_size.into().unwrap_or(u64::MAX);
        let (skip, mut size) = ((low - self.before.index - 1) as usize, 0_u64);
        let asked = self.entries.iter().skip(skip).take((high - low) as usize);
        let fits = |entry: &&Entry| {
            let is_first = size == 0;
            size += Self::size(entry);
            is_first || size <= most
        };
        Ok(asked.take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.place_of(index) {
            Some(place) => Ok(place.term),
            None if index < self.before.index => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.before.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    /// Only the place: who gets it asks for the runs.
    fn snapshot(&self, request_index: u64, to: u64) -> raft::Result<Snapshot> {
        let place = self.applied.place;
        // A peer takes a copy only of a group that it belongs to.
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
