//! A placement under search, with the nodes' loads.

use std::collections::BTreeSet;

use super::SpreadCluster;
use crate::placement::load_plan::{gain, keeps_zones, mean, most};

/// The least gain that counts, as a part of the mean's square.
const LEAST_GAIN: f64 = 1e-6;
/// The least gain of a copy that counts.
const LEAST_GAIN_OF_COPY: f64 = 1e-4;

/// A placement under search, with the nodes' loads.
#[derive(Debug, Clone)]
pub struct SpreadState<'a> {
    cluster: &'a SpreadCluster,
    lists: Vec<Vec<u32>>,
    loads: Vec<f64>,
    mean: f64,
    replicas: usize,
}

/// A change of one partition's list.
#[derive(Debug, Clone, Copy)]
enum ListStep {
    /// The node gets a replica.
    Add { at: usize, to: u32 },
    /// The node gets the replica at this place.
    Move { at: usize, place: usize, to: u32 },
    /// The replica at this place is dropped.
    Drop { at: usize, place: usize },
}

impl<'a> SpreadState<'a> {
    pub fn of(cluster: &'a SpreadCluster) -> Self {
        let partitions = cluster.partitions.iter();
        let lists: Vec<Vec<u32>> = partitions.map(|one| one.holders.clone()).collect();
        let mut state = Self {
            cluster,
            replicas: lists.iter().map(Vec::len).sum(),
            lists,
            loads: Vec::new(),
            mean: 0.0,
        };
        state.add_up();
        let takes = cluster.nodes.iter().map(|node| node.takes);
        state.mean = mean(&state.loads, takes);
        state
    }

    /// Sums the loads by the lists: sums of changes would drift.
    fn add_up(&mut self) {
        let nodes = self.cluster.nodes.iter();
        self.loads = nodes.map(|node| node.other_load).collect();
        for (partition, list) in self.cluster.partitions.iter().zip(&self.lists) {
            for node in list {
                self.loads[*node as usize] += partition.load / list.len() as f64;
            }
        }
    }

    pub fn loads(&self) -> &[f64] {
        &self.loads
    }

