//! The nodes of a cluster.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{HostPort, NodeId, NodeName, Zone};

/// How many nodes are written together.
const PAGE_NODES: u32 = 256;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodesPage {
    pub nodes: BTreeMap<NodeId, NodeEntry>,
}

/// A node as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeEntry {
    pub id: NodeId,
    pub name: NodeName,
    pub zone: Zone,
    /// Random, new with every start of its process.
    pub incarnation: u64,
    pub state: NodeState,
    /// An operator works on it until then: it is not taken for lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused_until_unix_ms: Option<u64>,
    /// Where clients reach it.
    pub listen: HostPort,
    /// On the same host, a port for each class that it heads; empty: `listen` is all there is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub class_ports: Vec<u16>,
    /// Where other nodes reach it.
    pub peer: HostPort,
    /// Where its HTTP is, for who asks for news.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HostPort>,
    /// It stops serving so long after it last heard of the catalog; none: it serves on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_off_ms: Option<u64>,
    /// The formats of catalogs that its program speaks, from the oldest to the newest.
    pub formats: [u64; 2],
    /// Its program's version, for people.
    pub program: String,
    /// The checksum of the certificate that it shows to other nodes, as hex; none on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// Whether a node takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It sends heartbeats.
    Up,
    /// Its lease ran out, at that time.
    Down { since_unix_ms: u64 },
    /// It was stopped in order, and is expected back.
    Left { since_unix_ms: u64 },
}

impl NodeEntry {
    pub fn is_up(&self) -> bool {
        self.state == NodeState::Up
    }
}

/// The page of a node.
pub(super) fn page_of(id: NodeId) -> u32 {
    id.0 / PAGE_NODES
}
