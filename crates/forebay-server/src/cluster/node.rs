//! The state of the cluster that all connections of a node's server share.

use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::map::ClusterMap;
use forebay_cluster::{HostPort, Member, NodeId};
use forebay_io::{Clock, Net};

use super::class_redirects::ClassChanges;
use super::config::{ClusterConfig, ForwardLimits};
use super::counts::ClusterCounts;
use super::link::{Dialer, Links};
use super::pins::Pin;
use crate::client::Client;
use crate::config::HIGH_WATER;
use crate::users::User;

/// Connections of a worker to one other node.
const LINKS: usize = 4;
/// How long a command waits for a new map after the current one proved wrong.
const MAP_PATIENCE: Duration = Duration::from_millis(500);
const MAP_LOOK: Duration = Duration::from_millis(10);

/// The identity of the node that opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerIdentity {
    /// The certificate that the node showed.
    Certificate(Pin),
    /// The node's own claim on an unencrypted connection, with the revision of its map.
    Said { node: NodeId, revision: u64 },
}

/// The cluster as this node's server sees it.
#[derive(Debug)]
pub struct Cluster {
    member: Arc<dyn Member>,
    pub config: ClusterConfig,
    pub counts: ClusterCounts,
    pub changes: ClassChanges,
    /// One for each worker.
    links: Vec<Links>,
}

impl Cluster {
    /// Creates the state for this number of workers, with replies of at most this many bytes.
    pub fn new(
        config: ClusterConfig,
        net: &Arc<dyn Net>,
        clock: &Arc<dyn Clock>,
        workers: usize,
        reply_bytes: usize,
    ) -> Self {
        let dialer = Dialer {
            net: Arc::clone(net),
            clock: Arc::clone(clock),
            answered: Arc::clone(config.reach.answered()),
            tls: config.peer_tls.as_ref().map(|tls| Arc::clone(&tls.client)),
            // A pipeline sends replies once they pass the mark.
            answer_bytes: reply_bytes.saturating_add(2 * HIGH_WATER),
        };
        Self {
            member: Arc::clone(&config.member),
            links: (0..workers)
                .map(|_| Links::new(dialer.clone(), LINKS))
                .collect(),
            counts: ClusterCounts::default(),
            changes: ClassChanges::default(),
            config,
        }
    }

    pub fn map(&self) -> Arc<ClusterMap> {
        self.member.map()
    }

    /// Returns the map as this user's clients see it. A user bound to a table with a slot layout of
    /// its own sees that layout; all others see the shared one.
    pub fn map_for(&self, user: &User) -> Arc<ClusterMap> {
        let map = self.map();
        let own = user.only_table().and_then(|table| map.own(table));
        own.cloned().unwrap_or(map)
    }

    pub fn member(&self) -> &dyn Member {
        &*self.member
    }

    /// Returns whether a connection belongs to a node that was removed from the cluster, as far as
    /// this node knows. Such a connection is ended without answers.
    pub fn is_of_removed_node(&self, client: &Client) -> bool {
        match *client.node.lock() {
            None => false,
            Some(PeerIdentity::Certificate(pin)) => {
                let tls = self.config.peer_tls.as_ref();
                tls.is_some_and(|tls| !tls.peers.contains(&pin))
            }
            Some(PeerIdentity::Said { node, revision }) => {
                let map = self.map();
                // A newer map may have added the node since.
                revision <= map.revision && map.node(node).is_none()
            }
        }
    }

    pub fn limits(&self) -> ForwardLimits {
        self.config.forward
    }

    pub fn max_staleness(&self) -> Option<Duration> {
        self.config.max_staleness
    }

    /// REQUIRES: `worker` is below the number of workers.
    pub fn links(&self, worker: usize) -> &Links {
        &self.links[worker]
    }

    /// Returns whether this node and the nodes that it reaches are no majority of the cluster, as
    /// far as is known. The call starts probes of all nodes: a result is possible one second after
    /// the first call.
    pub fn lacks_majority(&self, now: Duration) -> bool {
        let map = self.map();
        self.config.reach.lacks_majority(now, &others(&map))
    }

    /// Returns the result of [`Self::lacks_majority`] without probes, if recent calls have made
    /// some.
    pub fn is_known_to_lack_majority(&self, now: Duration) -> bool {
        let map = self.map();
        let reach = &self.config.reach;
        reach.is_known_to_lack_majority(now, &others(&map))
    }

    /// Returns whether a node has answered recently.
    pub fn reaches(&self, now: Duration, node: NodeId) -> bool {
        let map = self.map();
        let peer = map.node(node).map(|node| &node.peer);
        peer.is_some_and(|peer| self.config.reach.reaches(now, peer))
    }

    /// Returns whether a node failed to answer a command a moment ago and has given no sign since.
    /// In that case all nodes are probed.
    pub fn is_silent(&self, now: Duration, node: NodeId) -> bool {
        let map = self.map();
        let peer = map.node(node).map(|node| &node.peer);
        let is_silent = peer.is_some_and(|peer| self.config.reach.is_silent(now, peer));
        if is_silent {
            self.lacks_majority(now);
        }
        is_silent
    }

    /// Returns whether this node reaches no majority. A recent command found so, or a probe runs
    /// now because replicas of this node ask the others for the leader.
    pub fn is_cut_off(&self, now: Duration) -> bool {
        let replicas = self.member.replicas();
        let lacks_leader = replicas.is_some_and(|replicas| replicas.host().lacks_leader());
        match lacks_leader {
            true => self.lacks_majority(now),
            false => self.is_known_to_lack_majority(now),
        }
    }

    /// Waits a while for another map than the one that nodes disagree about.
    pub async fn newer_map(&self, clock: &dyn Clock, than: u64) {
        let until = clock.monotonic() + MAP_PATIENCE;
        while self.map().revision == than && clock.monotonic() < until {
            clock.wait(MAP_LOOK).await;
        }
    }

    /// Records that a node did not answer.
    pub fn suspect(&self, now: Duration, node: NodeId) {
        self.counts.suspected();
        if let Some(node) = self.map().node(node) {
            self.config
                .reach
                .answered()
                .of(&node.peer)
                .note_silence(now);
        }
        self.member.suspect(node);
    }
}

fn others(map: &ClusterMap) -> Vec<&HostPort> {
    let others = map.nodes().filter(|node| node.id != map.me);
    others.map(|node| &node.peer).collect()
}
