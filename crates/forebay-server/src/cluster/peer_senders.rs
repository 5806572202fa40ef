//! Sends messages of replicas to other nodes, in order over one connection to each.
//!
//! A message that cannot be sent is lost, which replicas expect of any message.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use forebay_cluster::HostPort;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::link::{AskFailure, Dialer, Link, PeerAnswer};

/// Messages beyond this size that a node has not accepted are dropped.
const MOST_HELD_BYTES: usize = 96 << 20;
/// If a node accepts nothing for this long, the connection is reopened.
const PATIENCE: Duration = Duration::from_secs(3);

/// The outgoing messages of replicas, by node.
#[derive(Debug)]
pub struct PeerSenders {
    dialer: Dialer,
    ways: Mutex<BTreeMap<HostPort, NodeQueue>>,
}

/// The messages in flight to one node.
#[derive(Debug)]
struct NodeQueue {
    link: Link,
    under_way: VecDeque<QueuedMessage>,
    held_bytes: usize,
    /// When the current first message became the first.
    since: Duration,
}

#[derive(Debug)]
struct QueuedMessage {
    bytes: usize,
    taken: oneshot::Receiver<Result<PeerAnswer, AskFailure>>,
}

impl PeerSenders {
    pub fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            ways: Mutex::default(),
        }
    }

    /// Sends a frame, or loses it. REQUIRES: a runtime, whose task serves the connection.
    pub fn post(&self, peer: &HostPort, frame: Bytes) {
        let now = self.dialer.clock.monotonic();
        let mut ways = self.ways.lock();
        if ways.get_mut(peer).is_some_and(|way| way.is_stuck(now))
            && let Some(stuck) = ways.remove(peer)
        {
            stuck.link.abandon();
        }
        let open = || NodeQueue {
            link: Link::open(self.dialer.clone(), peer.clone()),
            under_way: VecDeque::new(),
            held_bytes: 0,
            since: now,
        };
        let way = ways.entry(peer.clone()).or_insert_with(open);
        if !way.put(frame, now) {
            ways.remove(peer);
        }
    }
}

impl NodeQueue {
    /// Forgets accepted frames. Returns whether the connection is no longer usable.
    fn is_stuck(&mut self, now: Duration) -> bool {
        while let Some(first) = self.under_way.front_mut() {
            match first.taken.try_recv() {
                Ok(Ok(_)) => {
                    self.held_bytes -= first.bytes;
                    self.under_way.pop_front();
                    self.since = now;
                }
                Ok(Err(_)) | Err(TryRecvError::Closed) => return true,
                Err(TryRecvError::Empty) => break,
            }
        }
        !self.under_way.is_empty() && now.saturating_sub(self.since) > PATIENCE
    }

    /// Queues a frame. Returns whether the connection is open.
    fn put(&mut self, frame: Bytes, now: Duration) -> bool {
        let bytes = frame.len();
        if self.held_bytes + bytes > MOST_HELD_BYTES {
            return true;
        }
        let Some(taken) = self.link.put(frame) else {
            return false;
        };
        if self.under_way.is_empty() {
            self.since = now;
        }
        self.held_bytes += bytes;
        self.under_way.push_back(QueuedMessage { bytes, taken });
        true
    }
}
