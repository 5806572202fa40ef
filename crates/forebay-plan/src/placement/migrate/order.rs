//! Orders copies and drops from one placement to another so that each can be done.
//!
//! At every step, three limits hold. A node has no more than its slots and bytes. A partition has
//! as many live replicas as before or after, whichever is less. The placement carries as much as
//! before or after. A drop is done when the copy that waits for its room is next, and at the end.
//! If all the remaining steps wait for each other:
//!
//! 1. A copy that is to be dropped moves to a node that has room for it meanwhile.
//! 2. Without such a node, one takes a copy beyond its slots, never beyond its bytes.
//! 3. A drop leaves less capacity, or fewer replicas, never fewer than the input's `min`.
//!
//! [`ExceededLimit`] counts 2 and 3. If only bytes prevent a step, there is no order.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::Serialize;

use super::super::cluster::{Fate, PlacementProblem};
use super::super::layout::Placement;
use super::super::routing::{NEAR, Routing, whole_loads};
use crate::InputError;

/// One change of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transfer {
    /// Copies a partition from another node. If no live node has one, it comes from the source of
    /// the table.
    Copy {
        partition: u32,
        from: Option<u32>,
        to: u32,
    },
    Drop {
        partition: u32,
        node: u32,
    },
}

/// Transfers in order.
#[derive(Debug, Clone, Default)]
pub struct TransferOrder {
    pub transfers: Vec<Transfer>,
    pub exceeded: ExceededLimit,
}

/// The numbers of steps that exceed a limit because nothing else could be done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExceededLimit {
    /// Copies that a node takes beyond its slots until it drops another one.
    pub slots: usize,
    /// Drops that leave a partition fewer replicas than before and after.
    pub replicas: usize,
    /// Drops that leave less capacity than before and after.
    pub capacity: usize,
}

impl TransferOrder {
    /// Returns the bytes of all copies, or the number of copies if no sizes are given.
    pub fn shipped(&self, cluster: &PlacementProblem) -> u128 {
        let sizes = self.copied().map(|id| u128::from(cluster.size(id)));
        sizes.sum()
    }

    /// Returns the partitions that are copied, once for each copy.
    pub fn copied(&self) -> impl Iterator<Item = u32> + '_ {
        self.transfers
            .iter()
            .filter_map(|transfer| match *transfer {
                Transfer::Copy { partition, .. } => Some(partition),
                Transfer::Drop { .. } => None,
            })
    }
}

/// Returns the transfers from the current placement to `wanted`.
pub fn in_order(
    cluster: &PlacementProblem,
    wanted: &Placement,
) -> Result<TransferOrder, InputError> {
    let mut way = StepOrder::new(cluster, wanted);
    way.restore(wanted)?;
    way.queue = (0..cluster.nodes.len() as u32).collect();
    loop {
        while let Some(node) = way.queue.pop_front() {
            way.advance(node);
        }
        if way.left == 0 {
            break;
        }
        if !(way.look_again() || way.detour() || way.beyond_slots() || way.below_floor()) {
            return Err(way.stuck());
        }
    }
    way.drop_rest();
    choose_sources(cluster, &mut way.order.transfers);
    Ok(way.order)
}

struct StepOrder<'a> {
    cluster: &'a PlacementProblem,
    /// The live nodes that have a partition at this moment.
    holders: Vec<Vec<u32>>,
    /// The replicas that a partition keeps.
    floor: Vec<usize>,
    slots: Vec<i64>,
    bytes: Vec<i128>,
    /// What each node has still to take and to drop.
    copies: Vec<Vec<u32>>,
    drops: Vec<Vec<u32>>,
    /// The nodes that have still to drop a partition.
    dropped_by: HashMap<u32, Vec<u32>>,
    /// The number of copies still to be made.
    left: usize,
    /// Nodes that may now be able to continue.
    queue: VecDeque<u32>,
    /// Nodes with a drop that only the capacity prevented at its last check.
    guarded: Vec<u32>,
    /// Copies that were moved to another node meanwhile.
    moved_aside: HashSet<(u32, u32)>,
    routing: Routing,
    order: TransferOrder,
}

