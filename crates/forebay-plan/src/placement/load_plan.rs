//! The result of a plan by load, whether leaders or all replicas serve it.

use std::collections::BTreeSet;

/// The limits of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadLimits {
    /// The most replicas that are copied.
    pub most_copies: usize,
    /// Copying ends once the bound is this share of the hottest node's load.
    pub share: f64,
}

/// The desired replicas, with their effect on load.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadPlan {
    /// The desired nodes of each partition. If one of them leads, it is the first.
    pub lists: Vec<Vec<u32>>,
    /// The load of each node.
    pub before: Vec<f64>,
    pub after: Vec<f64>,
    /// The mean load of the nodes that may get replicas or have a load.
    pub mean: f64,
    /// A lower bound of the hottest node's load in any placement of these partitions.
    pub bound: f64,
    /// The number of partitions that get another first node.
    pub handed_over: usize,
    /// The number of replicas that are copied, and their bytes.
    pub copies: usize,
    pub copied_bytes: u64,
    /// The number of replicas that are dropped.
    pub drops: usize,
}

impl LoadPlan {
    /// Returns the copies and drops of these lists, given the previous nodes of partitions and
    /// their bytes. It does not fill in the loads.
    pub(super) fn of(known: &[(&[u32], u64)], lists: Vec<Vec<u32>>) -> Self {
        let mut plan = Self::default();
        for ((holders, bytes), list) in known.iter().zip(&lists) {
            let copies = list.iter().filter(|node| !holders.contains(node)).count();
            plan.handed_over += usize::from(holders.first() != list.first());
            plan.copies += copies;
            plan.copied_bytes += bytes * copies as u64;
            plan.drops += holders.iter().filter(|node| !list.contains(node)).count();
        }
        Self { lists, ..plan }
    }

    /// Returns the hottest node's load before and after.
    pub fn hottest(&self) -> (f64, f64) {
        (most(&self.before), most(&self.after))
    }
}

/// Returns the mean load of the nodes that may get replicas or have a load.
pub(super) fn mean(loads: &[f64], takes: impl Iterator<Item = bool>) -> f64 {
    let counted = loads.iter().zip(takes);
    let counted = counted.filter(|(load, takes)| *takes || **load > 0.0);
    loads.iter().sum::<f64>() / counted.count().max(1) as f64
}

pub(super) fn most(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// Returns the first state whose hottest node is within 0.5% of the best. The states were reached
/// one after the other, each with one more copy.
///
/// REQUIRES: there is one.
pub(super) fn coolest<S>(found: &[S], hottest: impl Fn(&S) -> f64) -> &S {
    let best = found.iter().map(&hottest).fold(f64::INFINITY, f64::min);
    let good = |state: &&S| hottest(state) <= best * 1.005;
    found.iter().find(good).unwrap_or(&found[0])
}

/// Returns by how much the sum of the loads' squares falls. A node may be named twice.
pub(super) fn gain(loads: &[f64], changes: &[(u32, f64)]) -> f64 {
    let mut gain = 0.0;
    for (at, (node, _)) in changes.iter().enumerate() {
        if changes[..at].iter().any(|(before, _)| before == node) {
            continue;
        }
        let same = changes[at..].iter().filter(|(other, _)| other == node);
        let change: f64 = same.map(|(_, change)| change).sum();
        let load = loads[*node as usize];
        gain += load * load - (load + change) * (load + change);
    }
    gain
}

/// Returns whether a partition is in as many zones if a node takes a place in its list.
pub(super) fn keeps_zones(list: &[u32], place: usize, to: u32, zone: impl Fn(u32) -> u32) -> bool {
    let before: BTreeSet<u32> = list.iter().map(|node| zone(*node)).collect();
    let after = list.iter().enumerate().map(|(at, node)| match at == place {
        true => zone(to),
        false => zone(*node),
    });
    after.collect::<BTreeSet<u32>>().len() >= before.len()
}
