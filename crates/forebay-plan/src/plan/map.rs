//! The map of partitions to nodes that a plan starts from and changes.

use serde::{Deserialize, Serialize};

use crate::Key;

/// A node in a plan: whether it is alive, and its limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Replicas on a node that is not alive serve no reads and cannot be copied from.
    #[serde(default = "yes")]
    pub alive: bool,
    /// The bytes a second that it can send, and as many that it can receive at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// The most transfers that it takes part in at once, in and out together.
    #[serde(default = "one")]
    pub max_transfers: u32,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

impl Default for Node {
    fn default() -> Self {
        Self {
            alive: true,
            bytes_per_second: None,
            max_transfers: 1,
        }
    }
}

/// One partition: its range, its size and its replicas.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Partition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// The least key; none if the partition begins with its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Key>,
    /// The first key above; none if the partition ends with its table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Key>,
    #[serde(default)]
    pub records: f64,
    #[serde(default)]
    pub bytes: f64,
    /// The nodes that have it, each once, the primary first. The order of the others has no
    /// meaning.
    pub replicas: Vec<u32>,
}

/// All partitions by their number, and the nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartitionMap {
    pub nodes: Vec<Node>,
    pub partitions: Vec<Partition>,
    /// The live replicas that a partition keeps at every moment. A partition that starts with fewer
    /// keeps as many as it has.
    #[serde(default = "one")]
    pub min_live: u32,
}

impl PartitionMap {
    /// Returns the number of live replicas of a partition.
    pub fn live(&self, partition: u32) -> usize {
        let replicas = self.partitions.get(partition as usize);
        replicas.map_or(0, |partition| {
            let alive = |node: &&u32| self.nodes.get(**node as usize).is_some_and(|n| n.alive);
            partition.replicas.iter().filter(alive).count()
        })
    }
}
