//! Loads into live tables: their runs come to all replicas first, then each partition adds its own.

use forebay_engine::{PartitionId, RunId, TableName};
use serde::{Deserialize, Serialize};

use super::names::RequestId;

/// What a load is, as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadDraft {
    /// By which the store has its document, and the document's checksum.
    pub id: RunId,
    pub sum: u64,
    /// The partitions that it has runs for, as they are cut.
    pub partitions: Vec<LoadedPartition>,
    pub rows: u64,
    /// Of its files.
    pub bytes: u64,
    /// So long without progress, and it ends before anything is added.
    pub deadline_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadedPartition {
    pub partition: PartitionId,
    /// Bounds of another epoch are other bounds.
    pub epoch: u64,
}

/// A load, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableLoad {
    /// Higher than that of each load before.
    pub number: u64,
    pub request: RequestId,
    pub table: TableName,
    pub draft: LoadDraft,
    pub stage: LoadStage,
    pub begun_unix_ms: u64,
    /// Why it ended before its end, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadStage {
    /// Nodes bring the runs of their partitions. Nothing is added.
    Fetching,
    /// The leaders of the partitions propose it. It is not given up any more.
    Adding,
    /// All partitions have it. Ended.
    Done,
    /// It was given up before anything was added. Ended.
    Stopped,
}

/// The load of a table that ended last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndedLoad {
    /// 0: there was none.
    pub number: u64,
    pub is_added: bool,
}

impl LoadStage {
    pub fn is_over(self) -> bool {
        matches!(self, LoadStage::Done | LoadStage::Stopped)
    }
}

impl TableLoad {
    /// Whether it can be given up: until the first partition may have added it.
    pub fn can_cancel(&self) -> Result<(), String> {
        let words = match self.stage {
            LoadStage::Fetching => return Ok(()),
            LoadStage::Adding => {
                "some partitions have added it already: it goes on until all have".to_owned()
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
