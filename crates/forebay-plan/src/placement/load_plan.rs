//! What comes of a plan by load, whoever of a partition's holders has its load.

use std::collections::BTreeSet;

/// How far a plan goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadLimits {
    /// Replicas that are copied at most.
    pub most_copies: usize,
    /// Nothing more is copied once the bound is this share of the hottest node's load.
    pub share: f64,
}

/// Who is to hold what, and what comes of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadPlan {
    /// Of each partition the nodes that are to hold it. Where one of them leads, it is the first.
    pub lists: Vec<Vec<u32>>,
    /// Of each node.
    pub before: Vec<f64>,
    pub after: Vec<f64>,
    /// The mean load of the nodes that may get replicas or have a load.
    pub mean: f64,
    /// No placement of these partitions has a less loaded hottest node.
    pub bound: f64,
    /// Partitions that come to have another first node.
    pub handed_over: usize,
    /// Replicas that are copied, and their bytes.
    pub copies: usize,
    pub copied_bytes: u64,
    /// Replicas that go.
    pub drops: usize,
}

impl LoadPlan {
    /// What these lists copy, where partitions have had these holders, and so many bytes. The loads
    /// are not in it.
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

    /// The hottest node's load before and afterwards.
    pub fn hottest(&self) -> (f64, f64) {
        (most(&self.before), most(&self.after))
    }
}

/// Of the nodes that may get replicas or have a load.
pub(super) fn mean(loads: &[f64], takes: impl Iterator<Item = bool>) -> f64 {
    let counted = loads.iter().zip(takes);
    let counted = counted.filter(|(load, takes)| *takes || **load > 0.0);
    loads.iter().sum::<f64>() / counted.count().max(1) as f64
}

pub(super) fn most(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// Of states that were come to one after the other, each with a copy more, the first whose hottest
/// node is within 0.5% of the best.
///
/// REQUIRES: there is one.
pub(super) fn coolest<S>(found: &[S], hottest: impl Fn(&S) -> f64) -> &S {
    let best = found.iter().map(&hottest).fold(f64::INFINITY, f64::min);
    let good = |state: &&S| hottest(state) <= best * 1.005;
    found.iter().find(good).unwrap_or(&found[0])
}

/// By how much the sum of the loads' squares falls. A node may be named twice.
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

/// Whether a partition is in as many zones when a node takes a place in its list.
pub(super) fn keeps_zones(list: &[u32], place: usize, to: u32, zone: impl Fn(u32) -> u32) -> bool {
    let before: BTreeSet<u32> = list.iter().map(|node| zone(*node)).collect();
    let after = list.iter().enumerate().map(|(at, node)| match at == place {
        true => zone(to),
        false => zone(*node),
    });
    after.collect::<BTreeSet<u32>>().len() >= before.len()
}
