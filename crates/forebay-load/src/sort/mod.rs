//! The external sort: records in any order become the sorted runs of a version's partitions.
//!
//! 1. Each thread collects records in a [`Collector`], which holds a fixed share of the memory
//!    budget. When the share is full, the records are sorted and spilled as one run (the same format
//!    as the result's, `forebay_run`), and the collector starts again. Records that fit are never
//!    spilled.
//! 2. [`cut::Cuts`] divides the sort order into partitions: hashed ones at Redis slots, ordered ones
//!    at keys that halve the bytes seen.
//! 3. [`write::write_partitions`] merges, per partition and in parallel, what lies in memory and in
//!    the spilled runs, writes the partition's run, and reads it back from the device.
//!
//! Two records of one key are told apart by age: the number of the input unit that they came from,
//! then their order in it. Units are handed out in order and each is read by one thread, so within a
//! collector the order of arrival is the order of age.

mod arena;
mod collector;
mod cut;
mod order;
mod spill;
mod write;

use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_run::content::ContentSum;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::record::{decode, encode};
use forebay_run::{Order, RunError, RunOptions};

pub use collector::{Collected, Collector};
pub use cut::{Cut, Cuts};
pub use write::{AsTheyAre, Built, Finish, write_partitions};

/// What to do with two records of the same key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse the push.
    #[default]
    Fail,
    /// Keep the record that comes first in the input.
    First,
    /// Keep the record that comes last in the input.
    Last,
    /// Compose their operations in the order of the input, for which one thread reads: records of a key are
    /// composed as they are collected.
    Compose(DeltaKind),
    /// Compose them where the order makes no difference.
    ComposeInAnyOrder(DeltaKind),
}

/// What all threads of a sort share.
#[derive(Debug, Clone)]
pub struct SortPlan {
    pub disk: Arc<dyn Disk>,
    /// Where runs are spilled; the directory exists.
    pub scratch: PathBuf,
    /// Order, compression and hash prefix of the result.
    pub run: RunOptions,
    pub duplicates: Duplicates,
    /// Records carry operations, by [`Collector::push_operation`]; else all are updates.
    pub with_operations: bool,
    /// The memory for records of all collectors together.
    pub memory_bytes: usize,
    pub threads: usize,
}

impl SortPlan {
    pub fn order(&self) -> Order {
        self.run.order
    }

    pub(crate) fn hasher(&self) -> KeyHasher {
        KeyHasher::new(&self.run.hash_prefix)
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
    fn payload<'v>(&self, collected: &'v [u8]) -> &'v [u8] {
        match collected.split_first() {
            Some((_, payload)) if self.with_operations => payload,
            _ => collected,
        }
    }
}

/// The operation of a record as it was collected: its tag and payload, or the value of an update.
fn operation_of(with_operations: bool, collected: &[u8]) -> Operation<'_> {
    match collected.split_first() {
        // What was collected was encoded here, and decodes.
        Some((tag, payload)) if with_operations => {
            decode(*tag, payload).unwrap_or(Operation::Delete)
        }
        _ => Operation::Update(collected),
    }
}

/// Puts an operation together as [`operation_of`] takes it apart.
fn collect_operation(operation: Operation<'_>, out: &mut Vec<u8>) {
    let (tag, payload) = encode(operation);
    out.clear();
    out.push(tag);
    out.extend_from_slice(&payload);
}

/// A count of records and their content, of what came in and of what was left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub records: u64,
    /// Keys and values.
    pub bytes: u64,
    pub content: ContentSum,
}

impl Tally {
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        self.content += ContentSum::of(key, value);
    }

    pub fn merge(&mut self, other: &Tally) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.content += other.content;
    }

    /// What is left of `self` without `part`.
    pub fn without(&self, part: &Tally) -> Tally {
        Tally {
            records: self.records - part.records,
            bytes: self.bytes - part.bytes,
            content: self.content - part.content,
        }
    }
}

/// What the names of spilled runs begin with.
const SPILL_PREFIX: &str = "spill-";

/// Why a sort stopped.
#[derive(Debug, thiserror::Error)]
pub enum SortError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "key {key} occurs more than once; make the key template distinguish its rows, or choose \
         one of them by --duplicates first or --duplicates last"
    )]
    Duplicate { key: String },
    #[error(transparent)]
    Base(Box<forebay_engine::ReadError>),
    #[error("{}: spilled runs cannot be removed: {error}", path.display())]
    Scratch {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("the operation was stopped")]
    Stopped,
}

#[cfg(test)]
mod tests;
