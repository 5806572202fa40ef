//! A migration's placement under construction: its copies, its routed load, and single changes.
//!
//! The changes of single copies respect slots, bytes and zones.

use std::collections::HashSet;

use super::super::cluster::{Fate, PlacementProblem};
use super::super::layout::Placement;
use super::super::routing::{Routing, whole_loads};
use super::targets::{Fit, Targets};

/// The most copies that are considered for removal from a full node.
const MOST_GIVING_WAY: usize = 8;

pub struct Work<'a> {
    pub cluster: &'a PlacementProblem,
    pub current: Placement,
    pub fit: Fit,
    /// The staying nodes that have a partition.
    pub holders: Vec<Vec<u32>>,
    pub held: Vec<Vec<u32>>,
    /// The free slots; negative if a node has more than it may.
    pub slots: Vec<i64>,
    pub bytes: Vec<i128>,
    load: Vec<u64>,
    pub routing: Routing,
    pub targets: Targets,
    /// The copies that are not in the current placement, as (node, partition).
    pub made: HashSet<(u32, u32)>,
    /// The number of partitions with more than the least replicas.
    spare: usize,
    /// The number of nodes with a free slot, by zone.
    open: Vec<usize>,
    /// The number of nodes that stay, by zone.
    zone_sizes: Vec<usize>,
}

impl<'a> Work<'a> {
    /// Starts from the current placement, towards `wanted` capacity.
    pub fn new(cluster: &'a PlacementProblem, wanted: f64, fit: Fit) -> Self {
        let count = cluster.nodes.len();
        let current = cluster
            .current
            .clone()
            .unwrap_or_else(|| Placement::empty(count));
        let stays = |node: usize| cluster.nodes[node].fate == Fate::Stays;
        let load = whole_loads(&cluster.loads);
        let mut routing = Routing::new(&current, &load, stays);
        routing.set_limit(limit(cluster, &load, wanted));
        let mut zone_sizes = vec![0; cluster.zones.len().max(1)];
        let mut open = zone_sizes.clone();
        for node in cluster.staying() {
            let zone = cluster.zone(node);
            zone_sizes[zone] += 1;
            open[zone] += usize::from(cluster.max_partitions(node) > 0);
        }
        let room = |node: usize| cluster.nodes[node].bytes.map_or(i128::MAX / 2, i128::from);
        let mut work = Self {
            cluster,
            fit,
            load,
            holders: vec![Vec::new(); cluster.partitions()],
            held: vec![Vec::new(); count],
            slots: (0..count)
                .map(|node| cluster.max_partitions(node) as i64)
                .collect(),
            bytes: (0..count).map(room).collect(),
            routing,
            targets: Targets::new(count, cluster.staying().into_iter().map(|n| n as u32)),
            made: HashSet::new(),
            spare: 0,
            open,
            zone_sizes,
            current,
        };
        for node in (0..count).filter(|&node| stays(node)) {
            let held: Vec<u32> = work.current.distinct(node).collect();
            for partition in held {
                work.enter(node as u32, partition);
            }
        }
        work
    }

    fn enter(&mut self, node: u32, partition: u32) {
        self.holders[partition as usize].push(node);
        let now = self.holders[partition as usize].len();
        self.spare += usize::from(now == self.cluster.min + 1);
        self.held[node as usize].push(partition);
        self.bytes[node as usize] -= i128::from(self.cluster.size(partition));
        self.slots[node as usize] -= 1;
        if self.slots[node as usize] == 0 {
            let zone = self.zone(node);
            self.open[zone] -= 1;
        }
    }

    fn leave(&mut self, node: u32, partition: u32) {
        self.holders[partition as usize].retain(|&holder| holder != node);
        let now = self.holders[partition as usize].len();
        self.spare -= usize::from(now == self.cluster.min);
        self.held[node as usize].retain(|&id| id != partition);
        self.bytes[node as usize] += i128::from(self.cluster.size(partition));
        self.slots[node as usize] += 1;
        if self.slots[node as usize] == 1 {
            let zone = self.zone(node);
            self.open[zone] += 1;
        }
    }

    /// Lets every node serve its load in a placement of this capacity.
    pub fn limit_to(&mut self, wanted: f64) {
        let limit = limit(self.cluster, &self.load, wanted);
        self.routing.set_limit(limit);
    }

    pub fn zone(&self, node: u32) -> usize {
        self.cluster.zone(node as usize)
    }

