//! The migration in the making: what stands where, how its load is routed, what was done so far.

use std::collections::HashSet;

use super::super::cluster::{Cluster, Fate};
use super::super::layout::Placement;
use super::super::routing::{Routing, whole_loads};
use super::bound::least_shipped;
use super::parts::parts;
use super::steps::{Transfer, choose_sources};
use crate::InputError;

/// Copies whose need is looked into again at the end.
const DOUBTS: usize = 256;

/// Which node takes a copy, of those that have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The one with most room.
    Roomiest,
    /// The one with the least room that is enough for all that the copy can bring.
    Tightest,
}

pub struct Work<'a> {
    cluster: &'a Cluster,
    fit: Fit,
    /// Nodes that stay and hold a partition.
    holders: Vec<Vec<u32>>,
    held: Vec<Vec<u32>>,
    /// Nodes that are drained and hold a partition: they can send it, and count for nothing else.
    leaving: Vec<Vec<u32>>,
    /// Free slots; negative where a node holds more than it may.
    slots: Vec<i64>,
    bytes: Vec<i128>,
    load: Vec<u64>,
    routing: Routing,
    transfers: Vec<Transfer>,
    /// Copies made, as (node, partition).
    made: HashSet<(u32, u32)>,
}

impl<'a> Work<'a> {
    /// From the current placement, towards `wanted` capacity.
    pub fn new(cluster: &'a Cluster, wanted: f64, fit: Fit) -> Self {
        let count = cluster.nodes.len();
        let current = cluster
            .current
            .clone()
            .unwrap_or_else(|| Placement::empty(count));
        let stays = |node: usize| cluster.nodes[node].fate == Fate::Stays;
        let load = whole_loads(&cluster.loads);
        let mut routing = Routing::new(&current, &load, stays);
        routing.set_limit(limit(cluster, &load, wanted));
        let mut work = Self {
            cluster,
            fit,
            load,
            holders: vec![Vec::new(); cluster.partitions()],
            held: vec![Vec::new(); count],
            leaving: vec![Vec::new(); cluster.partitions()],
            slots: (0..count).map(|node| cluster.slots(node) as i64).collect(),
            bytes: cluster
                .nodes
                .iter()
                .map(|n| n.bytes.map_or(i128::MAX / 2, i128::from))
                .collect(),
            routing,
            transfers: Vec::new(),
            made: HashSet::new(),
        };
        for node in 0..count {
            for partition in current.distinct(node) {
                match cluster.nodes[node].fate {
                    Fate::Stays => work.enter(node as u32, partition),
                    Fate::Drains => work.leaving[partition as usize].push(node as u32),
                    Fate::Lost => {}
                }
            }
        }
        work
    }

    fn enter(&mut self, node: u32, partition: u32) {
        self.holders[partition as usize].push(node);
        self.held[node as usize].push(partition);
        self.slots[node as usize] -= 1;
        self.bytes[node as usize] -= i128::from(self.cluster.size(partition));
    }

    fn leave(&mut self, node: u32, partition: u32) {
        self.holders[partition as usize].retain(|&holder| holder != node);
        self.held[node as usize].retain(|&id| id != partition);
        self.slots[node as usize] += 1;
        self.bytes[node as usize] += i128::from(self.cluster.size(partition));
    }

    /// What has to be shipped at least, see [`least_shipped`].
    pub fn least_shipped(mut self) -> u128 {
        let cut = self.routing.route();
        least_shipped(self.cluster, &self.routing, cut.as_ref())
    }

    /// Gives every partition its least number of replicas, and every node no more than fits.
    pub fn repair(&mut self) -> Result<(), InputError> {
        self.routing.route();
        let mut short: Vec<u32> = (0..self.cluster.partitions() as u32)
            .filter(|&id| self.holders[id as usize].len() < self.cluster.min)
            .collect();
        short.sort_by_key(|&id| std::cmp::Reverse(self.routing.load(id)));
        for partition in short {
            while self.holders[partition as usize].len() < self.cluster.min {
                if !self.copy_somewhere(partition, &|_| true) {
                    return Err(no_room(partition));
                }
            }
        }
        for node in self.cluster.staying() {
            self.relieve(node as u32)?;
        }
        if self.cluster.zoned() {
            self.spread_over_zones();
        }
        Ok(())
    }

