//! The map by which a node routes: which nodes hold which ranges of which tables.
//!
//! A map results from one head and from this node's suspicions. It is immutable: a server fetches
//! it once per command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use forebay_engine::{Bound, TableName};
use forebay_run::Order;
use forebay_run::hash::SLOTS;

use crate::ids::{ClusterId, HostPort, NodeId, NodeName, Zone};
use crate::model::{Layout, LayoutName, Model, NodeEntry};

/// The nodes, classes and tables of a cluster, as one node sees them.
#[derive(Debug, Clone)]
pub struct ClusterMap {
    pub cluster: ClusterId,
    pub revision: u64,
    /// This node.
    pub me: NodeId,
    nodes: BTreeMap<NodeId, MapNode>,
    classes: Vec<Class>,
    layouts: BTreeMap<LayoutName, Arc<MapLayout>>,
    tables: BTreeMap<TableName, MapTable>,
    /// The maps for clients that see only one table, for each table that has its own layout of
    /// slots.
    own: BTreeMap<TableName, Arc<ClusterMap>>,
    /// Whether nodes answer for replicas at the ports of their first classes, and as the primary at
    /// their ordinary ports. Otherwise it is the other way round.
    pub is_own: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapNode {
    pub id: NodeId,
    pub name: NodeName,
    pub zone: Zone,
    pub listen: HostPort,
    pub class_ports: Vec<u16>,
    pub peer: HostPort,
    /// The node has its lease, and answered all recent requests.
    pub is_available: bool,
}

/// A class: one contiguous range of slots with one preference list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    pub first: u16,
    pub last: u16,
    /// The available nodes that hold the class, the acting primary first. If no node is available,
    /// all of its nodes.
    pub nodes: Vec<NodeId>,
    /// The other nodes of its list, if no other node is available and there are live tables.
    /// Clients learn of them because this node may be the one that is cut off.
    pub away: Vec<NodeId>,
    /// The address at which the acting primary answers for this class.
    pub primary: HostPort,
}

/// The routing data of one table.
#[derive(Debug, Clone)]
pub struct MapTable {
    pub replicas: usize,
    /// Whether all nodes of a range's list hold the range.
    pub by_range: bool,
    pub serving: Option<u64>,
    pub layout: Arc<MapLayout>,
}

/// Adjacent ranges, from the beginning of the order.
#[derive(Debug)]
pub struct MapLayout {
    pub order: Order,
    ranges: Vec<MapRange>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapRange {
    pub lower: Bound,
    /// The nodes that hold the range, the primary first, whether available or not.
    pub list: Vec<NodeId>,
    /// The same nodes in the order in which this node asks them, if that order differs.
    asked: Option<Vec<NodeId>>,
}

impl ClusterMap {
    pub fn new(
        cluster: ClusterId,
        revision: u64,
        me: NodeId,
        model: &Model,
        suspects: &BTreeSet<NodeId>,
    ) -> Self {
        let nodes: BTreeMap<NodeId, MapNode> = model
            .all_nodes()
            .map(|entry| (entry.id, MapNode::new(entry, suspects, me)))
            .collect();
        let by_range = model.all_tables().filter(|(_, entry)| entry.by_range);
        let by_range: BTreeSet<&LayoutName> = by_range.map(|(_, entry)| &entry.layout).collect();
        let layout = |(name, layout): (&LayoutName, &Layout)| {
            let turns = by_range.contains(name).then_some((&nodes, me));
            (name.clone(), Arc::new(MapLayout::new(layout, turns)))
        };
        let layouts: BTreeMap<_, _> = model.layouts.iter().map(layout).collect();
        // Live tables have no versions: `live_routes` has their routes.
        let batch = model.all_tables().filter(|(_, entry)| entry.live.is_none());
        let tables = batch.filter_map(|(name, entry)| {
            let table = MapTable {
                replicas: entry.replicas,
                by_range: entry.by_range,
                serving: entry.serving,
                layout: Arc::clone(layouts.get(&entry.layout)?),
            };
            Some((name.clone(), table))
        });
        let tables: BTreeMap<TableName, MapTable> = tables.collect();
        let main = layouts.get(&LayoutName::Main);
        // The nodes of a class hold a table with the maximum number of replicas. For other tables
        // some of them forward.
        let of_main = model.all_tables();
        let of_main = of_main.filter(|(_, table)| table.layout == LayoutName::Main);
        let most = of_main.map(|(_, table)| table.replicas).max();
        let most = most.unwrap_or(usize::MAX);
        let is_alone = nodes
            .values()
            .all(|node| node.id == me || !node.is_available);
        let notifies_all = is_alone && model.all_tables().any(|(_, table)| table.live.is_some());
        let classes = main.map(|main| classes(&main.ranges, (most, notifies_all), &nodes));
        let map = Self {
            cluster,
            revision,
            me,
            nodes,
            classes: classes.unwrap_or_default(),
            layouts,
            tables,
            own: BTreeMap::new(),
            is_own: false,
        };
        Self {
            own: map.own_maps(),
            ..map
        }
    }

