//! Interfaces that a node requires of the server that it is part of.

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

/// An answer that a task can await without blocking a thread.
pub type DeferredAnswer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Access to other nodes through their peer ports.
pub trait Peers: Debug + Send + Sync {
    /// Sends a message and waits for the answer. Messages to one node may overtake each other.
    fn ask(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// Fetches a part of a run's file from another node.
    fn fetch(
        &self,
        peer: &HostPort,
        table: &TableName,
        file: &str,
        range: Range<u64>,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;

    /// Sends messages of replicas, or loses them: `LocalReplicas::receive` takes them on the other
    /// node. Does not wait.
    fn post(&self, peer: &HostPort, frame: Bytes);

    /// Asks for a copy of a partition, or a part of one: `LocalReplicas::answer_copy` answers.
    fn copy(
        &self,
        peer: &HostPort,
        message: Bytes,
        within: Duration,
    ) -> DeferredAnswer<io::Result<Bytes>>;
}

/// The set of trusted certificates.
pub trait Trusted: Debug + Send + Sync {
    /// Trusts these certificates, in the form of
    /// [`Introduction::key`](crate::message::Introduction::key), and no others.
    fn trust(&self, keys: BTreeSet<String>);
}