    /// Copies partitions whose replicas are in fewer zones than they need into others, where these
    /// have room.
    fn spread_over_zones(&mut self) {
        let cluster = self.cluster;
        let zone = |node: u32| cluster.nodes[node as usize].zone;
        let zones: HashSet<usize> = cluster
            .staying()
            .into_iter()
            .map(|node| zone(node as u32))
            .collect();
        let needed = self.cluster.min.min(zones.len());
        for partition in 0..self.cluster.partitions() as u32 {
            loop {
                let holders = self.holders[partition as usize].iter();
                let held: HashSet<usize> = holders.map(|&node| zone(node)).collect();
                if held.len() >= needed
                    || !self.copy_somewhere(partition, &|to| !held.contains(&zone(to)))
                {
                    break;
                }
                self.keep_below_most(partition, &vec![false; self.held.len()]);
            }
        }
    }

    /// Takes from a node what is beyond its slots or bytes.
    fn relieve(&mut self, node: u32) -> Result<(), InputError> {
        while self.slots[node as usize] < 0 || self.bytes[node as usize] < 0 {
            if let Some(spare) = self.least_useful(node) {
                self.drop_copy(node, spare);
                continue;
            }
            let movable = self.held[node as usize].clone();
            let moved = movable.into_iter().find(|&id| {
                !self.made.contains(&(node, id)) && self.copy_somewhere(id, &|to| to != node)
            });
            match moved {
                Some(partition) => self.drop_copy(node, partition),
                None => {
                    return Err(no_room(
                        self.held[node as usize].first().copied().unwrap_or(0),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Copies partitions out of the nodes that limit the capacity, until none does or nothing
    /// helps.
    pub fn spread(&mut self) {
        // A copy may push another one out that is then needed elsewhere: the end is not for
        // certain.
        let most: usize = self.held.iter().map(Vec::len).sum::<usize>() * 4 + self.slots.len();
        while let Some(cut) = self.routing.route() {
            if self.transfers.len() > most {
                break;
            }
            let mut outside = vec![true; self.cluster.nodes.len()];
            for &node in &cut.nodes {
                outside[node as usize] = false;
            }
            let mut helped = false;
            for part in parts(&self.routing, &cut) {
                let mut partitions = part.partitions;
                let worth = |id: u32| {
                    let gain = self.routing.load(id).min(part.excess) as f64;
                    (
                        gain / self.cluster.size(id).max(1) as f64,
                        self.routing.load(id),
                    )
                };
                partitions.sort_by(|&a, &b| {
                    let (a, b) = (worth(a), worth(b));
                    b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
                });
                let room =
                    |work: &Self, node: u32| outside[node as usize] && work.routing.room(node) > 0;
                let copied = partitions.into_iter().find(|&id| {
                    let roomy: Vec<bool> = (0..outside.len() as u32)
                        .map(|node| room(self, node))
                        .collect();
                    self.routing.load(id) > 0 && self.copy_somewhere(id, &|to| roomy[to as usize])
                });
                if let Some(partition) = copied {
                    self.keep_below_most(partition, &outside);
                    helped = true;
                }
            }
            if !helped {
                break;
            }
        }
    }

    /// After one more copy than allowed: gives up the one among the crowded nodes that serves
    /// least.
    fn keep_below_most(&mut self, partition: u32, outside: &[bool]) {
        let holders = &self.holders[partition as usize];
        if holders.len() <= self.cluster.max {
            return;
        }
        let crowded = holders
            .iter()
            .copied()
            .filter(|&node| !outside[node as usize]);
        let least = crowded
            .filter(|&node| self.zones_without(node, partition))
            .min_by_key(|&node| self.routing.flow(node, partition));
        if let Some(node) = least {
            self.drop_copy(node, partition);
        }
    }

    /// Copies a partition to the best fitting node among those `allowed` that can take it; to one
    /// that keeps its copies spread over the zones before others.
    fn copy_somewhere(&mut self, partition: u32, allowed: &dyn Fn(u32) -> bool) -> bool {
        let holders = &self.holders[partition as usize];
        let mut nodes: Vec<u32> = self
            .cluster
            .staying()
            .into_iter()
            .map(|node| node as u32)
            .filter(|node| allowed(*node) && !holders.contains(node))
            .collect();
        let load = self.routing.load(partition);
        nodes.sort_by_key(|&node| {
            let crowd = self.zone_crowd(node, partition);
            let room = self.routing.room(node);
            let rank = match self.fit {
                Fit::Roomiest => (false, u64::MAX - room),
                Fit::Tightest if room >= load => (false, room),
                Fit::Tightest => (true, u64::MAX - room),
            };
            (crowd, rank, node)
        });
        for node in nodes {
            if self.make_room(node, partition) {
                self.copy_to(node, partition);
                return true;
            }
        }
        false
    }

    /// Copies of the partition in the node's zone; 0 where zones do not matter.
    fn zone_crowd(&self, node: u32, partition: u32) -> usize {
        if !self.cluster.zoned() {
            return 0;
        }
        let zone = |node: u32| self.cluster.nodes[node as usize].zone;
        let holders = self.holders[partition as usize].iter();
        holders
            .filter(|&&holder| zone(holder) == zone(node))
            .count()
    }

    fn copy_to(&mut self, node: u32, partition: u32) {
        self.transfers.push(Transfer::Copy {
            partition,
            from: None,
            to: node,
        });
        self.made.insert((node, partition));
        self.enter(node, partition);
        self.routing.add(node, partition);
        self.routing.serve(node, partition);
    }

    fn drop_copy(&mut self, node: u32, partition: u32) {
        self.leave(node, partition);
        self.routing.remove(node, partition);
        self.transfers.push(Transfer::Drop { partition, node });
    }

    /// Gives up copies on the node until the partition fits; nothing is given up in vain.
    fn make_room(&mut self, node: u32, partition: u32) -> bool {
        let size = i128::from(self.cluster.size(partition));
        let fits = |slots: i64, bytes: i128| slots > 0 && bytes >= size;
        let (mut slots, mut bytes) = (self.slots[node as usize], self.bytes[node as usize]);
        let mut spare = Vec::new();
        if !fits(slots, bytes) {
            for id in self.by_use(node) {
                spare.push(id);
                slots += 1;
                bytes += i128::from(self.cluster.size(id));
                if fits(slots, bytes) {
                    break;
                }
            }
        }
        if !fits(slots, bytes) {
            return false;
        }
        for id in spare {
            self.drop_copy(node, id);
        }
        true
    }

    fn least_useful(&self, node: u32) -> Option<u32> {
        self.by_use(node).first().copied()
    }

    /// The copies that the node may give up, those that serve least there first.
    fn by_use(&self, node: u32) -> Vec<u32> {
        let spare = |&(id, _): &(u32, u64)| {
            self.holders[id as usize].len() > self.cluster.min
                && !self.made.contains(&(node, id))
                && self.zones_without(node, id)
        };
        let mut flows: Vec<(u32, u64)> = self.routing.flows(node).filter(spare).collect();
        flows.sort_by_key(|&(id, flow)| {
            let others = self.holders[id as usize].len() as u64 - 1;
            (flow, self.routing.load(id) / others.max(1), id)
        });
        flows.into_iter().map(|(id, _)| id).collect()
    }

    /// Whether the partition is in as many zones as it has to be without its copy on the node.
    fn zones_without(&self, node: u32, partition: u32) -> bool {
        if !self.cluster.zoned() {
            return true;
        }
        let zones = |without: Option<u32>| {
            let holders = self.holders[partition as usize].iter();
            let others = holders.filter(|&&holder| Some(holder) != without);
            others
                .map(|&holder| self.cluster.nodes[holder as usize].zone)
                .collect::<HashSet<_>>()
                .len()
        };
        let left = zones(Some(node));
        left >= self.cluster.min || left == zones(None)
    }

    /// Takes copies back, those that serve least first, as long as the capacity stays `wanted`.
    pub fn take_back(&mut self, wanted: f64) {
        self.routing
            .set_limit(limit(self.cluster, &self.load, wanted));
        self.routing.route();
        if self.routing.unrouted() > 0 {
            return;
        }
        let mut doubtful: Vec<(u64, u32, u32)> = self
            .made
            .iter()
            .map(|&(node, partition)| (self.routing.flow(node, partition), node, partition))
            .collect();
        doubtful.sort_unstable();
        for (_, node, partition) in doubtful.into_iter().take(DOUBTS) {
            self.take_back_one(node, partition);
        }
    }

    fn take_back_one(&mut self, node: u32, partition: u32) {
        let drops = |transfer: &Transfer| matches!(transfer, Transfer::Drop { partition: id, .. } if *id == partition);
        let enough = self.holders[partition as usize].len() > self.cluster.min;
        // Where the partition was dropped elsewhere, the drop may rely on this copy.
        if !enough || self.transfers.iter().any(drops) || !self.zones_without(node, partition) {
            return;
        }
        let before = self.routing.snapshot();
        let Some(removed) = self.routing.remove(node, partition) else {
            return;
        };
        if self.routing.route().is_some() {
            self.routing.put_back(removed, &before);
            return;
        }
        self.leave(node, partition);
        self.made.remove(&(node, partition));
        let copied = |transfer: &Transfer| matches!(transfer, Transfer::Copy { partition: id, to, .. } if *id == partition && *to == node);
        let Some(place) = self.transfers.iter().position(copied) else {
            return;
        };
        self.transfers.remove(place);
        self.undo_drops(node, place);
    }

    /// Takes back the drops that made room for a copy which is not made.
    fn undo_drops(&mut self, node: u32, mut place: usize) {
        while let Some(&Transfer::Drop {
            partition,
            node: at,
        }) = place
            .checked_sub(1)
            .and_then(|before| self.transfers.get(before))
        {
            let fits = self.slots[node as usize] > 0
                && self.bytes[node as usize] >= i128::from(self.cluster.size(partition))
                && !self.held[node as usize].contains(&partition)
                && self.holders[partition as usize].len() < self.cluster.max;
            if at != node || !fits {
                break;
            }
            place -= 1;
            self.transfers.remove(place);
            self.enter(node, partition);
            self.routing.add(node, partition);
        }
    }

    /// The placement, and how it comes about. Drained nodes give up what they hold last.
    pub fn finish(mut self) -> (Placement, Vec<Transfer>) {
        for (partition, nodes) in self.leaving.iter().enumerate() {
            for &node in nodes {
                let partition = partition as u32;
                self.transfers.push(Transfer::Drop { partition, node });
            }
        }
        choose_sources(self.cluster, &mut self.transfers);
        (Placement::new(self.held), self.transfers)
    }
}

/// What each node may serve for the placement to carry `wanted` of what the nodes can.
fn limit(cluster: &Cluster, load: &[u64], wanted: f64) -> u64 {
    let nodes = cluster.staying().len() as u64;
    let whole: u64 = load.iter().sum();
    let allowed = (whole as f64 / nodes as f64 / wanted.max(1e-9)).floor() as u64;
    allowed.max(whole.div_ceil(nodes))
}

fn no_room(partition: u32) -> InputError {
    let what = format!(
        "no node that stays has room for partition {partition}, which has to be moved or copied; add \
         nodes, slots or bytes"
    );
    InputError::new("slots", what)
}
