//! What a server asks of the node that it is part of.

use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::TableName;

use crate::facts::NodeFacts;
use crate::ids::NodeId;
use crate::link::DeferredAnswer;
use crate::live_places::LivePlaces;
use crate::local::LocalReplicas;
use crate::map::ClusterMap;

/// What a server asks of its node.
pub trait Member: Debug + Send + Sync {
    /// Who holds what, as far as this node knows. Cheap.
    fn map(&self) -> Arc<ClusterMap>;

    /// Where partitions of live tables are, as far as this node knows. Cheap.
    fn live(&self) -> Arc<LivePlaces>;

    /// The replicas of live tables that are here; none: it runs none.
    fn replicas(&self) -> Option<Arc<LocalReplicas>>;

    /// For who watches the node. Not for each command.
    fn facts(&self) -> NodeFacts;

    /// Answers another node's message. The answer may take seconds: heartbeats are answered when
    /// there are news.
    fn answer(&self, message: Bytes) -> DeferredAnswer<io::Result<Bytes>>;

    /// Waits until this node knows a head newer than this revision.
    fn newer_head(&self, than: u64) -> DeferredAnswer<()>;

    /// A part of a run's file, for a node that brings the version from here.
    fn fetch(
        &self,
        table: &TableName,
        file: &str,
        range: Range<u64>,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// Told of a node that refused a connection, or did not answer in time.
    fn suspect(&self, node: NodeId);

    /// Told of a suspected node that answered.
    fn trust(&self, node: NodeId);
}
