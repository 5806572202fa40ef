//! The store of a replica's state and log on a host: a model of them, or the engine and its log.

use forebay_io::sim::SeedCounts;

use super::model::{Answer, State};
use super::real::RealCopy;
use crate::entry::{Content, LogEntry};
use crate::events::{Committed, Persist};
use crate::ids::{GroupId, PeerId};
use crate::memory::FoundMemory;
use crate::start::Start;
use crate::tail::SnapshotFacts;

/// A reason why an operation failed.
#[derive(Debug)]
pub enum Trouble {
    /// The operation is tried again.
    NoRoom,
    /// The process cannot continue.
    Broken(String),
}

/// The progress of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteProgress {
    /// The copy is installed, and the log does not record it yet: the write has to be repeated.
    CopyOnly,
    All {
        installs: bool,
    },
}

/// A copy of a state on its way to another host.
#[derive(Debug)]
pub enum StateCopy {
    Model(State),
    Real(RealCopy),
}

/// The state and log of one replica. They survive its process. Each process first calls
/// [`Store::open`] and [`Store::start`].
pub trait Store {
    /// Opens the store for a process on the given boot; returns what it found.
    fn open(&mut self, found: &FoundMemory, seed: u64) -> Result<FoundMemory, Trouble>;

    /// Returns what a replica begins with. REQUIRES: it is open, and remembers.
    fn start(&mut self, group: GroupId, me: PeerId, seed: u64) -> Result<Start, Trouble>;

    /// Ends the process (kill -9): what was written remains.
    fn end(&mut self);

    /// Loses power after the end of the process: a part of what is not synced remains.
    fn lose_power(&mut self, draw: u64);

    /// Stops the process cleanly; returns whether it could record that.
    fn stop_clean(&mut self) -> bool;

    fn set_full(&mut self, is_full: bool);

    /// Installs the fetched copy, if the write has one, and writes to the log.
    fn write(&mut self, persist: &Persist) -> Result<WriteProgress, Trouble>;

    /// Syncs everything in the log.
    fn sync(&mut self) -> Result<(), Trouble>;

    /// Returns the answers of an entry's proposals, in their order. Omits those at the front whose
    /// answers an earlier process had.
    fn apply(&mut self, committed: &Committed) -> Result<Vec<Answer>, Trouble>;

    fn get(&self, key: u8) -> Result<Option<i64>, Trouble>;

    /// Returns a hash of the content; `None` within an entry.
    fn hash(&mut self) -> Result<Option<u64>, Trouble>;

    /// Returns entries from the log, from the first up to but not including the second: at least
    /// one, and about this many bytes. Returns `None` if they are gone.
    fn entries(
        &mut self,
        range: (u64, u64),
        most_bytes: u64,
    ) -> Result<Option<Vec<LogEntry>>, Trouble>;

    /// Writes the state as runs; entries up to `through` are not retained for peers.
    fn flush(&mut self, applied: &SnapshotFacts, through: u64) -> Result<(), Trouble>;

    /// Does a piece of background work, or none.
    fn work(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn copy(&mut self, applied: &SnapshotFacts) -> Result<(SnapshotFacts, StateCopy), Trouble>;

    /// Copies the files of a copy, which is not installed yet.
    fn fetch_copy(&mut self, copy: StateCopy) -> Result<(), Trouble>;

    fn drop_copy(&mut self);

    /// Makes the process die in the middle of an operation, after this many calls of the disk.
    fn die_within(&mut self, _calls: u64) {}

    fn is_dead(&self) -> bool {
        false
    }

    /// Returns the number of calls of the disk, for the trace.
    fn calls(&self) -> u64 {
        0
    }

    /// Returns counts of events, for people.
    fn counts(&self) -> SeedCounts {
        SeedCounts::new()
    }
}

impl Committed {
    /// Returns the effects of its proposals, and the time by which they are evaluated.
    pub fn effects(&self) -> Vec<(u64, &[u8])> {
        match &self.entry.content {
            Content::Batch {
                stamp_ms,
                proposals,
            } => {
                let all = proposals.iter();
                all.map(|proposal| (*stamp_ms, &proposal.effect[..]))
                    .collect()
            }
            Content::Empty | Content::Changes(_) | Content::Split(_) => Vec::new(),
        }
    }
}
