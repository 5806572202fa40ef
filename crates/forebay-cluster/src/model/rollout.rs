//! Rollouts: swaps and rollbacks of tables, on all nodes or on none.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use forebay_run::content::ContentSum;
use serde::{Deserialize, Serialize};

use super::names::{RequestId, RolloutId};
use crate::ids::NodeId;

/// A rollout, and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    pub id: RolloutId,
    pub request: RequestId,
    pub tables: BTreeMap<TableName, RolloutTable>,
    pub options: RolloutOptions,
    pub phase: Phase,
    pub begun_unix_ms: u64,
    /// The revision of the head that made the new versions serve, and the one that reverted them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<u64>,
    /// The nodes that must be ready and must confirm.
    pub participants: BTreeSet<NodeId>,
    /// The proof of each participant before the commit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verified: BTreeMap<NodeId, BTreeMap<TableName, Proof>>,
    /// Nodes that the rollout does not wait for. They may serve the old version until they read
    /// this entry.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded: BTreeSet<NodeId>,
    /// The rollout was ended so that an operator's rollback could go first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_way: bool,
    /// Why the rollout ended so, or what it waits for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Rollout {
    /// Returns whether the rollout can be cancelled. It can until it is committed.
    pub fn can_cancel(&self) -> Result<(), String> {
        let why = self.reason.as_deref().unwrap_or("nobody noted why");
        let words = match self.phase {
            Phase::Preparing => return Ok(()),
            Phase::Committed => "it serves already: forebay rollback takes it back".to_owned(),
            Phase::Reverting => format!("it is being taken back: {why}"),
            Phase::Confirmed => {
                "it has ended: it serves; forebay rollback takes it back".to_owned()
            }
            Phase::Aborted => format!("it has ended, and serves nowhere: {why}"),
            Phase::Reverted => format!("it has ended, and was taken back everywhere: {why}"),
        };
        Err(format!("rollout {}: {words}", self.request))
    }
}

/// One table of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutTable {
    pub from: Option<u64>,
    pub to: u64,
    pub role: RolloutRole,
    /// The number of versions to keep, including the serving one.
    pub keep: usize,
    /// The history of the table's entry before the commit.
    pub history: Vec<u64>,
}

/// A node's proof for a version: the count and checksum of every record that the node holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub partitions: u64,
    pub rows: u64,
    pub content: ContentSum,
}

/// The kind of change that a rollout makes to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutRole {
    /// A swap to a version. The version that served before becomes the target of a rollback.
    Swap,
    /// A rollback to the version that served before.
    Rollback,
    /// A version with the same rows replaces the serving one.
    Replace,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutOptions {
    /// The time without progress after which a node is excluded, or the rollout ends.
    pub deadline_ms: u64,
    /// The number of ready nodes that every range needs to exclude others. `None`: all replicas but
    /// one.
    pub min_replicas: Option<usize>,
    pub on_failure: OnFailure,
}

/// The reaction to a node that does not confirm after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// All nodes go back to the version that served before.
    Revert,
    /// The new version continues to serve, if enough nodes have it.
    Keep,
}

/// The phase of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nodes fetch, verify and open the versions.
    Preparing,
    /// The head names the new versions.
    Committed,
    /// Every participant serves the new versions. This phase is final.
    Confirmed,
    /// The rollout ended before the commit, and nodes remove the fetched versions. This phase is
    /// final.
    Aborted,
    /// The head names the old versions again.
    Reverting,
    /// Every participant serves the old versions. This phase is final.
    Reverted,
}

impl Phase {
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Confirmed | Phase::Aborted | Phase::Reverted)
    }

    /// Returns whether nodes must have the rollout's versions open.
    pub fn wants_versions(self) -> bool {
        matches!(self, Phase::Preparing | Phase::Committed)
    }
}

impl Default for RolloutOptions {
    fn default() -> Self {
        Self {
            deadline_ms: 30 * 60 * 1000,
            min_replicas: None,
            on_failure: OnFailure::Revert,
        }
    }
}
