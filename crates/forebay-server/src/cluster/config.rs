//! What a server is told of the cluster that it is a node of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::Member;

use super::pins::PeerTls;
use super::reach::Reach;

/// A server that is a node of a cluster. [`crate::ServerConfig::resp`] is its ordinary port.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    pub member: Arc<dyn Member>,
    /// Where a port listens that says it is a server alone, and forwards what is not here.
    pub gateway: Option<SocketAddr>,
    /// Ports of the classes that the node may head, at the address of its ordinary port. The same
    /// numbers are advertised.
    pub class_ports: Vec<u16>,
    /// Where other nodes come to.
    pub peer: SocketAddr,
    /// Whom the peer port lets in, and whom it goes to; `None` in the clear, on loopback alone.
    pub peer_tls: Option<PeerTls>,
    pub forward: ForwardLimits,
    /// That of the node's [`super::PeerClient`].
    pub reach: Arc<Reach>,
    /// After READONLY a replica that follows answers without asking what was the newest within this
    /// time; `None`: it asks each time.
    pub max_staleness: Option<Duration>,
}

/// How long commands that are forwarded may take.
#[derive(Debug, Clone, Copy)]
pub struct ForwardLimits {
    /// For a node's answer, before the next one is asked.
    pub hop_time: Duration,
    /// In all.
    pub total_time: Duration,
}

impl Default for ForwardLimits {
    fn default() -> Self {
        Self {
            hop_time: Duration::from_secs(1),
            total_time: Duration::from_secs(5),
        }
    }
}
