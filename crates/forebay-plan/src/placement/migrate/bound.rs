//! Computes a lower bound of what any migration ships.

use super::super::cluster::PlacementProblem;
use super::super::routing::{Cut, Routing};
use super::parts::{Part, parts};
use super::work::Work;

/// Returns the bytes (copies, if no sizes are given) that have to be shipped before all load can be
/// routed. The limits are those of the work's routing, whose minimum cut is `cut`.
///
/// Missing replicas have to be made in any case. Only the nodes of each connected part of the cut
/// have some partitions, and they cannot take all of the load of these. A copy of one of these
/// relieves the part by no more than a node may serve. All copies of it relieve the part by no more
/// than its load. The least is shipped by the copies that relieve most for each byte, up to a
/// fraction of the last one. Parts share no partition, so their needs add up. The relief by missing
/// replicas is subtracted first. The other nodes need room for what they receive. If they lack it
/// and cannot drop copies, they ship copies away.
pub fn least_shipped(work: &Work, cut: Option<&Cut>) -> u128 {
    let (cluster, routing) = (work.cluster, &work.routing);
    let missing = |id: u32| cluster.min.saturating_sub(work.holders[id as usize].len());
    let made: u128 = (0..cluster.partitions() as u32)
        .map(|id| u128::from(cluster.size(id)) * missing(id) as u128)
        .sum();
    let Some(cut) = cut else { return made };
    let mut bytes = 0;
    let mut copies = 0;
    for part in parts(routing, cut) {
        let moved_out = MovedOut::new(cluster, routing, &part, &missing);
        bytes += moved_out.least(&|size| size);
        copies += moved_out.least(&|_| 1);
    }
    made + bytes + displaced(work, cut, bytes, copies)
}

/// Returns what the nodes outside of the cut ship away at least, to take this much.
fn displaced(work: &Work, cut: &Cut, bytes: u128, copies: u128) -> u128 {
    let cluster = work.cluster;
    let mut room = (0u128, 0u128);
    for node in cluster.staying() {
        if cut.nodes.binary_search(&(node as u32)).is_err() {
            room.0 = room.0.saturating_add(work.bytes[node].max(0) as u128);
            room.1 += work.slots[node].max(0) as u128;
        }
    }
    for (id, holders) in work.holders.iter().enumerate() {
        let spare = holders.len().saturating_sub(cluster.min) as u128;
        room.0 = room
            .0
            .saturating_add(spare * u128::from(cluster.size(id as u32)));
        room.1 += spare;
    }
    let smallest = (0..cluster.partitions() as u32)
        .map(|id| cluster.size(id))
        .min();
    let smallest = u128::from(smallest.unwrap_or(0));
    let by_bytes = bytes.saturating_sub(room.0);
    by_bytes.max(copies.saturating_sub(room.1) * smallest)
}

/// The load that copies remove from one part, besides the replicas that are missing anyway.
struct MovedOut {
    excess: u64,
    /// The load that a copy removes, its bytes, and the number of such copies.
    copies: Vec<(u64, u64, u64)>,
}

impl MovedOut {
    fn new(
        cluster: &PlacementProblem,
        routing: &Routing,
        part: &Part,
        missing: &dyn Fn(u32) -> usize,
    ) -> Self {
        let limit = routing.limit().max(1);
        let mut excess = part.excess;
        let mut copies = Vec::new();
        for &id in &part.partitions {
            let load = routing.load(id);
            let made = limit.saturating_mul(missing(id) as u64).min(load);
            excess = excess.saturating_sub(made);
            let size = cluster.size(id);
            copies.push((limit, size, (load - made) / limit));
            copies.push(((load - made) % limit, size, 1));
        }
        copies.retain(|&(load, _, count)| load > 0 && count > 0);
        Self { excess, copies }
    }

    /// Returns the least sum of prices of the copies' bytes.
    fn least(&self, price: &dyn Fn(u64) -> u64) -> u128 {
        let mut copies = self.copies.clone();
        let each = |&(load, size, _): &(u64, u64, u64)| load as f64 / price(size).max(1) as f64;
        copies.sort_by(|a, b| each(b).total_cmp(&each(a)));
        let (mut excess, mut sum) = (self.excess, 0);
        for (load, size, count) in copies {
            let price = u128::from(price(size));
            let whole = (excess / load).min(count);
            sum += u128::from(whole) * price;
            excess -= whole * load;
            if whole < count {
                return sum + (u128::from(excess) * price).div_ceil(u128::from(load));
            }
        }
        sum
    }
}
