//! The configuration of a server that is a node of a cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_cluster::Member;

use super::pins::PeerTls;
use super::reach::Reach;

/// A node's cluster configuration. [`crate::ServerConfig::resp`] is its ordinary port.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    pub member: Arc<dyn Member>,
    /// The address of the gateway, which acts as a standalone server and forwards commands for keys
    /// of other nodes.
    pub gateway: Option<SocketAddr>,
    /// The ports of the classes that the node may be primary of, at the address of its ordinary
    /// port. The same port numbers are advertised.
    pub class_ports: Vec<u16>,
    /// The address of the peer port.
    pub peer: SocketAddr,
    /// The TLS configuration of the peer port and of connections to it. `None` for unencrypted, on
    /// loopback only.
    pub peer_tls: Option<PeerTls>,
    pub forward: ForwardLimits,
    /// The reachability state that the node's [`super::PeerClient`] uses.
    pub reach: Arc<Reach>,
    /// The age of data up to which a following replica answers after READONLY without asking for
    /// the newest. `None` if it asks each time.
    pub max_staleness: Option<Duration>,
}

/// The time limits of forwarded commands.
#[derive(Debug, Clone, Copy)]
pub struct ForwardLimits {
    /// The time for one node's answer before the next node is asked.
    pub hop_time: Duration,
    /// The time for all attempts together.
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
