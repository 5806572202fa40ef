//! What a node knows of itself and of its cluster, for who watches it.

use std::collections::BTreeSet;
use std::time::Duration;

use forebay_engine::TableName;

use crate::ids::NodeId;
use crate::model::{Model, NodeEntry, NodeState};
use crate::node::Node;
use crate::time::Now;

/// See the module's text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub is_coordinator: bool,
    /// How long ago a head was last heard of, from the store or from any node. Where none was yet:
    /// since the start.
    pub head_received: Duration,
    /// It answers no rows: it heard of no head for longer than it may, or the cluster refuses it.
    pub is_cut_off: bool,
    /// The newest revision whose tables serve here.
    pub serves: u64,
    /// The catalog is lost, damaged or an old copy: nobody changes anything.
    pub is_catalog_lost: bool,
    pub nodes: NodeCounts,
    pub rollouts: RolloutFacts,
    pub plan: PlanFacts,
}

/// How many nodes are in which state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeCounts {
    pub up: usize,
    /// Nobody is led to them: they are silent, or serve nothing yet.
    pub suspected: usize,
    pub paused: usize,
    pub down: usize,
    pub left: usize,
}

/// The rollouts under way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RolloutFacts {
    pub count: usize,
    /// How long ago the oldest one was begun, by this node's clock. Zero where there is none.
    pub oldest: Duration,
    pub tables: BTreeSet<TableName>,
}

/// The plan that is carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanFacts {
    pub batches_left: usize,
    /// By the pace of the batches that are done; zero where none is.
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
    /// As the node `me` sees them, which sees itself as up.
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
