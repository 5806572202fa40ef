//! The description of a partition's content, as one store sends it to another.

use crate::keys::partition::{Bounds, FIRST_EPOCH, PartitionRange};
use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::manifest::{LivePartition, LiveRunRef};
use crate::live::basics::removed::RemovedRanges;
use crate::name::RunId;

/// A partition with its runs, as a store holds it and another one adopts it; see
/// [`LiveTable::adopt`](crate::live::LiveTable::adopt).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionContent {
    pub range: PartitionRange,
    /// Counts the decisions on the partition: its bounds, and the nodes that have it. It only
    /// rises. Of two reports on the partition, the one with the greater epoch is right.
    pub epoch: u64,
    /// The place in its group's log up to which the runs have it: entries are applied again from
    /// there. `None` if it is not replicated.
    pub applied: Option<AppliedPlace>,
    /// Oldest first.
    pub runs: Vec<PartitionRun>,
}

/// A run of a partition, with the facts that its file does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRun {
    pub id: RunId,
    /// When the earliest of its deltas was written, in milliseconds since 1970-01-01 UTC, if it has
    /// some; 0 if unknown.
    pub deltas_since_ms: Option<u64>,
    /// The partition's part of the file, if the file also has records of other partitions.
    pub range: Option<Bounds>,
    /// Ranges of keys that were deleted from older runs of the partition: rising and disjoint.
    pub removed: Vec<Bounds>,
}

impl PartitionContent {
    /// Creates a partition in its first epoch, without runs, that is not replicated.
    pub fn empty(range: PartitionRange) -> Self {
        Self {
            range,
            epoch: FIRST_EPOCH,
            applied: None,
            runs: Vec::new(),
        }
    }
}

impl PartitionRun {
    /// Creates a run that was written for the table, with nothing else known.
    pub fn new(id: RunId) -> Self {
        Self {
            id,
            deltas_since_ms: Some(0),
            range: None,
            removed: Vec::new(),
        }
    }
}

impl From<&LivePartition> for PartitionContent {
    fn from(partition: &LivePartition) -> Self {
        Self {
            range: partition.range(),
            epoch: partition.epoch,
            applied: partition.applied.clone(),
            runs: partition.runs.iter().map(PartitionRun::from).collect(),
        }
    }
}

impl From<&LiveRunRef> for PartitionRun {
    fn from(run: &LiveRunRef) -> Self {
        Self {
            id: run.id.clone(),
            deltas_since_ms: run.deltas_since_ms,
            range: run.range.clone(),
            removed: run.removed.clone().into(),
        }
    }
}

impl TryFrom<&PartitionRun> for RemovedRanges {
    type Error = String;

    fn try_from(run: &PartitionRun) -> Result<Self, String> {
        Self::try_from(run.removed.clone())
    }
}
