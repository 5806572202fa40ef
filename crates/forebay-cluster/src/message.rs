//! Messages between nodes.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use forebay_replica::GroupId;
use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, HostPort, NodeId, NodeName, Zone};
use crate::measures::reads::ReadsReport;
use crate::measures::reports::GroupReport;
use crate::model::{Head, Proof, RolloutId};

/// A node's heartbeat report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    pub cluster: ClusterId,
    pub who: Introduction,
    /// Increases with each heartbeat, and with each start of the process as far as the node's clock
    /// does.
    pub seq: u64,
    /// The revision that the node knows.
    pub revision: u64,
    /// The revision whose tables the node serves: all versions that it names are open, and answer.
    pub serves: u64,
    /// The revision all of whose ranges the node holds.
    pub holds: u64,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
    /// The node's progress in fetching the data that it has to hold; `None` if it has all of it.
    #[serde(default)]
    pub moving: Option<Readiness>,
    /// The node is about to stop.
    pub leaving: bool,
    pub free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_bytes_per_s: Option<u64>,
    /// Problems of the node, for people.
    pub problems: Vec<String>,
    /// The nodes that it knows to be suspected.
    pub suspects: BTreeSet<NodeId>,
    /// Changed reports of the groups with replicas on this node, and unchanged ones in turn; at
    /// most [`MOST_REPORTS`](crate::measures::reporting::MOST_REPORTS).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// The number of further groups whose reports have changed.
    #[serde(default)]
    pub groups_left: usize,
    /// The same for the reads of batch tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadsReport>,
    /// The point up to which the node knows the leaders.
    #[serde(default)]
    pub leaders_known: LeadersMark,
}

/// The free disk space of a node, and the speed at which it fetches data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeRoom {
    pub free_bytes: Option<u64>,
    /// The recent rate in bytes per second, while the node fetched something.
    pub fetched_bytes_per_s: Option<u64>,
}

impl Beat {
    pub fn room(&self) -> NodeRoom {
        NodeRoom {
            free_bytes: self.free_bytes,
            fetched_bytes_per_s: self.fetched_bytes_per_s,
        }
    }
}

/// The point up to which a node knows the leaders: the coordinator's term, and a number that it
/// assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeadersMark {
    pub term: u64,
    pub number: u64,
}

/// Groups and the nodes whose replicas lead them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeadersReport {
    pub mark: LeadersMark,
    pub leaders: Vec<(GroupId, NodeId)>,
}

/// A node's request to be known, or known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Introduction {
    pub name: NodeName,
    pub zone: Zone,
    pub incarnation: u64,
    pub listen: HostPort,
    pub class_ports: Vec<u16>,
    pub peer: HostPort,
    pub http: Option<HostPort>,
    pub cut_off_ms: Option<u64>,
    pub formats: [u64; 2],
    pub program: String,
    pub key: Option<String>,
}

/// A node's progress in a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// `done_bytes` of `total_bytes` are on the node.
    Fetching { done_bytes: u64, total_bytes: u64 },
    /// All versions are on the node, verified and open.
    Ready { proofs: BTreeMap<TableName, Proof> },
    /// The node cannot become ready; the text says why.
    Failed { problem: String },
}

/// The coordinator's answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeatReply {
    /// The node is known under this number. The answer has the head if that is newer than the
    /// node's.
    Known {
        node: NodeId,
        term: u64,
        head: Option<Box<Head>>,
        suspects: BTreeSet<NodeId>,
        /// Leaders that the node does not know yet.
        #[serde(default)]
        leaders: LeadersReport,
    },
    /// The node has to ask the coordinator instead, if that is known.
    NotCoordinator { coordinator: Option<HostPort> },
    /// The sender cannot be a node of this cluster; the text says why.
    Refused { problem: String },
}
