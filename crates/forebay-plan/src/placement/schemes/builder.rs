//! Fills nodes with copies: checks what fits, and makes room by exchanges.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::InputError;
use crate::placement::cluster::{Fate, PlacementProblem};
use crate::placement::layout::Placement;

/// A placement under construction. No partition is twice on a node. Its copies are spread over the
/// zones as evenly as these have nodes and room.
pub struct PlacementBuilder<'a> {
    cluster: &'a PlacementProblem,
    held: Vec<Vec<u32>>,
    pub holders: Vec<Vec<u32>>,
    slots: Vec<usize>,
    bytes: Vec<u64>,
    /// The weight on each node, as the scheme counts it.
    weights: Vec<f64>,
    /// The nodes with a free slot, the lightest first.
    open: BTreeSet<(Weight, u32)>,
    zone_sizes: Vec<usize>,
}

/// A weight of at least 0, ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u64);

impl Weight {
    fn new(weight: f64) -> Self {
        // The bits of non-negative numbers have the same order.
        Self(weight.max(0.0).to_bits())
    }
}

impl<'a> PlacementBuilder<'a> {
    pub fn new(cluster: &'a PlacementProblem) -> Self {
        let count = cluster.nodes.len();
        let mut zone_sizes = vec![0; cluster.zones.len()];
        if cluster.zoned() {
            for node in cluster.staying() {
                zone_sizes[cluster.nodes[node].zone] += 1;
            }
        }
        let slots: Vec<usize> = (0..count)
            .map(|node| cluster.max_partitions(node))
            .collect();
        let open = (0..count).filter(|&node| slots[node] > 0);
        Self {
            cluster,
            held: vec![Vec::new(); count],
            holders: vec![Vec::new(); cluster.partitions()],
            open: open.map(|node| (Weight::new(0.0), node as u32)).collect(),
            slots,
            bytes: cluster
                .nodes
                .iter()
                .map(|node| node.bytes.unwrap_or(u64::MAX))
                .collect(),
            weights: vec![0.0; count],
            zone_sizes,
        }
    }

    /// Places the replicas that every partition needs first if bytes limit the nodes. The largest
    /// come first, each on the node with most bytes left: optional replicas have to fit around
    /// them. Returns how many each partition has then.
    pub fn put_least(&mut self, weights: &[f64]) -> Result<usize, InputError> {
        if self.cluster.nodes.iter().all(|node| node.bytes.is_none()) {
            return Ok(0);
        }
        let mut order: Vec<u32> = (0..weights.len() as u32).collect();
        order.sort_by_key(|&partition| Reverse(self.cluster.size(partition)));
        for partition in order {
            for _ in 0..self.cluster.min {
                let takes = self.lightest().filter(|&node| self.takes(node, partition));
                match takes.max_by_key(|&node| (self.bytes[node as usize], Reverse(node))) {
                    Some(node) => self.put(node, partition, weights[partition as usize]),
                    None => self.put_somehow(partition, weights)?,
                }
            }
        }
        Ok(self.cluster.min)
    }

    /// Places a copy that fits nowhere: by an exchange, or in a zone that has enough of the
    /// partition. Omits it if the partition does not need it.
    pub fn put_somehow(&mut self, partition: u32, weights: &[f64]) -> Result<(), InputError> {
        if self.put_by_exchange(partition, weights) {
            return Ok(());
        }
        let zones = std::mem::take(&mut self.zone_sizes);
        let node = self.lightest().find(|&node| self.takes(node, partition));
        let result = match node {
            Some(node) => {
                self.put(node, partition, weights[partition as usize]);
                Ok(())
            }
            None if self.put_by_exchange(partition, weights) => Ok(()),
            None => self.give_up(partition),
        };
        self.zone_sizes = zones;
        result
    }

