//! Rebalances: plans that move parts of tables to other nodes, batch by batch.
//!
//! A plan is a document of its own, which does not change while the plan is carried out. Its
//! progress is on the work page.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bound, Bounds, TableName};
use serde::{Deserialize, Serialize};

use super::layout::LayoutName;
use super::names::RequestId;
use crate::ids::NodeId;

/// The batches of moves of a rebalance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovePlan {
    pub goal: PlanGoal,
    pub batches: Vec<MoveBatch>,
    /// The bytes that each node copies.
    pub copies: BTreeMap<NodeId, u64>,
}

impl MovePlan {
    /// Returns whether any table gets its own layout.
    pub fn has_own(&self) -> bool {
        self.batches.iter().any(|batch| !batch.own.is_empty())
    }

    /// Returns how many partitions the plan splits.
    pub fn splits(&self) -> usize {
        self.batches.iter().map(|batch| batch.splits.len()).sum()
    }
}

impl MoveBatch {
    /// Returns whether the plan changes preference lists only.
    pub fn is_of_lists(&self) -> bool {
        self.replicas.is_empty() && self.splits.is_empty() && self.own.is_empty()
    }

    /// Returns whether the plan changes the assignment.
    pub fn moves(&self) -> bool {
        !(self.lists.is_empty() && self.replicas.is_empty())
    }
}

/// The goal of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanGoal {
    /// These nodes are to hold nothing.
    Drain(BTreeSet<NodeId>),
    /// These nodes are to hold their share.
    Add(BTreeSet<NodeId>),
    /// One node replaces another.
    Replace { gone: NodeId, new: NodeId },
    /// All nodes that hold something are to hold about the same amount.
    Even,
    /// Each part of a table is to be on so many nodes.
    Replicas { table: TableName, count: usize },
    /// A live table is prepared for a bulk insert: its partitions are split and moved so that all
    /// nodes share the work equally. `with` are its secondary indexes, which also receive rows.
    Insert {
        table: TableName,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        with: BTreeSet<TableName>,
    },
    /// The load on a table is to be even across the nodes. Other nodes hold its partitions, or lead
    /// them if it is a live table.
    Place { table: TableName },
}

/// Changes that are carried out together. The next batch, if any, begins when this one is done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveBatch {
    /// The bytes that all nodes together copy for the batch.
    pub copied_bytes: u64,
    pub lists: Vec<ListChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicasChange>,
    /// Batch tables that first get their own layouts, in which every node of a list holds its
    /// range. The assignment does not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<TableName>,
    /// Partitions of live tables that are split before anything is copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<SplitChange>,
}

/// A split of a live table: a partition begins at `at` afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitChange {
    pub table: TableName,
    pub at: Bound,
}

/// A part of a layout that gets another preference list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListChange {
    pub layout: LayoutName,
    pub bounds: Bounds,
    pub old: Vec<NodeId>,
    pub new: Vec<NodeId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicasChange {
    pub table: TableName,
    pub from: usize,
    pub to: usize,
}

/// A plan that is carried out, and its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rebalance {
    pub request: RequestId,
    pub goal: PlanGoal,
    pub begun_unix_ms: u64,
    pub batches: usize,
    /// The batches whose lists have changed and whose old replicas are released.
    pub done: usize,
    /// The bytes that all batches copy, and those of the finished batches.
    pub copied_bytes: u64,
    pub done_bytes: u64,
    pub stage: MoveStage,
    /// An operator cancelled the plan. Finished batches stay, and the batch under way is undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Why the plan stopped early, or what it waits for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The stage of a plan's present batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStage {
    /// The batch has not begun.
    Between,
    /// Since this revision the new holders copy their ranges.
    Copying { since: u64 },
    /// Since this revision the new lists are valid. Nodes that left them still serve requests of
    /// nodes that know only the old lists.
    Changed { since: u64 },
    /// All batches are done. Since this revision nodes release what they no longer hold.
    Releasing { since: u64 },
    /// The plan is done. This stage is final.
    Done,
    /// The plan stopped early. The batch under way was undone, and finished batches stay. This
    /// stage is final.
    Stopped,
}

impl Rebalance {
    /// Estimates the rest of the copy time by the pace so far: so many bytes in so much time.
    /// `None`: no pace is known yet, or all is copied and the plan waits for something else.
    pub fn left(&self, passed_ms: u64, copied_bytes: u64) -> Option<Duration> {
        let left = u128::from(self.copied_bytes.saturating_sub(copied_bytes));
        if left == 0 {
            return None;
        }
        let left_ms = (u128::from(passed_ms) * left).checked_div(u128::from(copied_bytes))?;
        u64::try_from(left_ms).ok().map(Duration::from_millis)
    }
}

impl Rebalance {
    /// Returns whether everything has moved, or the plan has ended. Then at most the release of old
    /// replicas is left.
    pub fn has_moved(&self) -> bool {
        let is_last = self.done + 1 >= self.batches;
        match self.stage {
            MoveStage::Changed { .. } => is_last,
            MoveStage::Releasing { .. } | MoveStage::Done | MoveStage::Stopped => true,
            MoveStage::Between | MoveStage::Copying { .. } => false,
        }
    }

    /// Returns whether the plan can be cancelled. It can until its last batch has changed the
    /// lists.
    pub fn can_cancel(&self) -> Result<(), String> {
        let is_last = self.done + 1 >= self.batches;
        let words = match self.stage {
            MoveStage::Changed { .. } | MoveStage::Releasing { .. } if is_last => {
                "its last batch is done, and stays: make another plan".to_owned()
            }
            MoveStage::Done => "it has ended: all of it is done".to_owned(),
            MoveStage::Stopped => format!(
                "it has ended after {} of {} batches: {}",
                self.done,
                self.batches,
                self.reason.as_deref().unwrap_or("nobody noted why")
            ),
            _ => return Ok(()),
        };
        Err(format!("plan {}: {words}", self.request))
    }
}

impl MoveStage {
    pub fn is_over(self) -> bool {
        matches!(self, MoveStage::Done | MoveStage::Stopped)
    }
}

impl PlanGoal {
    /// Returns whether the plan prepares a table for a bulk insert.
    pub fn inserts_into(&self, table: &TableName) -> bool {
        match self {
            PlanGoal::Insert { table: one, with } => one == table || with.contains(table),
            _ => false,
        }
    }

    /// Returns the nodes that are to hold nothing.
    pub fn drained(&self) -> BTreeSet<NodeId> {
        match self {
            PlanGoal::Drain(nodes) => nodes.clone(),
            PlanGoal::Replace { gone, .. } => BTreeSet::from([*gone]),
            _ => BTreeSet::new(),
        }
    }

    /// Returns the nodes that are to get a share.
    pub fn added(&self) -> BTreeSet<NodeId> {
        match self {
            PlanGoal::Add(nodes) => nodes.clone(),
            PlanGoal::Replace { new, .. } => BTreeSet::from([*new]),
            _ => BTreeSet::new(),
        }
    }
}
