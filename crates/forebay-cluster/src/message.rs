//! What nodes tell each other.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::TableName;
use forebay_replica::GroupId;
use serde::{Deserialize, Serialize};

use crate::ids::{ClusterId, HostPort, NodeId, NodeName, Zone};
use crate::model::{Head, Proof, RolloutId};
use crate::reads::ReadsReport;
use crate::reports::GroupReport;

/// A node's heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    pub cluster: ClusterId,
    pub who: Introduction,
    /// Rises with each heartbeat, and with each start of the process as far as the node's clock
    /// does.
    pub seq: u64,
    /// The revision that the node knows.
    pub revision: u64,
    /// The revision whose tables it serves: all that it names is open, and answers.
    pub serves: u64,
    /// The revision all of whose ranges it holds.
    pub holds: u64,
    pub rollouts: BTreeMap<RolloutId, Readiness>,
    /// How far it is with what it is to hold; `None`: all of that is there.
    #[serde(default)]
    pub moving: Option<Readiness>,
    /// It is about to stop.
    pub leaving: bool,
    pub free_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_bytes_per_s: Option<u64>,
    /// What is wrong there, for people.
    pub problems: Vec<String>,
    /// Whom it knows to be suspected.
    pub suspects: BTreeSet<NodeId>,
    /// What changed of the groups whose replicas are here, and in turn what did not: so many at
    /// most ([`MOST_REPORTS`](crate::reporting::MOST_REPORTS)).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// How many more have changed.
    #[serde(default)]
    pub groups_left: usize,
    /// The same of how much batch tables are read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadsReport>,
    /// Up to where it knows which nodes lead.
    #[serde(default)]
    pub leaders_known: LeadersMark,
}

/// What a node tells of its disk, and of how fast things come there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeRoom {
    pub free_bytes: Option<u64>,
    /// Bytes a second, lately, while something was brought.
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

/// Up to where a node knows who leads: the coordinator's term, and a number of its.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeadersMark {
    pub term: u64,
    pub number: u64,
}

/// Nodes whose replicas lead.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LeadersReport {
    pub mark: LeadersMark,
    pub leaders: Vec<(GroupId, NodeId)>,
}

/// How a node comes to be known, or known again.
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

/// How far a node is with a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// So many bytes of so many are here.
    Fetching { done_bytes: u64, total_bytes: u64 },
    /// All versions are here, verified and open.
    Ready { proofs: BTreeMap<TableName, Proof> },
    /// It cannot be; the words say why.
    Failed { problem: String },
}

/// The coordinator's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeatReply {
    /// The node is known under this number. The head is told when it is newer than the node's.
    Known {
        node: NodeId,
        term: u64,
        head: Option<Box<Head>>,
        suspects: BTreeSet<NodeId>,
        /// Who leads, as far as that is news.
        #[serde(default)]
        leaders: LeadersReport,
    },
    /// Ask the coordinator instead, where that is known.
    NotCoordinator { coordinator: Option<HostPort> },
    /// It cannot be a node of this cluster; the words say why.
    Refused { problem: String },
}
