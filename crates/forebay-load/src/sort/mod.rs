//! The external sort: records in any order become the sorted runs of a version's partitions.
//!
//! 1. Each thread collects records in a [`Collector`], which holds a fixed share of the memory
//!    budget. When the share is full, the records are sorted and spilled as one run (the same
//!    format as the result's, `forebay_run`), and the collector starts again. Records that fit are
//!    never spilled.
//! 2. [`boundaries::Boundaries`] divides the sort order into partitions: hashed ones at Redis
//!    slots, ordered ones at keys that halve the bytes seen.
//! 3. [`write::write_partitions`] merges, per partition and in parallel, what lies in memory and in
//!    the spilled runs, writes the partition's run, and reads it back from the device.
//!
//! Two records of one key are told apart by age: the number of the input unit that they came from,
//! then their order in it. Units are handed out in order and each is read by one thread, so within
//! a collector the order of arrival is the order of age.

mod arena;
mod arrange;
mod boundaries;
mod collector;
mod order;
mod plan;
mod spill;
mod walk;
mod write;

use std::path::PathBuf;

use forebay_run::RunError;
use forebay_run::content::ContentSum;
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::record::{decode, encode};

pub use arrange::Arrangement;
pub use boundaries::{Boundaries, key_samples};
pub use collector::{CollectedRecords, Collector};
pub use plan::{SortPlan, SortSpace, record_memory};
pub use walk::walk_partition;
pub use write::{AsTheyAre, Finish, SortedPartition, write_partitions};

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
    /// Compose their operations in the order of the input, for which one thread reads: records of a
    /// key are composed as they are collected.
    Compose(DeltaKind),
    /// Compose them where the order makes no difference.
    ComposeInAnyOrder(DeltaKind),
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
    /// In an order that is not that of the keys.
    #[error(
        "key {key} is too long for this order, which takes keys of {most} bytes at most: choose --order sorted"
    )]
    LongKey { key: String, most: usize },
    /// Of a table of which only some partitions are here.
    #[error("the partition of key {key} is not open here; ask where it is")]
    NotHere { key: String },
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
