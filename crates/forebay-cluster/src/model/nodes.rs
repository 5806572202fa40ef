//! The nodes of a cluster, as the catalog describes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{HostPort, NodeId, NodeName, Zone};

/// The number of nodes in one document.
const PAGE_NODES: u32 = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodesPage {
    pub nodes: BTreeMap<NodeId, NodeEntry>,
}

/// The catalog's entry for a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    pub id: NodeId,
    pub name: NodeName,
    pub zone: Zone,
    /// A random number that is new with every start of the node's process.
    pub incarnation: u64,
    pub state: NodeState,
    /// The end of a pause that an operator set. Until then the node does not count as lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_until_unix_ms: Option<u64>,
    /// The address for clients.
    pub listen: HostPort,
    /// One port on the same host for each slot class of which the node is the primary. If it is
    /// empty, there is only `listen`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_ports: Vec<u16>,
    /// The address for other nodes.
    pub peer: HostPort,
    /// The HTTP address, for status queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HostPort>,
    /// How long the node serves after it last read the catalog. `None`: without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_off_ms: Option<u64>,
    /// The oldest and the newest catalog format that its program supports.
    pub formats: [u64; 2],
    /// The version of its program, for people.
    pub program: String,
    /// The checksum of the certificate that it shows to other nodes, in hex. `None`: it uses none,
    /// on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Whether a node takes part in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// The node sends heartbeats.
    Up,
    /// The node's lease expired at this time.
    Down { since_unix_ms: u64 },
    /// The node was stopped in order at this time, and is expected back.
    Left { since_unix_ms: u64 },
}

impl NodeEntry {
    pub fn is_up(&self) -> bool {
        self.state == NodeState::Up
    }
}

/// Returns the page of a node.
pub(super) fn page_of(id: NodeId) -> u32 {
    id.0 / PAGE_NODES
}
