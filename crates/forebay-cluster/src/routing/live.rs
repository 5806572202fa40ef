//! The replicas of live tables that a node has to have, and routes to those of other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::live::LiveOptions;
use forebay_engine::{Bounds, PartitionId, RunId, TableName};
use forebay_replica::{GroupId, PeerId, SplitEntry, WantedPeer, WantedPeers};

use crate::ids::{HostPort, NodeId};
use crate::model::{
    EndedLoad, GroupEntry, InheritedReplica, LoadStage, Model, NodeEntry, PeerState, TableLoad,
};

/// A replica that a node has to have, and the desired state of its group.
///
/// If the files are missing, a new peer is created empty, with `founders` if there are any. It does
/// not run yet, because it promises nothing before the catalog has it. Any other peer without files
/// has lost its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaOrder {
    pub table: TableName,
    pub options: Arc<LiveOptions>,
    pub partition: PartitionId,
    pub bounds: Bounds,
    pub epoch: u64,
    pub group: GroupId,
    pub peer: PeerId,
    /// The peer has to exist and be reported, but runs only once this is false.
    pub is_new: bool,
    /// The voters that found the group, if this peer is one of them. If none, the peer joins the
    /// group.
    pub founders: Option<Vec<PeerId>>,
    /// The local replica whose state it continues alone, if its group replaces one that lost its
    /// majority.
    pub inherits: Option<InheritedReplica>,
    /// The peer of another group that this one results from, if that group was split. If that peer
    /// received the split in a copy, this one never existed. It is created empty, although the
    /// catalog names it.
    pub comes_from: Option<(GroupId, PeerId)>,
    /// The split that the partition has to undergo.
    pub split: Option<Arc<SplitEntry>>,
    /// All peers that may still receive messages.
    pub peers: Vec<OrderedPeer>,
    /// The desired members of the group; this replica works towards them if it leads.
    pub wanted: WantedPeers,
    /// The load that the partition has to add.
    pub load: Option<OrderedLoad>,
    /// The table's load that ended last.
    pub last_load: EndedLoad,
}

/// A load that a partition has to add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedLoad {
    pub number: u64,
    /// The id of the load's document in the store, and the document's checksum.
    pub id: RunId,
    pub sum: u64,
    /// The group's leader has to propose it.
    pub is_adding: bool,
}

/// A peer of a replica's group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderedPeer {
    pub peer: PeerId,
    pub node: NodeId,
    /// Its address; none if the node is no longer a node of the cluster.
    pub address: Option<HostPort>,
}

/// The replicas that a node has to have, and those that it has to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplicaOrders {
    /// The node knew these orders before it stopped, and they may be incomplete. Existing replicas
    /// run; none is created or removed.
    pub is_from_memory: bool,
    /// The catalog revision of these orders.
    pub revision: u64,
    /// All desired replicas. Any other replica on the disk has to be removed.
    pub replicas: Vec<ReplicaOrder>,
    /// The number of each table's partitions that this node has to have and has no peer of yet.
    pub missing: BTreeMap<TableName, usize>,
    /// Replicas that were ordered before and no longer are: they end, and their files are removed.
    pub gone: Vec<(GroupId, PeerId)>,
}

/// A partition of a live table, and the nodes of its replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRoute {
    pub partition: PartitionId,
    pub bounds: Bounds,
    pub epoch: u64,
    pub group: GroupId,
    /// The last known leader first, then the node that should lead, then the others.
    pub nodes: Vec<NodeId>,
    /// The children that result from the split in progress. A node that has applied the split finds
    /// keys in them.
    pub children: Vec<ChildRoute>,
}

/// A child of a partition that is being split, on the nodes of the whole partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChildRoute {
    pub partition: PartitionId,
    pub group: GroupId,
}

/// Returns the replicas that a node has to have by a model.
pub fn orders(model: &Model, me: NodeId) -> Vec<ReplicaOrder> {
    let mut orders = Vec::new();
    for (name, entry) in model.live_tables() {
        let Some(live) = entry.live() else {
            continue;
        };
        let options = Arc::new(live.options.clone());
        let load = model.work.load_of(name);
        for (group, wanted) in model.desired_groups(name) {
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

/// The context in which the replicas of a group on a node are ordered.
struct Ordering<'a> {
    model: &'a Model,
    me: NodeId,
    table: &'a TableName,
    options: &'a Arc<LiveOptions>,
    /// The nodes that have to have the partition, and the desired number of replicas.
    wanted: (&'a [NodeId], usize),
    /// The load in progress, and the load that ended last.
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

/// Counts a table's partitions that a node has to have and has no peer of yet.
pub fn missing(model: &Model, me: NodeId) -> BTreeMap<TableName, usize> {
    let mut missing = BTreeMap::new();
    for (name, _) in model.live_tables() {
        let groups = model.desired_groups(name).into_iter();
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

/// Returns the desired members of a group by the catalog.
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

/// Returns the routes to the partitions of live tables.
pub fn live_routes(
    model: &Model,
    leaders: &BTreeMap<GroupId, NodeId>,
) -> BTreeMap<TableName, Vec<LiveRoute>> {
    let tables = model.live_tables().map(|(name, _)| {
        let groups = model.desired_groups(name).into_iter();
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
