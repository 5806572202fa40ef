//! Rebalances: parts of tables come to be held by other nodes, a batch after the other.
//!
//! A plan is a document of its own, which stays as it is while it is carried out. How far that is
//! stands with the other work.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use forebay_engine::{Bound, Bounds, TableName};
use serde::{Deserialize, Serialize};

use super::layout::LayoutName;
use super::names::RequestId;
use crate::ids::NodeId;

/// What is to be moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MovePlan {
    pub goal: PlanGoal,
    pub batches: Vec<MoveBatch>,
    /// What each node brings, in bytes.
    pub copies: BTreeMap<NodeId, u64>,
}

impl MovePlan {
    /// Whether tables get layouts of their own.
    pub fn has_own(&self) -> bool {
        self.batches.iter().any(|batch| !batch.own.is_empty())
    }

    /// How many partitions it cuts in two.
    pub fn splits(&self) -> usize {
        self.batches.iter().map(|batch| batch.splits.len()).sum()
    }
}

impl MoveBatch {
    /// Whether it changes lists, and nothing else.
    pub fn is_of_lists(&self) -> bool {
        self.replicas.is_empty() && self.splits.is_empty() && self.own.is_empty()
    }

    /// Whether it changes who holds what.
    pub fn moves(&self) -> bool {
        !(self.lists.is_empty() && self.replicas.is_empty())
    }
}

/// What a plan is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanGoal {
    /// These come to hold nothing.
    Drain(BTreeSet<NodeId>),
    /// These come to hold their share.
    Add(BTreeSet<NodeId>),
    /// One takes the place of another.
    Replace { gone: NodeId, new: NodeId },
    /// All that hold something come to hold about as much.
    Even,
    /// So many nodes come to hold each part of a table.
    Replicas { table: TableName, count: usize },
    /// A live table is made ready for a bulk insert: its partitions are cut, and moved so that all
    /// nodes take part alike. `with` are others that take in rows with it: its secondary indexes.
    Insert {
        table: TableName,
        #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
        with: BTreeSet<TableName>,
    },
    /// The load on a table comes to lie evenly on the nodes: others hold its partitions, or of a
    /// live table lead them.
    Place { table: TableName },
}

/// What is moved together: the next batch begins when this one is done, or nothing more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoveBatch {
    /// What all nodes together bring for it.
    pub copied_bytes: u64,
    pub lists: Vec<ListChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicasChange>,
    /// Batch tables that get layouts of their own, of whose ranges each is held by its whole list,
    /// before anything else: who holds what stays as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own: Vec<TableName>,
    /// Partitions of live tables that are split, before anything is copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub splits: Vec<SplitChange>,
}

/// A partition of a live table begins there afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitChange {
    pub table: TableName,
    pub at: Bound,
}

/// A part of a layout that gets another list.
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

/// How far a plan is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rebalance {
    pub request: RequestId,
    pub goal: PlanGoal,
    pub begun_unix_ms: u64,
    pub batches: usize,
    /// Of these the lists are changed, and what went is given up.
    pub done: usize,
    /// What all batches copy, and those that are done.
    pub copied_bytes: u64,
    pub done_bytes: u64,
    pub stage: MoveStage,
    /// An operator wants it to end: with what is done, and without what is begun.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// Why it ended before its end, or what it waits for, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How far a plan is with the batch after those that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MoveStage {
    /// It has not begun.
    Between,
    /// Since this revision its new holders bring what they are to hold.
    Copying { since: u64 },
    /// Since this revision its new lists stand. Who is not in them holds on for who knows the old.
    Changed { since: u64 },
    /// All batches are done. Since this revision nodes give up what they are not to hold.
    Releasing { since: u64 },
    /// Ended.
    Done,
    /// It ended before its end: what was begun is undone, and what was done stays. Ended.
    Stopped,
}

impl Rebalance {
    /// How long copying goes on, by the pace so far: so much was copied in so long. `None`: no pace
    /// is known yet, or all is copied and others are waited for.
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
    /// Whether all that it moves has come to where it is to be, or it has ended: what is left is
    /// that nodes give up what they held.
    pub fn has_moved(&self) -> bool {
        let is_last = self.done + 1 >= self.batches;
        match self.stage {
            MoveStage::Changed { .. } => is_last,
            MoveStage::Releasing { .. } | MoveStage::Done | MoveStage::Stopped => true,
            MoveStage::Between | MoveStage::Copying { .. } => false,
        }
    }

    /// Whether it can be given up: until its last batch has changed the lists.
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
    /// Whether it makes a table ready for a bulk insert.
    pub fn inserts_into(&self, table: &TableName) -> bool {
        match self {
            PlanGoal::Insert { table: one, with } => one == table || with.contains(table),
            _ => false,
        }
    }

    /// Nodes that come to hold nothing.
    pub fn drained(&self) -> BTreeSet<NodeId> {
        match self {
            PlanGoal::Drain(nodes) => nodes.clone(),
            PlanGoal::Replace { gone, .. } => BTreeSet::from([*gone]),
            _ => BTreeSet::new(),
        }
    }

    /// Nodes that come to hold something.
    pub fn added(&self) -> BTreeSet<NodeId> {
        match self {
            PlanGoal::Add(nodes) => nodes.clone(),
            PlanGoal::Replace { new, .. } => BTreeSet::from([*new]),
            _ => BTreeSet::new(),
        }
    }
}
