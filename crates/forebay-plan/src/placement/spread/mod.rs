//! Placement of partitions that all their replicas answer for: each has as much of the load as the
//! others (the paper, III).
//!
//! `migrate` looks for the least data to a capacity that the best routing reaches. Here routing is
//! what clients and gateways do, who take one replica after the other; a node may have other load;
//! and the number of copies is bounded, not what they reach. So the hottest node is relieved step
//! by step:
//!
//! 1. A partition of its gets one more replica, or one of its replicas goes to another node: what
//!    lowers the sum of the squares of the nodes' loads most. Where there are as many replicas as
//!    there may be in all, one goes that is missed least, of a partition that has more than it has
//!    to.
//! 2. A replica goes, where that helps by itself.
//!
//! Of the states after each copy, and that before all, the first is taken whose hottest node is
//! within 0.5% of the best.

mod state;

#[cfg(test)]
mod tests;

use super::load_plan::{LoadLimits, LoadPlan, coolest};
use state::SpreadState;

/// A node, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadNode {
    /// Replicas in different zones stay so.
    pub zone: u32,
    /// Whether it may get replicas.
    pub takes: bool,
    /// Load that is none of these partitions'.
    pub other_load: f64,
}

/// A partition, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadPartition {
    /// The nodes that hold it.
    pub holders: Vec<u32>,
    pub load: f64,
    pub bytes: u64,
}

/// What is planned for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpreadCluster {
    pub nodes: Vec<SpreadNode>,
    pub partitions: Vec<SpreadPartition>,
    /// A partition has so many replicas at least, or as many as it has.
    pub least: usize,
    /// So many replicas there are in all at most, or as many as there are.
    pub most_in_all: usize,
}

/// Plans. REQUIRES: holders are numbers of nodes, and of a partition distinct; each has one.
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
        // Nobody leads.
        handed_over: 0,
        ..LoadPlan::of(&known, chosen.lists().to_vec())
    }
}
