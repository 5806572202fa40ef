//! What is under way, and what came of it.

use std::collections::BTreeMap;

use forebay_engine::TableName;
use serde::{Deserialize, Serialize};

use super::names::{RequestId, RolloutId};
use super::rollout::Rollout;
use crate::ids::NodeId;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkPage {
    /// Under way, and those that ended last.
    pub rollouts: BTreeMap<RolloutId, Rollout>,
    /// The requests that were taken up last.
    pub answers: BTreeMap<RequestId, Answered>,
    pub next_rollout: u64,
    pub next_node: u32,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answered {
    pub unix_ms: u64,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Done,
    /// A rollout does it.
    Rollout(RolloutId),
    /// The words say why, and what to do.
    Refused(String),
    /// Something else is under way.
    Busy(String),
}

impl WorkPage {
    /// The rollout under way that a table takes part in.
    pub fn rollout_of(&self, table: &TableName) -> Option<&Rollout> {
        self.under_way()
            .find(|rollout| rollout.tables.contains_key(table))
    }

    pub fn under_way(&self) -> impl Iterator<Item = &Rollout> {
        self.rollouts
            .values()
            .filter(|rollout| !rollout.phase.is_over())
    }

    pub fn next_node(&mut self) -> NodeId {
        let id = NodeId(self.next_node);
        self.next_node += 1;
        id
    }
}
