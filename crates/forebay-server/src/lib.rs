//! Forebay's server: serves a store's tables by the Redis protocol and by HTTP.
//!
//! It serves the swapped-in versions of batch tables, and opens live tables for reading and
//! writing.
//!
//! The path of a command: [`worker`] accepts a connection, [`connection`] reads its bytes,
//! [`pipeline`] parses and answers, [`command`] implements the commands, [`execute`] runs them.
//!
//! Invariants: the server writes no batch table. Clients cannot supply a path or an unchecked table
//! name. A thread that serves connections never waits for the device. No reply mixes versions.

mod background_share;
mod certificate_end;
mod client;
mod cluster;
mod command;
mod commits;
mod config;
mod connection;
mod descriptors;
mod dispatch;
mod events;
mod execute;
mod following;
mod gets;
mod glob;
mod http;
mod live;
mod loads;
mod metrics;
mod permits;
mod pipeline;
mod port;
mod pulls;
mod reply_memory;
mod resp;
mod samples;
mod secrets;
mod server;
mod session;
mod shared;
mod signals;
mod slow_log;
mod table_view;
mod table_wait;
mod tls;
mod totals;
mod users;
mod wait;
mod work;
mod worker;

pub use cluster::{
    ClusterConfig, ClusterNode, ForwardLimits, NodeError, NodeSetup, PeerClient, PeerTls, Pin,
    PinnedPeers, Reach, pin_of,
};
pub use config::{DEFAULT_HTTP_PORT, DEFAULT_RESP_PORT, Limits, ServerConfig, TlsFiles};
pub use events::{Event, EventDraft, EventRing, EventsAfter};
pub use pulls::{Pulls, PullsStatus, TablePulled};
pub use resp::{Args, OwnedArgs, Parser, ProtocolError, Reply, RequestLimits, Span};
pub use secrets::SecretsError;
pub use server::{Handle, Server, ServerInside, StartError};
pub use signals::{HangUps, Signals};
pub use tls::TlsError;
pub use users::{User, Users, UsersError, Verb};
