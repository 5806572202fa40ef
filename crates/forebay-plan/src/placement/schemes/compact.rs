//! The scheme `compact`: few different partitions on each node, for its memory, at an even load.
//!
//! The slots of all partitions form a circle. Those of one partition are neighbours, each with its
//! part of the load. Some arc of the circle has a node's number of slots and very nearly a node's
//! share of the load. Some arcs have more load, some less, and the next arc differs from this one
//! by a single slot at either end. The node gets that arc, and the rest is closed to a circle
//! again. So each node divides at most two partitions. Several circles (by heat, by number, at
//! random) are tried. Of those that carry the load, the one with the smallest footprint is used.
//!
//! With a least number of replicas above 1, the nodes are divided into as many groups. Each group
//! gets a circle of its own that has every partition, so the required copies are on different
//! nodes.

use crate::placement::cluster::PlacementProblem;
use crate::placement::layout::Placement;
use crate::placement::measure;
use crate::placement::replicas::{Bounds, Objective, per_replica, replication_vector};
use crate::{InputError, Random};

/// A placement that carries this much is not replaced by one that carries more.
const CARRIES: f64 = 0.995;
/// The number of random circles that are tried while none carries that much.
const SHUFFLES: u64 = 12;
/// With more slots than this, arcs differ so little that random circles are not needed.
const FEW_SLOTS: usize = 10_000;

pub fn compact(cluster: &PlacementProblem, objective: Objective) -> Result<Placement, InputError> {
    if cluster.nodes.iter().any(|node| node.bytes.is_some()) {
        let what = "the scheme compact fills slots, not bytes; give slots, or take another scheme";
        return Err(InputError::new("node_bytes", what));
    }
    let known = [Order::Heat, Order::Number, Order::Alternating];
    let shuffled = (0..SHUFFLES).map(Order::Shuffled);
    let many = cluster.bounds()?.total > FEW_SLOTS;
    let mut best: Option<(f64, Placement)> = None;
    for order in known.into_iter().chain(shuffled) {
        let carries = best.as_ref().is_some_and(|best| best.0 >= CARRIES);
        if matches!(order, Order::Shuffled(_)) && (carries || many) {
            break;
        }
        let placement = in_order(cluster, objective, order)?;
        let capacity = measure::capacity(cluster, &placement, &cluster.loads);
        let candidate = (capacity, placement);
        if best.as_ref().is_none_or(|best| is_better(&candidate, best)) {
            best = Some(candidate);
        }
    }
    best.map(|(_, placement)| placement)
        .ok_or_else(|| InputError::new("load", "is empty"))
}

fn is_better(new: &(f64, Placement), old: &(f64, Placement)) -> bool {
    let carries = |candidate: &(f64, Placement)| candidate.0.min(CARRIES);
    match carries(new).total_cmp(&carries(old)) {
        std::cmp::Ordering::Equal => footprint(&new.1) < footprint(&old.1),
        unequal => unequal.is_gt(),
    }
}

/// Returns the largest number of different partitions on a node, and the sum over all nodes.
fn footprint(placement: &Placement) -> (usize, usize) {
    let counts = (0..placement.nodes().len()).map(|node| placement.distinct(node).count());
    counts.fold((0, 0), |(most, sum), count| (most.max(count), sum + count))
}

/// The order of partitions on the circle.
#[derive(Debug, Clone, Copy)]
enum Order {
    /// The hottest replicas first.
    Heat,
    /// By their numbers.
    Number,
    /// The hottest, the coolest, the second hottest, and so on.
    Alternating,
    /// At random, from a seed.
    Shuffled(u64),
}

