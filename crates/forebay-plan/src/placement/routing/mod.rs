//! Computes exactly how much load a placement can carry.
//!
//! The load of each partition divides among the nodes that have it. The best division makes the
//! hottest node as cool as possible.
//!
//! 1. All nodes get the same limit, first the mean load.
//! 2. The load is routed as a maximum flow from partitions to nodes: breadth-first levels, then a
//!    blocking flow along them, until there is no path from unrouted load to a node with room.
//! 3. If load remains, the nodes reached from it are full, and only they have the partitions
//!    reached (a minimum cut). Their mean is the next limit, which keeps what is routed, and step 2
//!    repeats. The last such set of nodes says why the placement carries no more.
//!
//! Loads are whole numbers, [`WHOLE`] in all, so that there is no rounding within the flow.

mod reroute;

pub use reroute::NEAR;

use super::layout::Placement;

/// The sum to which all loads are scaled.
pub const WHOLE: u64 = 1 << 46;

const NONE: u32 = u32::MAX;

/// The load of partitions, divided among the nodes that have them.
#[derive(Debug, Clone)]
pub struct Routing {
    load: Vec<u64>,
    /// The load of each partition for which no node with room was found.
    unrouted: Vec<u64>,
    copies: Vec<Copy>,
    by_partition: Vec<Vec<u32>>,
    by_node: Vec<Vec<u32>>,
    limit: u64,
    /// The load that a node can still take; a closed node can take none.
    room: Vec<u64>,
    closed: Vec<bool>,
}

/// One partition on one node, and the load that it serves there.
#[derive(Debug, Clone)]
struct Copy {
    partition: u32,
    node: u32,
    flow: u64,
}

/// The routes at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    flows: Vec<u64>,
    unrouted: Vec<u64>,
    room: Vec<u64>,
    closed: Vec<bool>,
    limit: u64,
}

/// Full nodes, and the partitions with remaining load that only they have.
#[derive(Debug, Clone)]
pub struct Cut {
    pub nodes: Vec<u32>,
    /// The partitions that only these nodes have.
    pub partitions: Vec<u32>,
    /// Their load beyond the nodes' limits.
    pub excess: u64,
}

/// Scales loads to whole numbers that add up to about [`WHOLE`]; all zero stays all zero.
pub fn whole_loads(loads: &[f64]) -> Vec<u64> {
    // Scale the largest first, as the sum of finite loads may not be finite.
    let most = loads.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return vec![0; loads.len()];
    }
    let sum: f64 = loads.iter().map(|load| load / most).sum();
    loads
        .iter()
        .map(|load| (load / most / sum * WHOLE as f64).round() as u64)
        .collect()
}

impl Routing {
    /// Starts with no load routed, and a limit of 0 for every node. Nodes for which `open` returns
    /// false hold nothing that counts.
    pub fn new(placement: &Placement, load: &[u64], open: impl Fn(usize) -> bool) -> Self {
        let nodes = placement.nodes().len();
        let mut routing = Self {
            load: load.to_vec(),
            unrouted: load.to_vec(),
            copies: Vec::new(),
            by_partition: vec![Vec::new(); load.len()],
            by_node: vec![Vec::new(); nodes],
            limit: 0,
            room: vec![0; nodes],
            closed: (0..nodes).map(|node| !open(node)).collect(),
        };
        for node in (0..nodes).filter(|&node| open(node)) {
            for partition in placement.distinct(node) {
                routing.add(node as u32, partition);
            }
        }
        routing
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn room(&self, node: u32) -> u64 {
        self.room[node as usize]
    }

    pub fn load(&self, partition: u32) -> u64 {
        self.load[partition as usize]
    }

    pub fn unrouted(&self) -> u64 {
        self.unrouted.iter().sum()
    }

    /// Returns the load that a node serves.
    pub fn served(&self, node: u32) -> u64 {
        let copies = &self.by_node[node as usize];
        copies
            .iter()
            .map(|&copy| self.copies[copy as usize].flow)
            .sum()
    }

    /// Returns the partitions of a node, and what each serves there.
    pub fn flows(&self, node: u32) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.by_node[node as usize].iter().map(|&copy| {
            let copy = &self.copies[copy as usize];
            (copy.partition, copy.flow)
        })
    }

