//! From the current placement to one that carries a wanted share of the best possible, for the
//! least data shipped. Nodes that are added, drained or lost are the same task: the new one is an
//! empty node, the others hold nothing that counts.
//!
//! 1. Partitions with too few replicas on the nodes that stay get them (`work`).
//! 2. The load is routed with every node limited to what the wanted share allows. While load is
//!    left over, the minimum cut names the full nodes that hold it alone. For each connected part
//!    of them, the partition that brings most load out for its bytes is copied to a node with room;
//!    where that node has no free slot, it gives up the copy that serves least.
//! 3. Copies that turn out not to be needed are taken back.
//! 4. Placements made from nothing (`balanced`, `smooth`), their nodes relabelled to match the
//!    current ones best, are candidates too: no plan ships more than they do.

mod bound;
mod parts;
mod relabel;
mod steps;
mod work;

use super::cluster::Cluster;
use super::layout::Placement;
use super::measure;
use super::replicas::Objective;
use super::schemes::{self, Scheme};
use crate::InputError;

pub use relabel::relabel;
pub use steps::{Transfer, partition_map, plan, transfers};
use work::{Fit, Work};

/// Up to this many copies in the current placement, more ways are tried.
const FEW_COPIES: usize = 10_000;

/// How a migration ends.
#[derive(Debug, Clone)]
pub struct Migration {
    pub placement: Placement,
    /// Copies and drops in an order in which they can be done.
    pub transfers: Vec<Transfer>,
    pub capacity: f64,
    /// Bytes shipped; copies, where no sizes are given.
    pub shipped: u128,
    /// No migration that reaches the capacity ships less.
    pub least_shipped: u128,
    /// The best capacity that is known to be possible.
    pub best: f64,
    /// Whether the capacity is the wanted share of the best.
    pub reached: bool,
}

/// The migration that ships least among those that reach `share` of the best capacity.
pub fn migrate(
    cluster: &Cluster,
    share: f64,
    objective: Objective,
) -> Result<Migration, InputError> {
    let current = check(cluster, share)?;
    let bound = capacity_bound(cluster);
    let mut candidates = gradual(cluster, share * bound, bound)?;
    for scheme in [Scheme::Balanced, Scheme::Smooth] {
        // Room that is too tight to be filled from nothing may do for what is there.
        if let Ok(placement) = schemes::place(cluster, scheme, objective) {
            let placement = relabel(cluster, current, placement);
            candidates.push(MoveCandidate::new(cluster, placement, None));
        }
    }
    let reached = |candidate: &MoveCandidate, best: f64| candidate.capacity >= share * best - 1e-9;
    let mut best = bound;
    if !candidates.iter().any(|candidate| reached(candidate, best)) {
        // The bound knows nothing of slots: the best that was found stands in for it.
        best = candidates
            .iter()
            .map(|candidate| candidate.capacity)
            .fold(0.0, f64::max);
        candidates.extend(gradual(cluster, share * best, best)?);
    }
    let chosen = candidates
        .into_iter()
        .filter(|candidate| reached(candidate, best))
        .min_by_key(|candidate| candidate.bytes);
    let Some(chosen) = chosen else {
        return Err(InputError::new(
            "current",
            "no placement was found that serves the load",
        ));
    };
    let in_order = || transfers(cluster, &chosen.placement);
    let transfers = chosen.transfers.unwrap_or_else(in_order);
    Ok(Migration {
        placement: chosen.placement,
        transfers,
        capacity: chosen.capacity,
        shipped: chosen.bytes,
        least_shipped: Work::new(cluster, share * best, Fit::Roomiest).least_shipped(),
        best,
        reached: chosen.capacity >= share * bound - 1e-9,
    })
}

/// Bytes of the copies that `placement` has and the current one has not; a copy counts 1 where no
/// sizes are given. The second number counts copies.
pub fn shipped(cluster: &Cluster, placement: &Placement) -> (u128, usize) {
    let mut bytes = 0;
    let mut copies = 0;
    for node in 0..placement.nodes().len() {
        for partition in placement.distinct(node) {
            let there = cluster
                .current
                .as_ref()
                .is_some_and(|now| now.holds(node, partition));
            if !there || cluster.nodes[node].fate == super::cluster::Fate::Lost {
                bytes += u128::from(cluster.size(partition));
                copies += 1;
            }
        }
    }
    (bytes, copies)
}

/// No placement carries more: a partition's load can be divided among as many nodes as it may have
/// replicas.
fn capacity_bound(cluster: &Cluster) -> f64 {
    let nodes = cluster.staying().len() as f64;
    let replicas = (cluster.max as f64).min(nodes);
    let mean = cluster.loads.iter().sum::<f64>() / nodes;
    let hottest = cluster.loads.iter().copied().fold(0.0, f64::max) / replicas;
    if hottest > mean { mean / hottest } else { 1.0 }
}

fn check(cluster: &Cluster, share: f64) -> Result<&Placement, InputError> {
    cluster.check_room()?;
    if !(share > 0.0 && share <= 1.0) {
        let what = format!("{share} is not above 0 and at most 1");
        return Err(InputError::new("share", what));
    }
    if cluster.has_total() {
        let what = "a migration uses the nodes' slots as they are; leave the field out";
        return Err(InputError::new("total", what));
    }
    let Some(current) = &cluster.current else {
        let what = "missing; a migration starts from what stands on each node";
        return Err(InputError::new("current", what));
    };
    Ok(current)
}

struct MoveCandidate {
    placement: Placement,
    transfers: Option<Vec<Transfer>>,
    capacity: f64,
    bytes: u128,
}

impl MoveCandidate {
    fn new(cluster: &Cluster, placement: Placement, transfers: Option<Vec<Transfer>>) -> Self {
        let (bytes, _) = shipped(cluster, &placement);
        let capacity = measure::capacity(cluster, &placement, &cluster.loads);
        Self {
            placement,
            transfers,
            capacity,
            bytes,
        }
    }
}

/// Step by step from the current placement, in a few ways: the wanted capacity at once or a little
/// more than it, by the roomiest nodes or by those that just have room.
fn gradual(cluster: &Cluster, wanted: f64, best: f64) -> Result<Vec<MoveCandidate>, InputError> {
    let mut candidates = Vec::new();
    let slots: usize = cluster
        .current
        .iter()
        .flat_map(|now| now.nodes())
        .map(Vec::len)
        .sum();
    let more = [wanted.midpoint(best), best];
    let more = if slots <= FEW_COPIES { &more[..] } else { &[] };
    for &aim in [wanted].iter().chain(more) {
        for fit in [Fit::Roomiest, Fit::Tightest] {
            let mut work = Work::new(cluster, aim, fit);
            work.repair()?;
            work.spread();
            work.take_back(wanted);
            let (placement, transfers) = work.finish();
            candidates.push(MoveCandidate::new(cluster, placement, Some(transfers)));
        }
    }
    Ok(candidates)
}
