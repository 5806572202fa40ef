//! What a sort is to do, and what it may take: one plan for whole pushes, pushes onto a version,
//! their dry runs, loads, and the tasks of a distributed push.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_run::hash::KeyHasher;
use forebay_run::{Order, RunOptions};

use super::{Arrangement, Duplicates, SPILL_PREFIX, SortError, Tally};

/// Set aside of the memory for what reading a unit and writing a run take, a thread.
pub(super) const WORK_BYTES: u64 = 24 << 20;

/// The part of a memory budget that records may fill.
pub fn record_memory(budget_bytes: u64, threads: usize) -> usize {
    let work = WORK_BYTES * threads.max(1) as u64;
    budget_bytes.saturating_sub(work).max(budget_bytes / 4) as usize
}

/// Where a sort works, and how much of the machine it may take.
#[derive(Debug)]
pub struct SortSpace {
    pub disk: Arc<dyn Disk>,
    /// Where runs are spilled; the directory exists.
    pub scratch: PathBuf,
    /// The memory of the whole work, of which records get [`record_memory`].
    pub memory_bytes: u64,
    pub threads: usize,
}

/// What all threads of a sort share.
#[derive(Debug, Clone)]
pub struct SortPlan {
    pub disk: Arc<dyn Disk>,
    pub scratch: PathBuf,
    /// Order, compression and hash prefix of the result.
    pub run: RunOptions,
    /// Whether pages have the size that was asked for, else one by the records.
    has_page_size: bool,
    pub duplicates: Duplicates,
    /// In which order records come out; one that is not that of the keys goes with ordered runs.
    pub arrangement: Arrangement,
    /// Records carry operations, by [`super::Collector::push_operation`]; else all are updates.
    pub with_operations: bool,
    /// The memory for records of all collectors together.
    pub memory_bytes: usize,
    pub threads: usize,
}

impl SortPlan {
    /// `page_bytes` is by default as [`SortPlan::settle_pages`] chooses.
    pub fn new(
        space: SortSpace,
        mut run: RunOptions,
        page_bytes: Option<u32>,
        duplicates: Duplicates,
        with_operations: bool,
    ) -> Self {
        run.page_bytes = page_bytes.unwrap_or(run.page_bytes);
        Self {
            disk: space.disk,
            scratch: space.scratch,
            run,
            has_page_size: page_bytes.is_some(),
            duplicates,
            arrangement: Arrangement::ByKey,
            with_operations,
            memory_bytes: record_memory(space.memory_bytes, space.threads),
            threads: space.threads.max(1),
        }
    }

    /// The same in another order. What is collected is for walking then, not for runs of a table.
    #[must_use]
    pub fn arranged(mut self, arrangement: Arrangement) -> Self {
        if arrangement != Arrangement::ByKey {
            self.run.order = Order::Ordered;
        }
        self.arrangement = arrangement;
        self
    }

    pub fn order(&self) -> Order {
        self.run.order
    }

    pub(crate) fn hasher(&self) -> KeyHasher {
        KeyHasher::new(&self.run.hash_prefix)
    }

    /// Chooses the size of pages by the records that came in, unless it was given.
    pub fn settle_pages(&mut self, source: &Tally) {
        if !self.has_page_size {
            let run = self.run.clone();
            self.run = run.for_records_of(source.bytes / source.records.max(1));
        }
    }

    /// Removes what collectors have spilled, of which none may be in use.
    pub fn remove_spills(&self) -> Result<(), SortError> {
        let failed = |error| SortError::Scratch {
            path: self.scratch.clone(),
            error,
        };
        for name in self.disk.list(&self.scratch).map_err(failed)? {
            if name.starts_with(SPILL_PREFIX) {
                self.disk.remove(&self.scratch.join(name)).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// How many threads may read and collect.
    pub fn reading_threads(&self) -> usize {
        match self.duplicates {
            Duplicates::Compose(_) => 1,
            _ => self.threads.max(1),
        }
    }

    /// The payload of a record as its run has it: what counts in a [`Tally`].
    pub(super) fn payload<'v>(&self, collected: &'v [u8]) -> &'v [u8] {
        match collected.split_first() {
            Some((_, payload)) if self.with_operations => payload,
            _ => collected,
        }
    }
}
