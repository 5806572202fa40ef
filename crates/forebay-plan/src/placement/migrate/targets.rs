//! Orders nodes by how well they fit a copy.

use std::collections::BTreeSet;

use super::super::routing::Routing;

/// The rule that chooses a node for a copy, of those that have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The one with most room.
    Roomiest,
    /// The one with the least room that is enough for the largest load of the copy.
    Tightest,
}

/// The nodes that stay, by how much more load they can serve.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    by_room: BTreeSet<(u64, u32)>,
    room: Vec<u64>,
}

impl Targets {
    pub fn new(nodes: usize, staying: impl Iterator<Item = u32>) -> Self {
        Self {
            by_room: staying.map(|node| (0, node)).collect(),
            room: vec![0; nodes],
        }
    }

    /// Updates every node's room, after the load was routed again.
    pub fn refresh(&mut self, routing: &Routing) {
        let nodes: Vec<u32> = self.by_room.iter().map(|&(_, node)| node).collect();
        for &node in &nodes {
            self.room[node as usize] = routing.room(node);
        }
        self.by_room = nodes
            .into_iter()
            .map(|node| (self.room[node as usize], node))
            .collect();
    }

    pub fn update(&mut self, node: u32, room: u64) {
        let before = std::mem::replace(&mut self.room[node as usize], room);
        if self.by_room.remove(&(before, node)) {
            self.by_room.insert((room, node));
        }
    }

    /// Returns all nodes, those that fit best for `load` first.
    pub fn in_order(&self, fit: Fit, load: u64) -> Box<dyn Iterator<Item = u32> + '_> {
        let node = |&(_, node): &(u64, u32)| node;
        match fit {
            Fit::Roomiest => Box::new(self.by_room.iter().rev().map(node)),
            Fit::Tightest => {
                let enough = self.by_room.range((load, 0)..);
                let less = self.by_room.range(..(load, 0)).rev();
                Box::new(enough.chain(less).map(node))
            }
        }
    }
}
