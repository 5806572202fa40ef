//! The state that a replica starts with.

use std::sync::Arc;

use raft::eraftpb::HardState;
use thiserror::Error;

use crate::entry::{Content, LogEntry};
use crate::events::Promise;
use crate::ids::{GroupId, PeerId, Place};
use crate::membership::Membership;
use crate::older::OlderEntries;
use crate::tail::{SnapshotFacts, Tail};
use crate::time::PartitionClock;

/// The state of a replica that the shell found, or founds.
///
/// REQUIRES, for a replica that was found: [`check_memory`](crate::check_memory) returned that it
/// remembers.
#[derive(Debug, Clone)]
pub struct Start {
    pub group: GroupId,
    pub me: PeerId,
    pub promise: Promise,
    /// The place of the engine's state, and the facts there.
    pub applied: SnapshotFacts,
    /// The entries before `entries` in the log's files, for peers that lag.
    pub older: OlderEntries,
    /// The place before the first of `entries`.
    pub before: Place,
    pub entries: Vec<LogEntry>,
    /// The seed of its random numbers: a different one at each start.
    pub seed: u64,
}

/// A reason why a replica cannot start. The log is then damaged.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StartError {
    #[error("entry {found} follows entry {before} in the log of group {group}")]
    Gap {
        group: u64,
        before: Place,
        found: Place,
    },
    #[error("the entries in files of group {group} begin after {found}, and do not reach {before}")]
    Older {
        group: u64,
        before: Place,
        found: Place,
    },
    #[error(
        "the state of group {group} is at {applied}, and its log has entries {first} to {last}"
    )]
    Place {
        group: u64,
        applied: Place,
        first: u64,
        last: u64,
    },
    #[error("the members of group {group} that were kept contradict each other: {members:?}")]
    Members {
        group: u64,
        members: Box<Membership>,
    },
    #[error("group {group}: {problem}")]
    Library { group: u64, problem: String },
}

/// The place of a new group's state: its first entry comes after it. So the log alone cannot make a
/// peer current, and a peer that joins learns the group's members from a copy.
pub const FOUNDED: Place = Place { term: 1, index: 1 };

impl Start {
    /// Returns the start of a peer that founds a group, with an empty partition.
    pub fn founder(group: GroupId, me: PeerId, voters: &[PeerId], seed: u64) -> Self {
        let facts = SnapshotFacts {
            place: FOUNDED,
            membership: Arc::new(Membership::founders(voters)),
            stamp_ms: 0,
        };
        let promise = Promise {
            term: FOUNDED.term,
            vote: None,
            committed: FOUNDED.index,
        };
        Self {
            promise,
            applied: facts,
            older: OlderEntries::none(FOUNDED),
            before: FOUNDED,
            ..Self::joiner(group, me, seed)
        }
    }

    /// Returns the start of a peer that joins a group: it has nothing, and fetches everything.
    pub fn joiner(group: GroupId, me: PeerId, seed: u64) -> Self {
        Self {
            group,
            me,
            promise: Promise::default(),
            applied: SnapshotFacts::default(),
            older: OlderEntries::none(Place::default()),
            before: Place::default(),
            entries: Vec::new(),
            seed,
        }
    }

    /// Returns whether the replica has never run, or without effect: it has neither voted nor heard
    /// from a leader. A leader has a later term.
    pub(crate) fn is_fresh(&self) -> bool {
        let Promise { term, vote, .. } = self.promise;
        term <= FOUNDED.term && vote.is_none() && self.entries.is_empty()
    }

    fn check(&self) -> Result<(), StartError> {
        let group = self.group.0;
        let mut before = self.before;
        let older = &self.older;
        if older.before().index > before.index || older.term(before.index) != Some(before.term) {
            return Err(StartError::Older {
                group,
                before,
                found: older.before(),
            });
        }
        for entry in &self.entries {
            let found = entry.place;
            if found.index != before.index + 1 || found.term < before.term {
                return Err(StartError::Gap {
                    group,
                    before,
                    found,
                });
            }
            before = found;
        }
        let applied = self.applied.place;
        let (first, last) = (self.before.index + 1, before.index);
        if applied.index + 1 < first || applied.index > last {
            return Err(StartError::Place {
                group,
                applied,
                first,
                last,
            });
        }
        let members = &self.applied.membership;
        if applied.index > 0 && !members.is_sound() {
            let members = Box::new(Membership::clone(members));
            return Err(StartError::Members { group, members });
        }
        Ok(())
    }

    pub(crate) fn tail(&self) -> Result<(Tail, PartitionClock), StartError> {
        self.check()?;
        let last = self.entries.last().map_or(self.before, |entry| entry.place);
        let committed = self.promise.committed.min(last.index);
        let mut hard = HardState {
            term: self.promise.term.max(last.term),
            ..HardState::default()
        };
        if hard.term == self.promise.term {
            hard.vote = self.promise.vote.map_or(0, |peer| peer.0);
        }
        hard.commit = committed.max(self.applied.place.index);
        debug_assert!(
            hard.commit <= last.index && hard.term >= last.term,
            "group {} begins with {hard:?}, and its log ends at {last}",
            self.group
        );
        let mut clock = PartitionClock::default();
        clock.observe(self.applied.stamp_ms);
        for entry in &self.entries {
            if let Content::Batch { stamp_ms, .. } = entry.content {
                clock.observe(stamp_ms);
            }
        }
        let entries = self.entries.iter().map(LogEntry::to_raft).collect();
        Ok((
            Tail::new(
                hard,
                self.applied.clone(),
                (self.older.clone(), self.before),
                entries,
            ),
            clock,
        ))
    }
}
