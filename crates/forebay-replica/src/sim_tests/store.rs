//! What a replica's state and log are kept in on a host: a model of them, or the engine and its
//! log.

use forebay_io::sim::SeedCounts;

use super::model::{Answer, State};
use super::real::RealCopy;
use crate::entry::{Content, LogEntry};
use crate::events::{Committed, Persist};
use crate::ids::{GroupId, PeerId};
use crate::memory::FoundMemory;
use crate::start::Start;
use crate::tail::SnapshotFacts;

/// Why something was not done.
#[derive(Debug)]
pub enum Trouble {
    /// It is tried again.
    NoRoom,
    /// The process cannot go on.
    Broken(String),
}

/// How far a wish is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteProgress {
    /// The copy is in place, and the log does not say so yet: the wish is to be written again.
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

/// State and log of one replica. They outlive its process: [`Store::open`] and [`Store::start`]
/// come first in each one.
pub trait Store {
    /// Opens what there is, for a process on the boot that is told; tells what it found.
    fn open(&mut self, found: &FoundMemory, seed: u64) -> Result<FoundMemory, Trouble>;

    /// What a replica begins with. REQUIRES: it is open, and remembers.
    fn start(&mut self, group: GroupId, me: PeerId, seed: u64) -> Result<Start, Trouble>;

    /// The process ends (kill -9): what was written is left.
    fn end(&mut self);

    /// After the end of the process: of what is not synced, some part is left.
    fn lose_power(&mut self, draw: u64);

    /// The process ends by itself; returns whether it could say so.
    fn stop_clean(&mut self) -> bool;

    fn set_full(&mut self, is_full: bool);

    /// Puts the copy that was brought in place, if the wish has one, and writes to the log.
    fn write(&mut self, persist: &Persist) -> Result<WriteProgress, Trouble>;

    /// All that is in the log.
    fn sync(&mut self) -> Result<(), Trouble>;

    /// The answers of an entry's proposals, in their order. Those of which an earlier process had
    /// the answers are left out at the front.
    fn apply(&mut self, committed: &Committed) -> Result<Vec<Answer>, Trouble>;

    fn get(&self, key: u8) -> Result<Option<i64>, Trouble>;

    /// Of the content; `None` in the midst of an entry.
    fn hash(&mut self) -> Result<Option<u64>, Trouble>;

    /// Entries from the log, from the first on and up to the other, which is left out: one at
    /// least, and about so many bytes. `None`: they are not there any more.
    fn entries(
        &mut self,
        range: (u64, u64),
        most_bytes: u64,
    ) -> Result<Option<Vec<LogEntry>>, Trouble>;

    /// Writes the state as runs; entries up to `through` are not kept for peers.
    fn flush(&mut self, applied: &SnapshotFacts, through: u64) -> Result<(), Trouble>;

    /// A piece of work in the background, or none.
    fn work(&mut self) -> Result<(), Trouble> {
        Ok(())
    }

    fn copy(&mut self, applied: &SnapshotFacts) -> Result<(SnapshotFacts, StateCopy), Trouble>;

    /// Takes the files of a copy, which is not in place yet.
    fn fetch_copy(&mut self, copy: StateCopy) -> Result<(), Trouble>;

    fn drop_copy(&mut self);

    /// The process dies in the midst of what it does, so many calls of the disk from now.
    fn die_within(&mut self, _calls: u64) {}

    fn is_dead(&self) -> bool {
        false
    }

    /// How many calls of the disk there were, for the trace.
    fn calls(&self) -> u64 {
        0
    }

    /// How often what happened, for people.
    fn counts(&self) -> SeedCounts {
        SeedCounts::new()
    }
}

impl Committed {
    /// The operations of its proposals, and by which time they are judged.
    pub fn operations(&self) -> Vec<(u64, &[u8])> {
        match &self.entry.content {
            Content::Batch {
                stamp_ms,
                proposals,
            } => {
                let all = proposals.iter();
                all.map(|proposal| (*stamp_ms, &proposal.operations[..]))
                    .collect()
            }
            Content::Nothing | Content::Changes(_) | Content::Split(_) => Vec::new(),
        }
    }
}
