//! Places partitions whose leader serves all requests.
//!
//! In the paper's model (`migrate`) every node that has a partition takes a part of its load. In
//! this module, the leader has the load of a partition, and its followers have what they apply of
//! writes. So there are two ways to relieve a node, and the one that copies nothing comes first:
//!
//! 1. Another replica leads: one partition at a time, as long as the sum of the squares of the
//!    nodes' loads falls. Then two at once for the hottest node: leaders are exchanged, or passed
//!    on over a third node.
//! 2. A replica moves to another node, which may lead from then on: the move that lowers the sum
//!    most. Then 1 again, as often as copies are allowed and the hottest node is above the wanted
//!    load.
//!
//! Of the states after each copy, the result is the first whose hottest node is within 0.5% of the
//! best. If that is hardly cooler than before, nothing changes.

mod state;

#[cfg(test)]
mod tests;

use super::load_plan::{LoadLimits, LoadPlan, coolest};
use state::LedState;

/// The plan changes something only if the hottest node then has at most this share of its load.
const WORTH: f64 = 0.98;

/// A node, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedNode {
    /// Its zone: replicas in different zones stay so.
    pub zone: u32,
    /// Whether it may get replicas.
    pub takes: bool,
    /// Whether it may become a leader.
    pub may_lead: bool,
    /// Its load from anything but these partitions.
    pub other_load: f64,
}

/// A partition, by its number.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedPartition {
    /// The nodes that have it; the one that is to lead is the first.
    pub holders: Vec<u32>,
    /// The load of the leader, and of each other node: no more than that.
    pub leader_load: f64,
    pub follower_load: f64,
    pub bytes: u64,
}

/// The input of the plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LedCluster {
    pub nodes: Vec<LedNode>,
    pub partitions: Vec<LedPartition>,
}

/// Makes the plan. REQUIRES: holders are numbers of nodes, and distinct for a partition.
pub fn place_leaders(cluster: &LedCluster, limits: LoadLimits) -> LoadPlan {
    let mut state = LedState::of(cluster);
    let (before, mean) = (state.loads().to_vec(), state.mean());
    let bound = bound(cluster, mean);
    let as_it_is = state.clone();
    state.hand_over();
    let mut found = vec![state.clone()];
    let wanted = bound / limits.share.max(f64::MIN_POSITIVE);
    while found.len() <= limits.most_copies && state.hottest() > wanted && state.copy_one() {
        state.hand_over();
        found.push(state.clone());
    }
    let coolest = coolest(&found, LedState::hottest);
    let is_worth_it = coolest.hottest() <= WORTH * as_it_is.hottest();
    let chosen = if is_worth_it { coolest } else { &as_it_is };
    let lists = chosen.lists().to_vec();
    let partitions = cluster.partitions.iter();
    let known: Vec<_> = partitions
        .map(|one| (&one.holders[..], one.bytes))
        .collect();
    LoadPlan {
        before,
        after: chosen.loads().to_vec(),
        mean,
        bound,
        ..LoadPlan::of(&known, lists)
    }
}

/// Returns a lower bound: some node leads the hottest partition, and some node has at least the
/// mean.
fn bound(cluster: &LedCluster, mean: f64) -> f64 {
    let partitions = cluster.partitions.iter();
    let hottest = partitions.map(|partition| partition.leader_load);
    let others = cluster.nodes.iter().map(|node| node.other_load);
    hottest.chain(others).fold(mean, f64::max)
}
