//! A simulated log and engine state on a disk, with what was written, and how much of it is synced.

use super::model::{Answer, State};
use super::store::{StateCopy, Store, Trouble, WriteProgress};
use crate::entry::LogEntry;
use crate::events::{Committed, Persist, Promise};
use crate::ids::{GroupId, PeerId, Place};
use crate::memory::FoundMemory;
use crate::older::OlderEntries;
use crate::start::Start;
use crate::tail::SnapshotFacts;

#[derive(Debug, Clone)]
pub enum DiskWrites {
    Log(Persist, Option<State>),
    /// The engine's state as runs, and the index up to which the log is no longer needed.
    Runs(SnapshotFacts, State, u64),
}

/// The state that a restart finds.
#[derive(Debug, Clone)]
pub struct RestartState {
    pub promise: Promise,
    pub applied: SnapshotFacts,
    pub state: State,
    pub before: Place,
    pub entries: Vec<LogEntry>,
}

#[derive(Debug)]
struct SimDisk {
    base: RestartState,
    journal: Vec<DiskWrites>,
    synced: usize,
}

/// A model state and its disk.
#[derive(Debug)]
pub struct ModelStore {
    disk: SimDisk,
    is_full: bool,
    /// The state in the process's memory.
    state: State,
    staged: Option<State>,
}

impl RestartState {
    fn take(&mut self, written: &DiskWrites) {
        match written {
            DiskWrites::Log(persist, state) => {
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
            DiskWrites::Runs(facts, state, through) => {
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
    fn new(start: &Start) -> Self {
        let base = RestartState {
            promise: start.promise,
            applied: start.applied.clone(),
            state: State::default(),
            before: start.before,
            entries: Vec::new(),
        };
        Self {
            base,
            journal: Vec::new(),
            synced: 0,
        }
    }

    fn write(&mut self, written: DiskWrites) {
        self.journal.push(written);
        if self.synced == self.journal.len() - 1 && self.synced > 64 {
            for written in self.journal.drain(..self.synced) {
                self.base.take(&written);
            }
            self.synced = 0;
        }
    }

    /// Syncs everything written so far.
    fn sync(&mut self) {
        self.synced = self.journal.len();
    }

    fn unsynced(&self) -> usize {
        self.journal.len() - self.synced
    }

    /// Loses power: only a prefix of what is not synced remains.
    fn lose(&mut self, left: usize) {
        self.journal.truncate(self.synced + left);
        self.synced = self.journal.len();
    }

    fn recover(&self) -> RestartState {
        let mut kept = self.base.clone();
        self.journal.iter().for_each(|written| kept.take(written));
        kept
    }
}

impl ModelStore {
    pub fn new(start: &Start) -> Self {
        Self {
            disk: SimDisk::new(start),
            is_full: false,
            state: State::default(),
            staged: None,
        }
    }
}

impl Store for ModelStore {
    fn open(&mut self, found: &FoundMemory, _: u64) -> Result<FoundMemory, Trouble> {
        Ok(found.clone())
    }

    fn start(&mut self, group: GroupId, me: PeerId, seed: u64) -> Result<Start, Trouble> {
        let kept = self.disk.recover();
        self.state = kept.state;
        // Entries that are in runs stay in the log.
        let is_older = |entry: &&LogEntry| entry.place.index <= kept.applied.place.index;
        let count = kept.entries.iter().take_while(is_older).count();
        let older = kept.entries[..count].iter().map(|entry| entry.place);
        let mut known = OlderEntries::none(kept.before);
        older.for_each(|place| known.push(place));
        let last = kept.entries[..count].last();
        Ok(Start {
            group,
            me,
            promise: kept.promise,
            applied: kept.applied,
            older: known,
            before: last.map_or(kept.before, |last| last.place),
            entries: kept.entries[count..].to_vec(),
            seed,
        })
    }

    fn end(&mut self) {
        self.staged = None;
    }

    fn lose_power(&mut self, draw: u64) {
        let left = draw % (self.disk.unsynced() as u64 + 1);
        self.disk.lose(left as usize);
    }

    fn stop_clean(&mut self) -> bool {
        self.disk.sync();
        true
    }

    fn set_full(&mut self, is_full: bool) {
        self.is_full = is_full;
    }

    fn write(&mut self, persist: &Persist) -> Result<WriteProgress, Trouble> {
        if self.is_full {
            return Err(Trouble::NoRoom);
        }
        let mut state = None;
        if persist.snapshot.is_some() {
            state = self.staged.take();
            self.state = state.clone().expect("the copy was fetched");
        }
        let installs = state.is_some();
        self.disk.write(DiskWrites::Log(persist.clone(), state));
        Ok(WriteProgress::All { installs })
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        self.disk.sync();
        Ok(())
    }

    fn apply(&mut self, committed: &Committed) -> Result<Vec<Answer>, Trouble> {
        let effects = committed.effects().into_iter();
        let answers = effects.map(|(stamp_ms, bytes)| self.state.apply(bytes, stamp_ms));
        Ok(answers.collect())
    }

    fn get(&self, key: u8) -> Result<Option<i64>, Trouble> {
        Ok(self.state.get(key))
    }

    fn hash(&mut self) -> Result<Option<u64>, Trouble> {
        Ok(Some(self.state.hash()))
    }

    fn entries(
        &mut self,
        (from, to): (u64, u64),
        most_bytes: u64,
    ) -> Result<Option<Vec<LogEntry>>, Trouble> {
        let kept = self.disk.recover();
        let skip = from.checked_sub(kept.before.index + 1);
        let behind = skip.and_then(|skip| kept.entries.get(skip as usize..));
        // A simulated message has few entries, so that many parts are requested.
        let most = (to - from).min(1 + most_bytes / (256 << 10)) as usize;
        let some = behind.map(|entries| entries.iter().take(most).cloned().collect());
        Ok(some.filter(|entries: &Vec<LogEntry>| !entries.is_empty()))
    }

    fn flush(&mut self, applied: &SnapshotFacts, through: u64) -> Result<(), Trouble> {
        if self.is_full {
            return Err(Trouble::NoRoom);
        }
        let written = DiskWrites::Runs(applied.clone(), self.state.clone(), through);
        self.disk.write(written);
        Ok(())
    }

    fn copy(&mut self, applied: &SnapshotFacts) -> Result<(SnapshotFacts, StateCopy), Trouble> {
        Ok((applied.clone(), StateCopy::Model(self.state.clone())))
    }

    fn fetch_copy(&mut self, copy: StateCopy) -> Result<(), Trouble> {
        if let StateCopy::Model(state) = copy {
            self.staged = Some(state);
        }
        Ok(())
    }

    fn drop_copy(&mut self) {
        self.staged = None;
    }
}
