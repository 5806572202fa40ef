//! Measures a placement: what it carries, how even it is, what it needs, and what a failure costs.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cluster::{Fate, PlacementProblem};
use super::layout::Placement;
use super::replicas::per_replica;
use super::routing::{Routing, whole_loads};

/// Up to this many copies, the remaining capacity is measured for every failure. With more, the
/// number of failures is limited so that this many times as many copies are routed.
const FEW_COPIES: usize = 10_000;
const COPIES_ROUTED: usize = 300 * FEW_COPIES;
const FEWEST_MEASURED: usize = 4;

/// The measures of one placement under one load. Nodes that are drained or lost do not count.
#[derive(Debug, Clone, Serialize)]
pub struct Measures {
    /// The load that the placement can carry with the best routing, over what all nodes together
    /// can. It is 1 if no node has to carry more than the mean. By maximum flow, exact.
    pub capacity: f64,
    /// If capacity is below 1: the nodes that limit it, since only they have partitions with too
    /// much load.
    pub limited_by: Vec<u32>,
    /// The hottest node's load over the mean, if each partition's load divides evenly among its
    /// slots.
    pub even_split_max_to_mean: f64,
    /// The hottest load per replica over the mean load per replica.
    pub hottest_replica_to_mean: f64,
    pub footprint: Footprint,
    pub node_failure: Failure,
    /// Present only if zones were given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone_failure: Option<Failure>,
    /// The number of partitions in fewer zones than their replicas could be in.
    pub short_of_zones: usize,
}

/// The different partitions of a node, and the bytes if those of the partitions were given.
#[derive(Debug, Clone, Serialize)]
pub struct Footprint {
    pub max_partitions: usize,
    pub mean_partitions: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_bytes: Option<f64>,
}

/// What remains if the worst one fails.
#[derive(Debug, Clone, Serialize)]
pub struct Failure {
    /// The most load, as a share, that no other node has.
    pub lost_load: f64,
    /// The node or zone whose failure loses it.
    pub lost_load_of: String,
    /// The least capacity of the remaining nodes for the load that they have, over what that many
    /// nodes can carry.
    pub capacity: f64,
    pub capacity_of: String,
}

/// Measures `placement` under `loads`.
pub fn measure(cluster: &PlacementProblem, placement: &Placement, loads: &[f64]) -> Measures {
    let mut settled = RoutedPlacement::new(cluster, placement, loads);
    let nodes: Vec<Vec<u32>> = settled.open.iter().map(|&node| vec![node]).collect();
    let names: Vec<String> = settled.open.iter().map(u32::to_string).collect();
    let node_failure = settled.worst_failure(&nodes, &names);
    let zone_failure = cluster.zoned().then(|| {
        let (names, groups) = zone_groups(cluster, &settled.open);
        settled.worst_failure(&groups, &names)
    });
    Measures {
        capacity: settled.capacity,
        limited_by: settled.limited_by.clone(),
        even_split_max_to_mean: even_split(&settled.open, placement, loads),
        hottest_replica_to_mean: hottest_replica(placement, loads),
        footprint: footprint(cluster, &settled.open, placement),
        node_failure,
        zone_failure,
        short_of_zones: short_of_zones(cluster, placement),
    }
}

/// Returns only the capacity, see [`Measures::capacity`].
pub fn capacity(cluster: &PlacementProblem, placement: &Placement, loads: &[f64]) -> f64 {
    RoutedPlacement::new(cluster, placement, loads).capacity
}

/// Returns the load of each node when the best routing serves `loads`, as a share of all load.
pub fn routed_loads(cluster: &PlacementProblem, placement: &Placement, loads: &[f64]) -> Vec<f64> {
    let settled = RoutedPlacement::new(cluster, placement, loads);
    let all: u64 = settled.whole.max(1);
    (0..placement.nodes().len() as u32)
        .map(|node| settled.routing.served(node) as f64 / all as f64)
        .collect()
}

/// Returns the load of each node when every slot of a partition serves as much as the others.
pub fn split_loads(placement: &Placement, loads: &[f64]) -> Vec<f64> {
    let replicas = placement.replicas(loads.len());
    let load = |&id: &u32| per_replica(loads[id as usize], replicas[id as usize]);
    placement
        .nodes()
        .iter()
        .map(|held| held.iter().map(load).sum())
        .collect()
}

