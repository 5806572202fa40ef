//! Defines the plan of a sort: its rules and its resources.
//!
//! Whole pushes, pushes onto a version, their dry runs, loads and the tasks of a distributed push
//! use it.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_run::hash::KeyHasher;
use forebay_run::{Order, RunOptions};

use super::{Arrangement, Duplicates, SPILL_PREFIX, SortError, Tally};

/// The memory reserved for each thread to read a unit and write a run.
pub(super) const WORK_BYTES: u64 = 24 << 20;

/// Returns the part of a memory budget that records may fill.
pub fn record_memory(budget_bytes: u64, threads: usize) -> usize {
    let work = WORK_BYTES * threads.max(1) as u64;
    budget_bytes.saturating_sub(work).max(budget_bytes / 4) as usize
}

/// The place and the resources of a sort.
#[derive(Debug)]
pub struct SortSpace {
    pub disk: Arc<dyn Disk>,
    /// The existing directory for spilled runs.
    pub scratch: PathBuf,
    /// The memory of the whole work; records get [`record_memory`] of it.
    pub memory_bytes: u64,
    pub threads: usize,
}

/// The settings that all threads of a sort share.
#[derive(Debug, Clone)]
pub struct SortPlan {
    pub disk: Arc<dyn Disk>,
    pub scratch: PathBuf,
    /// Order, compression and hash prefix of the result.
    pub run: RunOptions,
    /// Whether the page size was given; otherwise it depends on the records.
    has_page_size: bool,
    pub duplicates: Duplicates,
    /// The order of the result. An order other than key order requires ordered runs.
    pub arrangement: Arrangement,
    /// Records carry operations, by [`super::Collector::push_operation`]; otherwise all are
    /// updates.
    pub with_operations: bool,
    /// The memory for records of all collectors together.
    pub memory_bytes: usize,
    pub threads: usize,
}

impl SortPlan {
    /// Creates a plan. Without `page_bytes`, [`SortPlan::settle_pages`] chooses the page size.
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

    /// Returns the plan with another order. Collected records can then be walked, but not written
    /// to runs of a table.
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

    /// Chooses the page size from the records received, unless it was given.
    pub fn settle_pages(&mut self, source: &Tally) {
        if !self.has_page_size {
            let run = self.run.clone();
            self.run = run.for_records_of(source.bytes / source.records.max(1));
        }
    }

    /// Removes spilled runs of collectors. None may be in use.
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

    /// Returns the number of threads that may read and collect.
    pub fn reading_threads(&self) -> usize {
        match self.duplicates {
            Duplicates::Compose(_) => 1,
            _ => self.threads.max(1),
        }
    }

    /// Returns the payload of a record as stored in its run, which a [`Tally`] counts.
    pub(super) fn payload<'v>(&self, collected: &'v [u8]) -> &'v [u8] {
        match collected.split_first() {
            Some((_, payload)) if self.with_operations => payload,
            _ => collected,
        }
    }
}
