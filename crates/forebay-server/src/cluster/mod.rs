//! The server as a node of a cluster: it forwards or redirects commands for keys that it lacks.
//!
//! A command runs on this node first. Only if a key turns out to be elsewhere, [`elsewhere`]
//! handles it, so that local reads cost nothing more. Nodes reach each other at their peer ports,
//! by RESP with commands of their own ([`frame`]). Live tables are written and read through their
//! replicas ([`live`]), whose messages have connections of their own ([`post`]).

mod ask;
mod assembly;
mod class_redirects;
mod config;
mod counts;
mod coverage;
mod elsewhere;
mod frame;
mod gather;
mod gets;
mod link;
mod live;
mod node;
mod page;
mod peer_senders;
mod peers;
mod pins;
mod place;
mod range;
mod reach;
mod serve;
mod split;
mod topology;
mod walk;
mod walked;

pub use assembly::{ClusterNode, NodeError, NodeSetup};
pub use class_redirects::ClassRedirects;
pub use config::{ClusterConfig, ForwardLimits};
pub use elsewhere::elsewhere;
pub use frame::{DAMAGED, NOT_HERE};
pub use live::PartAsk;
pub use node::{Cluster, PeerIdentity};
pub use peers::PeerClient;
pub use pins::{PeerTls, Pin, PinnedPeers, pin_of};
pub use place::JUST_STARTED;
pub use reach::Reach;
pub use serve::PeerConnection;
pub use topology::{Advertised, Shard, myself, shards, slot_rows, unlisted_id};
