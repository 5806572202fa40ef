//! Changes single copies, and reroutes their load without a pass over the whole placement.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{NONE, Routing};

/// The most nodes that a search visits when many copies are tried.
pub const NEAR: usize = 200;

/// A path from a partition's unrouted load to a node with room, as [`Routing::send`] takes it.
struct Way {
    first: u32,
    last: u32,
    pairs: Vec<(u32, u32)>,
}

impl Routing {
    /// Lets a copy serve as much of its partition as the node has room for: first the unrouted
    /// load, then what other copies serve. Returns the amount.
    pub fn draw(&mut self, node: u32, partition: u32) -> u64 {
        self.serve(node, partition);
        let copies = self.by_partition[partition as usize].clone();
        let Some(&own) = copies
            .iter()
            .find(|&&copy| self.copies[copy as usize].node == node)
        else {
            return 0;
        };
        for other in copies {
            let from = self.copies[other as usize].node;
            let flow = self.copies[other as usize]
                .flow
                .min(self.room[node as usize]);
            if from == node || flow == 0 {
                continue;
            }
            self.copies[other as usize].flow -= flow;
            self.room[from as usize] += flow;
            self.copies[own as usize].flow += flow;
            self.room[node as usize] -= flow;
        }
        self.copies[own as usize].flow
    }

    /// Removes a copy if other copies can serve its load within the limits, as far as a search of
    /// about `most` nodes shows. Otherwise it changes nothing and returns false.
    pub fn remove_if_spare(&mut self, node: u32, partition: u32, most: usize) -> bool {
        let unrouted = self.unrouted[partition as usize];
        let flow = self.flow(node, partition);
        let Some(removed) = self.remove(node, partition) else {
            return false;
        };
        let mut sent = Vec::new();
        while self.unrouted[partition as usize] > unrouted {
            let Some(way) = self.way_from(partition, most) else {
                self.take_back_sent(sent);
                self.put_back(removed, flow);
                return false;
            };
            let flow = self.send(way.first, way.last, &way.pairs);
            sent.push((way, flow));
        }
        true
    }

    fn take_back_sent(&mut self, sent: Vec<(Way, u64)>) {
        for (way, flow) in sent.into_iter().rev() {
            self.room[way.last as usize] += flow;
            for (from, to) in way.pairs {
                self.copies[from as usize].flow += flow;
                self.copies[to as usize].flow -= flow;
            }
            let first = &mut self.copies[way.first as usize];
            first.flow -= flow;
            self.unrouted[first.partition as usize] += flow;
        }
    }

    /// Returns a shortest path for a partition's unrouted load.
    fn way_from(&self, partition: u32, most: usize) -> Option<Way> {
        let mut came = HashMap::new();
        let mut seen = HashSet::from([partition]);
        let mut queue = VecDeque::new();
        self.reach_holders(partition, NONE, &mut came, &mut queue);
        while let Some(node) = queue.pop_front() {
            if self.room[node as usize] > 0 {
                return self.way_back(node, &came);
            }
            if came.len() > most {
                return None;
            }
            for &from in &self.by_node[node as usize] {
                let copy = &self.copies[from as usize];
                if copy.flow > 0 && seen.insert(copy.partition) {
                    self.reach_holders(copy.partition, from, &mut came, &mut queue);
                }
            }
        }
        None
    }

    /// Records, for each node that is new to the search, which copy gives up load and which takes
    /// it.
    fn reach_holders(
        &self,
        partition: u32,
        from: u32,
        came: &mut HashMap<u32, (u32, u32)>,
        queue: &mut VecDeque<u32>,
    ) {
        for &to in &self.by_partition[partition as usize] {
            let node = self.copies[to as usize].node;
            if !self.closed[node as usize] && !came.contains_key(&node) {
                came.insert(node, (from, to));
                queue.push_back(node);
            }
        }
    }

    fn way_back(&self, last: u32, came: &HashMap<u32, (u32, u32)>) -> Option<Way> {
        let mut pairs = Vec::new();
        let mut node = last;
        loop {
            let &(from, to) = came.get(&node)?;
            if from == NONE {
                pairs.reverse();
                return Some(Way {
                    first: to,
                    last,
                    pairs,
                });
            }
            pairs.push((from, to));
            node = self.copies[from as usize].node;
        }
    }
}
