//! The server as a node of a cluster: what is not here is forwarded to who has it, or clients are
//! told where that is.
//!
//! A command runs here first. Only when a key turns out not to be here does it come to
//! [`elsewhere`], so that reads of what is here cost nothing more. Nodes reach each other at their
//! peer ports, in RESP with commands of their own ([`frame`]). Live tables are written and read by
//! way of their replicas ([`live`]), whose messages have connections of their own ([`post`]).

mod ask;
mod assembly;
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
mod notify;
mod page;
mod peers;
mod pins;
mod place;
mod post;
mod range;
mod reach;
mod serve;
mod split;
mod topology;
mod walk;
mod walked;

pub use assembly::{ClusterNode, NodeError, NodeSetup};
pub use config::{ClusterConfig, ForwardLimits};
pub use elsewhere::elsewhere;
pub use frame::{DAMAGED, NOT_HERE};
pub use live::PartAsk;
pub use node::{Cluster, PeerIdentity};
pub use notify::ClassRedirects;
pub use page::Spot;
pub use peers::PeerClient;
pub use pins::{PeerTls, Pin, PinnedPeers, pin_of};
pub use place::JUST_STARTED;
pub use reach::Reach;
pub use serve::PeerConnection;
pub use topology::{Advertised, Shard, myself, shards, slot_rows, unlisted_id};