    /// Returns the number of zones that a partition's least replicas have to be in.
    pub fn zones_needed(&self) -> usize {
        let zones = self.zone_sizes.iter().filter(|&&nodes| nodes > 0).count();
        self.cluster.min.min(zones)
    }

    pub fn zones_of(&self, partition: u32) -> HashSet<usize> {
        let holders = self.holders[partition as usize].iter();
        holders.map(|&node| self.zone(node)).collect()
    }

    /// Returns whether the partition is in as many zones as required, or as now, if its copy on
    /// `from` is replaced by one on `to`.
    pub fn zones_hold(&self, partition: u32, from: u32, to: Option<u32>) -> bool {
        if !self.cluster.zoned() || to.is_some_and(|to| self.zone(to) == self.zone(from)) {
            return true;
        }
        let holders = self.holders[partition as usize].iter().copied();
        let others = holders.filter(|&holder| holder != from).chain(to);
        let left = others.map(|node| self.zone(node)).collect::<HashSet<_>>();
        left.len() >= self.cluster.min || left.len() >= self.zones_of(partition).len()
    }

    pub fn holds(&self, node: u32, partition: u32) -> bool {
        self.holders[partition as usize].contains(&node)
    }

    pub fn fits(&self, node: u32, partition: u32) -> bool {
        self.slots[node as usize] > 0
            && self.bytes[node as usize] >= i128::from(self.cluster.size(partition))
    }

    pub fn copy_to(&mut self, node: u32, partition: u32) {
        if !self.current.holds(node as usize, partition) {
            self.made.insert((node, partition));
        }
        self.enter(node, partition);
        self.routing.add(node, partition);
        self.routing.serve(node, partition);
        self.targets.update(node, self.routing.room(node));
    }

    pub fn drop_copy(&mut self, node: u32, partition: u32) {
        self.forget(node, partition);
        self.routing.remove(node, partition);
        self.targets.update(node, self.routing.room(node));
    }

    /// Removes a copy that the routing has already removed.
    pub fn forget(&mut self, node: u32, partition: u32) {
        self.leave(node, partition);
        self.made.remove(&(node, partition));
    }

    /// Copies a partition to the best fitting node among those `allowed` that can take it. Prefers
    /// nodes that keep its copies spread over the zones. Returns the node.
    pub fn copy_somewhere(
        &mut self,
        partition: u32,
        allowed: &dyn Fn(&Self, u32) -> bool,
    ) -> Option<u32> {
        let free = self.copy_if(partition, false, allowed);
        free.or_else(|| self.copy_if(partition, true, allowed))
    }

    /// Copies a partition like `copy_somewhere`, but only to nodes that have room or spare copies.
    /// If `gives_way`, also to nodes from which another copy can move away.
    pub fn copy_if(
        &mut self,
        partition: u32,
        gives_way: bool,
        allowed: &dyn Fn(&Self, u32) -> bool,
    ) -> Option<u32> {
        let open = self.open.iter().any(|&nodes| nodes > 0);
        if !open && (gives_way || self.spare == 0) {
            return None;
        }
        for node in self.candidates(partition, allowed) {
            let room = self.make_room(node, partition)
                || gives_way && self.move_one_away(node, partition, None);
            if room {
                self.copy_to(node, partition);
                return Some(node);
            }
        }
        None
    }

    /// Returns whether the node can take a copy without another one moving away, as far as slots
    /// show.
    pub fn may_have_room(&self, node: u32) -> bool {
        self.spare > 0 || self.slots[node as usize] > 0
    }

    /// Returns the allowed nodes without the partition: those in zones with few copies of it first.
    fn candidates(&self, partition: u32, allowed: &dyn Fn(&Self, u32) -> bool) -> Vec<u32> {
        let load = self.routing.load(partition);
        let in_order = self.targets.in_order(self.fit, load);
        let mut nodes: Vec<u32> = in_order
            .filter(|&node| allowed(self, node) && !self.holds(node, partition))
            .filter(|&node| self.spare > 0 || self.open[self.zone(node)] > 0)
            .collect();
        if self.cluster.zoned() {
            let mut crowd = vec![0; self.zone_sizes.len()];
            for &holder in &self.holders[partition as usize] {
                crowd[self.zone(holder)] += 1;
            }
            nodes.sort_by_key(|&node| crowd[self.zone(node)]);
        }
        nodes
    }