    pub fn lists(&self) -> &[Vec<u32>] {
        &self.lists
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    pub fn hottest(&self) -> f64 {
        most(&self.loads)
    }

    /// Returns how many replicas are on nodes that had none of their partition.
    pub fn copies(&self) -> usize {
        let known = self.cluster.partitions.iter().zip(&self.lists);
        let new = known.map(|(known, list)| {
            let is_new = |node: &&u32| !known.holders.contains(node);
            list.iter().filter(is_new).count()
        });
        new.sum()
    }

    /// Drops replicas, as long as that helps by itself.
    pub fn drop_idle(&mut self) {
        while let Some((gain, step)) = self.best_drop()
            && gain > self.least_gain(LEAST_GAIN)
        {
            self.take(step);
        }
    }

    /// Relieves the hottest node by one copy; returns whether that helps.
    pub fn copy_one(&mut self) -> bool {
        let loads = self.loads.iter().enumerate();
        let Some((hottest, _)) = loads.max_by(|(_, a), (_, b)| a.total_cmp(b)) else {
            return false;
        };
        let hottest = hottest as u32;
        let spare = match self.replicas < self.most_in_all() {
            true => None,
            false => self.best_drop(),
        };
        let may_add = self.replicas < self.most_in_all() || spare.is_some();
        let (mut best, mut most_gain) = (None, self.least_gain(LEAST_GAIN_OF_COPY));
        for at in (0..self.lists.len()).filter(|at| self.lists[*at].contains(&hottest)) {
            for step in self.copies_of(at, hottest) {
                let is_add = matches!(step, ListStep::Add { .. });
                if is_add && !may_add {
                    continue;
                }
                let mut changes = self.changes(step);
                let mut dropped = None;
                if let (true, Some((_, drop))) = (is_add, spare) {
                    if drop.at() == at {
                        continue;
                    }
                    changes.extend(self.changes(drop));
                    dropped = Some(drop);
                }
                let gain = gain(&self.loads, &changes);
                if gain > most_gain {
                    (best, most_gain) = (Some((step, dropped)), gain);
                }
            }
        }
        let Some((step, dropped)) = best else {
            return false;
        };
        self.take(step);
        dropped.into_iter().for_each(|drop| self.take(drop));
        true
    }

    /// Returns the steps of a partition that relieve one of its nodes.
    fn copies_of(&self, at: usize, hottest: u32) -> Vec<ListStep> {
        let list = &self.lists[at];
        let place = list.iter().position(|node| *node == hottest);
        let nodes = self.cluster.nodes.iter().enumerate();
        let others = nodes.filter(|(to, node)| node.takes && !list.contains(&(*to as u32)));
        let steps = others.flat_map(|(to, _)| {
            let to = to as u32;
            let place = place.filter(|place| keeps_zones(list, *place, to, |node| self.zone(node)));
            let moved = place.map(|place| ListStep::Move { at, place, to });
            moved.into_iter().chain([ListStep::Add { at, to }])
        });
        steps.collect()
    }

    /// Returns the replica whose drop costs least, of those that may be dropped.
    fn best_drop(&self) -> Option<(f64, ListStep)> {
        let lists = self.lists.iter().enumerate();
        let steps = lists.flat_map(|(at, list)| {
            let places = 0..list.len();
            places.map(move |place| ListStep::Drop { at, place })
        });
        let steps = steps.filter(|step| self.may_drop(*step));
        let gains = steps.map(|step| (gain(&self.loads, &self.changes(step)), step));
        gains.max_by(|(a, _), (b, _)| a.total_cmp(b))
    }

    fn may_drop(&self, step: ListStep) -> bool {
        let ListStep::Drop { at, place } = step else {
            return false;
        };
        let list = &self.lists[at];
        let least = self.cluster.least.max(1);
        if list.len() <= least {
            return false;
        }
        let zones = |list: &[u32]| {
            let zones = list.iter().map(|node| self.zone(*node));
            zones.collect::<BTreeSet<u32>>().len()
        };
        let mut left = list.clone();
        left.remove(place);
        zones(&left) >= zones(list).min(least)
    }

    fn most_in_all(&self) -> usize {
        let partitions = self.cluster.partitions.iter();
        let had: usize = partitions.map(|one| one.holders.len()).sum();
        self.cluster.most_in_all.max(had)
    }

    fn zone(&self, node: u32) -> u32 {
        self.cluster.nodes[node as usize].zone
    }

    fn changes(&self, step: ListStep) -> Vec<(u32, f64)> {
        let at = step.at();
        let (load, list) = (self.cluster.partitions[at].load, &self.lists[at]);
        let each = load / list.len() as f64;
        match step {
            ListStep::Add { to, .. } => {
                let fewer = load / (list.len() + 1) as f64;
                let held = list.iter().map(|node| (*node, fewer - each));
                held.chain([(to, fewer)]).collect()
            }
            ListStep::Move { place, to, .. } => vec![(list[place], -each), (to, each)],
            ListStep::Drop { place, .. } => {
                let more = load / (list.len() - 1) as f64;
                let others = list.iter().enumerate().filter(|(at, _)| *at != place);
                let others = others.map(|(_, node)| (*node, more - each));
                others.chain([(list[place], -each)]).collect()
            }
        }
    }

    fn take(&mut self, step: ListStep) {
        let list = &mut self.lists[step.at()];
        match step {
            ListStep::Add { to, .. } => list.push(to),
            ListStep::Move { place, to, .. } => list[place] = to,
            ListStep::Drop { place, .. } => drop(list.remove(place)),
        }
        self.replicas = self.lists.iter().map(Vec::len).sum();
        self.add_up();
    }

    fn least_gain(&self, share: f64) -> f64 {
        share * self.mean * self.mean
    }
}

impl ListStep {
    fn at(self) -> usize {
        match self {
            ListStep::Add { at, .. } | ListStep::Move { at, .. } | ListStep::Drop { at, .. } => at,
        }
    }
}
