//! Facts that a node knows about itself and its cluster, for monitoring.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::TableName;

use crate::ids::NodeId;
use crate::model::{Model, NodeEntry, NodeState};
use crate::node::Node;
use crate::time::Now;

/// The facts that one node knows about itself and its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub is_coordinator: bool,
    /// The time since this node last received a head, from the store or from any node. If it has
    /// received none, the time since the start.
    pub head_received: Duration,
    /// The node serves no rows: it received no head for longer than allowed, or the cluster refuses
    /// it.
    pub is_cut_off: bool,
    /// The newest revision whose tables this node serves.
    pub serves: u64,
    /// The catalog is lost, damaged or an old copy, so no node changes anything.
    pub is_catalog_lost: bool,
    pub nodes: NodeCounts,
    pub rollouts: RolloutFacts,
    pub plan: PlanFacts,
}

/// The number of nodes in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    pub up: usize,
    /// Nodes to which no node routes: they are unreachable, or serve nothing yet.
    pub suspected: usize,
    pub paused: usize,
    pub down: usize,
    pub left: usize,
}

/// The rollouts in progress.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutFacts {
    pub count: usize,
    /// The age of the oldest rollout by this node's clock; zero if there is none.
    pub oldest: Duration,
    pub tables: BTreeSet<TableName>,
}

/// The plan in progress.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanFacts {
    pub batches_left: usize,
    /// The estimated time left, by the pace of the completed batches; zero if no batch is complete.
    pub left: Duration,
}

impl NodeFacts {
    pub fn of(node: &Node, now: Now) -> Self {
        let follower = node.follower();
        let none = Model::default();
        let model = follower.known().map_or(&none, |(_, model)| model);
        Self {
            is_coordinator: node.coordinator().is_some(),
            head_received: now.since(follower.received),
            is_cut_off: follower.cut_off,
            serves: follower.serves,
            is_catalog_lost: node.alarm().is_some(),
            nodes: NodeCounts::of(model, follower.id(), &follower.suspects()),
            rollouts: RolloutFacts::of(model, now.unix_ms),
            plan: PlanFacts::of(model, now.unix_ms),
        }
    }
}

impl NodeCounts {
    /// Counts the nodes as `me` sees them. A node sees itself as up.
    fn of(model: &Model, me: Option<NodeId>, suspects: &BTreeSet<NodeId>) -> Self {
        let mut counts = Self::default();
        for node in model.all_nodes() {
            let is_suspected = suspects.contains(&node.id) && me != Some(node.id);
            *counts.of_state(node, is_suspected) += 1;
        }
        counts
    }

    fn of_state(&mut self, node: &NodeEntry, is_suspected: bool) -> &mut usize {
        match node.state {
            NodeState::Up if is_suspected => &mut self.suspected,
            NodeState::Up => &mut self.up,
            _ if node.paused_until_unix_ms.is_some() => &mut self.paused,
            NodeState::Down { .. } => &mut self.down,
            NodeState::Left { .. } => &mut self.left,
        }
    }
}

impl RolloutFacts {
    fn of(model: &Model, now_unix_ms: u64) -> Self {
        let mut facts = Self::default();
        for rollout in model.work.under_way() {
            facts.count += 1;
            let age_ms = now_unix_ms.saturating_sub(rollout.begun_unix_ms);
            facts.oldest = facts.oldest.max(Duration::from_millis(age_ms));
            facts.tables.extend(rollout.tables.keys().cloned());
        }
        facts
    }
}

impl PlanFacts {
    fn of(model: &Model, now_unix_ms: u64) -> Self {
        let Some(plan) = model.work.moving() else {
            return Self::default();
        };
        let passed_ms = now_unix_ms.saturating_sub(plan.begun_unix_ms);
        Self {
            batches_left: plan.batches - plan.done.min(plan.batches),
            left: plan.left(passed_ms, plan.done_bytes).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
#[path = "facts_tests.rs"]
mod tests;
