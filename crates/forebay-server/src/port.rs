//! The ports that connections come to. What is not here goes elsewhere by the port that was asked.

/// See the module's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Port {
    /// Of a server that is no part of a cluster.
    Alone,
    /// A node's ordinary port. It speaks the protocol of Redis Cluster.
    Cluster,
    /// The port of a class that the node heads.
    Class(u16),
    /// It says that it is a server alone, and forwards what is not here.
    Gateway,
    /// Where other nodes come to.
    Peer,
}

impl Port {
    /// Whether its clients are told that this is a cluster.
    pub fn is_clustered(self) -> bool {
        matches!(self, Port::Cluster | Port::Class(_))
    }

    /// What clients are told that the server is.
    pub fn mode(self) -> &'static str {
        if self.is_clustered() {
            "cluster"
        } else {
            "standalone"
        }
    }

    /// Whether a command of its clients is taken elsewhere when its keys are not here.
    pub fn is_led_on(self) -> bool {
        matches!(self, Port::Cluster | Port::Class(_) | Port::Gateway)
    }
}
