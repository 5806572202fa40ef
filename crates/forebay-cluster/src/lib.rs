//! Clusters: tables distributed over nodes, with one atomic swap for all of them.
//!
//! The *catalog* describes the cluster. One small document, the *head*, names immutable documents
//! ([`model`]). To change the cluster, a node writes new documents and replaces the head, if the
//! head is still the one that it read. Only one node at a time does this, the *coordinator*.
//!
//! The protocols are state machines without I/O. Each takes the time and an event, and returns the
//! actions to carry out.

mod bugs;
pub mod catalog;
pub mod client;
mod cluster_events;
#[cfg(test)]
mod cluster_events_tests;
pub mod coordinator;
mod facts;
pub mod formats;
mod ids;
pub mod lease;
mod link;
mod live_status;
mod load_status;
pub mod local;
mod lost_majority;
mod measures;
mod member;
pub mod message;
pub mod model;
pub mod node;
pub mod planning;
mod reads_status;
mod recovery;
pub mod request;
mod routing;
pub mod shell;
#[cfg(test)]
mod sim_tests;
pub mod status;
pub mod time;
mod traffic_status;
pub mod versions;
pub mod wire;

pub use measures::reads;
pub use measures::reporting;
pub use measures::reports;
pub use measures::traffic;
pub use recovery::repair_store;
pub use recovery::restore;
pub use routing::live;
pub use routing::map;
pub use routing::version;

pub use cluster_events::{ClusterEvent, events_between};
pub use facts::{NodeCounts, NodeFacts, PlanFacts, RolloutFacts};
pub use ids::{
    ClusterId, ClusterName, HostPort, HostPortError, NodeId, NodeName, NodeNameError, Zone,
};
pub use link::{DeferredAnswer, Peers, Trusted};
pub use live_status::{LiveStatus, LiveTableStatus, Partitions};
pub use load_status::{LoadStatus, ReplicaCounts};
pub use lost_majority::{GoneReplica, LostPartition, RemainingReplica};
pub use member::Member;
pub use reads_status::{ReadPartition, ReadsStatus};
pub use request::REPLICAS;
pub use routing::layouts::MOST_REPLICAS;
pub use routing::live::{ChildRoute, LiveRoute};
pub use routing::live_places::{LivePlace, LivePlaces};
pub use time::{MOST_WAIT, Timing};
pub use traffic_status::{HotPartition, NodeTraffic, TrafficStatus};
