//! Places partitions whose replicas all serve the same part of the load (the paper, III).
//!
//! `migrate` ships the least data to reach a capacity under the best routing. This module differs
//! in three ways. Clients and gateways route to one replica after the other. A node may have other
//! load. The number of copies is limited, not what they reach. So the hottest node is relieved step
//! by step:
//!
//! 1. A partition of the hottest node gets one more replica, or one of its replicas moves to
//!    another node. The step that lowers the sum of the squares of the nodes' loads most is chosen.
//!    If there are as many replicas as allowed in all, the least needed one is dropped, of a
//!    partition that has more than required.
//! 2. A replica is dropped, if that helps by itself.
//!
//! The result is one of the states after each copy, and before all. It is the first whose hottest
//! node is within 0.5% of the best.

mod state;

#[cfg(test)]
mod tests;

use super::load_plan::{LoadLimits, LoadPlan, coolest};
use state::SpreadState;

/// A node, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadNode {
    /// Its zone: replicas in different zones stay so.
    pub zone: u32,
    /// Whether it may get replicas.
    pub takes: bool,
    /// Its load from anything but these partitions.
    pub other_load: f64,
}

/// A partition, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadPartition {
    /// The nodes that have it.
    pub holders: Vec<u32>,
    pub load: f64,
    pub bytes: u64,
}

/// The input of the plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadCluster {
    pub nodes: Vec<SpreadNode>,
    pub partitions: Vec<SpreadPartition>,
    /// The least replicas of a partition, or as many as it has.
    pub least: usize,
    /// The most replicas in all, or as many as there are.
    pub most_in_all: usize,
}

/// Makes the plan. REQUIRES: holders are numbers of nodes, and distinct for a partition; each
/// partition has one.
pub fn place_spread(cluster: &SpreadCluster, limits: LoadLimits) -> LoadPlan {
    let mut state = SpreadState::of(cluster);
    let (before, mean) = (state.loads().to_vec(), state.mean());
    let others = cluster.nodes.iter().map(|node| node.other_load);
    let bound = others.fold(mean, f64::max);
    let wanted = bound / limits.share.max(f64::MIN_POSITIVE);
    let mut found = vec![state.clone()];
    state.drop_idle();
    found.push(state.clone());
    while state.hottest() > wanted && state.copy_one() {
        state.drop_idle();
        if state.copies() > limits.most_copies {
            break;
        }
        found.push(state.clone());
    }
    let chosen = coolest(&found, SpreadState::hottest);
    let partitions = cluster.partitions.iter();
    let known: Vec<_> = partitions
        .map(|one| (&one.holders[..], one.bytes))
        .collect();
    LoadPlan {
        before,
        after: chosen.loads().to_vec(),
        mean,
        bound,
        // No partition has a leader.
        handed_over: 0,
        ..LoadPlan::of(&known, chosen.lists().to_vec())
    }
}
