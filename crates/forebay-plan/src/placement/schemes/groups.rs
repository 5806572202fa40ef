//! The schemes that place groups of partitions: `base`, `coarse` and `complete`.
//!
//! In `base` and `coarse`, a group fills a node, and there are as few groups as hold all
//! partitions. `complete` is one group of everything.

use crate::InputError;
use crate::placement::cluster::PlacementProblem;
use crate::placement::layout::Placement;
use crate::placement::replicas::{Bounds, Objective, replication_vector};

/// The most copies that `complete` lists: each failure of a node visits all of them.
const MOST_COPIES: usize = 2_000_000;

/// Places copies of all groups, as many as the nodes allow.
pub fn base(cluster: &PlacementProblem) -> Result<Placement, InputError> {
    let groups = groups(cluster)?;
    let nodes = zone_by_zone(cluster);
    let most = (nodes.len() / groups.len()).min(cluster.max);
    if most < cluster.min {
        return Err(short(cluster, groups.len(), nodes.len()));
    }
    // Nodes beyond the last whole copy get the first groups once more.
    let used = nodes.len().min(cluster.max.saturating_mul(groups.len()));
    let group_of = |place: usize| place % groups.len();
    Ok(fill(cluster, &groups, &nodes[..used], group_of))
}

/// Places one group on each node; groups with more load get more nodes.
pub fn coarse(cluster: &PlacementProblem, objective: Objective) -> Result<Placement, InputError> {
    let groups = groups(cluster)?;
    let nodes = zones_in_turn(cluster);
    let max = cluster.max.min(nodes.len());
    let total = nodes.len().min(max.saturating_mul(groups.len()));
    if total < cluster.min * groups.len() {
        return Err(short(cluster, groups.len(), nodes.len()));
    }
    let load = |group: &Vec<u32>| group.iter().map(|&id| cluster.loads[id as usize]).sum();
    let loads: Vec<f64> = groups.iter().map(load).collect();
    let bounds = Bounds {
        min: cluster.min,
        max,
        total,
    };
    let replicas = replication_vector(&loads, bounds, objective)?;
    let order: Vec<usize> = replicas
        .iter()
        .enumerate()
        .flat_map(|(group, &count)| std::iter::repeat_n(group, count))
        .collect();
    Ok(fill(cluster, &groups, &nodes[..order.len()], |place| {
        order[place]
    }))
}

/// Places everything on every node. Slots and bytes do not count: it is a reference for other
/// placements.
pub fn complete(cluster: &PlacementProblem) -> Result<Placement, InputError> {
    let partitions = cluster.partitions();
    let staying = cluster.staying();
    if partitions.saturating_mul(staying.len()) > MOST_COPIES {
        let what = format!(
            "{partitions} on each of {} nodes is too much to list; its capacity is 1",
            staying.len()
        );
        return Err(InputError::new("load", what));
    }
    let mut nodes = vec![Vec::new(); cluster.nodes.len()];
    for node in staying {
        nodes[node] = (0..partitions as u32).collect();
    }
    Ok(Placement::new(nodes))
}

fn fill(
    cluster: &PlacementProblem,
    groups: &[Vec<u32>],
    nodes: &[usize],
    group_of: impl Fn(usize) -> usize,
) -> Placement {
    let mut held = vec![Vec::new(); cluster.nodes.len()];
    for (place, &node) in nodes.iter().enumerate() {
        held[node].clone_from(&groups[group_of(place)]);
    }
    Placement::new(held)
}

/// Divides partitions, in the order of their numbers, into as few groups as fit the smallest node;
/// by bytes if the node has a limit of them.
fn groups(cluster: &PlacementProblem) -> Result<Vec<Vec<u32>>, InputError> {
    let staying = cluster.staying();
    let slots = staying
        .iter()
        .map(|&node| cluster.max_partitions(node))
        .min()
        .unwrap_or(0);
    let bytes = staying
        .iter()
        .filter_map(|&node| cluster.nodes[node].bytes)
        .min();
    let mut groups: Vec<Vec<u32>> = vec![Vec::new()];
    let mut filled = 0u64;
    // Even groups: as many partitions in each as the least number of groups needs.
    let least = cluster.partitions().div_ceil(slots.max(1));
    let most = cluster.partitions().div_ceil(least);
    for partition in 0..cluster.partitions() as u32 {
        let size = cluster.size(partition);
        let fits = bytes.is_none_or(|bytes| filled + size <= bytes);
        let full = groups
            .last()
            .is_some_and(|group| group.len() >= most || !group.is_empty() && !fits);
        if full {
            groups.push(Vec::new());
            filled = 0;
        }
        filled += size;
        if slots == 0 || bytes.is_some_and(|bytes| filled > bytes) {
            let what = format!("partition {partition} does not fit the smallest node by itself");
            return Err(InputError::new("slots", what));
        }
        if let Some(group) = groups.last_mut() {
            group.push(partition);
        }
    }
    Ok(groups)
}

fn short(cluster: &PlacementProblem, groups: usize, nodes: usize) -> InputError {
    let what = format!(
        "{nodes} nodes are too few for {} replica(s) of {groups} groups, each of which fills the \
         smallest node; use the scheme smooth, or add nodes",
        cluster.min
    );
    InputError::new("nodes", what)
}

/// Returns the nodes that stay, with those of one zone together. The copies of a group are a whole
/// round apart, so they tend to be in different zones.
fn zone_by_zone(cluster: &PlacementProblem) -> Vec<usize> {
    let mut nodes = cluster.staying();
    if cluster.zoned() {
        nodes.sort_by_key(|&node| cluster.nodes[node].zone);
    }
    nodes
}

/// Returns the nodes that stay, each in another zone than the previous one as long as possible.
pub fn zones_in_turn(cluster: &PlacementProblem) -> Vec<usize> {
    let mut nodes = cluster.staying();
    if cluster.zoned() {
        let mut seen = vec![0; cluster.zones.len()];
        let mut turn = vec![0; cluster.nodes.len()];
        for &node in &nodes {
            let zone = cluster.nodes[node].zone;
            turn[node] = seen[zone];
            seen[zone] += 1;
        }
        nodes.sort_by_key(|&node| (turn[node], cluster.nodes[node].zone));
    }
    nodes
}
