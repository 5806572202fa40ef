//! What any migration has to ship at least.

use super::super::cluster::Cluster;
use super::super::routing::{Cut, Routing};
use super::parts::{Part, parts};
use super::work::Work;

/// Bytes (copies, where no sizes are given) that have to be shipped before all load can be routed
/// within the limits of the work's routing, whose minimum cut is `cut`.
///
/// Missing replicas have to be made in any case. Each connected part of the cut holds some
/// partitions alone, and its nodes cannot take all of their load. A copy of one of these brings out
/// no more than a node may serve, and all copies of it no more than its load: the least is shipped
/// by those copies that bring out most a byte, up to a fraction of the last one. Parts share no
/// partition, so that what they need adds up; what missing replicas bring out is taken off first.
/// What comes to the other nodes needs room there: what they have not, nor can give up, is shipped
/// away from them.
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

/// What the nodes outside of the cut ship away at least, to take so much.
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

/// What copies bring out of one part, beside the replicas that are missing anyway.
struct MovedOut {
    excess: u64,
    /// Load that a copy brings out, its bytes, and how many such copies there are.
    copies: Vec<(u64, u64, u64)>,
}

impl MovedOut {
    fn new(
        cluster: &Cluster,
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

    /// The least sum of prices, of those that a copy's bytes ask for.
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
