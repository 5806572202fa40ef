//! The cluster as clients of Redis Cluster are told of it.
//!
//! A shard is one or several classes with one address of a primary. Each class has a port of its
//! own on its acting primary, so that an address is a primary's or a replica's and never both:
//! clients take an address for a node with one role. Replicas are at their nodes' ordinary ports,
//! the primary's own among them, so that reads of replicas spread over all copies. Where a node's
//! ordinary port is a primary's address, as it is without class ports, it is no replica's.

use std::collections::BTreeSet;

use forebay_cluster::map::{Class, ClusterMap, MapNode};
use forebay_cluster::{HostPort, NodeId};
use ring::digest::{SHA256, digest};

use crate::port::Port;

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// 40 hex digits.
    pub id: String,
    /// First and last slots.
    pub slots: Vec<(u16, u16)>,
    /// The primary first.
    pub nodes: Vec<Advertised>,
}

/// A node in one role of one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// 40 hex digits.
    pub id: String,
    pub node: NodeId,
    pub address: HostPort,
    pub is_available: bool,
}

/// All shards, by their slots.
pub fn shards(map: &ClusterMap) -> Vec<Shard> {
    let led = || {
        map.classes()
            .iter()
            .filter(|class| !class.primary.host.is_empty())
    };
    let primaries: BTreeSet<&HostPort> = led().map(|class| &class.primary).collect();
    let mut shards: Vec<Shard> = Vec::new();
    for class in led() {
        let slots = (class.first, class.last);
        let same = |shard: &&mut Shard| shard.nodes[0].address == class.primary;
        match shards.iter_mut().find(same) {
            Some(shard) => shard.slots.push(slots),
            None => shards.push(Shard::new(map, class, &primaries)),
        }
    }
    shards
}

impl Shard {
    fn new(map: &ClusterMap, class: &Class, primaries: &BTreeSet<&HostPort>) -> Self {
        let first = class.first;
        let is_available = |id| map.node(id).is_some_and(|node| node.is_available);
        let node = |id: NodeId, role, address: &HostPort| Advertised {
            id: hex_id(map, &format!("{role} of class {first} at node {id}")),
            node: id,
            address: address.clone(),
            is_available: is_available(id),
        };
        let acting = class.nodes.first().copied().unwrap_or_default();
        let mut nodes = vec![node(acting, "primary", &class.primary)];
        for replica in class
            .nodes
            .iter()
            .chain(&class.away)
            .filter_map(|id| map.node(*id))
        {
            if !primaries.contains(&replica.listen) {
                nodes.push(node(replica.id, "replica", &replica.listen));
            }
        }
        Self {
            id: hex_id(map, &format!("class {first}")),
            slots: vec![(class.first, class.last)],
            nodes,
        }
    }
}

/// Where clients are led to that are to ask a node for keys of a slot: an address that they take
/// for a primary's, that of the slot's class if the node heads it. `None`: they know it as a
/// replica alone. Some clients take an address that they are led to for the slot's primary from
/// then on, and walk through it as through all primaries.
pub fn primary_at(map: &ClusterMap, node: &MapNode, slot: u16) -> Option<HostPort> {
    let is_headed = |class: &&Class| class.nodes.first() == Some(&node.id);
    let of_slot = map.class_of(slot).filter(is_headed);
    let headed = of_slot.or_else(|| map.classes().iter().find(is_headed));
    let is_replica = || {
        let mut classes = map.classes().iter();
        classes.any(|class| class.nodes.contains(&node.id))
    };
    let address = match headed {
        Some(class) => &class.primary,
        None if is_replica() => return None,
        None => &node.listen,
    };
    (!address.host.is_empty()).then(|| address.clone())
}

/// Where a client that came to this port of this node takes itself to be. `None`: such a port is
/// not advertised.
pub fn myself<'s>(map: &ClusterMap, shards: &'s [Shard], port: Port) -> Option<&'s Advertised> {
    let listen = &map.node(map.me)?.listen;
    let address = match port {
        Port::Class(port) => listen.at(port),
        _ => listen.clone(),
    };
    let mut nodes = shards.iter().flat_map(|shard| &shard.nodes);
    nodes.find(|node| node.address == address)
}

/// The id of a port that is not advertised.
pub fn unlisted_id(map: &ClusterMap, port: Port) -> String {
    hex_id(map, &format!("{port:?} of node {}", map.me))
}

fn hex_id(map: &ClusterMap, what: &str) -> String {
    let sum = digest(&SHA256, format!("{}: {what}", map.cluster).as_bytes());
    forebay_engine::to_hex(&sum.as_ref()[..20])
}