    /// Returns the nodes that have a partition.
    pub fn holders(&self, partition: u32) -> impl Iterator<Item = u32> + '_ {
        let copies = &self.by_partition[partition as usize];
        copies.iter().map(|&copy| self.copies[copy as usize].node)
    }

    /// Returns what a partition serves on a node.
    pub fn flow(&self, node: u32, partition: u32) -> u64 {
        let mut copies = self.by_partition[partition as usize].iter();
        let copy = copies.find(|&&copy| self.copies[copy as usize].node == node);
        copy.map_or(0, |&copy| self.copies[copy as usize].flow)
    }

    /// Returns the load of a partition that is not routed.
    pub fn left_over(&self, partition: u32) -> u64 {
        self.unrouted[partition as usize]
    }

    /// Gives every node this limit. Load beyond it becomes unrouted.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        for node in 0..self.by_node.len() {
            if self.closed[node] {
                continue;
            }
            let served = self.served(node as u32);
            self.room[node] = limit.saturating_sub(served);
            self.take_back(node, served.saturating_sub(limit));
        }
    }

    fn take_back(&mut self, node: usize, mut excess: u64) {
        for &copy in &self.by_node[node] {
            let copy = &mut self.copies[copy as usize];
            let flow = copy.flow.min(excess);
            copy.flow -= flow;
            self.unrouted[copy.partition as usize] += flow;
            excess -= flow;
        }
    }

    /// Adds a copy of a partition, which serves nothing yet.
    pub fn add(&mut self, node: u32, partition: u32) {
        let number = self.copies.len() as u32;
        self.copies.push(Copy {
            partition,
            node,
            flow: 0,
        });
        self.by_partition[partition as usize].push(number);
        self.by_node[node as usize].push(number);
    }

    /// Gives a copy the remaining load of its partition, as far as the node has room.
    pub fn serve(&mut self, node: u32, partition: u32) {
        let mut copies = self.by_partition[partition as usize].iter();
        if let Some(&copy) = copies.find(|&&copy| self.copies[copy as usize].node == node) {
            let flow = self.room[node as usize].min(self.unrouted[partition as usize]);
            self.give(copy, flow);
        }
    }

    /// Removes a copy. Its load becomes unrouted. The result can put the copy back.
    pub fn remove(&mut self, node: u32, partition: u32) -> Option<Removed> {
        let list = &mut self.by_node[node as usize];
        let copies = &mut self.copies;
        let place = list
            .iter()
            .position(|&copy| copies[copy as usize].partition == partition)?;
        let number = list.swap_remove(place);
        self.by_partition[partition as usize].retain(|&copy| copy != number);
        let flow = std::mem::take(&mut copies[number as usize].flow);
        self.unrouted[partition as usize] += flow;
        self.room[node as usize] += flow;
        Some(Removed(number))
    }

    /// Puts back a removed copy with its load, which has been unrouted since.
    fn put_back(&mut self, removed: Removed, flow: u64) {
        let Removed(number) = removed;
        let copy = &self.copies[number as usize];
        self.by_partition[copy.partition as usize].push(number);
        self.by_node[copy.node as usize].push(number);
        self.give(number, flow);
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            flows: self.copies.iter().map(|copy| copy.flow).collect(),
            unrouted: self.unrouted.clone(),
            room: self.room.clone(),
            closed: self.closed.clone(),
            limit: self.limit,
        }
    }

    /// Returns to a moment. REQUIRES: no copy was added since.
    pub fn restore(&mut self, snapshot: &Snapshot) {
        for (copy, flow) in self.copies.iter_mut().zip(&snapshot.flows) {
            copy.flow = *flow;
        }
        self.unrouted.clone_from(&snapshot.unrouted);
        self.room.clone_from(&snapshot.room);
        self.closed.clone_from(&snapshot.closed);
        self.limit = snapshot.limit;
    }

    /// Closes a failed node: its copies serve nothing.
    pub fn close(&mut self, node: u32) {
        self.take_back(node as usize, u64::MAX);
        self.room[node as usize] = 0;
        self.closed[node as usize] = true;
    }

    fn is_open(&self, copy: u32) -> bool {
        !self.closed[self.copies[copy as usize].node as usize]
    }

    /// Routes all load with the lowest possible limit, and returns the cut that prevents a lower
    /// one, if there is any. Ignores the load of partitions that no node has.
    pub fn settle(&mut self) -> Option<Cut> {
        let open = self.closed.iter().filter(|closed| !**closed).count() as u64;
        let held = |(load, copies): (&u64, &Vec<u32>)| {
            if copies.iter().any(|&copy| self.is_open(copy)) {
                *load
            } else {
                0
            }
        };
        let servable: u64 = self.load.iter().zip(&self.by_partition).map(held).sum();
        if open == 0 {
            return None;
        }
        self.set_limit(servable.div_ceil(open));
        let mut binding = None;
        while let Some(cut) = self.route() {
            let confined: u64 = cut.partitions.iter().map(|&id| self.load(id)).sum();
            self.set_limit(confined.div_ceil(cut.nodes.len().max(1) as u64));
            binding = Some(cut);
        }
        binding
    }

    /// Routes as much as the limits allow. Returns `None` if everything is routed that some node
    /// has.
    pub fn route(&mut self) -> Option<Cut> {
        self.fill();
        loop {
            let levels = self.levels();
            if !levels.reaches_room {
                return self.cut(&levels);
            }
            self.push_along(levels);
        }
    }

    /// Routes the simple part first: each partition fills the roomiest of its nodes, those with few
    /// copies before those with many.
    fn fill(&mut self) {
        let mut waiting: Vec<u32> = (0..self.load.len() as u32)
            .filter(|&id| self.unrouted[id as usize] > 0)
            .collect();
        waiting.sort_by_key(|&id| self.by_partition[id as usize].len());
        for partition in waiting {
            loop {
                let copies = &self.by_partition[partition as usize];
                let roomiest = copies
                    .iter()
                    .max_by_key(|&&copy| self.room[self.copies[copy as usize].node as usize]);
                let Some(&copy) = roomiest else { break };
                let node = self.copies[copy as usize].node as usize;
                let flow = self.room[node].min(self.unrouted[partition as usize]);
                if flow == 0 {
                    break;
                }
                self.give(copy, flow);
            }
        }
    }

    fn give(&mut self, copy: u32, flow: u64) {
        let copy = &mut self.copies[copy as usize];
        copy.flow += flow;
        self.room[copy.node as usize] -= flow;
        self.unrouted[copy.partition as usize] -= flow;
    }

    /// Returns the distance of every node from unrouted load, up to the first level that has room.
    fn levels(&self) -> Levels {
        let mut levels = Levels {
            of: vec![NONE; self.by_node.len()],
            reached: Vec::new(),
            partition_seen: vec![false; self.load.len()],
            reaches_room: false,
        };
        let mut queue = Vec::new();
        for partition in 0..self.load.len() {
            if self.unrouted[partition] > 0 {
                self.reach(partition, 0, &mut levels, &mut queue);
            }
        }
        let mut level = 0;
        while !queue.is_empty() {
            levels.reaches_room = queue.iter().any(|&node| self.room[node as usize] > 0);
            let this = std::mem::take(&mut queue);
            levels.reached.extend(&this);
            if levels.reaches_room {
                break;
            }
            level += 1;
            for node in this {
                for &copy in &self.by_node[node as usize] {
                    let copy = &self.copies[copy as usize];
                    if copy.flow > 0 {
                        self.reach(copy.partition as usize, level, &mut levels, &mut queue);
                    }
                }
            }
        }
        levels
    }

    fn reach(&self, partition: usize, level: u32, levels: &mut Levels, queue: &mut Vec<u32>) {
        if std::mem::replace(&mut levels.partition_seen[partition], true) {
            return;
        }
        for &copy in &self.by_partition[partition] {
            let node = self.copies[copy as usize].node;
            if levels.of[node as usize] == NONE && !self.closed[node as usize] {
                levels.of[node as usize] = level;
                queue.push(node);
            }
        }
    }

    fn cut(&self, levels: &Levels) -> Option<Cut> {
        if levels.reached.is_empty() {
            return None;
        }
        let within = |&&id: &&u32| {
            let mut copies = self.by_partition[id as usize]
                .iter()
                .filter(|&&copy| self.is_open(copy));
            copies.all(|&copy| levels.of[self.copies[copy as usize].node as usize] != NONE)
        };
        let mut partitions: Vec<u32> = levels
            .reached
            .iter()
            .flat_map(|&node| &self.by_node[node as usize])
            .map(|&copy| self.copies[copy as usize].partition)
            .collect();
        partitions.sort_unstable();
        partitions.dedup();
        let partitions: Vec<u32> = partitions.iter().filter(within).copied().collect();
        let excess = partitions
            .iter()
            .map(|&id| self.unrouted[id as usize])
            .sum();
        let mut nodes = levels.reached.clone();
        nodes.sort_unstable();
        Some(Cut {
            nodes,
            partitions,
            excess,
        })
    }

    /// Routes a blocking flow: it uses every path that ascends one level a node, until something on
    /// it is full.
    fn push_along(&mut self, mut levels: Levels) {
        let mut next = vec![(0, 0); self.by_node.len()];
        for partition in 0..self.load.len() {
            let mut first = 0;
            while self.unrouted[partition] > 0 && first < self.by_partition[partition].len() {
                let copy = self.by_partition[partition][first];
                let node = self.copies[copy as usize].node;
                if levels.of[node as usize] != 0 || !self.push_one(copy, &mut levels, &mut next) {
                    first += 1;
                }
            }
        }
    }

    /// Sends load of `first`'s partition along one path, if there is one. A path is a list of
    /// pairs. Each pair has the copy that gives up load, and the copy of the same partition, one
    /// level on, that takes it.
    fn push_one(&mut self, first: u32, levels: &mut Levels, next: &mut [(usize, usize)]) -> bool {
        let mut way: Vec<(u32, u32)> = Vec::new();
        loop {
            let node = match way.last() {
                Some(&(_, to)) => self.copies[to as usize].node,
                None => self.copies[first as usize].node,
            };
            if self.room[node as usize] > 0 {
                self.send(first, node, &way);
                return true;
            }
            if let Some(step) = self.step_on(node, levels, next) {
                way.push(step);
                continue;
            }
            // No path continues from this node: the search need not visit it again at this level.
            levels.of[node as usize] = NONE;
            if way.pop().is_none() {
                return false;
            }
        }
    }

    /// Returns the next pair from a full node to the next level.
    fn step_on(
        &self,
        node: u32,
        levels: &Levels,
        next: &mut [(usize, usize)],
    ) -> Option<(u32, u32)> {
        let level = levels.of[node as usize];
        let held = &self.by_node[node as usize];
        let (mut place, mut choice) = next[node as usize];
        while let Some(&from) = held.get(place) {
            let copy = &self.copies[from as usize];
            let others = &self.by_partition[copy.partition as usize];
            while copy.flow > 0 && choice < others.len() {
                let to = others[choice];
                let there = levels.of[self.copies[to as usize].node as usize];
                if there != NONE && there == level + 1 {
                    next[node as usize] = (place, choice);
                    return Some((from, to));
                }
                choice += 1;
            }
            (place, choice) = (place + 1, 0);
        }
        next[node as usize] = (place, choice);
        None
    }

    fn send(&mut self, first: u32, last: u32, way: &[(u32, u32)]) -> u64 {
        let partition = self.copies[first as usize].partition as usize;
        let narrowest = way.iter().map(|&(from, _)| self.copies[from as usize].flow);
        let flow = narrowest
            .chain([self.unrouted[partition], self.room[last as usize]])
            .min()
            .unwrap_or(0);
        self.unrouted[partition] -= flow;
        self.copies[first as usize].flow += flow;
        for &(from, to) in way {
            self.copies[from as usize].flow -= flow;
            self.copies[to as usize].flow += flow;
        }
        self.room[last as usize] -= flow;
        flow
    }
}

/// A copy that was removed.
#[derive(Debug)]
pub struct Removed(u32);

/// The result of a breadth-first search from unrouted load.
struct Levels {
    of: Vec<u32>,
    reached: Vec<u32>,
    partition_seen: Vec<bool>,
    reaches_room: bool,
}