/// A placement with its load routed in the best way.
struct RoutedPlacement {
    routing: Routing,
    nodes: usize,
    partitions: usize,
    open: Vec<u32>,
    whole: u64,
    capacity: f64,
    limited_by: Vec<u32>,
}

impl RoutedPlacement {
    fn new(cluster: &PlacementProblem, placement: &Placement, loads: &[f64]) -> Self {
        let load = whole_loads(loads);
        let stays = |node: usize| cluster.nodes[node].fate == Fate::Stays;
        let mut routing = Routing::new(placement, &load, stays);
        let cut = routing.settle();
        let open: Vec<u32> = cluster.staying().iter().map(|&node| node as u32).collect();
        let whole: u64 = load.iter().sum();
        let capacity = if routing.unrouted() > 0 {
            0.0
        } else {
            share_of_mean(whole, open.len(), routing.limit())
        };
        let limited_by = cut.map(|cut| cut.nodes).unwrap_or_default();
        Self {
            routing,
            nodes: placement.nodes().len(),
            partitions: loads.len(),
            open,
            whole,
            capacity,
            limited_by,
        }
    }

    fn worst_failure(&mut self, groups: &[Vec<u32>], names: &[String]) -> Failure {
        let mut worst = Failure {
            lost_load: 0.0,
            lost_load_of: String::new(),
            capacity: 1.0,
            capacity_of: String::new(),
        };
        let lost = self.lost_loads(groups);
        for (&lost, name) in lost.iter().zip(names) {
            if lost > worst.lost_load || worst.lost_load_of.is_empty() {
                worst.lost_load = lost;
                worst.lost_load_of.clone_from(name);
            }
        }
        let whole = self.routing.snapshot();
        for place in self.hardest(groups) {
            let capacity = self.without(&groups[place]);
            self.routing.restore(&whole);
            if capacity < worst.capacity || worst.capacity_of.is_empty() {
                worst.capacity = capacity;
                worst.capacity_of.clone_from(&names[place]);
            }
        }
        worst
    }

    /// Returns the share of the load that each group alone has.
    fn lost_loads(&self, groups: &[Vec<u32>]) -> Vec<f64> {
        if let [_] = groups {
            return vec![1.0];
        }
        let mut group_of = vec![usize::MAX; self.nodes];
        for (group, nodes) in groups.iter().enumerate() {
            for &node in nodes {
                group_of[node as usize] = group;
            }
        }
        let mut lost = vec![0u64; groups.len()];
        for partition in 0..self.partitions as u32 {
            let mut holders = self
                .routing
                .holders(partition)
                .map(|node| group_of[node as usize]);
            let Some(first) = holders.next() else {
                continue;
            };
            if first < groups.len() && holders.all(|group| group == first) {
                lost[first] += self.routing.load(partition);
            }
        }
        let whole = self.whole.max(1) as f64;
        lost.into_iter().map(|load| load as f64 / whole).collect()
    }

    /// Returns the groups whose failure is measured. With few copies, these are all groups;
    /// otherwise those that leave most load to one other node.
    fn hardest(&self, groups: &[Vec<u32>]) -> Vec<usize> {
        let held = self
            .open
            .iter()
            .map(|&node| self.routing.flows(node).count());
        let copies: usize = held.sum();
        let most = match copies {
            0..=FEW_COPIES => groups.len(),
            _ => (COPIES_ROUTED / copies).max(FEWEST_MEASURED),
        };
        let mut order: Vec<usize> = (0..groups.len()).collect();
        if most < groups.len() {
            let burden: Vec<u64> = groups.iter().map(|group| self.burden(group)).collect();
            order.sort_by_key(|&group| (std::cmp::Reverse(burden[group]), group));
            order.truncate(most);
        }
        order
    }