    /// Builds the map that clients see for each table with its own layout of slots.
    fn own_maps(&self) -> BTreeMap<TableName, Arc<Self>> {
        let at_listen = |node: &MapNode| MapNode {
            class_ports: Vec::new(),
            ..node.clone()
        };
        let nodes = self.nodes.iter();
        let nodes: BTreeMap<NodeId, MapNode> =
            nodes.map(|(id, node)| (*id, at_listen(node))).collect();
        let tables = self.tables.iter();
        let tables = tables.filter(|(_, table)| table.has_own_slots());
        let maps = tables.map(|(name, table)| {
            let map = Self {
                classes: classes(&table.layout.ranges, (usize::MAX, false), &nodes),
                is_own: true,
                ..self.clone()
            };
            (name.clone(), Arc::new(map))
        });
        maps.collect()
    }

    /// Returns the map for clients that see only this table; none if they use the common map.
    pub fn own(&self, table: &TableName) -> Option<&Arc<Self>> {
        self.own.get(table)
    }

    /// Returns the tables that have their own layouts of slots, with the maps of
    /// [`ClusterMap::own`].
    pub fn own_tables(&self) -> impl Iterator<Item = (&TableName, &Arc<Self>)> {
        self.own.iter()
    }

    pub fn node(&self, id: NodeId) -> Option<&MapNode> {
        self.nodes.get(&id)
    }

    pub fn nodes(&self) -> impl Iterator<Item = &MapNode> {
        self.nodes.values()
    }

    pub fn my_zone(&self) -> Option<&Zone> {
        self.nodes.get(&self.me).map(|node| &node.zone)
    }

    /// Returns the classes of the layout of all hashed tables, by slots.
    pub fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub fn class_of(&self, slot: u16) -> Option<&Class> {
        let at = self.classes.partition_point(|class| class.first <= slot);
        self.classes.get(at.checked_sub(1)?)
    }

    pub fn table(&self, name: &TableName) -> Option<&MapTable> {
        self.tables.get(name)
    }

    /// Returns a table, with its name in the map.
    pub fn table_and_name(&self, name: &TableName) -> Option<(&TableName, &MapTable)> {
        self.tables.get_key_value(name)
    }

    pub fn tables(&self) -> impl Iterator<Item = (&TableName, &MapTable)> {
        self.tables.iter()
    }

    pub fn layout(&self, name: &LayoutName) -> Option<&Arc<MapLayout>> {
        self.layouts.get(name)
    }

    /// Returns for each range of a table the node of this zone that fetches it from the store: the
    /// first available node of the list. None if that is this node.
    pub fn passed_on(&self, table: &TableName) -> Vec<(Bound, Option<HostPort>)> {
        let Some(table) = self.tables.get(table) else {
            return Vec::new();
        };
        let here = self.my_zone();
        let of_range = |range: &MapRange| {
            let nodes = table.held(Some(range)).iter();
            let mut nodes = nodes.filter_map(|id| self.nodes.get(id));
            let first = nodes.find(|node| node.is_available && Some(&node.zone) == here);
            let other = first.filter(|node| node.id != self.me);
            (range.lower.clone(), other.map(|node| node.peer.clone()))
        };
        table.layout.ranges.iter().map(of_range).collect()
    }

    /// Returns the nodes to ask, in order: available nodes of this zone, other available nodes,
    /// then the rest, which may have come back. Leaves this node out.
    pub fn to_ask<'a>(&'a self, list: &[NodeId]) -> Vec<&'a MapNode> {
        let mut nodes: Vec<&MapNode> = list
            .iter()
            .filter(|id| **id != self.me)
            .filter_map(|id| self.nodes.get(id))
            .collect();
        let here = self.my_zone();
        nodes.sort_by_key(|node| (!node.is_available, Some(&node.zone) != here));
        nodes
    }
}

impl MapNode {
    fn new(entry: &NodeEntry, suspects: &BTreeSet<NodeId>, me: NodeId) -> Self {
        Self {
            id: entry.id,
            name: entry.name.clone(),
            zone: entry.zone.clone(),
            listen: entry.listen.clone(),
            class_ports: entry.class_ports.clone(),
            peer: entry.peer.clone(),
            is_available: entry.id == me || (entry.is_up() && !suspects.contains(&entry.id)),
        }
    }
}

impl MapTable {
    /// Returns the nodes that hold a slot, the primary first.
    pub fn of_slot(&self, slot: u16) -> &[NodeId] {
        self.held(self.layout.range_of(&Bound::Slot(slot)))
    }

    /// Returns the nodes that hold a key of an ordered table, the primary first.
    pub fn of_key(&self, key: &[u8]) -> &[NodeId] {
        let at = |range: &MapRange| match &range.lower {
            Bound::Key(lower) => lower.as_slice() <= key,
            Bound::Slot(_) => false,
        };
        let at = self.layout.ranges.partition_point(at);
        self.held(at.checked_sub(1).and_then(|at| self.layout.ranges.get(at)))
    }

