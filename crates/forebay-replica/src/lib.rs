//! Replicas of partitions by Raft: state machines without I/O.
//!
//! A partition is a Raft group, by the crate `raft`. A [`Replica`] takes an [`Event`] and returns
//! [`Action`]s. The shell that carries them out has the clock, the log, the engine and the
//! connections. Groups on the same nodes share frames ([`encode`]) and the physical log.
//!
//! The shell handles crashes. After one, it asks [`check_memory`] whether the replica remembers its
//! promises. If it does, the shell continues with [`Replica::new`]. Otherwise it founds a new peer
//! that the coordinator adds to the group.

mod asking;
mod basis;
mod bugs;
mod bytes_of;
mod entry;
mod events;
mod fetching;
mod frame;
mod freshness;
mod gathering;
mod ids;
mod membership;
mod memory;
mod older;
mod pending;
mod quiet;
mod reads;
mod ready;
mod receiving;
mod replica;
mod sense;
#[cfg(test)]
mod sim_tests;
mod split;
mod start;
mod steering;
mod tail;
mod time;

pub use basis::{Basis, NewProposal};
pub use bytes_of::CodecError;
pub use entry::{Content, LogEntry, MOST_ENTRY_BYTES, Proposal};
pub use events::{Action, Committed, Event, Permit, Persist, Promise, Refusal};
pub use frame::{PeerMessage, decode, encode};
pub use freshness::Freshness;
pub use ids::{GroupId, PeerId, Place, RequestId};
pub use membership::{Change, Membership};
pub use memory::{Durability, FoundMemory, MemoryLoss, check_memory};
pub use older::OlderEntries;
pub use pending::{Pending, PendingValue};
pub use quiet::QuietTicks;
pub use replica::{PeerProgress, Replica};
pub use split::{ChildGroup, MOST_CHILDREN, SplitEntry};
pub use start::{FOUNDED, Start, StartError};
pub use steering::{Outline, Standing, SteeringStep, WantedPeer, WantedPeers, next_step};
pub use tail::SnapshotFacts;
pub use time::{LEASE, Now, PROMISE, TICK};
