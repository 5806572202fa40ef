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
        let progress = coordinator.map(|coordinator| {
            let progress = LoadProgress::of(model, coordinator.groups(), load);
            ReplicaCounts {
                there: progress.there,
                replicas: progress.replicas,
                settled: progress.settled,
                partitions: progress.partitions,
            }
        });
        Self {
            request: load.request.to_string(),
            table: load.table.clone(),
            stage: load.stage,
            rows: load.draft.rows,
            bytes: load.draft.bytes,
            progress,
        }
    }
}
