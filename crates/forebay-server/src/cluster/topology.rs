//! The cluster as clients of Redis Cluster see it.
//!
//! A shard is one or several classes whose primary has one address. Each class has a port of its
//! own on its acting primary. So an address is a primary's or a replica's and never both, because
//! clients assume one role per address. Replicas are at their nodes' ordinary ports. The primary's
//! own ordinary port is one of them, so that reads of replicas use all copies. If a node's ordinary
//! port is a primary's address, as without class ports, it is no replica's.
//!
//! Clients bound to a table with a layout of its own see that layout, which has more ranges than
//! there are class ports. They reach primaries at the ordinary ports, and replicas at the ports of
//! the nodes' first classes.

use std::collections::{BTreeMap, BTreeSet};

use forebay_cluster::map::{Class, ClusterMap, MapNode};
use forebay_cluster::{HostPort, NodeId};
use ring::digest::{SHA256, digest};

use crate::port::Port;

/// A shard, as in CLUSTER SHARDS.
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

/// A range of slots with the nodes that answer for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    pub first: u16,
    pub last: u16,
    /// The primary first.
    pub nodes: Vec<Advertised>,
}

/// Returns all shards, by their slots. If the classes of a primary have different replicas, the
/// shard has those that are in all of them.
pub fn shards(map: &ClusterMap) -> Vec<Shard> {
    let mut shards: Vec<Shard> = Vec::new();
    for row in slot_rows(map) {
        let slots = (row.first, row.last);
        let same = |shard: &&mut Shard| shard.nodes[0].address == row.nodes[0].address;
        match shards.iter_mut().find(same) {
            Some(shard) => {
                shard.slots.push(slots);
                shard.nodes.retain(|node| row.nodes.contains(node));
            }
            None => shards.push(Shard {
                id: hex_id(map, &format!("class {}", row.first)),
                slots: vec![slots],
                nodes: without_repeats(row.nodes),
            }),
        }
    }
    shards
}

fn without_repeats(nodes: Vec<Advertised>) -> Vec<Advertised> {
    let mut all: Vec<Advertised> = Vec::new();
    for node in nodes {
        if !all.contains(&node) {
            all.push(node);
        }
    }
    all
}

/// Returns all ranges of slots that have a node, each with its own replicas.
pub fn slot_rows(map: &ClusterMap) -> Vec<SlotRow> {
    let led = || {
        map.classes()
            .iter()
            .filter(|class| !class.primary.host.is_empty())
    };
    let primaries: BTreeSet<&HostPort> = led().map(|class| &class.primary).collect();
    // A shard is named after the first class of its primary.
    let mut first: BTreeMap<&HostPort, u16> = BTreeMap::new();
    let rows = led().map(|class| {
        let named = *first.entry(&class.primary).or_insert(class.first);
        SlotRow {
            first: class.first,
            last: class.last,
            nodes: advertised(map, class, named, &primaries),
        }
    });
    let mut rows: Vec<SlotRow> = rows.collect();
    if map.is_own {
        make_alike(&mut rows);
    }
    rows
}

/// Gives all rows of a primary the same number of replicas, some of them twice: some clients rotate
/// over all slots of a primary together. If one row has no replica, none gets any.
fn make_alike(rows: &mut [SlotRow]) {
    let mut lengths: BTreeMap<HostPort, (usize, usize)> = BTreeMap::new();
    for row in rows.iter() {
        let count = row.nodes.len();
        let (least, most) = lengths
            .entry(row.nodes[0].address.clone())
            .or_insert((count, count));
        (*least, *most) = ((*least).min(count), (*most).max(count));
    }
    for row in rows {
        let (least, most) = lengths[&row.nodes[0].address];
        if least < 2 {
            row.nodes.truncate(1);
            continue;
        }
        let replicas = row.nodes[1..].to_vec();
        let missing = most - row.nodes.len();
        let again = replicas.iter().cycle().take(missing);
        row.nodes.extend(again.cloned());
    }
}

/// Returns the nodes of a class. Its shard is named after the class that begins at this slot.
fn advertised(
    map: &ClusterMap,
    class: &Class,
    shard: u16,
    primaries: &BTreeSet<&HostPort>,
) -> Vec<Advertised> {
    let is_available = |id| map.node(id).is_some_and(|node| node.is_available);
    let node = |id: NodeId, role, address: &HostPort| Advertised {
        id: hex_id(map, &format!("{role} of class {shard} at node {id}")),
        node: id,
        address: address.clone(),
        is_available: is_available(id),
    };
    let acting = class.nodes.first().copied().unwrap_or_default();
    let mut nodes = vec![node(acting, "primary", &class.primary)];
    let replicas = class.nodes.iter().chain(&class.away);
    for replica in replicas.filter_map(|id| map.node(*id)) {
        if let Some(address) = replica_at(map, replica)
            && !primaries.contains(&address)
        {
            nodes.push(node(replica.id, "replica", &address));
        }
    }
    nodes
}

/// Returns the address at which a node answers as a replica. `None` if it has none.
fn replica_at(map: &ClusterMap, node: &MapNode) -> Option<HostPort> {
    match map.is_own {
        true => node.class_ports.first().map(|port| node.listen.at(*port)),
        false => Some(node.listen.clone()),
    }
}

/// Returns the address to redirect clients to for a slot on a node. Clients must know the address
/// as a primary's: it is that of the slot's class if the node heads it. `None` if they know the
/// node only as a replica. After a redirect some clients take the address for the slot's primary
/// and walk through it like all primaries.
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

/// Returns the entry of this node for a client of this port. `None` if the port is not advertised.
pub fn myself<'s>(map: &ClusterMap, shards: &'s [Shard], port: Port) -> Option<&'s Advertised> {
    let listen = &map.node(map.me)?.listen;
    let address = match port {
        Port::Class(port) => listen.at(port),
        _ => listen.clone(),
    };
    let mut nodes = shards.iter().flat_map(|shard| &shard.nodes);
    nodes.find(|node| node.address == address)
}

/// Returns the id of a port that is not advertised.
pub fn unlisted_id(map: &ClusterMap, port: Port) -> String {
    hex_id(map, &format!("{port:?} of node {}", map.me))
}

fn hex_id(map: &ClusterMap, what: &str) -> String {
    let sum = digest(&SHA256, format!("{}: {what}", map.cluster).as_bytes());
    forebay_engine::to_hex(&sum.as_ref()[..20])
}