fn in_order(
    cluster: &PlacementProblem,
    objective: Objective,
    order: Order,
) -> Result<Placement, InputError> {
    let bounds = cluster.bounds()?;
    let mut nodes = super::groups::zones_in_turn(cluster);
    if cluster.zoned() {
        nodes.sort_by_key(|&node| cluster.nodes[node].zone);
    }
    let mut held = vec![Vec::new(); cluster.nodes.len()];
    for group in divided(cluster, &nodes) {
        let slots: usize = group.iter().map(|&node| cluster.max_partitions(node)).sum();
        let max = (bounds.max / bounds.min).min(group.len());
        let wished = bounds.total * group.len() / nodes.len();
        let group_bounds = Bounds {
            min: 1,
            max,
            total: slots
                .min(cluster.partitions().saturating_mul(max))
                .min(wished.max(cluster.partitions())),
        };
        if slots < cluster.partitions() {
            let what = format!(
                "{slots} of {} nodes are fewer than the {} partitions: compact divides the nodes into \
                 `min` groups that each hold all; add slots, or take the scheme smooth",
                group.len(),
                cluster.partitions()
            );
            return Err(InputError::new("slots", what));
        }
        let replicas = replication_vector(&cluster.loads, group_bounds, objective)?;
        fill(
            cluster,
            &group,
            circle(cluster, &replicas, order),
            &mut held,
        );
    }
    Ok(Placement::new(held))
}

/// Divides the nodes into as many runs, of about equal slots, as a partition needs replicas.
fn divided(cluster: &PlacementProblem, nodes: &[usize]) -> Vec<Vec<usize>> {
    let groups = cluster.min;
    let mut parts: Vec<Vec<usize>> = vec![Vec::new(); groups];
    for (place, &node) in nodes.iter().enumerate() {
        parts[place * groups / nodes.len()].push(node);
    }
    parts
}

/// Returns one slot for each replica, with its load.
fn circle(cluster: &PlacementProblem, replicas: &[usize], order: Order) -> Vec<(u32, f64)> {
    let heat: Vec<f64> = cluster
        .loads
        .iter()
        .zip(replicas)
        .map(|(&load, &count)| per_replica(load, count))
        .collect();
    let mut ids: Vec<u32> = (0..replicas.len() as u32).collect();
    match order {
        Order::Number => {}
        Order::Shuffled(seed) => Random::new(seed).shuffle(&mut ids),
        Order::Heat | Order::Alternating => {
            ids.sort_by(|&a, &b| heat[b as usize].total_cmp(&heat[a as usize]));
        }
    }
    if matches!(order, Order::Alternating) {
        let (hot, cool) = ids.split_at(ids.len().div_ceil(2));
        let mut cool = cool.iter().rev();
        ids = hot
            .iter()
            .flat_map(|&hot| [Some(hot), cool.next().copied()])
            .flatten()
            .collect();
    }
    ids.into_iter()
        .flat_map(|id| std::iter::repeat_n((id, heat[id as usize]), replicas[id as usize]))
        .collect()
}

/// Gives each node its arc.
fn fill(
    cluster: &PlacementProblem,
    nodes: &[usize],
    mut circle: Vec<(u32, f64)>,
    held: &mut [Vec<u32>],
) {
    for (place, &node) in nodes.iter().enumerate() {
        let left = nodes.len() - place;
        let load: f64 = circle.iter().map(|slot| slot.1).sum();
        let after: usize = nodes[place + 1..]
            .iter()
            .map(|&node| cluster.max_partitions(node))
            .sum();
        // There are fewer replicas than slots: the nodes share the empty ones.
        let spare = (after + cluster.max_partitions(node)).saturating_sub(circle.len());
        let slots = cluster
            .max_partitions(node)
            .saturating_sub(spare / left)
            .min(circle.len());
        let arc = best_arc(&circle, slots, load / left as f64);
        circle.rotate_left(arc);
        held[node].extend(circle.drain(..slots).map(|slot| slot.0));
    }
}

/// Returns the start of the arc of `slots` slots whose load is nearest to `wanted`.
fn best_arc(circle: &[(u32, f64)], slots: usize, wanted: f64) -> usize {
    if slots == 0 || slots >= circle.len() {
        return 0;
    }
    let mut load: f64 = circle[..slots].iter().map(|slot| slot.1).sum();
    let mut best = (f64::INFINITY, 0);
    for begin in 0..circle.len() {
        let off = (load - wanted).abs();
        // Of arcs that are about as near, prefer the first that does not divide a partition in
        // front.
        let cuts = circle[begin].0 == circle[(begin + circle.len() - 1) % circle.len()].0;
        let score = if cuts { off + wanted * 1e-3 } else { off };
        if score < best.0 {
            best = (score, begin);
        }
        load += circle[(begin + slots) % circle.len()].1 - circle[begin].1;
    }
    best.1
}
