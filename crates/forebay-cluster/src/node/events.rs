//! What a follower is told, and what it has done.

use std::collections::{BTreeMap, BTreeSet};

use forebay_engine::{Bounds, TableName};

use super::copies::{Prepare, VersionPlace};
use crate::ids::{HostPort, NodeId};
use crate::live::ReplicaOrders;
use crate::message::{Beat, BeatReply, NodeRoom};
use crate::model::{Head, Model, Proof};
use crate::reads::ReadsReport;
use crate::reports::GroupReport;

/// What a follower is told.
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
    /// Where the coordinator is.
    Coordinator(HostPort),
    /// A head, and its model. `remembered`: as this node knew it before it stopped.
    Loaded {
        head: Box<Head>,
        model: Box<Model>,
        remembered: bool,
    },
    NotLoaded,
    /// The head as it is in the catalog.
    Head(Box<Head>),
    /// As another node knows it.
    Told(Box<Head>),
    /// The catalog answers, and has no head that can be read.
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
    /// All that was to serve does, and what was to be dropped is, but for these.
    Activated {
        revision: u64,
        problems: BTreeMap<TableName, String>,
    },
    Suspect(NodeId),
    Trust(NodeId),
    /// How much room there is, and how fast things come.
    Room(NodeRoom),
    /// How much batch tables are read here now.
    Reads(Vec<ReadsReport>),
    /// How all replicas of live tables here stand now.
    Replicas {
        reports: Vec<GroupReport>,
        /// What keeps tables from being as they are to be.
        troubles: Vec<String>,
    },
    /// The node is told to stop.
    Leave,
}

/// The versions that a node has to serve by a head, and the tables that it has to drop.
#[derive(Debug, Clone, PartialEq)]
pub struct Activation {
    pub revision: u64,
    pub tables: BTreeMap<TableName, Serve>,
    /// Tables that are none any more, or not of versions: what lies here of them goes.
    pub dropped: BTreeSet<TableName>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowerAction {
    Beat {
        to: HostPort,
        beat: Box<Beat>,
    },
    /// Look at the head in the catalog; where that does not answer, ask a node.
    ReadHead,
    /// Read what the head names: from these, else from the catalog.
    Load {
        head: Box<Head>,
    },
    /// Read what this node knew before it stopped.
    Remember,
    /// Bring the version, of these ranges, and have it open. What is being brought of it with other
    /// ranges is given up.
    Prepare {
        place: VersionPlace,
        ranges: Vec<Bounds>,
        /// Else it is kept to roll back to, and stays closed.
        open: bool,
    },
    Forget {
        place: VersionPlace,
    },
    /// Let these versions serve, and no others, at one moment.
    Activate(Activation),
    /// The replicas of live tables that are to be here are others than before. The first time after
    /// a start it comes whatever they are.
    ///
    /// REQUIRES: before it is carried out the head that is known is noted on the disk. A node that
    /// knew less after a restart could follow an older head, and remove what that does not name.
    Replicas(Box<ReplicaOrders>),
    /// Route by what is known.
    Route,
    /// The head was heard of too long ago: serve nothing, or serve again.
    OnIsolation(bool),
    /// What is wrong with the catalog is another thing than before.
    Alarm(Option<String>),
    /// It has left: the process may end.
    Left,
    /// It cannot be a node of this cluster.
    Refused {
        problem: String,
    },
}

/// What serves of a table.
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
