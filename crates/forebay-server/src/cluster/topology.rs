//! The cluster as clients of Redis Cluster are told of it.
//!
//! A shard is one or several classes with one address of a primary. Each class has a port of its
//! own on its acting primary, so that an address is a primary's or a replica's and never both:
//! clients take an address for a node with one role. Replicas are at their nodes' ordinary ports,
//! the primary's own among them, so that reads of replicas spread over all copies. Where a node's
//! ordinary port is a primary's address, as it is without class ports, it is no replica's.
//!
//! Clients that are bound to a table which has a layout of its own see that one, of more ranges
//! than there are class ports. They come to primaries at the ordinary ports, and to replicas at the
//! ports of the nodes' first classes.

use std::collections::{BTreeMap, BTreeSet};

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

/// A range of slots, and who answers for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotRow {
    pub first: u16,
    pub last: u16,
    /// The primary first.
    pub nodes: Vec<Advertised>,
}

/// All shards, by their slots. Where the classes of a primary have different replicas, a shard has
/// those that have all of them.
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

/// All ranges of slots that somebody answers for, each with its own replicas.
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

/// Has all rows of a primary tell of as many replicas, some of them twice: there are clients that
/// take turns over all slots of a primary together. Where one row has none, none has.
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

/// Who answers for a class of the shard that is named after the class which begins there.
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

/// Where a node answers as a replica. `None`: nowhere.
fn replica_at(map: &ClusterMap, node: &MapNode) -> Option<HostPort> {
    match map.is_own {
        true => node.class_ports.first().map(|port| node.listen.at(*port)),
        false => Some(node.listen.clone()),
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