    /// Removes copies on the node until the partition fits; removes nothing if that fails.
    pub fn make_room(&mut self, node: u32, partition: u32) -> bool {
        if self.fits(node, partition) {
            return true;
        }
        if self.spare == 0 {
            return false;
        }
        let size = i128::from(self.cluster.size(partition));
        let (mut slots, mut bytes) = (self.slots[node as usize], self.bytes[node as usize]);
        let mut given_up = Vec::new();
        for id in self.by_use(node) {
            given_up.push(id);
            slots += 1;
            bytes += i128::from(self.cluster.size(id));
            if slots > 0 && bytes >= size {
                for id in given_up {
                    self.drop_copy(node, id);
                }
                return true;
            }
        }
        false
    }

    /// Returns the copies that the node may drop, those that serve least on it first.
    pub fn by_use(&self, node: u32) -> Vec<u32> {
        let spare = |&(id, _): &(u32, u64)| {
            self.holders[id as usize].len() > self.cluster.min
                && !self.made.contains(&(node, id))
                && self.zones_hold(id, node, None)
        };
        let mut flows: Vec<(u32, u64)> = self.routing.flows(node).filter(spare).collect();
        flows.sort_by_key(|&(id, flow)| {
            let others = self.holders[id as usize].len() as u64 - 1;
            (flow, self.routing.load(id) / others.max(1), id)
        });
        flows.into_iter().map(|(id, _)| id).collect()
    }

    /// Moves a copy from one node to another. If the target is full, it drops a spare copy. If one
    /// may give way, it moves to a third node or to `from`.
    pub fn move_copy(&mut self, partition: u32, from: u32, to: u32, gives_way: bool) -> bool {
        if self.holds(to, partition) || !self.zones_hold(partition, from, Some(to)) {
            return false;
        }
        let room = self.make_room(to, partition)
            || gives_way && self.move_one_away(to, partition, Some(from));
        if !room {
            return false;
        }
        self.drop_copy(from, partition);
        self.copy_to(to, partition);
        true
    }

    /// Makes room for a partition on a full node by moving a small, cold copy away. It goes to a
    /// node of the same zone that has room, otherwise to `other`, which the partition leaves.
    fn move_one_away(&mut self, node: u32, partition: u32, other: Option<u32>) -> bool {
        let cluster = self.cluster;
        let size = i128::from(cluster.size(partition));
        if self.slots[node as usize] < 0 {
            return false;
        }
        let price = |id: u32| {
            let heat = self.load[id as usize] as f64 / self.load[partition as usize].max(1) as f64;
            cluster.size(id) as f64 * (1.0 + 4.0 * heat)
        };
        let enough = |id: u32| {
            self.bytes[node as usize] + i128::from(cluster.size(id)) >= size
                && !self.made.contains(&(node, id))
        };
        let mut giving_way: Vec<u32> = self.held[node as usize]
            .iter()
            .copied()
            .filter(|&id| enough(id))
            .collect();
        giving_way.sort_by(|&a, &b| price(a).total_cmp(&price(b)).then(a.cmp(&b)));
        giving_way.truncate(MOST_GIVING_WAY);
        for &id in &giving_way {
            if let Some(to) = self.open_node_for(id, node) {
                self.drop_copy(node, id);
                self.copy_to(to, id);
                return true;
            }
        }
        let Some(other) = other else { return false };
        let freed = self.bytes[other as usize] + size;
        for id in giving_way {
            let takes = self.slots[other as usize] >= 0 && freed >= i128::from(cluster.size(id));
            if takes && !self.holds(other, id) && self.zones_hold(id, node, Some(other)) {
                self.drop_copy(node, id);
                self.copy_to(other, id);
                return true;
            }
        }
        false
    }

    /// Returns the roomiest node that can take a partition's copy from another one of its zone.
    fn open_node_for(&self, partition: u32, from: u32) -> Option<u32> {
        let zone = self.zone(from);
        if self.open[zone] == 0 {
            return None;
        }
        self.targets.in_order(Fit::Roomiest, 0).find(|&node| {
            self.zone(node) == zone
                && node != from
                && self.fits(node, partition)
                && !self.holds(node, partition)
        })
    }

    /// Returns the placement as it is now.
    pub fn into_placement(self) -> Placement {
        Placement::new(self.held)
    }
}

/// Returns what each node may serve for the placement to carry `wanted` of what the nodes can.
fn limit(cluster: &PlacementProblem, load: &[u64], wanted: f64) -> u64 {
    let nodes = cluster.staying().len() as u64;
    let whole: u64 = load.iter().sum();
    let allowed = (whole as f64 / nodes as f64 / wanted.max(1e-9)).floor() as u64;
    allowed.max(whole.div_ceil(nodes))
}
