//! The interface through which a server uses its node.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::TableName;

use crate::facts::NodeFacts;
use crate::ids::NodeId;
use crate::link::DeferredAnswer;
use crate::local::LocalReplicas;
use crate::routing::live_places::LivePlaces;
use crate::routing::map::ClusterMap;

/// A node as its server sees it.
pub trait Member: Debug + Send + Sync {
    /// Returns the nodes of all ranges, as far as this node knows. Cheap.
    fn map(&self) -> Arc<ClusterMap>;

    /// Returns the routes to partitions of live tables, as far as this node knows. Cheap.
    fn live(&self) -> Arc<LivePlaces>;

    /// Returns the replicas of live tables on this node; none if it runs no replicas.
    fn replicas(&self) -> Option<Arc<LocalReplicas>>;

    /// Returns facts for monitoring. Not meant for each command.
    fn facts(&self) -> NodeFacts;

    /// Answers another node's message. This can take seconds: a heartbeat is answered when there is
    /// news.
    fn answer(&self, message: Bytes) -> DeferredAnswer<io::Result<Bytes>>;

    /// Waits until this node knows a head newer than this revision.
    fn newer_head(&self, than: u64) -> DeferredAnswer<()>;

    /// Returns a part of a run's file, for a node that fetches the version from this node.
    fn fetch(
        &self,
        table: &TableName,
        file: &str,
        range: Range<u64>,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// Reports a node that refused a connection, or did not answer in time.
    fn suspect(&self, node: NodeId);

    /// Reports that a suspected node answered.
    fn trust(&self, node: NodeId);
}
