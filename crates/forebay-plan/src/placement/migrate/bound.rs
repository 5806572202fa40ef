//! What any migration has to ship at least.

use super::super::cluster::Cluster;
use super::super::routing::{Cut, Routing};

/// Bytes (copies, where no sizes are given) that have to be shipped before all load can be routed
/// within the limits of `routing`, whose minimum cut is `cut`.
///
/// The cut's nodes hold some partitions alone, and cannot take `excess` of their load. A partition
/// brings out no more than its load, and only after it was copied: the least is shipped by those
/// that bring out most a byte, up to a fraction of the last one. Whatever else is needed, missing
/// replicas have to be made too; the larger of the two is the bound.
pub fn least_shipped(cluster: &Cluster, routing: &Routing, cut: Option<&Cut>) -> u128 {
    let missing = (0..cluster.partitions() as u32).map(|id| {
        let count = cluster.min.saturating_sub(routing.holders(id).count());
        u128::from(cluster.size(id)) * count as u128
    });
    let missing = missing.sum::<u128>();
    missing.max(cut.map_or(0, |cut| least_out(cluster, routing, cut)))
}

fn least_out(cluster: &Cluster, routing: &Routing, cut: &Cut) -> u128 {
    let mut excess = cut.excess;
    let mut held: Vec<u32> = cut.partitions.clone();
    let each = |id: u32| routing.load(id) as f64 / cluster.size(id).max(1) as f64;
    held.sort_by(|&a, &b| each(b).total_cmp(&each(a)));
    let mut shipped = 0u128;
    for id in held {
        let (load, size) = (routing.load(id), u128::from(cluster.size(id)));
        if load >= excess {
            let part = u128::from(excess) * size;
            return shipped + part.div_ceil(u128::from(load.max(1)));
        }
        excess -= load;
        shipped += size;
    }
    shipped
}
