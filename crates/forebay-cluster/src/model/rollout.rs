//! Rollouts: other versions come to serve, on all nodes or on none.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use forebay_run::content::ContentSum;
use serde::{Deserialize, Serialize};

use super::names::{RequestId, RolloutId};
use crate::ids::NodeId;

/// A rollout, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollout {
    pub id: RolloutId,
    pub request: RequestId,
    pub tables: BTreeMap<TableName, RolloutTable>,
    pub options: RolloutOptions,
    pub phase: Phase,
    pub begun_unix_ms: u64,
    /// The revision of the head that let the new versions serve, and the one that took them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverted: Option<u64>,
    /// The nodes that have to be ready, and have to confirm.
    pub participants: BTreeSet<NodeId>,
    /// What each of them proved before the commit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verified: BTreeMap<NodeId, BTreeMap<TableName, Proof>>,
    /// Nodes that were not waited for: they may serve what served before, until they hear of this.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub excluded: BTreeSet<NodeId>,
    /// It was ended so that an operator's rollback could go first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gave_way: bool,
    /// Why it ended as it did, or what it waits for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Rollout {
    /// Whether it can be given up: until it is committed.
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
    /// How many versions are kept, the serving one among them.
    pub keep: usize,
    /// What the table's entry said of earlier versions before the commit.
    pub history: Vec<u64>,
}

/// What a node read back of a version: of every record that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    pub partitions: u64,
    pub rows: u64,
    pub content: ContentSum,
}

/// What a rollout is to a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutRole {
    /// A swap to a version: what serves becomes the one to roll back to.
    Swap,
    /// Back to what served before.
    Rollback,
    /// The same rows in another version, which takes the place of the one that serves.
    Replace,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutOptions {
    /// So long without progress of a node, and it is left out, or the rollout ends.
    pub deadline_ms: u64,
    /// Every part has to be ready on so many nodes for that; none: all replicas but one.
    pub min_replicas: Option<usize>,
    pub on_failure: OnFailure,
}

/// When a node does not confirm after the commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// All go back to what served before.
    Revert,
    /// The new version serves on, where enough nodes have it.
    Keep,
}

/// How far a rollout is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Nodes bring, verify and open the versions.
    Preparing,
    /// The head names the new versions.
    Committed,
    /// Every participant serves them. Ended.
    Confirmed,
    /// It was given up before the commit: what was brought is removed. Ended.
    Aborted,
    /// The head names the old versions again.
    Reverting,
    /// Every participant serves those. Ended.
    Reverted,
}

impl Phase {
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Confirmed | Phase::Aborted | Phase::Reverted)
    }

    /// Whether nodes have to have its versions open.
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
