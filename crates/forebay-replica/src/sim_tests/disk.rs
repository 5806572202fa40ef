//! A simulated log and engine state on a disk: what was written, and how much of it is synced.

use crate::entry::LogEntry;
use crate::events::{Persist, Promise};
use crate::ids::{GroupId, PeerId, Place};
use crate::memory::Found;
use crate::start::Start;
use crate::tail::SnapshotFacts;

use super::model::State;

#[derive(Debug, Clone)]
pub enum Written {
    Log(Persist, Option<State>),
    /// The engine's state as runs, and the log up to there no longer needed.
    Runs(SnapshotFacts, State, u64),
}

/// What a restart finds.
#[derive(Debug, Clone)]
pub struct Kept {
    pub promise: Promise,
    pub applied: SnapshotFacts,
    pub state: State,
    pub before: Place,
    pub entries: Vec<LogEntry>,
}

#[derive(Debug)]
pub struct SimDisk {
    pub peer: PeerId,
    base: Kept,
    journal: Vec<Written>,
    synced: usize,
    pub found: Found,
}

impl Kept {
    fn take(&mut self, written: &Written) {
        match written {
            Written::Log(persist, state) => {
                if let (Some(facts), Some(state)) = (&persist.snapshot, state) {
                    (self.applied, self.state) = (facts.clone(), state.clone());
                    (self.before, self.entries) = (facts.place, Vec::new());
                }
                if let Some(first) = persist.entries.first() {
                    let kept = first.place.index.saturating_sub(self.before.index + 1);
                    self.entries.truncate(kept as usize);
                    self.entries.extend(persist.entries.iter().cloned());
                }
                self.promise = persist.promise.unwrap_or(self.promise);
            }
            Written::Runs(facts, state, through) => {
                (self.applied, self.state) = (facts.clone(), state.clone());
                let is_old = |entry: &&LogEntry| entry.place.index <= *through;
                let cut = self.entries.iter().take_while(is_old).count();
                if let Some(last) = self.entries.drain(..cut).next_back() {
                    self.before = last.place;
                }
            }
        }
    }
}

impl SimDisk {
    pub fn new(start: &Start, found: Found) -> Self {
        let base = Kept {
            promise: start.promise,
            applied: start.applied.clone(),
            state: State::default(),
            before: start.before,
            entries: Vec::new(),
        };
        Self {
            peer: start.me,
            base,
            journal: Vec::new(),
            synced: 0,
            found,
        }
    }

    pub fn write(&mut self, written: Written) {
        self.journal.push(written);
        if self.synced == self.journal.len() - 1 && self.synced > 64 {
            for written in self.journal.drain(..self.synced) {
                self.base.take(&written);
            }
            self.synced = 0;
        }
    }

    /// All that is written so far.
    pub fn sync(&mut self) {
        self.synced = self.journal.len();
    }

    pub fn unsynced(&self) -> usize {
        self.journal.len() - self.synced
    }

    /// Power is lost: of what is not synced a beginning is left.
    pub fn lose(&mut self, left: usize) {
        self.journal.truncate(self.synced + left);
        self.synced = self.journal.len();
    }

    pub fn recover(&self) -> Kept {
        let mut kept = self.base.clone();
        self.journal.iter().for_each(|written| kept.take(written));
        kept
    }

    pub fn start(&self, group: GroupId, seed: u64) -> (Start, State) {
        let kept = self.recover();
        let start = Start {
            group,
            me: self.peer,
            promise: kept.promise,
            applied: kept.applied,
            before: kept.before,
            entries: kept.entries,
            seed,
        };
        (start, kept.state)
    }
}