    /// Returns the load of the node that takes over most, if each partition's load divides among
    /// its other nodes.
    fn burden(&self, group: &[u32]) -> u64 {
        let mut takes: BTreeMap<u32, u64> = BTreeMap::new();
        for (partition, flow) in group.iter().flat_map(|&node| self.routing.flows(node)) {
            let others = || {
                self.routing
                    .holders(partition)
                    .filter(|node| !group.contains(node))
            };
            let share = flow / others().count().max(1) as u64;
            for node in others() {
                *takes.entry(node).or_default() += share;
            }
        }
        let with = |(&node, &takes): (&u32, &u64)| takes + self.routing.served(node);
        takes.iter().map(with).max().unwrap_or(0)
    }

    /// Returns the capacity without some nodes for what the others have. These nodes stay closed.
    fn without(&mut self, failed: &[u32]) -> f64 {
        let rest = self.open.len() - failed.len();
        if rest == 0 {
            return 0.0;
        }
        for &node in failed {
            self.routing.close(node);
        }
        self.routing.settle();
        let lost = self.routing.unrouted();
        share_of_mean(self.whole - lost, rest, self.routing.limit())
    }
}

/// Returns the mean over the limit, or 1 if they are the same whole number.
fn share_of_mean(load: u64, nodes: usize, limit: u64) -> f64 {
    if limit <= load.div_ceil(nodes as u64) {
        return 1.0;
    }
    load as f64 / nodes as f64 / limit as f64
}

fn even_split(open: &[u32], placement: &Placement, loads: &[f64]) -> f64 {
    let split = split_loads(placement, loads);
    let most = open
        .iter()
        .map(|&node| split[node as usize])
        .fold(0.0, f64::max);
    let mean = loads.iter().sum::<f64>() / open.len() as f64;
    if mean > 0.0 { most / mean } else { 1.0 }
}

fn hottest_replica(placement: &Placement, loads: &[f64]) -> f64 {
    let replicas = placement.replicas(loads.len());
    let all: usize = replicas.iter().sum();
    let each = loads.iter().zip(&replicas);
    let hottest = each
        .map(|(&load, &count)| per_replica(load, count))
        .fold(0.0, f64::max);
    let mean = loads.iter().sum::<f64>() / all.max(1) as f64;
    if mean > 0.0 { hottest / mean } else { 1.0 }
}

fn footprint(cluster: &PlacementProblem, open: &[u32], placement: &Placement) -> Footprint {
    let counts: Vec<usize> = open
        .iter()
        .map(|&node| placement.distinct(node as usize).count())
        .collect();
    let bytes: Vec<u64> = open
        .iter()
        .map(|&node| {
            placement
                .distinct(node as usize)
                .map(|id| cluster.size(id))
                .sum()
        })
        .collect();
    let sized = cluster.sizes.is_some();
    let mean = |sum: f64| sum / open.len().max(1) as f64;
    Footprint {
        max_partitions: counts.iter().copied().max().unwrap_or(0),
        mean_partitions: mean(counts.iter().sum::<usize>() as f64),
        max_bytes: sized.then(|| bytes.iter().copied().max().unwrap_or(0)),
        mean_bytes: sized.then(|| mean(bytes.iter().map(|&bytes| bytes as f64).sum())),
    }
}

fn zone_groups(cluster: &PlacementProblem, open: &[u32]) -> (Vec<String>, Vec<Vec<u32>>) {
    let mut groups: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for &node in open {
        groups
            .entry(cluster.nodes[node as usize].zone)
            .or_default()
            .push(node);
    }
    groups
        .into_iter()
        .map(|(zone, nodes)| (cluster.zones[zone].clone(), nodes))
        .unzip()
}

fn short_of_zones(cluster: &PlacementProblem, placement: &Placement) -> usize {
    if !cluster.zoned() {
        return 0;
    }
    let mut zones: Vec<usize> = cluster
        .staying()
        .iter()
        .map(|&node| cluster.nodes[node].zone)
        .collect();
    zones.sort_unstable();
    zones.dedup();
    let replicas = placement.replicas(cluster.partitions());
    let holders = placement.holders(cluster.partitions());
    let short = |(holders, &replicas): (&Vec<u32>, &usize)| {
        let mut of: Vec<usize> = holders
            .iter()
            .map(|&node| cluster.nodes[node as usize].zone)
            .collect();
        of.sort_unstable();
        of.dedup();
        of.len() < replicas.min(zones.len())
    };
    holders
        .iter()
        .zip(&replicas)
        .filter(|&pair| short(pair))
        .count()
}
