//! The placement of partitions on nodes.

use serde::{Deserialize, Serialize};

/// The partitions of every node. A partition may be on a node more than once (a stacked slot). It
/// then has that many of the node's slots, and still one copy of the data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Placement {
    /// Sorted by partition.
    nodes: Vec<Vec<u32>>,
}

impl Placement {
    pub fn new(mut nodes: Vec<Vec<u32>>) -> Self {
        for node in &mut nodes {
            node.sort_unstable();
        }
        Self { nodes }
    }

    pub fn empty(nodes: usize) -> Self {
        Self {
            nodes: vec![Vec::new(); nodes],
        }
    }

    pub fn nodes(&self) -> &[Vec<u32>] {
        &self.nodes
    }

    /// Returns the slots of one node.
    pub fn on(&self, node: usize) -> &[u32] {
        &self.nodes[node]
    }

    /// Returns the partitions of one node, each once.
    pub fn distinct(&self, node: usize) -> impl Iterator<Item = u32> + '_ {
        let slots = &self.nodes[node];
        let first = move |&(place, id): &(usize, &u32)| place == 0 || slots[place - 1] != *id;
        slots.iter().enumerate().filter(first).map(|(_, &id)| id)
    }

    pub fn holds(&self, node: usize, partition: u32) -> bool {
        self.nodes[node].binary_search(&partition).is_ok()
    }

    pub fn add(&mut self, node: usize, partition: u32) {
        let slots = &mut self.nodes[node];
        let place = slots.partition_point(|&id| id < partition);
        slots.insert(place, partition);
    }

    /// Removes one slot of a partition, if it has one on the node.
    pub fn remove(&mut self, node: usize, partition: u32) {
        if let Ok(place) = self.nodes[node].binary_search(&partition) {
            self.nodes[node].remove(place);
        }
    }

    /// Returns the number of slots of each partition, over all nodes.
    pub fn replicas(&self, partitions: usize) -> Vec<usize> {
        let mut replicas = vec![0; partitions];
        for &partition in self.nodes.iter().flatten() {
            replicas[partition as usize] += 1;
        }
        replicas
    }

    /// Returns the nodes that have each partition, each once, in ascending order.
    pub fn holders(&self, partitions: usize) -> Vec<Vec<u32>> {
        let mut holders = vec![Vec::new(); partitions];
        for node in 0..self.nodes.len() {
            for partition in self.distinct(node) {
                holders[partition as usize].push(node as u32);
            }
        }
        holders
    }
}
