//! Between a node and the server that it is part of.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::TableName;

use crate::facts::NodeFacts;
use crate::ids::{HostPort, NodeId};
use crate::map::ClusterMap;

/// What is waited for without holding a thread.
pub type Later<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a server asks of its node.
pub trait Member: Debug + Send + Sync {
    /// Who holds what, as far as this node knows. Cheap.
    fn map(&self) -> Arc<ClusterMap>;

    /// For who watches the node. Not for each command.
    fn facts(&self) -> NodeFacts;

    /// Answers another node's message. The answer may take seconds: heartbeats are answered when
    /// there are news.
    fn answer(&self, message: Bytes) -> Later<io::Result<Bytes>>;

    /// A part of a run's file, for a node that brings the version from here.
    fn fetch(&self, table: &TableName, file: &str, range: Range<u64>) -> Later<io::Result<Bytes>>;

    /// Told of a node that refused a connection, or did not answer in time.
    fn suspect(&self, node: NodeId);

    /// Told of a suspected node that answered.
    fn trust(&self, node: NodeId);
}

/// How a node reaches others: by their peer ports.
pub trait Peers: Debug + Send + Sync {
    /// Sends a message, and waits for the answer. Messages to one node may overtake each other.
    fn ask(&self, peer: &HostPort, message: Bytes, within: Duration) -> Later<io::Result<Bytes>>;

    /// A part of a run's file that a node has.
    fn fetch(
        &self,
        peer: &HostPort,
        table: &TableName,
        file: &str,
        range: Range<u64>,
        within: Duration,
    ) -> Later<io::Result<Bytes>>;
}

/// Whose certificates are let in.
pub trait Trusted: Debug + Send + Sync {
    /// These, as [`Introduction::key`](crate::message::Introduction::key) has them, and no others.
    fn trust(&self, keys: BTreeSet<String>);
}