impl<'a> StepOrder<'a> {
    fn new(cluster: &'a PlacementProblem, wanted: &Placement) -> Self {
        let count = cluster.nodes.len();
        let empty = Placement::empty(count);
        let current = cluster.current.as_ref().unwrap_or(&empty);
        let mut way = Self {
            cluster,
            holders: vec![Vec::new(); cluster.partitions()],
            floor: vec![0; cluster.partitions()],
            slots: vec![0; count],
            bytes: vec![0; count],
            copies: vec![Vec::new(); count],
            drops: vec![Vec::new(); count],
            dropped_by: HashMap::new(),
            left: 0,
            queue: VecDeque::new(),
            guarded: Vec::new(),
            moved_aside: HashSet::new(),
            routing: guard(cluster, current, wanted),
            order: TransferOrder::default(),
        };
        for node in 0..count {
            let lives = cluster.nodes[node].fate != Fate::Lost;
            way.set_room(node, wanted);
            for partition in current.distinct(node).filter(|_| lives) {
                way.holders[partition as usize].push(node as u32);
                way.slots[node] -= 1;
                way.bytes[node] -= i128::from(cluster.size(partition));
                if !wanted.holds(node, partition) {
                    way.drop_later(node as u32, partition);
                }
            }
            let is_new = |&id: &u32| !(lives && current.holds(node, id));
            way.copies[node] = wanted.distinct(node).filter(is_new).collect();
            way.left += way.copies[node].len();
        }
        let after = wanted.holders(cluster.partitions());
        for (id, holders) in after.iter().enumerate() {
            way.floor[id] = holders.len().min(way.holders[id].len().max(cluster.min));
        }
        way
    }

    /// Sets what the node may have: no less than it has in the end.
    fn set_room(&mut self, node: usize, wanted: &Placement) {
        let held: Vec<u32> = wanted.distinct(node).collect();
        let size = |&id: &u32| i128::from(self.cluster.size(id));
        let after = held.iter().map(size).sum::<i128>();
        let limit = self.cluster.nodes[node].bytes;
        self.bytes[node] = limit.map_or(i128::MAX / 2, |bytes| after.max(i128::from(bytes)));
        self.slots[node] = self.cluster.max_partitions(node).max(held.len()) as i64;
    }

    fn drop_later(&mut self, node: u32, partition: u32) {
        self.drops[node as usize].push(partition);
        self.dropped_by.entry(partition).or_default().push(node);
    }

    /// Restores partitions that no node has: they come first.
    fn restore(&mut self, wanted: &Placement) -> Result<(), InputError> {
        for (id, nodes) in wanted.holders(self.cluster.partitions()).iter().enumerate() {
            let partition = id as u32;
            if !self.holders[id].is_empty() || nodes.is_empty() {
                continue;
            }
            let fits = |node: &u32| self.fits(*node, partition);
            let meanwhile = || self.staying().find(fits);
            let beyond = || {
                nodes
                    .iter()
                    .copied()
                    .find(|&node| self.has_bytes(node, partition))
            };
            let to = nodes
                .iter()
                .copied()
                .find(fits)
                .or_else(meanwhile)
                .or_else(beyond);
            let Some(to) = to else {
                return Err(no_bytes(self.cluster, nodes[0], partition));
            };
            self.order.exceeded.slots += usize::from(!self.fits(to, partition));
            if nodes.contains(&to) {
                self.copies[to as usize].retain(|&id| id != partition);
                self.left -= 1;
            } else {
                self.drop_later(to, partition);
            }
            self.copy(to, partition);
        }
        Ok(())
    }