    /// Returns the nodes with a free slot, lightest first.
    pub fn lightest(&self) -> impl Iterator<Item = u32> + '_ {
        self.open.iter().map(|&(_, node)| node)
    }

    pub fn weight(&self, node: u32) -> f64 {
        self.weights[node as usize]
    }

    pub fn held(&self, node: u32) -> &[u32] {
        &self.held[node as usize]
    }

    /// Returns whether one more copy of the partition fits on the node and is allowed there.
    pub fn takes(&self, node: u32, partition: u32) -> bool {
        self.slots[node as usize] > 0
            && self.bytes[node as usize] >= self.cluster.size(partition)
            && self.is_right(node, partition)
    }

    /// Returns whether a copy of the partition may be on the node, beside its present copies.
    fn is_right(&self, node: u32, partition: u32) -> bool {
        let holders = &self.holders[partition as usize];
        self.cluster.nodes[node as usize].fate == Fate::Stays
            && !holders.contains(&node)
            && self.zone_is_right(node, holders)
    }

    /// Returns whether no zone that could take a copy has fewer copies than the node's zone.
    fn zone_is_right(&self, node: u32, holders: &[u32]) -> bool {
        if self.zone_sizes.is_empty() || holders.is_empty() {
            return true;
        }
        let mut counts = vec![0; self.zone_sizes.len()];
        for &holder in holders {
            counts[self.zone(holder)] += 1;
        }
        let here = counts[self.zone(node)];
        let fewer = |(&count, &size): (&usize, &usize)| count < here && count < size;
        !counts.iter().zip(&self.zone_sizes).any(fewer)
    }

    fn zone(&self, node: u32) -> usize {
        self.cluster.nodes[node as usize].zone
    }

    pub fn put(&mut self, node: u32, partition: u32, weight: f64) {
        self.reweigh(node, |seats| {
            seats.slots[node as usize] -= 1;
            seats.bytes[node as usize] -= seats.cluster.size(partition);
            seats.weights[node as usize] += weight;
        });
        self.held[node as usize].push(partition);
        self.holders[partition as usize].push(node);
    }

    pub fn take(&mut self, node: u32, partition: u32, weight: f64) {
        self.reweigh(node, |seats| {
            seats.slots[node as usize] += 1;
            seats.bytes[node as usize] += seats.cluster.size(partition);
            seats.weights[node as usize] -= weight;
        });
        self.held[node as usize].retain(|&id| id != partition);
        self.holders[partition as usize].retain(|&holder| holder != node);
    }

    fn reweigh(&mut self, node: u32, change: impl FnOnce(&mut Self)) {
        self.open
            .remove(&(Weight::new(self.weights[node as usize]), node));
        change(self);
        if self.slots[node as usize] > 0 {
            self.open
                .insert((Weight::new(self.weights[node as usize]), node));
        }
    }

    /// Places a copy that fits nowhere in place of another one that fits elsewhere.
    fn put_by_exchange(&mut self, partition: u32, weights: &[f64]) -> bool {
        let free: Vec<u32> = self.lightest().collect();
        let mut nodes: Vec<u32> = (0..self.held.len() as u32).collect();
        nodes.sort_by(|&a, &b| self.weight(a).total_cmp(&self.weight(b)));
        for &node in &nodes {
            if !self.is_right(node, partition) {
                continue;
            }
            for other in self.held[node as usize].clone() {
                let weight = weights[other as usize];
                self.take(node, other, weight);
                let fits = self.takes(node, partition);
                let to = free
                    .iter()
                    .copied()
                    .find(|&to| to != node && self.takes(to, other));
                match to {
                    Some(to) if fits => {
                        self.put(to, other, weight);
                        self.put(node, partition, weights[partition as usize]);
                        return true;
                    }
                    _ => self.put(node, other, weight),
                }
            }
        }
        false
    }

    /// Returns whether two nodes may exchange one copy each.
    pub fn exchangeable(&mut self, (a, on_a): (u32, u32), (b, on_b): (u32, u32)) -> bool {
        if on_a == on_b || self.is_held(a, on_b) || self.is_held(b, on_a) {
            return false;
        }
        let (size_a, size_b) = (self.cluster.size(on_a), self.cluster.size(on_b));
        let room =
            |node: u32, out: u64, into: u64| self.bytes[node as usize].saturating_add(out) >= into;
        if !room(a, size_a, size_b) || !room(b, size_b, size_a) {
            return false;
        }
        if self.zone_sizes.is_empty() || self.zone(a) == self.zone(b) {
            return true;
        }
        let zone_is_right = |to: u32, from: u32, partition: u32| {
            let holders = self.holders[partition as usize].iter().copied();
            let others: Vec<u32> = holders.filter(|&holder| holder != from).collect();
            self.zone_is_right(to, &others)
        };
        zone_is_right(b, a, on_a) && zone_is_right(a, b, on_b)
    }

    fn is_held(&self, node: u32, partition: u32) -> bool {
        self.holders[partition as usize].contains(&node)
    }

    pub fn exchange(&mut self, (a, on_a): (u32, u32), (b, on_b): (u32, u32), weights: &[f64]) {
        let (weight_a, weight_b) = (weights[on_a as usize], weights[on_b as usize]);
        self.take(a, on_a, weight_a);
        self.take(b, on_b, weight_b);
        self.put(b, on_a, weight_a);
        self.put(a, on_b, weight_b);
    }

    /// Omits a copy for which there was no room, or returns an error if the partition needs it.
    fn give_up(&self, partition: u32) -> Result<(), InputError> {
        let has = self.holders[partition as usize].len();
        if has >= self.cluster.min {
            return Ok(());
        }
        let what = format!(
            "no room is left for replica {} of partition {partition}, on a node of its own; add nodes, \
             slots or bytes",
            has + 1
        );
        let path = if self.cluster.nodes.iter().any(|node| node.bytes.is_some()) {
            "node_bytes"
        } else {
            "slots"
        };
        Err(InputError::new(path, what))
    }

    pub fn into_placement(self) -> Placement {
        Placement::new(self.held)
    }
}
