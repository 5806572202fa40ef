//! Migrates from the current placement to a good enough one, and ships as little data as possible.
//!
//! A migration has to carry a wanted share of the best possible capacity. Added, drained and lost
//! nodes are the same task. A new node is an empty one; the others hold nothing that counts.
//!
//! 1. Partitions with too few replicas on the nodes that stay get them (`repair`).
//! 2. The load is routed with every node limited to what the wanted share allows. While load
//!    remains, the minimum cut names the full nodes that alone have it. The partitions that relieve
//!    them most for their bytes are copied to nodes with room, or moved there if they may not have
//!    another replica. A full node drops spare copies. If it has none, a small cold copy of it
//!    moves on, or back in exchange (`spread`, `exchange`, `work`).
//! 3. Copies that turn out not to be needed are taken back (`take_back`).
//! 4. Placements made from nothing (`balanced`, `smooth`) are candidates, too, with their nodes
//!    relabelled to match the current ones best: no plan ships more than they do. In clusters with
//!    many copies, they are made only if the first three steps do not get far enough.
//! 5. The copies and drops of the best candidate get an order that keeps slots, bytes, replicas and
//!    capacity at every step (`order`).

mod bound;
mod exchange;
mod order;
mod parts;
mod relabel;
mod repair;
mod spread;
mod steps;
mod take_back;
mod targets;
mod work;

use super::cluster::PlacementProblem;
use super::layout::Placement;
use super::measure;
use super::replicas::Objective;
use super::schemes::{self, Scheme};
use crate::InputError;

use bound::least_shipped;
pub use order::{ExceededLimit, Transfer, TransferOrder, in_order};
pub use relabel::relabel;
pub use steps::{partition_map, plan};
use targets::Fit;
use work::Work;

/// Up to this many copies in the current placement, more variants are tried.
const FEW_COPIES: usize = 10_000;

/// The result of a migration.
#[derive(Debug, Clone)]
pub struct Migration {
    pub placement: Placement,
    /// The copies and drops in an order in which they can be done.
    pub order: TransferOrder,
    pub capacity: f64,
    /// The bytes shipped, or the copies if no sizes are given.
    pub shipped: u128,
    /// No migration that reaches the capacity ships less.
    pub least_shipped: u128,
    /// The best capacity that is known to be possible.
    pub best: f64,
    /// Whether the capacity is the wanted share of the best.
    pub reached: bool,
}

/// Returns the migration that ships least among those that reach `share` of the best capacity.
pub fn migrate(
    cluster: &PlacementProblem,
    share: f64,
    objective: Objective,
) -> Result<Migration, InputError> {
    let current = check(cluster, share)?;
    let bound = capacity_bound(cluster);
    let mut candidates = gradual(cluster, share * bound, bound)?;
    let reached = |candidate: &MoveCandidate, best: f64| candidate.capacity >= share * best - 1e-9;
    let done = |candidates: &[MoveCandidate]| candidates.iter().any(|it| reached(it, bound));
    if copies(current) <= FEW_COPIES || !done(&candidates) {
        candidates.extend(from_nothing(cluster, current, objective));
    }
    let mut best = bound;
    if !done(&candidates) {
        // The bound ignores slots: use the best that was found instead.
        let found = candidates.iter().map(|candidate| candidate.capacity);
        best = found.fold(0.0, f64::max);
        candidates.extend(gradual(cluster, share * best, best)?);
    }
    candidates.retain(|candidate| reached(candidate, best));
    let (chosen, order) = cheapest(cluster, candidates)?;
    Ok(Migration {
        placement: chosen.placement,
        shipped: order.shipped(cluster),
        order,
        capacity: chosen.capacity,
        least_shipped: least_to_reach(cluster, share * best),
        best,
        reached: chosen.capacity >= share * bound - 1e-9,
    })
}

/// Returns the amount that every migration to this capacity ships at least.
fn least_to_reach(cluster: &PlacementProblem, wanted: f64) -> u128 {
    let mut work = Work::new(cluster, wanted, Fit::Roomiest);
    let cut = work.routing.route();
    least_shipped(&work, cut.as_ref())
}

