//! What a node asks of the server that it is part of.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use forebay_engine::TableName;

use crate::ids::HostPort;

/// What is waited for without holding a thread.
pub type DeferredAnswer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How a node reaches others: by their peer ports.
pub trait Peers: Debug + Send + Sync {
    /// Sends a message, and waits for the answer. Messages to one node may overtake each other.
    fn ask(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// A part of a run's file that a node has.
    fn fetch(
        &self,
        peer: &HostPort,
        table: &TableName,
        file: &str,
        range: Range<u64>,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// Sends messages of replicas, or lets them get lost: `LocalReplicas::hear` takes them there.
    /// Waits for nothing.
    fn post(&self, peer: &HostPort, frame: Bytes);

    /// Asks for a copy of a partition, or a part of one: `LocalReplicas::answer_copy` answers.
    fn copy(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;
}

/// Whose certificates are let in.
pub trait Trusted: Debug + Send + Sync {
    /// These, as [`Introduction::key`](crate::message::Introduction::key) has them, and no others.
    fn trust(&self, keys: BTreeSet<String>);
}
