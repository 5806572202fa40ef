//! The events that a replica handles, and the actions that it returns.

use bytes::Bytes;

use crate::basis::NewProposal;
use crate::bytes_of::{CodecError, Reader};
use crate::entry::LogEntry;
use crate::frame::PeerMessage;
use crate::ids::{PeerId, Place, RequestId};
use crate::membership::Change;
use crate::split::SplitEntry;
use crate::tail::SnapshotFacts;

#[derive(Debug, Clone)]
pub enum Event {
    /// Occurs about every [`TICK`](crate::TICK).
    Tick,
    Message(PeerMessage),
    /// Effects to log and apply, in this order. Proposals with an empty effect only move the
    /// partition's time.
    Propose(Vec<NewProposal>),
    /// A linearizable read: answered by a permit or a refusal.
    Read {
        request: RequestId,
    },
    /// The write of [`Action::Persist`] with this number, and all before it, is durable as the
    /// table's durability promises.
    Persisted {
        number: u64,
    },
    /// The engine's state has all entries up to this one.
    Applied {
        index: u64,
    },
    /// Entries up to this one need not stay in memory for peers: they are in the log's files.
    Trim {
        through: u64,
    },
    /// The result of [`Action::FetchEntries`]: consecutive entries from the first on, at least one.
    EntriesCame(Vec<LogEntry>),
    /// The requested entries up to this one are missing, or cannot be read.
    EntriesGone {
        through: u64,
    },
    /// A requested copy is ready, and is not in use yet.
    SnapshotCame(SnapshotFacts),
    SnapshotFailed,
    /// A change that the coordinator asks for: a leader logs it, others ignore it. Its outcome
    /// shows in [`Replica::membership`](crate::Replica::membership). Repeats are harmless.
    Change(Vec<Change>),
    /// A split of the partition that the coordinator asks for. A leader logs it if the group's
    /// voters are those that it names. Repeats are harmless: a second one does nothing.
    Split(SplitEntry),
    /// The engine's state is damaged: the replica keeps voting, and leaves reads to others if it
    /// can.
    FallIll,
    /// A hand-over to this voter that the coordinator asks for.
    Transfer {
        to: PeerId,
    },
}

#[derive(Debug, Clone)]
pub enum Action {
    /// Write this, in the order of numbers, then report [`Event::Persisted`]. A crash may leave any
    /// prefix of what was not acknowledged. If a write fails (a full disk), the caller tries it
    /// again. Until then, the replica promises nothing.
    Persist(Persist),
    /// Send a message. It may get lost, be repeated or arrive late.
    Send(PeerMessage),
    /// Apply these in order, then report [`Event::Applied`]. After a restart, those after the
    /// applied place are applied again.
    Apply(Vec<Committed>),
    /// Read when all entries up to the permit's index are applied, then ask
    /// [`Replica::permits`](crate::Replica::permits).
    Read(Permit),
    Refuse {
        request: RequestId,
        why: Refusal,
    },
    /// Read entries from the log, from the first up to but not including the second: at least one,
    /// and not many more bytes than given. Then report [`Event::EntriesCame`] or
    /// [`Event::EntriesGone`]. The replica requests one part at a time.
    FetchEntries {
        from: u64,
        to: u64,
        most_bytes: u64,
    },
    /// Fetch a copy of the partition, at this place or a later one, from that peer.
    FetchSnapshot {
        from: PeerId,
        at_least: Place,
    },
    /// Drop the copy that arrived.
    DropSnapshot,
    /// End this replica, and join as a new peer: entries that it had acknowledged are missing from
    /// its log.
    Leave,
}

/// A durable write, in this order: a copy that replaces state and log, entries, the vote.
#[derive(Debug, Clone)]
pub struct Persist {
    pub number: u64,
    /// Replace state and log by the copy that arrived, in one step.
    pub snapshot: Option<SnapshotFacts>,
    /// The first entry replaces the entries at its index and after it.
    pub entries: Vec<LogEntry>,
    pub promise: Option<Promise>,
    /// False: the write may be delayed, since nothing waits for it.
    pub is_awaited: bool,
}

/// The promises of a peer: its term, and its vote in that term.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    pub term: u64,
    pub vote: Option<PeerId>,
    /// Entries up to this one are decided. An older number is harmless.
    pub committed: u64,
}

impl Promise {
    /// Encodes three numbers (u64): the term, the vote (0: none), and the last decided entry.
    pub fn to_bytes(&self) -> [u8; 24] {
        let vote = self.vote.map_or(0, |peer| peer.0);
        let mut bytes = [0; 24];
        for (place, number) in [self.term, vote, self.committed].iter().enumerate() {
            bytes[place * 8..][..8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub fn from_bytes(bytes: Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let (term, vote, committed) = (reader.u64()?, reader.u64()?, reader.u64()?);
        reader.end()?;
        Ok(Self {
            term,
            vote: Some(PeerId(vote)).filter(|peer| peer.0 != 0),
            committed,
        })
    }
}

/// A decided entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub entry: LogEntry,
    /// The facts at this place, to be stored with the state.
    pub facts: SnapshotFacts,
    /// The entry's proposals came to this replica since its start, and clients wait for their
    /// outcome.
    pub is_awaited: bool,
}

/// A permit to answer a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub request: RequestId,
    /// The state has to have all entries up to this one.
    pub index: u64,
    /// `None`: a majority confirmed the permit, and it stays valid. Otherwise the term of the
    /// lease.
    pub(crate) lease: Option<u64>,
}

impl Permit {
    /// Returns whether a majority confirmed the permit, so that it does not depend on a lease.
    pub fn is_confirmed(&self) -> bool {
        self.lease.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another replica leads, as far as this one knows. Nothing was logged.
    NotLeader(Option<PeerId>),
    /// -NOREPLICAS: no majority answers. Nothing was logged.
    NoReplicas,
    /// It was evaluated on another basis than the current one: evaluate it again. Nothing was
    /// logged.
    Outdated,
    /// -UNCERTAIN: it is logged, and may or may not be applied later.
    Uncertain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_read_as_they_are_written() {
        for vote in [None, Some(PeerId(7))] {
            let promise = Promise {
                term: 3,
                vote,
                committed: 1 << 40,
            };
            let bytes = Bytes::copy_from_slice(&promise.to_bytes());
            assert_eq!(Promise::from_bytes(bytes.clone()), Ok(promise));
            assert!(Promise::from_bytes(bytes.slice(1..)).is_err());
        }
    }
}
