//! The replicas that a node has: threads around the state machines of `forebay-replica`.
//!
//! A [`ReplicaHost`] has the replicas of any number of groups. It tells each what happens, and
//! carries out what it wants done: the log's records of all groups of a table are written together,
//! messages of all groups to a node leave in one frame, decided entries are applied by a few
//! threads, each group's in its order. Log, state and connections are given from outside
//! ([`GroupLog`], [`GroupState`], [`MessageSender`]).
//!
//! | module | what |
//! | --- | --- |
//! | `outside` | what a host is given |
//! | `host` | the groups that are here; what a server asks of them |
//! | `group` | one replica with what waits for it |
//! | `carry` | carrying out what a replica wants |
//! | `log_writer` | one write for what the groups of a table want to survive |
//! | `crew` | threads that apply, and put copies in place |
//! | `outbox` | messages on their way out, by node |
//! | `early` | what is said to replicas that are not here yet |
//! | `hold` | groups that stand still for a checkpoint |
//! | `heir` | a replica that begins another group, alone |
//! | `lease` | what is said of a lease |
//! | `log_reader`, `tailing` | entries from logs for peers that are behind |
//! | `reading` | reads that may be old by a bound |
//! | `partition_state`, `replica_log`, `opening` | partitions and logs of the engine as these |
//! | `splitting` | partitions that are split |
//! | `log_room` | how much of the disk a log may take |
//! | `loads` | loads as proposals |
//! | `core` | what all groups of a host share |

mod carry;
mod core;
mod early;
mod forced_peer;
mod group;
mod hold;
mod host;
mod lease;
mod loads;
mod log_reader;
mod log_room;
mod log_writer;
mod opening;
mod outbox;
mod outside;
mod partition_state;
mod pool;
mod reading;
mod replica_log;
mod splitting;
mod tailing;
#[cfg(test)]
mod tests;

pub use core::HostCounts;
pub use forced_peer::{ForceRecoverError, ForcedPeer, begin_alone};
pub use group::{GroupFacts, GroupStanding, ReadCallback, ReadPermit, WriteDone};
pub use host::{HostParts, NewReplica, ReplicaHost};
pub use loads::{LoadedRuns, load_proposal};
pub use log_writer::TableLog;
pub use opening::{FoundReplica, OpenError, OpenReplicas, open_replicas, start_again};
pub use outside::{
    Acknowledged, ChildReplica, ChildReplicas, FoundEntries, GroupLog, GroupState, MessageSender,
    NoEntries, NoPace, NodeKey, ReadPace, StandingWatch, StateError, WriteError, Writing,
};
pub use partition_state::{Commands, CopyFetcher, PartitionState, StateParts, facts_of, place_of};
pub use replica_log::{EngineLog, KEPT_BYTES};
pub use splitting::encode_split_point;
