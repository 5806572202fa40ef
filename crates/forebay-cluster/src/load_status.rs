//! Loads into live tables that are in progress, for people and their programs.

use forebay_engine::TableName;
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, LoadProgress};
use crate::model::{LoadStage, Model, TableLoad};

/// The progress of one load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// The request id by which the load can be cancelled.
    pub request: String,
    pub table: TableName,
    pub stage: LoadStage,
    pub rows: u64,
    /// The total size of its files.
    pub bytes: u64,
    /// Replicas that have completed the load's current stage, and all replicas; partitions with
    /// such a majority, and all partitions of the load. None if the coordinator does not report it.
    pub progress: Option<ReplicaCounts>,
    /// Nodes that are down and have replicas of partitions in which no majority has completed the
    /// stage.
    #[serde(default)]
    pub waits_for: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaCounts {
    pub ready_replicas: usize,
    pub replicas: usize,
    pub ready_partitions: usize,
    pub partitions: usize,
}

impl LoadStatus {
    /// Returns the status of all loads in progress.
    pub fn all(model: &Model, coordinator: Option<&Coordinator>) -> Vec<Self> {
        let loads = model.work.loads.iter();
        let loads = loads.filter(|load| !load.stage.is_over());
        loads
            .map(|load| Self::of(load, model, coordinator))
            .collect()
    }

    fn of(load: &TableLoad, model: &Model, coordinator: Option<&Coordinator>) -> Self {
        let of = |coordinator: &Coordinator| LoadProgress::of(model, coordinator.groups(), load);
        let progress = coordinator.map(of);
        let down = progress.iter().flat_map(|progress| &progress.down);
        let waits_for = down.map(|node| model.node_name(*node)).collect();
        let counts = |progress: LoadProgress| ReplicaCounts {
            ready_replicas: progress.ready_replicas,
            replicas: progress.replicas,
            ready_partitions: progress.settled,
            partitions: progress.partitions,
        };
        Self {
            request: load.request.to_string(),
            table: load.table.clone(),
            stage: load.stage,
            rows: load.draft.rows,
            bytes: load.draft.bytes,
            progress: progress.map(counts),
            waits_for,
        }
    }
}
