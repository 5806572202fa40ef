//! What a host is given: the log and the state of its groups, connections.

use std::fmt::Debug;

use bytes::Bytes;
use forebay_engine::PartitionId;
use forebay_replica::{Committed, GroupId, LogEntry, PeerId, Persist, Place, SnapshotFacts};
use thiserror::Error;

/// A node, as the cluster numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u32);

/// Connections to other nodes.
pub trait MessageSender: Debug + Send + Sync {
    /// Sends a frame, or lets it get lost. Does not wait for the network.
    fn send(&self, to: NodeKey, frame: Bytes);
}

/// What a group wants to survive.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    pub group: GroupId,
    pub persist: &'a Persist,
}

/// What is called when what was written is as durable as its table promises, or is known not to
/// be. It does not wait for the log.
pub type Acknowledged = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// Why something was not written.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Nothing of it is in the log, and the same may be written later.
    #[error("the log has no room: {0}")]
    Full(String),
    /// Nobody knows what the log has: its replicas join their groups again as new peers.
    #[error("the log takes no more: {0}")]
    Broken(String),
}

/// The log that the groups of a table share.
pub trait GroupLog: Debug + Send + Sync {
    /// Writes all of it, in this order, or nothing: after a crash a beginning of what was not
    /// acknowledged may be there. A copy that a group wants in place of its state is in place
    /// already; what is written of it is that the group's log begins anew behind it. `then` is
    /// called if it was written, at once or later.
    fn write(&self, all: &[Writing<'_>], then: Acknowledged) -> Result<(), WriteError>;

    /// Entries of a group that were written: consecutive, from the first on and up to the other,
    /// which is left out; at least one, and not many more bytes than that. Takes its time.
    fn entries(
        &self,
        group: GroupId,
        range: (u64, u64),
        most_bytes: u64,
    ) -> Result<FoundEntries, NoEntries>;

    /// A restart does not need entries up to there. Returns whether the log is long for what is
    /// trimmed: the states should be kept as they are now, and trimmed to there.
    fn trim(&self, group: GroupId, through: u64) -> bool;

    /// Whether the disk is short, so that the next trims should come soon.
    fn is_short(&self) -> bool {
        false
    }
}

/// Entries that were read from a log, and how many bytes they have there.
#[derive(Debug, Clone, Default)]
pub struct FoundEntries {
    pub entries: Vec<LogEntry>,
    pub bytes: u64,
}

/// Entries are not kept any more, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEntries {
    /// All up to this one.
    pub through: u64,
}

/// How fast logs are read for peers that are behind.
pub trait ReadPace: Debug + Send + Sync {
    /// Something is being read from now on, until [`ReadPace::end`].
    fn begin(&self);

    fn end(&self);

    /// Waits until so many bytes more may be sent.
    fn wait(&self, bytes: u64);
}

/// As fast as it goes.
#[derive(Debug, Clone, Copy)]
pub struct NoPace;

impl ReadPace for NoPace {
    fn begin(&self) {}

    fn end(&self) {}

    fn wait(&self, _: u64) {}
}

/// Why a state could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StateError {
    /// The same may succeed later: room is missing.
    #[error("{0}")]
    Later(String),
    /// What is here of the state cannot be read: another replica is to take the place of this one.
    #[error("{0}")]
    Damaged(String),
    /// It does not succeed here: the replica ends, and joins its group again as a new peer.
    #[error("{0}")]
    Never(String),
}

/// The state of one replica. One thread at a time changes it.
pub trait GroupState: Debug + Send + Sync {
    /// Does a decided entry, and keeps its facts with what it did. Answers what its proposals
    /// answer, in their order. An entry that failed with [`StateError::Later`] comes again.
    fn apply(&self, committed: &Committed) -> Result<Vec<Bytes>, StateError>;

    /// Brings a copy of the partition from a peer, at this place or a later one, beside the state.
    /// Takes its time; another thread may apply meanwhile.
    fn fetch_copy(&self, from: PeerId, at_least: Place) -> Result<SnapshotFacts, StateError>;

    /// Puts the copy that was brought last in place of the state, in one step.
    fn install(&self, facts: &SnapshotFacts) -> Result<(), StateError>;

    fn drop_copy(&self);

    /// A restart finds the state at this entry or a later one.
    fn kept_through(&self) -> u64;

    /// Has a restart find the state as it is now, with those of the table's other groups here.
    /// Takes its time.
    fn keep(&self) -> Result<(), StateError>;
}

/// Keeps the replicas of the children of a partition that is split.
pub trait ChildReplicas: Debug + Send + Sync {
    /// Begins their logs, and notes which they are, so that both survive what the children survive.
    /// Done again, it does the same.
    fn begin(&self, children: &[ChildReplica]) -> Result<(), StateError>;
}

/// Who acts upon how the replicas of a host stand.
pub trait StandingWatch: Debug + Send + Sync {
    /// A replica changed: its leader, its group's members, how close a learner is; or its partition
    /// was split, got a load, met damage, or ended. Serving threads call it: it must not wait.
    fn changed(&self);
}

/// The replica that a node comes to have of a child of a partition that is split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildReplica {
    pub partition: PartitionId,
    pub group: GroupId,
    pub peer: PeerId,
    /// See [`SplitEntry::planned_in`](forebay_replica::SplitEntry::planned_in).
    pub planned_in: u64,
}
