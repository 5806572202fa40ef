//! The replicas of live tables that a node is to have, and where those of others are.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::live::LiveOptions;
use forebay_engine::{Bounds, PartitionId, RunId, TableName};
use forebay_replica::{GroupId, PeerId, SplitEntry, WantedPeer, WantedPeers};

use crate::ids::{HostPort, NodeId};
use crate::model::{
    EndedLoad, GroupEntry, InheritedReplica, LoadStage, Model, NodeEntry, PeerState, TableLoad,
};

/// A replica that a node is to have, and what its group is to be.
///
/// Where the files are not there: a peer that is new is made, empty, by `founders` if there are
/// any, and does not run yet, as it promises nothing before the catalog has it; any other forgot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaOrder {
    pub table: TableName,
    pub options: Arc<LiveOptions>,
    pub partition: PartitionId,
    pub bounds: Bounds,
    pub epoch: u64,
    pub group: GroupId,
    pub peer: PeerId,
    /// It is to be there, and to say so; it runs once this is over.
    pub is_new: bool,
    /// The voters that the group is founded with, where the peer is one of them; none: it joins.
    pub founders: Option<Vec<PeerId>>,
    /// The replica of here that it goes on from, alone, where its group takes the place of one that
    /// lost its majority.
    pub inherits: Option<InheritedReplica>,
    /// The peer of another group that it comes from, where that was split. If that one had the
    /// split by a copy, this one was never here: it is made, empty, though the catalog has it.
    pub comes_from: Option<(GroupId, PeerId)>,
    /// The partition is to be split.
    pub split: Option<Arc<SplitEntry>>,
    /// All peers that may still be talked to.
    pub peers: Vec<OrderedPeer>,
    /// What the group is to become, if this replica leads it.
    pub wanted: WantedPeers,
    /// The load that the partition is to get.
    pub load: Option<OrderedLoad>,
    /// The load of the table that ended last.
    pub last_load: EndedLoad,
}

/// A load that a partition is to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedLoad {
    pub number: u64,
    /// By which the store has its document, and the document's checksum.
    pub id: RunId,
    pub sum: u64,
    /// Whoever leads the group is to propose it.
    pub is_adding: bool,
}

/// A peer of a replica's group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedPeer {
    pub peer: PeerId,
    pub node: NodeId,
    /// None: the node is none any more.
    pub address: Option<HostPort>,
}

/// The replicas that a node is to have, and those that are to go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaOrders {
    /// They are what the node knew before it stopped, and maybe not all: what is there of them
    /// runs, and nothing is made or removed.
    pub is_from_memory: bool,
    /// The catalog's revision that says so.
    pub revision: u64,
    /// All of them. What lies on the disk besides is to go.
    pub replicas: Vec<ReplicaOrder>,
    /// How many more of a table's partitions are to be here, and have no peer here yet.
    pub missing: BTreeMap<TableName, usize>,
    /// Those that were ordered before, and are no more: they end, and their files go.
    pub gone: Vec<(GroupId, PeerId)>,
}

/// A partition of a live table, and where its replicas are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRoute {
    pub partition: PartitionId,
    pub bounds: Bounds,
    pub epoch: u64,
    pub group: GroupId,
    /// Whoever led when last heard of, then the one that is to lead, then the others.
    pub nodes: Vec<NodeId>,
    /// The children that it is being split into: whoever has the split already finds keys there.
    pub children: Vec<ChildRoute>,
}

/// A child of a partition that is being split, on the nodes of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRoute {
    pub partition: PartitionId,
    pub group: GroupId,
}

/// What a node is to have by a model.
pub fn orders(model: &Model, me: NodeId) -> Vec<ReplicaOrder> {
    let mut orders = Vec::new();
    for (name, entry) in model.live_tables() {
        let Some(live) = entry.live() else {
            continue;
        };
        let options = Arc::new(live.options.clone());
        let load = model.work.load_of(name);
        for (group, wanted) in model.wanted_groups(name) {
            let ordering = Ordering {
                model,
                me,
                table: name,
                options: &options,
                wanted: (wanted, entry.holding()),
                loads: (load, live.last_load),
            };
            orders.extend(ordering.orders(group));
            let children = group.split.iter().flat_map(|split| &split.children);
            orders.extend(children.flat_map(|child| ordering.orders(child)));
        }
    }
    orders
}

impl OrderedLoad {
    fn of(load: &TableLoad, group: &GroupEntry) -> Option<Self> {
        load.has(group.partition).then(|| Self {
            number: load.number,
            id: load.draft.id.clone(),
            sum: load.draft.sum,
            is_adding: load.stage == LoadStage::Adding,
        })
    }
}

