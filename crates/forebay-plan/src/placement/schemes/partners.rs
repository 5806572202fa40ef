//! Places the copies of a partition on nodes that share few other partitions.
//!
//! If one of them is short of room, or fails, its load moves to many other nodes.

use std::collections::HashMap;

use super::builder::PlacementBuilder;

/// The number of light nodes that are compared for a copy.
const CANDIDATES: usize = 32;
/// Partners of a partition with more replicas than this are not counted: it is nearly everywhere.
const FEW_REPLICAS: usize = 8;

/// The number of partitions that each pair of nodes shares.
#[derive(Debug, Default)]
pub struct Partners {
    shared: HashMap<(u32, u32), u32>,
}

impl Partners {
    /// Places a copy on the light node that shares least with its present nodes. Lighter ones win
    /// ties, and nodes more than `slack` above the lightest are left out. Returns `false` if no
    /// node takes it.
    pub fn put(
        &mut self,
        seats: &mut PlacementBuilder<'_>,
        partition: u32,
        replicas: usize,
        weight: f64,
        slack: f64,
    ) -> bool {
        let holders = &seats.holders[partition as usize];
        let mut takes = seats
            .lightest()
            .filter(|&node| seats.takes(node, partition))
            .peekable();
        let Some(&lightest) = takes.peek() else {
            return false;
        };
        let limit = seats.weight(lightest) + slack;
        let candidates = takes
            .take(CANDIDATES)
            .take_while(|&node| seats.weight(node) <= limit);
        let few = replicas <= FEW_REPLICAS;
        let met = |node: u32| -> u32 {
            let shared = holders
                .iter()
                .map(|&holder| self.shared.get(&pair(holder, node)));
            if few { shared.flatten().sum() } else { 0 }
        };
        let best = candidates.min_by_key(|&node| met(node)).unwrap_or(lightest);
        if few {
            for &holder in holders {
                *self.shared.entry(pair(holder, best)).or_insert(0) += 1;
            }
        }
        seats.put(best, partition, weight);
        true
    }
}

fn pair(a: u32, b: u32) -> (u32, u32) {
    (a.min(b), a.max(b))
}
