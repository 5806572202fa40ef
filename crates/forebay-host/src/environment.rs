//! The interfaces that a host needs: the log and the state of its groups, and connections.

use std::fmt::Debug;

use bytes::Bytes;
use forebay_engine::PartitionId;
use forebay_replica::{Committed, GroupId, LogEntry, PeerId, Persist, Place, SnapshotFacts};
use thiserror::Error;

use crate::effects::Answer;

/// The number of a node in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey(pub u32);

/// The connections to other nodes.
pub trait MessageSender: Debug + Send + Sync {
    /// Sends a frame, or drops it. Does not wait for the network.
    fn send(&self, to: NodeKey, frame: Bytes);
}

/// One group's write to the log.
#[derive(Debug, Clone, Copy)]
pub struct Writing<'a> {
    pub group: GroupId,
    pub persist: &'a Persist,
}

/// The callback of a write. The log calls it when the write is as durable as its table promises, or
/// when that has failed. It must not wait for the log.
pub type Acknowledged = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// A reason why a write failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WriteError {
    /// The log has nothing of the write. The caller may write it again later.
    #[error("the log has no room: {0}")]
    Full(String),
    /// It is unknown what the log has. Its replicas join their groups again as new peers.
    #[error("the log takes no more: {0}")]
    Broken(String),
}

/// The log that the groups of a table share.
pub trait GroupLog: Debug + Send + Sync {
    /// Writes everything in this order, or nothing. After a crash, a prefix of an unacknowledged
    /// write may remain. If a write installs a copy, the copy has already replaced the state: the
    /// write records that the group's log restarts after it. Calls `then` if the write was made, at
    /// once or later.
    fn write(&self, all: &[Writing<'_>], then: Acknowledged) -> Result<(), WriteError>;

    /// Returns consecutive entries of a group that were written: from the first of `range` up to
    /// but not including the second. Returns at least one, and not many more than `most_bytes`
    /// bytes. Blocks on the disk.
    fn entries(
        &self,
        group: GroupId,
        range: (u64, u64),
        most_bytes: u64,
    ) -> Result<FoundEntries, NoEntries>;

    /// Marks the entries up to `through` as not needed for a restart. Returns whether the log is
    /// too long for what was trimmed: the caller should then persist the states as they are now,
    /// and trim to there.
    fn trim(&self, group: GroupId, through: u64) -> bool;

    /// Returns whether the disk is short of space, so that the next trims should follow soon.
    fn is_short(&self) -> bool {
        false
    }
}

/// Entries that were read from a log, with their size in the log.
#[derive(Debug, Clone, Default)]
pub struct FoundEntries {
    pub entries: Vec<LogEntry>,
    pub bytes: u64,
}

/// The error that entries are removed, or cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoEntries {
    /// The last entry that is missing: all entries up to it are.
    pub through: u64,
}

/// A limit on how fast logs are read for peers that lag.
pub trait ReadPace: Debug + Send + Sync {
    /// Marks the start of reading, until [`ReadPace::end`].
    fn begin(&self);

    fn end(&self);

    /// Waits until this many more bytes may be sent.
    fn wait(&self, bytes: u64);
}

/// A pace without a limit.
#[derive(Debug, Clone, Copy)]
pub struct NoPace;

impl ReadPace for NoPace {
    fn begin(&self) {}

    fn end(&self) {}

    fn wait(&self, _: u64) {}
}

/// A reason why a state could not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum StateError {
    /// The change has to wait, and the caller does not allow that.
    #[error("the change has to wait")]
    Waits,
    /// A transient reason. The same change may succeed later.
    #[error("{0}")]
    Later(String),
    /// This replica's state is corrupt. Another replica has to replace this one.
    #[error("{0}")]
    Damaged(String),
    /// The change cannot succeed on this node. The replica ends, and joins its group again as a new
    /// peer.
    #[error("{0}")]
    Never(String),
}

/// The state of one replica. One thread at a time changes it.
pub trait GroupState: Debug + Send + Sync {
    /// Applies a decided entry, and stores its facts with its effects. Returns the answers of its
    /// proposals, in their order. An entry that failed with [`StateError::Later`] is applied again.
    /// Without `may_wait` it waits for neither the device nor memory, and fails with
    /// [`StateError::Waits`] if it would have to.
    fn apply(&self, committed: &Committed, may_wait: bool) -> Result<Vec<Answer>, StateError>;

    /// Fetches a copy of the partition from a peer, at this place or a later one, without changing
    /// the state. Blocks; another thread may apply entries meanwhile.
    fn fetch_copy(&self, from: PeerId, at_least: Place) -> Result<SnapshotFacts, StateError>;

    /// Replaces the state by the copy that was fetched last, in one step.
    fn install(&self, facts: &SnapshotFacts) -> Result<(), StateError>;

    fn drop_copy(&self);

    /// Returns an entry: after a restart the state is at this entry or a later one.
    fn kept_through(&self) -> u64;

    /// Persists the state as it is now, with the states of the table's other groups on this node.
    /// Blocks.
    fn keep(&self) -> Result<(), StateError>;
}

/// The store of the replicas of a split partition's children.
pub trait ChildReplicas: Debug + Send + Sync {
    /// Begins the children's logs, and records their peers, as durably as the children themselves.
    /// Idempotent.
    fn begin(&self, children: &[ChildReplica]) -> Result<(), StateError>;
}

/// An observer of the state of a host's replicas.
pub trait StandingWatch: Debug + Send + Sync {
    /// Is called when a replica has changed: its leader, its group's members, or the progress of a
    /// learner. Also when its partition was split, received a load, met damage, or ended. Serving
    /// threads call it: it must not wait.
    fn changed(&self);
}

/// The replica that a node gets of a child of a split partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildReplica {
    pub partition: PartitionId,
    pub group: GroupId,
    pub peer: PeerId,
    /// See [`SplitEntry::planned_in`](forebay_replica::SplitEntry::planned_in).
    pub planned_in: u64,
}
