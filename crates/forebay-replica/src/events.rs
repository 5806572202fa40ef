//! What a replica is told, and what it wants done.

use bytes::Bytes;

use crate::bytes_of::{CodecError, Reader};
use crate::entry::{LogEntry, Proposal};
use crate::frame::PeerMessage;
use crate::ids::{PeerId, Place, RequestId};
use crate::membership::Change;
use crate::split::SplitEntry;
use crate::tail::SnapshotFacts;

#[derive(Debug, Clone)]
pub enum Event {
    /// About every [`TICK`](crate::TICK).
    Tick,
    Message(PeerMessage),
    /// Operations that are to be logged and applied, in this order. Those without operations only
    /// move the partition's time.
    Propose(Vec<Proposal>),
    /// A linearizable read: answered by a permit or a refusal.
    Read {
        request: RequestId,
    },
    /// What [`Action::Persist`] of this number asked for, and of all before it, survives as the
    /// table's durability says.
    Persisted {
        number: u64,
    },
    /// The engine's state has all entries up to this one.
    Applied {
        index: u64,
    },
    /// Entries up to this one need not be kept in memory for peers: they are in the log's files.
    Trim {
        through: u64,
    },
    /// What [`Action::FetchEntries`] asked for: consecutive entries from the first one on, at least
    /// one.
    EntriesCame(Vec<LogEntry>),
    /// The entries that were asked for are not there, or cannot be read: those up to this one.
    EntriesGone {
        through: u64,
    },
    /// A copy that was asked for lies ready and is not in use yet.
    SnapshotCame(SnapshotFacts),
    SnapshotFailed,
    /// The coordinator's wish: a leader logs it, others ignore it. What became of it shows in
    /// [`Replica::membership`](crate::Replica::membership); wishing twice does no harm.
    Change(Vec<Change>),
    /// The coordinator's wish that the partition is split: a leader logs it, if the group's
    /// voters are those that it names. To wish twice does no harm: the second does nothing.
    Split(SplitEntry),
    /// Its engine's state met damage: it votes on, and leaves reading to others where it can.
    FallIll,
    /// The coordinator's wish that this voter leads.
    Transfer {
        to: PeerId,
    },
}

#[derive(Debug, Clone)]
pub enum Action {
    /// Write this, in the order of numbers, then say [`Event::Persisted`]. A crash may leave any
    /// beginning of what was not acknowledged. What cannot be written (a full disk) is tried again:
    /// meanwhile the replica promises nothing.
    Persist(Persist),
    /// May get lost, come twice, or late.
    Send(PeerMessage),
    /// Apply these, in order, then say [`Event::Applied`]. After a restart those behind the applied
    /// place come again.
    Apply(Vec<Committed>),
    /// Read when all up to the permit's index is applied, then ask
    /// [`Replica::permits`](crate::Replica::permits).
    Read(Permit),
    Refuse {
        request: RequestId,
        why: Refusal,
    },
    /// Read entries from the log, from the first on and up to the other, which is left out: one at
    /// least, and not many more bytes than that. Then say [`Event::EntriesCame`], or
    /// [`Event::EntriesGone`]. One part is asked for at a time.
    FetchEntries {
        from: u64,
        to: u64,
        most_bytes: u64,
    },
    /// Bring a copy of the partition, at this place or a later one, from that peer.
    FetchSnapshot {
        from: PeerId,
        at_least: Place,
    },
    /// The copy that came is of no use.
    DropSnapshot,
    /// Entries that this replica had acknowledged are gone from its log: it is to end here, and to
    /// join as a new peer.
    Leave,
}

/// What has to survive, in this order: a copy that replaces state and log, entries, the state.
#[derive(Debug, Clone)]
pub struct Persist {
    pub number: u64,
    /// Put the copy that came in place of state and log, in one step.
    pub snapshot: Option<SnapshotFacts>,
    /// The first replaces what was at its index and behind it.
    pub entries: Vec<LogEntry>,
    pub promise: Option<Promise>,
    /// False: it may be written later, and nobody waits for it.
    pub is_awaited: bool,
}

/// What a peer has promised: its term, and whom it votes for in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Promise {
    pub term: u64,
    pub vote: Option<PeerId>,
    /// Entries up to here are decided. An older number does no harm.
    pub committed: u64,
}

impl Promise {
    /// Three numbers (u64): the term, the vote, 0 being nobody, and what is decided.
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
    /// State and facts at this place, to be kept with it.
    pub facts: SnapshotFacts,
    /// Its proposals came to this replica in this life, and wait for what comes of them.
    pub is_awaited: bool,
}

/// Leave to answer a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    pub request: RequestId,
    /// The state has to be at least this one.
    pub index: u64,
    /// `None`: a majority confirmed it, and it stays good. Else the term of the lease.
    pub(crate) lease: Option<u64>,
}

impl Permit {
    /// A majority confirmed it: it does not hang on a lease.
    pub fn is_confirmed(&self) -> bool {
        self.lease.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another one leads, as far as is known. Nothing was logged.
    NotLeader(Option<PeerId>),
    /// -NOREPLICAS: no majority answers. Nothing was logged.
    NoReplicas,
    /// -UNCERTAIN: it is logged, and may come to be applied or not.
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
