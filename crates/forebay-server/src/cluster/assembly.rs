//! A node of a cluster, put together from its parts: versions and replicas in its cache, what
//! follows the catalog, and what its server needs of them.

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
use crate::proposed::ProposedCommands;

/// How long a node that starts waits to hear whether it is taken in.
const TAKEN_IN: Duration = Duration::from_secs(5);
/// Threads that apply what the replicas of live tables have decided.
const APPLIERS: usize = 2;
const LOOK: Duration = Duration::from_millis(20);

/// What a node is made of.
#[derive(Debug)]
pub struct NodeSetup {
    pub identity: Identity,
    /// Its class ports are opened, too.
    pub who: Introduction,
    pub settings: CoordinatorSettings,
    pub catalog: Arc<dyn Catalog>,
    /// When the store was asked first, by the monotonic clock: it is away since then.
    pub asked_at: Duration,
    /// The node's own, in which it keeps what it holds. Files, clock and randomness are its.
    pub cache: Store,
    pub remembered: SavedCatalog,
    /// The cluster's store, as versions are brought from it.
    pub origin: Arc<dyn Origin>,
    pub rate: PullRate,
    /// See [`forebay_cluster::local::boot_id`].
    pub boot_id: u128,
    /// Of each live table's log, what is kept for replicas that were away.
    pub log_retention_bytes: u64,
    /// Where other nodes come to.
    pub peer: SocketAddr,
    pub gateway: Option<SocketAddr>,
    /// `None`: in the clear.
    pub tls: Option<PeerTls>,
    pub trusted: Arc<dyn Trusted>,
    /// See [`ClusterConfig::max_staleness`].
    pub max_staleness: Option<Duration>,
}

/// A node that is ready to be started with its server.
#[derive(Debug)]
pub struct ClusterNode {
    /// What the server is to serve.
    pub store: Store,
    pub handle: NodeHandle,
    pub versions: Arc<LocalVersions>,
    pub replicas: Arc<LocalReplicas>,
}

/// Why a node cannot be put together.
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
    /// Puts the parts together; `config` is completed by it.
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
        let commands = Arc::new(ProposedCommands::default());
        let replicas = LocalReplicas::new(ReplicaParts {
            cache: store.clone(),
            commands: Arc::clone(&commands) as _,
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
        config.proposed = Some(commands);
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

    /// Waits a while for the cluster to know the node. Returns why it is not taken in, where that
    /// was said; a cluster that does not answer is waited for meanwhile.
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

    /// Has clients and leaders go elsewhere before the node stops: it leaves the map and hands its
    /// groups over, each for so long at most.
    pub fn leave(&self, within: Duration) {
        self.handle.leave(within);
        self.replicas.hand_over(within);
    }
}