/// With what the replicas of a group on a node are ordered.
struct Ordering<'a> {
    model: &'a Model,
    me: NodeId,
    table: &'a TableName,
    options: &'a Arc<LiveOptions>,
    /// The nodes that are to have it, and how many replicas there are to be.
    wanted: (&'a [NodeId], usize),
    /// The one that is under way, and the last that has ended.
    loads: (Option<&'a TableLoad>, EndedLoad),
}

impl<'a> Ordering<'a> {
    fn orders(&'a self, group: &'a GroupEntry) -> impl Iterator<Item = ReplicaOrder> + 'a {
        let mine = group.peers.iter().filter(|peer| peer.node == self.me);
        let mine = mine.filter(|peer| peer.state != PeerState::Lost);
        mine.map(|peer| {
            let is_founder = group.founders.contains(&peer.peer);
            let split = group.split.as_ref();
            ReplicaOrder {
                table: self.table.clone(),
                options: Arc::clone(self.options),
                partition: group.partition,
                bounds: group.bounds.clone(),
                epoch: group.epoch,
                group: group.group,
                peer: peer.peer,
                is_new: peer.state == PeerState::New,
                founders: is_founder.then(|| group.founders.clone()),
                inherits: group.inherits.filter(|_| is_founder),
                comes_from: comes_from(group, peer.peer),
                split: split.map(|planned| Arc::new(planned.entry())),
                peers: ordered_peers(self.model, group),
                wanted: wanted_peers(self.model, group, self.wanted),
                load: self.loads.0.and_then(|load| OrderedLoad::of(load, group)),
                last_load: self.loads.1,
            }
        })
    }
}

fn comes_from(group: &GroupEntry, founder: PeerId) -> Option<(GroupId, PeerId)> {
    let from = group.split_from.as_ref()?;
    let mut peers = from.peers.iter();
    let (left, _) = peers.find(|(_, new)| *new == founder)?;
    Some((from.group, *left))
}

/// How many of a table's partitions are to be on a node and have no peer there yet.
pub fn missing(model: &Model, me: NodeId) -> BTreeMap<TableName, usize> {
    let mut missing = BTreeMap::new();
    for (name, _) in model.live_tables() {
        let groups = model.wanted_groups(name).into_iter();
        let lacks = |(group, wanted): &(&GroupEntry, &[NodeId])| {
            wanted.contains(&me) && !group.staying().any(|peer| peer.node == me)
        };
        let count = groups.filter(lacks).count();
        if count > 0 {
            missing.insert(name.clone(), count);
        }
    }
    missing
}

fn ordered_peers(model: &Model, group: &GroupEntry) -> Vec<OrderedPeer> {
    let running = group
        .peers
        .iter()
        .filter(|peer| peer.state != PeerState::Lost);
    let ordered = running.map(|peer| OrderedPeer {
        peer: peer.peer,
        node: peer.node,
        address: model.node(peer.node).map(|node| node.peer.clone()),
    });
    ordered.collect()
}

/// What a group is to become, by the catalog.
fn wanted_peers(
    model: &Model,
    group: &GroupEntry,
    (wanted, replicas): (&[NodeId], usize),
) -> WantedPeers {
    let place = |node: NodeId| wanted.iter().position(|wanted| *wanted == node);
    let mut staying: Vec<_> = group.staying().collect();
    staying.sort_by_key(|peer| (place(peer.node).unwrap_or(usize::MAX), peer.peer));
    let peers = staying.iter().map(|peer| WantedPeer {
        peer: peer.peer,
        is_ready: peer.state == PeerState::Made,
        may_lead: !peer.is_unhealthy && model.node(peer.node).is_some_and(NodeEntry::is_up),
    });
    WantedPeers {
        peers: peers.collect(),
        replicas,
        next_peer: group.next_peer,
    }
}

/// Where the partitions of live tables are, for whoever leads requests to them.
pub fn live_routes(
    model: &Model,
    leaders: &BTreeMap<GroupId, NodeId>,
) -> BTreeMap<TableName, Vec<LiveRoute>> {
    let tables = model.live_tables().map(|(name, _)| {
        let groups = model.wanted_groups(name).into_iter();
        let routes = groups.map(|(group, wanted)| route(group, wanted, leaders));
        (name.clone(), routes.collect())
    });
    tables.collect()
}

fn route(group: &GroupEntry, wanted: &[NodeId], leaders: &BTreeMap<GroupId, NodeId>) -> LiveRoute {
    let leader = leaders.get(&group.group);
    let running = group
        .peers
        .iter()
        .filter(|peer| peer.state != PeerState::Lost);
    let mut nodes: Vec<NodeId> = running.map(|peer| peer.node).collect();
    let place = |node: &NodeId| wanted.iter().position(|wanted| wanted == node);
    nodes.sort_by_key(|node| {
        let is_led = leader == Some(node);
        (!is_led, place(node).unwrap_or(usize::MAX), *node)
    });
    nodes.dedup();
    LiveRoute {
        partition: group.partition,
        bounds: group.bounds.clone(),
        epoch: group.epoch,
        group: group.group,
        nodes,
        children: (group.split.iter())
            .flat_map(|split| &split.children)
            .map(|child| ChildRoute {
                partition: child.partition,
                group: child.group,
            })
            .collect(),
    }
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
