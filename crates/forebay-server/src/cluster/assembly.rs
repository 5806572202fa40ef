//! Assembles a node of a cluster from its parts.
//!
//! The parts are the versions and replicas in its cache, the follower of the catalog, and the
//! inputs of its server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::catalog::Catalog;
use forebay_cluster::coordinator::CoordinatorSettings;
use forebay_cluster::local::{HeldRanges, LocalReplicas, LocalVersions, ReplicaParts};
use forebay_cluster::message::Introduction;
use forebay_cluster::model::Identity;
use forebay_cluster::shell::{NodeHandle, NodeParts, SavedCatalog};
use forebay_cluster::{Peers, Trusted};
use forebay_engine::{DEFAULT_POLL, Serving, Store, StoreError};
use forebay_io::Clock;
use forebay_objects::{Origin, PullRate};
use thiserror::Error;

use super::config::{ClusterConfig, ForwardLimits};
use super::peers::PeerClient;
use super::pins::PeerTls;
use crate::config::ServerConfig;

/// How long a starting node waits to learn whether the cluster accepts it.
const TAKEN_IN: Duration = Duration::from_secs(5);
/// The threads that apply decided entries of live tables.
const APPLIERS: usize = 2;
const LOOK: Duration = Duration::from_millis(20);

/// The parts of a node.
#[derive(Debug)]
pub struct NodeSetup {
    pub identity: Identity,
    /// The node's introduction to the cluster. Its class ports are opened, too.
    pub who: Introduction,
    pub settings: CoordinatorSettings,
    pub catalog: Arc<dyn Catalog>,
    /// When the node first asked the store, on the monotonic clock. Until it answers, it counts as
    /// unreachable since then.
    pub asked_at: Duration,
    /// The node's own cache. It supplies files, clock and randomness.
    pub cache: Store,
    pub remembered: SavedCatalog,
    /// The cluster's store, from which versions are fetched.
    pub origin: Arc<dyn Origin>,
    pub rate: PullRate,
    /// See [`forebay_cluster::local::boot_id`].
    pub boot_id: u128,
    /// The log that is kept for replicas that were away, for each live table.
    pub log_retention_bytes: u64,
    /// The address of the peer port.
    pub peer: SocketAddr,
    pub gateway: Option<SocketAddr>,
    /// `None` for unencrypted connections.
    pub tls: Option<PeerTls>,
    pub trusted: Arc<dyn Trusted>,
    /// See [`ClusterConfig::max_staleness`].
    pub max_staleness: Option<Duration>,
}

/// A node that is ready to start with its server.
#[derive(Debug)]
pub struct ClusterNode {
    /// The store that the server is to serve.
    pub store: Store,
    pub handle: NodeHandle,
    pub versions: Arc<LocalVersions>,
    pub replicas: Arc<LocalReplicas>,
}

/// The reason why a node cannot be assembled.
#[derive(Debug, Error)]
pub enum NodeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot start the replicas of live tables: {0}")]
    Replicas(#[source] io::Error),
    #[error("cannot start the node: {0}")]
    Node(#[source] io::Error),
}

impl ClusterNode {
    /// Assembles a node and completes `config`.
    pub fn new(setup: NodeSetup, config: &mut ServerConfig) -> Result<Self, NodeError> {
        let open = Arc::new(HeldRanges::default());
        let store = setup.cache.holding(open.clone());
        let (clock, random) = (Arc::clone(store.clock()), Arc::clone(store.random()));
        let serving = Arc::new(Serving::commanded(store.clone(), DEFAULT_POLL)?);
        let (served, origin) = (Arc::clone(&serving), setup.origin);
        let versions = LocalVersions::new(store.clone(), open, served, origin, setup.rate);
        let versions = Arc::new(versions.map_err(NodeError::Node)?);
        let (net, tls) = (Arc::clone(&config.net), setup.tls);
        let peers = PeerClient::start(net, Arc::clone(&clock), tls.as_ref());
        let peers = Arc::new(peers.map_err(NodeError::Node)?);
        let reach = peers.reach();
        let replicas = LocalReplicas::new(ReplicaParts {
            cache: store.clone(),
            peers: Arc::clone(&peers) as Arc<dyn Peers>,
            memory_bytes: config.live_memory_bytes,
            boot_id: setup.boot_id,
            appliers: APPLIERS,
            log_retention_bytes: setup.log_retention_bytes,
            throttle: Arc::clone(versions.fetcher().throttle()),
            staged: Arc::clone(&versions) as _,
        });
        let replicas = Arc::new(replicas.map_err(NodeError::Replicas)?);
        let class_ports = setup.who.class_ports.clone();
        let handle = NodeHandle::new(NodeParts {
            identity: setup.identity,
            who: setup.who,
            settings: setup.settings,
            catalog: setup.catalog,
            peers,
            replicas: Some(Arc::clone(&replicas)),
            versions: Arc::clone(&versions) as _,
            versions_at: Arc::clone(&versions) as _,
            trusted: setup.trusted,
            remembered: setup.remembered,
            asked_at: setup.asked_at,
            clock,
            random,
        })
        .map_err(NodeError::Node)?;
        config.serving = Some(serving);
        config.cluster = Some(ClusterConfig {
            member: handle.member(),
            gateway: setup.gateway,
            class_ports,
            peer: setup.peer,
            peer_tls: tls,
            forward: ForwardLimits::default(),
            reach,
            max_staleness: setup.max_staleness,
        });
        Ok(Self {
            store,
            handle,
            versions,
            replicas,
        })
    }

    /// Waits a while for the cluster to accept the node. Returns the reason if it is refused. If
    /// the cluster does not answer, the node continues to wait in the background.
    pub fn taken_in(&self) -> Option<String> {
        let clock: &dyn Clock = &**self.store.clock();
        let end = clock.monotonic() + TAKEN_IN;
        while clock.monotonic() < end && !self.handle.is_known() {
            if let Some(problem) = self.handle.refusal() {
                return Some(problem);
            }
            clock.sleep(LOOK);
        }
        self.handle.refusal()
    }

    /// Prepares the node's stop: it leaves the map and hands over its groups, so that clients use
    /// other nodes. Each step takes at most `within`.
    pub fn leave(&self, within: Duration) {
        self.handle.leave(within);
        self.replicas.hand_over(within);
    }
}