/// Returns the candidate that ships least, with what its order ships on the way.
fn cheapest(
    cluster: &PlacementProblem,
    mut candidates: Vec<MoveCandidate>,
) -> Result<(MoveCandidate, TransferOrder), InputError> {
    candidates.sort_by_key(|candidate| candidate.bytes);
    let mut chosen: Option<(MoveCandidate, TransferOrder)> = None;
    let mut refused = InputError::new("current", "no placement was found that serves the load");
    for candidate in candidates {
        let least = chosen.as_ref().map(|(_, order)| order.shipped(cluster));
        if least.is_some_and(|least| candidate.bytes >= least) {
            break;
        }
        match in_order(cluster, &candidate.placement) {
            Ok(order) if least.is_none_or(|least| order.shipped(cluster) < least) => {
                chosen = Some((candidate, order));
            }
            Ok(_) => {}
            Err(error) => refused = error,
        }
    }
    chosen.ok_or(refused)
}

/// Returns placements made from nothing, with their nodes matched to the current ones.
fn from_nothing(
    cluster: &PlacementProblem,
    current: &Placement,
    objective: Objective,
) -> Vec<MoveCandidate> {
    // Room that is too tight to be filled from nothing may be enough for the current copies.
    [Scheme::Balanced, Scheme::Smooth]
        .into_iter()
        .filter_map(|scheme| schemes::place(cluster, scheme, objective).ok())
        .map(|placement| MoveCandidate::new(cluster, relabel(cluster, current, placement)))
        .collect()
}

fn copies(current: &Placement) -> usize {
    current.nodes().iter().map(Vec::len).sum()
}

/// Returns the bytes of the copies that `placement` has and the current one does not; a copy counts
/// 1 if no sizes are given. The second number counts copies.
pub fn shipped(cluster: &PlacementProblem, placement: &Placement) -> (u128, usize) {
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

/// Returns an upper bound of the capacity: a partition's load can be divided among as many nodes as
/// it may have replicas.
fn capacity_bound(cluster: &PlacementProblem) -> f64 {
    let nodes = cluster.staying().len() as f64;
    let replicas = (cluster.max as f64).min(nodes);
    let mean = cluster.loads.iter().sum::<f64>() / nodes;
    let hottest = cluster.loads.iter().copied().fold(0.0, f64::max) / replicas;
    if hottest > mean { mean / hottest } else { 1.0 }
}

fn check(cluster: &PlacementProblem, share: f64) -> Result<&Placement, InputError> {
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
        let what = "missing; a migration starts from what each node has";
        return Err(InputError::new("current", what));
    };
    Ok(current)
}

struct MoveCandidate {
    placement: Placement,
    capacity: f64,
    bytes: u128,
}

impl MoveCandidate {
    fn new(cluster: &PlacementProblem, placement: Placement) -> Self {
        let (bytes, _) = shipped(cluster, &placement);
        let capacity = measure::capacity(cluster, &placement, &cluster.loads);
        Self {
            placement,
            capacity,
            bytes,
        }
    }
}

/// Makes candidates step by step from the current placement, in a few variants. They aim at the
/// wanted capacity or a little more. They choose the roomiest nodes or those that just have room.
/// They may count on nodes to pass load on.
fn gradual(
    cluster: &PlacementProblem,
    wanted: f64,
    best: f64,
) -> Result<Vec<MoveCandidate>, InputError> {
    let mut candidates = Vec::new();
    let few = cluster.current.as_ref().map_or(0, copies) <= FEW_COPIES;
    let more = [wanted.midpoint(best), best];
    let more = if few { &more[..] } else { &[] };
    let fits = [Fit::Tightest, Fit::Roomiest];
    let fits = if few { &fits[..] } else { &fits[..1] };
    for &aim in [wanted].iter().chain(more) {
        for &fit in fits {
            for &hopes in if few { &[true, false][..] } else { &[false] } {
                let mut work = Work::new(cluster, aim, fit);
                work.repair()?;
                work.spread(hopes);
                work.take_back(wanted);
                candidates.push(MoveCandidate::new(cluster, work.into_placement()));
            }
        }
    }
    Ok(candidates)
}
