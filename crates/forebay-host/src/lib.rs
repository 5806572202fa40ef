//! The replicas of a node: threads around the state machines of `forebay-replica`.
//!
//! A [`ReplicaHost`] has the replicas of any number of groups. It passes events to each, and
//! carries out its actions. The log records of all groups of a table are written together. The
//! messages of all groups to a node leave in one frame. A few threads apply decided entries, those
//! of each group in order. The caller provides log, state and connections ([`GroupLog`],
//! [`GroupState`], [`MessageSender`]).
//!
//! | module | content |
//! | --- | --- |
//! | `outside` | the interfaces that a host needs |
//! | `host` | the groups of a node, and the calls that a server makes on them |
//! | `group` | one replica with the callers that wait for it |
//! | `carry` | carries out a replica's actions |
//! | `log_writer` | writes the log for all groups of a table together |
//! | `pool` | threads that apply entries and install copies |
//! | `outbox` | outgoing messages, by node |
//! | `early` | messages to replicas that the node does not have yet |
//! | `hold` | groups that pause for a checkpoint |
//! | `proposing` | proposals, and their holds for checkpoints |
//! | `forced_peer` | a replica that founds another group alone |
//! | `lease` | a group's lease, for reads without the replica's lock |
//! | `log_reader` | the thread that reads entries from logs for peers that lag |
//! | `reading` | stale reads |
//! | `partition_state`, `replica_log`, `opening` | the engine's partitions and logs as states and logs of a host |
//! | `splitting` | applies splits of partitions |
//! | `log_room` | how much of the disk a log may take |
//! | `effects` | what proposals do to a partition |
//! | `leader_state` | the effects that a leader has proposed and not applied yet |
//! | `evaluation` | evaluates commands on the leader's newest state |
//! | `core` | the data that all groups of a host share |

mod carry;
mod core;
mod early;
mod effects;
mod environment;
mod evaluation;
mod forced_peer;
mod group;
mod hold;
mod host;
mod leader_state;
mod lease;
mod log_reader;
mod log_room;
mod log_writer;
mod opening;
mod outbox;
mod partition_state;
mod pool;
mod proposing;
mod reading;
mod replica_log;
mod splitting;
#[cfg(test)]
mod tests;

pub use core::HostCounts;
pub use effects::{Answer, Effect, EffectError, LoadedRuns, WriteDone};
pub use environment::{
    Acknowledged, ChildReplica, ChildReplicas, FoundEntries, GroupLog, GroupState, MessageSender,
    NoEntries, NoPace, NodeKey, ReadPace, StandingWatch, StateError, WriteError, Writing,
};
pub use forced_peer::{ForceRecoverError, ForcedPeer, begin_alone};
pub use group::{GroupFacts, GroupStanding, ReadCallback, ReadPermit};
pub use host::{HostParts, NewReplica, ReplicaHost};
pub use leader_state::{EvaluationResult, ProposeOutcome, Wake};
pub use log_writer::TableLog;
pub use opening::{FoundReplica, OpenError, OpenReplicas, open_replicas, start_again};
pub use partition_state::{CopyFetcher, PartitionState, StateParts, facts_of, place_of};
pub use replica_log::{EngineLog, KEPT_BYTES};
pub use splitting::encode_split_point;
