//! What a partition consists of, as one store tells another.

use crate::live::applied::AppliedPlace;
use crate::live::manifest::{LivePartition, LiveRunRef};
use crate::live::removed::RemovedRanges;
use crate::name::RunId;
use crate::partition::{Bounds, FIRST_EPOCH, PartitionRange};

/// A partition with its runs: what a store has of it, and what another one takes in; see
/// [`LiveTable::adopt`](crate::live::LiveTable::adopt).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionContent {
    pub range: PartitionRange,
    /// Counts what was decided on the partition: its bounds, and who has it. It only rises, so that
    /// of two who tell of the partition the one with the greater epoch is right.
    pub epoch: u64,
    /// What of the log of its group is in the runs: entries are applied again from there. `None`
    /// where it is not replicated.
    pub applied: Option<AppliedPlace>,
    /// Oldest first.
    pub runs: Vec<PartitionRun>,
}

/// A run of a partition, with what is said of it beside its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionRun {
    pub id: RunId,
    /// When the earliest of its deltas was written, in milliseconds since 1970-01-01 UTC, if it has
    /// some; 0 where nobody knows.
    pub deltas_since_ms: Option<u64>,
    /// What of its file is the partition's, where there are records of others as well.
    pub range: Option<Bounds>,
    /// Ranges of keys, rising and apart, that were deleted from older runs of the partition.
    pub removed: Vec<Bounds>,
}

impl PartitionContent {
    /// A partition in its first epoch, without runs, that is not replicated.
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
    /// A run that was written for the table, and of which nothing else is known.
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
