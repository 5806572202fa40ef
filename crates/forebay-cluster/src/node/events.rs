//! Events that a follower receives, and actions that it requests.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bounds, TableName};

use super::copies::{Prepare, VersionPlace};
use crate::ids::{HostPort, NodeId};
use crate::measures::reads::ReadsReport;
use crate::measures::reports::GroupReport;
use crate::message::{Beat, BeatReply, NodeRoom};
use crate::model::{Head, Model, Proof};
use crate::routing::live::ReplicaOrders;

/// An event for a follower.
#[derive(Debug, Clone)]
pub enum FollowerEvent {
    Tick,
    Reply {
        seq: u64,
        reply: Box<BeatReply>,
    },
    /// A heartbeat was not answered.
    Lost {
        seq: u64,
    },
    /// The coordinator's address.
    Coordinator(HostPort),
    /// A head, and its model. `remembered`: this node knew it before it stopped.
    Loaded {
        head: Box<Head>,
        model: Box<Model>,
        remembered: bool,
    },
    NotLoaded,
    /// The head in the catalog.
    Head(Box<Head>),
    /// A head that another node knows.
    HeadReported(Box<Head>),
    /// The catalog answers, and has no readable head.
    NoCatalog(String),
    /// The catalog does not answer.
    NoHead,
    Advanced {
        place: VersionPlace,
        done_bytes: u64,
        total_bytes: u64,
    },
    Came {
        place: VersionPlace,
        ranges: Vec<Bounds>,
        proof: Proof,
    },
    Failed {
        place: VersionPlace,
        ranges: Vec<Bounds>,
        problem: String,
    },
    /// The activation is complete, except for these tables.
    Activated {
        revision: u64,
        problems: BTreeMap<TableName, String>,
    },
    Suspect(NodeId),
    Trust(NodeId),
    /// The free space, and the rate of fetching.
    Room(NodeRoom),
    /// The current reads of batch tables on this node.
    Reads(Vec<ReadsReport>),
    /// The current state of all local replicas of live tables.
    Replicas {
        reports: Vec<GroupReport>,
        /// Why tables are not in their ordered state.
        troubles: Vec<String>,
    },
    /// The node has to stop.
    Leave,
}

/// The versions that a node has to serve by a head, and the tables that it has to drop.
#[derive(Debug, Clone, PartialEq)]
pub struct Activation {
    pub revision: u64,
    pub tables: BTreeMap<TableName, Serve>,
    /// Tables that no longer exist or are no longer batch tables: their local versions are removed.
    pub dropped: BTreeSet<TableName>,
}

/// An action for the shell to carry out.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowerAction {
    Beat {
        to: HostPort,
        beat: Box<Beat>,
    },
    /// Read the head in the catalog. If the catalog does not answer, ask a node.
    ReadHead,
    /// Read the documents of the head: from these nodes, otherwise from the catalog.
    Load {
        head: Box<Head>,
    },
    /// Read the head and the documents that this node knew before it stopped.
    Remember,
    /// Fetch these ranges of the version, and open it. This cancels a fetch of the version with
    /// other ranges.
    Prepare {
        place: VersionPlace,
        ranges: Vec<Bounds>,
        /// Whether to open the version. If not, it is kept closed, for a rollback.
        open: bool,
    },
    Forget {
        place: VersionPlace,
    },
    /// Make these versions serve, and no others, in one step.
    Activate(Activation),
    /// The ordered replicas of live tables have changed. The first orders after a start always
    /// come, whatever they are.
    ///
    /// REQUIRES: before the shell carries this out, it saves the known head on the disk. A node
    /// that knew less after a restart could follow an older head, and remove what that does not
    /// name.
    Replicas(Box<ReplicaOrders>),
    /// Rebuild the map from the current knowledge.
    Route,
    /// The last head is too old: serve nothing (true), or serve again (false).
    OnIsolation(bool),
    /// The catalog's problem has changed.
    Alarm(Option<String>),
    /// The node has left: the process may end.
    Left,
    /// The node cannot be a node of this cluster.
    Refused {
        problem: String,
    },
}

/// The serving version of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serve {
    pub version: u64,
    pub history: Vec<u64>,
    pub ranges: Vec<Bounds>,
}

impl From<Prepare> for FollowerAction {
    fn from(prepare: Prepare) -> Self {
        let Prepare {
            place,
            ranges,
            open,
        } = prepare;
        FollowerAction::Prepare {
            place,
            ranges,
            open,
        }
    }
}