    fn staying(&self) -> impl Iterator<Item = u32> + '_ {
        let stays = |&node: &u32| self.cluster.nodes[node as usize].fate == Fate::Stays;
        (0..self.cluster.nodes.len() as u32).filter(stays)
    }

    fn has_bytes(&self, node: u32, partition: u32) -> bool {
        self.bytes[node as usize] >= i128::from(self.cluster.size(partition))
    }

    fn fits(&self, node: u32, partition: u32) -> bool {
        self.slots[node as usize] > 0 && self.has_bytes(node, partition)
    }

    fn copy(&mut self, node: u32, partition: u32) {
        self.order.transfers.push(Transfer::Copy {
            partition,
            from: None,
            to: node,
        });
        self.holders[partition as usize].push(node);
        self.slots[node as usize] -= 1;
        self.bytes[node as usize] -= i128::from(self.cluster.size(partition));
        self.routing.add(node, partition);
        self.routing.serve(node, partition);
        self.queue
            .extend(self.dropped_by.get(&partition).into_iter().flatten());
    }

    /// Makes the copy at a place of a node's list.
    fn copy_at(&mut self, node: u32, place: usize) {
        let partition = self.copies[node as usize].remove(place);
        self.left -= 1;
        self.copy(node, partition);
    }

    /// Makes a drop that the routing already includes.
    fn drop_at(&mut self, node: u32, place: usize) {
        let partition = self.drops[node as usize].remove(place);
        if let Some(nodes) = self.dropped_by.get_mut(&partition) {
            nodes.retain(|&other| other != node);
        }
        self.holders[partition as usize].retain(|&holder| holder != node);
        self.slots[node as usize] += 1;
        self.bytes[node as usize] += i128::from(self.cluster.size(partition));
        self.order
            .transfers
            .push(Transfer::Drop { partition, node });
    }

    fn to_spare(&self, partition: u32) -> bool {
        self.holders[partition as usize].len() > self.floor[partition as usize]
    }

    /// Copies to a node what fits, and drops what is in the way.
    fn advance(&mut self, node: u32) {
        let at = node as usize;
        while !self.copies[at].is_empty() {
            let fitting = self.copies[at].iter().position(|&id| self.fits(node, id));
            if let Some(place) = fitting {
                self.copy_at(node, place);
                continue;
            }
            let Some(place) = self.spare_drop(node) else {
                return;
            };
            self.drop_at(node, place);
        }
    }

    /// Returns a drop that leaves enough replicas and capacity. The routing works without it from
    /// then on.
    fn spare_drop(&mut self, node: u32) -> Option<usize> {
        let mut places = 0..self.drops[node as usize].len();
        places.find(|&place| {
            let id = self.drops[node as usize][place];
            let spare = self.to_spare(id);
            let kept = spare && !self.routing.remove_if_spare(node, id, NEAR);
            if kept {
                self.guarded.push(node);
            }
            spare && !kept
        })
    }

    /// Checks drops again: new copies may provide the capacity that prevented them. Nodes that wait
    /// for nothing drop what they can, since their room may help others.
    fn look_again(&mut self) -> bool {
        let before = self.order.transfers.len();
        for node in std::mem::take(&mut self.guarded) {
            self.advance(node);
        }
        if self.order.transfers.len() > before {
            return true;
        }
        for node in 0..self.drops.len() {
            while let Some(place) = self.spare_drop(node as u32) {
                self.drop_at(node as u32, place);
            }
        }
        self.order.transfers.len() > before
    }

    /// Returns the nodes that still wait for room.
    fn waiting(&self) -> Vec<u32> {
        let waits = |node: &u32| !self.copies[*node as usize].is_empty();
        self.staying().filter(waits).collect()
    }

    /// Moves a copy that is in the way to a node that has room, and that drops it later.
    fn detour(&mut self) -> bool {
        let mut open: Vec<u32> = self
            .staying()
            .filter(|&node| self.slots[node as usize] > 0)
            .collect();
        open.sort_by_key(|&node| (!self.copies[node as usize].is_empty(), node));
        if open.is_empty() {
            return false;
        }
        for node in self.waiting() {
            let mut in_the_way = self.drops[node as usize].clone();
            in_the_way.sort_by_key(|&id| (self.cluster.size(id), id));
            for id in in_the_way {
                let takes =
                    |to: &u32| self.fits(*to, id) && !self.holders[id as usize].contains(to);
                let Some(to) = open.iter().copied().find(takes) else {
                    continue;
                };
                if self.to_spare(id) || !self.moved_aside.insert((node, id)) {
                    continue;
                }
                self.drop_later(to, id);
                self.copy(to, id);
                return true;
            }
        }
        false
    }

    /// Lets the node that is least above its slots take a copy beyond them.
    fn beyond_slots(&mut self) -> bool {
        let place = |node: u32| {
            let mut copies = self.copies[node as usize].iter();
            copies.position(|&id| self.has_bytes(node, id))
        };
        let found = self
            .waiting()
            .into_iter()
            .filter_map(|node| Some((node, place(node)?)))
            .max_by_key(|&(node, _)| (self.slots[node as usize], std::cmp::Reverse(node)));
        let Some((node, place)) = found else {
            return false;
        };
        self.order.exceeded.slots += 1;
        self.copy_at(node, place);
        self.queue.push_back(node);
        true
    }

    /// Drops a copy that is needed for the capacity, otherwise one that is needed for the replicas.
    fn below_floor(&mut self) -> bool {
        let waiting = self.waiting();
        for floor in [true, false] {
            for &node in &waiting {
                let allowed = |&id: &u32| {
                    let count = self.holders[id as usize].len();
                    (floor && self.to_spare(id)) || (!floor && count > self.cluster.min)
                };
                let Some(place) = self.drops[node as usize].iter().position(allowed) else {
                    continue;
                };
                let id = self.drops[node as usize][place];
                self.order.exceeded.replicas += usize::from(!floor);
                if !self.routing.remove_if_spare(node, id, usize::MAX) {
                    self.order.exceeded.capacity += 1;
                    self.routing.remove(node, id);
                }
                self.drop_at(node, place);
                self.queue.push_back(node);
                return true;
            }
        }
        false
    }

    fn stuck(&self) -> InputError {
        let node = self.waiting().first().copied().unwrap_or(0);
        let partition = self.copies[node as usize].first().copied().unwrap_or(0);
        no_bytes(self.cluster, node, partition)
    }

    fn drop_rest(&mut self) {
        for node in 0..self.drops.len() {
            while !self.drops[node].is_empty() {
                self.drop_at(node as u32, 0);
            }
        }
    }
}

