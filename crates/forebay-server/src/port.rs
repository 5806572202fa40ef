//! The ports of a server. The port decides how commands for keys of other nodes are handled.

/// The port that a connection uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// The port of a server that is not part of a cluster.
    Alone,
    /// A node's ordinary port. It speaks the protocol of Redis Cluster.
    Cluster,
    /// The port of a class that the node heads.
    Class(u16),
    /// The gateway, which acts as a standalone server and forwards commands for keys of other
    /// nodes.
    Gateway,
    /// The port for other nodes.
    Peer,
}

impl Port {
    /// Returns whether the server reports cluster mode to clients of the port.
    pub fn is_clustered(self) -> bool {
        matches!(self, Port::Cluster | Port::Class(_))
    }

    /// Returns the server's mode as reported to clients.
    pub fn mode(self) -> &'static str {
        if self.is_clustered() {
            "cluster"
        } else {
            "standalone"
        }
    }

    /// Returns whether commands for keys that this node lacks are forwarded or redirected.
    pub fn is_led_on(self) -> bool {
        matches!(self, Port::Cluster | Port::Class(_) | Port::Gateway)
    }
}
