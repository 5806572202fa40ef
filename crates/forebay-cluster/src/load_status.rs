//! Loads into live tables that are under way, for people and their programs.

use forebay_engine::TableName;
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, LoadProgress};
use crate::model::{LoadStage, Model, TableLoad};

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadStatus {
    /// By which it is cancelled.
    pub request: String,
    pub table: TableName,
    pub stage: LoadStage,
    pub rows: u64,
    /// Of its files.
    pub bytes: u64,
    /// Replicas that have come to where the load is, and all; partitions of which a majority has,
    /// and all that it adds to. None where the coordinator does not tell.
    pub progress: Option<ReplicaCounts>,
    /// The nodes that are down and have replicas of partitions of which no majority has come there.
    #[serde(default)]
    pub waits_for: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaCounts {
    pub there: usize,
    pub replicas: usize,
    pub settled: usize,
    pub partitions: usize,
}

impl LoadStatus {
    /// Of all that are under way.
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
            there: progress.there,
            replicas: progress.replicas,
            settled: progress.settled,
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
