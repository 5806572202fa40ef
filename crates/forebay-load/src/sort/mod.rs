//! Sorts records in any order into the runs of a version's partitions: an external sort.
//!
//! 1. Each thread collects records in a [`Collector`], which holds a fixed share of the memory
//!    budget. When the share is full, the records are sorted and spilled as one run, in the format
//!    of the result (`forebay_run`). The collector then starts again. Records that fit are never
//!    spilled.
//! 2. [`boundaries::Boundaries`] divides the sort order into partitions: hashed ones at Redis
//!    slots, ordered ones at keys that divide the bytes evenly.
//! 3. [`write::write_partitions`] merges the records in memory and in spilled runs, per partition
//!    and in parallel. It writes the partition's run, and reads it back from the device.
//!
//! Age decides between two records of one key: the number of their input unit, then their order in
//! it. Units are handed out in order and each is read by one thread. Within a collector the order
//! of arrival is therefore the order of age.

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

/// The treatment of two records of the same key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Refuse the push.
    #[default]
    Fail,
    /// Keep the record that comes first in the input.
    First,
    /// Keep the record that comes last in the input.
    Last,
    /// Compose their operations in the order of the input. One thread reads, and composes the
    /// records of a key as it collects them.
    Compose(DeltaKind),
    /// Compose operations whose order makes no difference.
    ComposeInAnyOrder(DeltaKind),
}

/// Returns the operation of a collected record: its tag and payload, or the value of an update.
fn operation_of(with_operations: bool, collected: &[u8]) -> Operation<'_> {
    match collected.split_first() {
        // The collected records were encoded by this program, so they decode.
        Some((tag, payload)) if with_operations => {
            decode(*tag, payload).unwrap_or(Operation::Delete)
        }
        _ => Operation::Update(collected),
    }
}

/// Writes an operation in the form that [`operation_of`] reads.
fn collect_operation(operation: Operation<'_>, out: &mut Vec<u8>) {
    let (tag, payload) = encode(operation);
    out.clear();
    out.push(tag);
    out.extend_from_slice(&payload);
}

/// A count of records and a checksum of their content, for records received and left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub records: u64,
    /// The bytes of keys and values.
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

    /// Returns `self` minus `part`.
    pub fn without(&self, part: &Tally) -> Tally {
        Tally {
            records: self.records - part.records,
            bytes: self.bytes - part.bytes,
            content: self.content - part.content,
        }
    }
}

/// The prefix of the names of spilled runs.
const SPILL_PREFIX: &str = "spill-";

/// An error of a sort.
#[derive(Debug, thiserror::Error)]
pub enum SortError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "key {key} occurs more than once; make the key template distinguish its rows, or choose \
         one of them by --duplicates first or --duplicates last"
    )]
    Duplicate { key: String },
    /// A key too long for an order other than key order.
    #[error(
        "key {key} is too long for this order, which takes keys of {most} bytes at most: choose --order sorted"
    )]
    LongKey { key: String, most: usize },
    /// A key of a partition that is not on this node.
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
