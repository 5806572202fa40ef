//! Loads into live tables: all replicas first fetch the runs, then each partition adds its own.

use forebay_engine::{PartitionId, RunId, TableName};
use serde::{Deserialize, Serialize};

use super::names::RequestId;

/// The description of a load that is in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadDraft {
    /// The name of the load's document in the store, and that document's checksum.
    pub id: RunId,
    pub sum: u64,
    /// The partitions for which the load has runs.
    pub partitions: Vec<LoadedPartition>,
    pub rows: u64,
    /// The size of the load's files.
    pub bytes: u64,
    /// The time without progress after which the load ends, if nothing has been added yet.
    pub deadline_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedPartition {
    pub partition: PartitionId,
    /// If the epoch differs, so do the partition's bounds.
    pub epoch: u64,
}

/// A load, and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableLoad {
    /// A number above that of every earlier load.
    pub number: u64,
    pub request: RequestId,
    pub table: TableName,
    pub draft: LoadDraft,
    pub stage: LoadStage,
    pub begun_unix_ms: u64,
    /// Why the load stopped early, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadStage {
    /// Nodes fetch the runs of their partitions. Nothing is added.
    Fetching,
    /// The leaders of the partitions propose the load. It can no longer be cancelled.
    Adding,
    /// All partitions have added the load. This stage is final.
    Done,
    /// The load was cancelled before anything was added. This stage is final.
    Stopped,
}

/// The last load of a table that has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedLoad {
    /// 0 if no load has ended.
    pub number: u64,
    pub is_added: bool,
}

impl LoadStage {
    pub fn is_over(self) -> bool {
        matches!(self, LoadStage::Done | LoadStage::Stopped)
    }
}

impl TableLoad {
    /// Returns whether the load can be cancelled. It can until the first partition may have added
    /// it.
    pub fn can_cancel(&self) -> Result<(), String> {
        let words = match self.stage {
            LoadStage::Fetching => return Ok(()),
            LoadStage::Adding => {
                "some partitions have added it already: it continues until all have".to_owned()
            }
            LoadStage::Done => "it has ended: all of it is added".to_owned(),
            LoadStage::Stopped => format!(
                "it has ended, and nothing of it was added: {}",
                self.reason.as_deref().unwrap_or("nobody noted why")
            ),
        };
        Err(format!("load {}: {words}", self.request))
    }

    pub fn has(&self, partition: PartitionId) -> bool {
        let mut partitions = self.draft.partitions.iter();
        partitions.any(|loaded| loaded.partition == partition)
    }
}
