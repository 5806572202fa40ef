//! Replicas of partitions by Raft: state machines without I/O.
//!
//! A partition is a Raft group, by the crate `raft`. A [`Replica`] is told what happens ([`Event`])
//! and says what is to be done ([`Action`]); the shell that carries it out has the clock, the log,
//! the engine and the connections. Groups that lie on the same nodes share frames ([`encode`]) and
//! the physical log.
//!
//! What a crash leaves is the shell's part: after one it asks [`check_memory`] whether the replica
//! remembers what it promised, then goes on with [`Replica::new`], or founds a new peer that the
//! coordinator has the group take in.

mod asking;
mod bugs;
mod bytes_of;
mod entry;
mod events;
mod fetching;
mod frame;
mod fresh;
mod hearing;
mod ids;
mod membership;
mod memory;
mod older;
mod quiet;
mod reads;
mod ready;
mod replica;
mod sense;
#[cfg(test)]
mod sim_tests;
mod split;
mod start;
mod steering;
mod tail;
mod time;

pub use bytes_of::CodecError;
pub use entry::{Content, LogEntry, MOST_ENTRY_BYTES, Proposal};
pub use events::{Action, Committed, Event, Permit, Persist, Promise, Refusal};
pub use frame::{PeerMessage, decode, encode};
pub use fresh::Freshness;
pub use ids::{GroupId, PeerId, Place, RequestId};
pub use membership::{Change, Membership};
pub use memory::{Durability, FoundMemory, MemoryLoss, check_memory};
pub use older::OlderEntries;
pub use quiet::QuietTicks;
pub use replica::{PeerProgress, Replica};
pub use split::{ChildGroup, MOST_CHILDREN, SplitEntry};
pub use start::{FOUNDED, Start, StartError};
pub use steering::{Outline, Standing, SteeringStep, WantedPeer, WantedPeers, next_step};
pub use tail::SnapshotFacts;
pub use time::{LEASE, Now, PROMISE, TICK};
