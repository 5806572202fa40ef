//! The addresses of the peers of groups, as last ordered.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_host::{MessageSender, NodeKey};
use forebay_replica::{GroupId, PeerId};

use crate::ids::{HostPort, NodeId};
use crate::link::Peers;
use crate::routing::live::ReplicaOrder;

/// The nodes of groups' peers, and the addresses of the nodes.
#[derive(Debug, Default)]
pub struct Roster {
    addresses: BTreeMap<NodeId, HostPort>,
    groups: BTreeMap<GroupId, BTreeMap<PeerId, NodeId>>,
}

/// A roster that new orders replace.
pub type SharedRoster = ArcSwap<Roster>;

impl Roster {
    pub fn of(orders: &[ReplicaOrder]) -> Self {
        let mut roster = Self::default();
        for order in orders {
            let group = roster.groups.entry(order.group).or_default();
            for peer in &order.peers {
                group.insert(peer.peer, peer.node);
                if let Some(address) = &peer.address {
                    roster.addresses.insert(peer.node, address.clone());
                }
            }
        }
        roster
    }

    pub fn node(&self, group: GroupId, peer: PeerId) -> Option<NodeId> {
        self.groups.get(&group)?.get(&peer).copied()
    }

    pub fn address(&self, node: NodeId) -> Option<&HostPort> {
        self.addresses.get(&node)
    }
}

/// Returns the nodes of an order's peers, in the host's form.
pub fn nodes_of(order: &ReplicaOrder) -> BTreeMap<PeerId, NodeKey> {
    let peers = order.peers.iter();
    peers
        .map(|peer| (peer.peer, NodeKey(peer.node.0)))
        .collect()
}

/// A sender of messages to the addresses in the roster.
#[derive(Debug)]
pub struct RosterSender {
    pub roster: Arc<SharedRoster>,
    pub peers: Arc<dyn Peers>,
}

impl MessageSender for RosterSender {
    fn send(&self, to: NodeKey, frame: Bytes) {
        if let Some(address) = self.roster.load().address(NodeId(to.0)) {
            self.peers.post(address, frame);
        }
    }
}