fn no_bytes(cluster: &PlacementProblem, node: u32, partition: u32) -> InputError {
    let what = format!(
        "the nodes are too full for the steps to the placement: node {node} has no room for the {} \
         bytes of partition {partition} before it gives up another one, and no other node has room \
         for that meanwhile; add a node, or bytes to one",
        cluster.size(partition)
    );
    InputError::new("node_bytes", what)
}

/// Routes the load over the current placement. Every node is limited to its load before or after,
/// whichever is more.
fn guard(cluster: &PlacementProblem, current: &Placement, wanted: &Placement) -> Routing {
    let load = whole_loads(&cluster.loads);
    let fate = |node: usize| cluster.nodes[node].fate;
    let mut after = Routing::new(wanted, &load, |node| fate(node) == Fate::Stays);
    after.settle();
    let mut before = Routing::new(current, &load, |node| fate(node) != Fate::Lost);
    before.settle();
    before.set_limit(before.limit().max(after.limit()));
    before.route();
    before
}

/// Chooses the source of each copy: the node that has sent least so far, of those that have the
/// partition at that time.
fn choose_sources(cluster: &PlacementProblem, transfers: &mut [Transfer]) {
    let lives = |node: &u32| cluster.nodes[*node as usize].fate != Fate::Lost;
    let current = cluster.current.as_ref();
    let mut holders = current.map_or_else(
        || vec![Vec::new(); cluster.partitions()],
        |current| current.holders(cluster.partitions()),
    );
    for holders in &mut holders {
        holders.retain(lives);
    }
    let mut sent = vec![0u128; cluster.nodes.len()];
    for transfer in transfers {
        match transfer {
            Transfer::Copy {
                partition,
                from,
                to,
            } => {
                let held = &mut holders[*partition as usize];
                *from = held.iter().copied().min_by_key(|&node| sent[node as usize]);
                if let Some(from) = from {
                    sent[*from as usize] += u128::from(cluster.size(*partition));
                }
                held.push(*to);
            }
            Transfer::Drop { partition, node } => {
                holders[*partition as usize].retain(|holder| holder != node);
            }
        }
    }
}