    /// Returns the nodes of a range's list that hold the range of this table.
    pub fn held<'a>(&self, range: Option<&'a MapRange>) -> &'a [NodeId] {
        range.map_or(&[], |range| match self.by_range {
            true => range.asked.as_ref().unwrap_or(&range.list),
            false => &range.list[..range.list.len().min(self.replicas)],
        })
    }

    /// Returns the same nodes in the order of the list, the primary first: [`MapTable::held`] may
    /// begin with another node.
    pub fn listed<'a>(&self, range: &'a MapRange) -> &'a [NodeId] {
        match self.by_range {
            true => &range.list,
            false => self.held(Some(range)),
        }
    }

    /// Returns whether its slots are on other nodes than those of other hashed tables.
    pub fn has_own_slots(&self) -> bool {
        self.by_range && self.layout.order == Order::Hashed
    }
}

impl MapLayout {
    /// If `turns` is given, nodes ask different replicas of a range first, and it says which node
    /// asks.
    fn new(layout: &Layout, turns: Option<(&BTreeMap<NodeId, MapNode>, NodeId)>) -> Self {
        let ranges = layout.ranges().map(|range| MapRange {
            lower: range.lower.clone(),
            list: range.list.clone(),
            asked: turns.map(|(nodes, me)| in_turn(&range.list, nodes, me)),
        });
        let mut ranges: Vec<MapRange> = ranges.collect();
        // A range on the move is not a class of its own.
        ranges.dedup_by(|next, range| next.list == range.list);
        debug_assert!(
            ranges.is_sorted_by(|one, next| one.lower < next.lower),
            "ranges of a map do not rise"
        );
        Self {
            order: layout.order,
            ranges,
        }
    }

    pub fn ranges(&self) -> &[MapRange] {
        &self.ranges
    }

    fn range_of(&self, place: &Bound) -> Option<&MapRange> {
        let at = self.ranges.partition_point(|range| range.lower <= *place);
        self.ranges.get(at.checked_sub(1)?)
    }
}

/// Orders the nodes of a range for one of the other nodes. Each node begins with a different one,
/// so that all get about the same load.
fn in_turn(list: &[NodeId], nodes: &BTreeMap<NodeId, MapNode>, me: NodeId) -> Vec<NodeId> {
    let others = nodes.keys().filter(|node| !list.contains(node));
    let mine = others.take_while(|node| **node < me).count();
    let mut list = list.to_vec();
    let turn = mine % list.len().max(1);
    list.rotate_left(turn);
    list
}

/// Builds the classes of a layout of slots. A node answers for each class of which it is the
/// primary at a port of the class. For classes of which it is the acting primary, it uses the
/// remaining ports.
fn classes(
    ranges: &[MapRange],
    (most, notifies_all): (usize, bool),
    nodes: &BTreeMap<NodeId, MapNode>,
) -> Vec<Class> {
    let mut ends = ranges.iter().skip(1).map(|range| slot(&range.lower));
    let mut classes: Vec<(Class, NodeId)> = ranges
        .iter()
        .map(|range| {
            let next = ends.next().unwrap_or(SLOTS as u16);
            let is_available = |id: &&NodeId| nodes.get(id).is_some_and(|node| node.is_available);
            let holders = range.list.iter().take(most);
            let mut list: Vec<NodeId> = holders.filter(is_available).copied().collect();
            // If no holder is available, others of the list are named; they report a lack of data.
            if list.is_empty() {
                list = range.list.iter().filter(is_available).copied().collect();
            }
            if list.is_empty() {
                list.clone_from(&range.list);
            }
            let class = Class {
                first: slot(&range.lower),
                last: next.saturating_sub(1),
                away: away(range, &list, notifies_all),
                nodes: list,
                primary: HostPort::new("", 0),
            };
            (class, range.list.first().copied().unwrap_or_default())
        })
        .collect();
    let mut used: BTreeMap<NodeId, usize> = BTreeMap::new();
    for own in [true, false] {
        for (class, heads) in &mut classes {
            let Some(acting) = class.nodes.first().copied() else {
                continue;
            };
            if (acting == *heads) != own {
                continue;
            }
            if let Some(node) = nodes.get(&acting) {
                let used = used.entry(acting).or_default();
                let port = node.class_ports.get(*used).copied();
                class.primary = node.listen.at(port.unwrap_or(node.listen.port));
                *used += 1;
            }
        }
    }
    debug_assert!(
        classes.is_sorted_by(|(one, _), (next, _)| one.last + 1 == next.first),
        "classes do not lie side by side"
    );
    debug_assert!(
        classes.iter().all(|(class, _)| class.first <= class.last),
        "a class has no slots"
    );
    classes.into_iter().map(|(class, _)| class).collect()
}

fn away(range: &MapRange, reported: &[NodeId], notifies_all: bool) -> Vec<NodeId> {
    let others = range
        .list
        .iter()
        .filter(|id| notifies_all && !reported.contains(id));
    others.copied().collect()
}

fn slot(bound: &Bound) -> u16 {
    match bound {
        Bound::Slot(slot) => *slot,
        Bound::Key(_) => 0,
    }
}

#[cfg(test)]
#[path = "map_tests.rs"]
mod tests;
