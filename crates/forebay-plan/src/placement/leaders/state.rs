//! A placement under search, with the nodes' loads.

use super::LedCluster;
use crate::placement::load_plan::{gain, keeps_zones, mean, most};

/// The most steps of one kind, so that rounding cannot prolong a search.
const MOST_STEPS: usize = 10_000;
/// The most pairs of partitions that are considered in one step.
const MOST_PAIRS: usize = 1_000_000;
/// The least gain that counts, as a part of the mean's square.
const LEAST_GAIN: f64 = 1e-6;

/// A placement under search, with the nodes' loads.
#[derive(Debug, Clone)]
pub struct LedState<'a> {
    cluster: &'a LedCluster,
    lists: Vec<Vec<u32>>,
    loads: Vec<f64>,
    mean: f64,
}

/// A hand-over of partition `at` to the holder at `place`.
#[derive(Debug, Clone, Copy)]
struct HandOver {
    at: usize,
    place: usize,
}

/// A replacement: in partition `at` the node `to` takes the place of the holder at `place`, and may
/// lead.
#[derive(Debug, Clone, Copy)]
struct CopyMove {
    at: usize,
    place: usize,
    to: u32,
    leads: bool,
}

impl<'a> LedState<'a> {
    pub fn of(cluster: &'a LedCluster) -> Self {
        let mut loads: Vec<f64> = cluster.nodes.iter().map(|node| node.other_load).collect();
        for partition in &cluster.partitions {
            for (place, node) in partition.holders.iter().enumerate() {
                loads[*node as usize] += match place {
                    0 => partition.leader_load,
                    _ => partition.follower_load,
                };
            }
        }
        let takes = cluster.nodes.iter().map(|node| node.takes);
        Self {
            mean: mean(&loads, takes),
            lists: cluster
                .partitions
                .iter()
                .map(|one| one.holders.clone())
                .collect(),
            loads,
            cluster,
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

    /// Hands over leadership, as long as that helps.
    pub fn hand_over(&mut self) {
        for _ in 0..MOST_STEPS {
            if self.hand_over_each() {
                continue;
            }
            let Some((first, second)) = self.best_pair() else {
                return;
            };
            self.take(first);
            self.take(second);
        }
    }

    /// Hands over one partition after the other; returns whether any has another leader.
    fn hand_over_each(&mut self) -> bool {
        let mut has_changed = false;
        for at in 0..self.lists.len() {
            let places = 1..self.lists[at].len();
            let steps = places.map(|place| HandOver { at, place });
            let gains = steps
                .filter(|step| self.may_lead(*step))
                .map(|step| (gain(&self.loads, &self.changes(step)), step));
            let best = gains.max_by(|(a, _), (b, _)| a.total_cmp(b));
            if let Some((gain, step)) = best
                && gain > self.least_gain()
            {
                self.take(step);
                has_changed = true;
            }
        }
        has_changed
    }

    /// Returns two hand-overs at once: the hottest node gives up a partition, and its new leader
    /// gives up another.
    fn best_pair(&self) -> Option<(HandOver, HandOver)> {
        let led = self.led();
        let hottest = self.hottest_node()?;
        let (mut best, mut looked_at) = (None, 0);
        let mut most_gain = self.least_gain();
        for &at in &led[hottest] {
            for place in 1..self.lists[at].len() {
                let first = HandOver { at, place };
                if !self.may_lead(first) {
                    continue;
                }
                let one = self.changes(first);
                for &other in &led[self.lists[at][place] as usize] {
                    for place in 1..self.lists[other].len() {
                        looked_at += 1;
                        if looked_at > MOST_PAIRS {
                            return best;
                        }
                        let second = HandOver { at: other, place };
                        let [a, b] = self.changes(second);
                        let gain = gain(&self.loads, &[one[0], one[1], a, b]);
                        if gain > most_gain && self.may_lead(second) {
                            (best, most_gain) = (Some((first, second)), gain);
                        }
                    }
                }
            }
        }
        best
    }

    /// Moves a replica away from the hottest node, or its leadership to a node that gets a replica;
    /// returns whether that helps.
    pub fn copy_one(&mut self) -> bool {
        let Some(hottest) = self.hottest_node() else {
            return false;
        };
        let (mut best, mut most_gain) = (None, self.least_gain().max(1e-4 * self.mean * self.mean));
        for (at, list) in self.lists.iter().enumerate() {
            if !list.contains(&(hottest as u32)) {
                continue;
            }
            for step in self.copies_of(at, hottest as u32) {
                let gain = gain(&self.loads, &self.copy_changes(step));
                if gain > most_gain {
                    (best, most_gain) = (Some(step), gain);
                }
            }
        }
        let Some(step) = best else {
            return false;
        };
        for (node, change) in self.copy_changes(step) {
            self.loads[node as usize] += change;
        }
        let list = &mut self.lists[step.at];
        list[step.place] = step.to;
        if step.leads {
            list.swap(0, step.place);
        }
        true
    }

    fn copies_of(&self, at: usize, hottest: u32) -> Vec<CopyMove> {
        let list = &self.lists[at];
        let mut steps = Vec::new();
        for (to, node) in self.cluster.nodes.iter().enumerate() {
            let to = to as u32;
            if !node.takes || list.contains(&to) {
                continue;
            }
            for place in 0..list.len() {
                if !keeps_zones(list, place, to, |node| self.zone(node)) {
                    continue;
                }
                let may_lead = node.may_lead && list[0] == hottest;
                let ways = [(list[place] == hottest, false), (may_lead, true)];
                let ways = ways.into_iter().filter(|(is_way, _)| *is_way);
                steps.extend(ways.map(|(_, leads)| CopyMove {
                    at,
                    place,
                    to,
                    leads,
                }));
            }
        }
        steps
    }

    fn zone(&self, node: u32) -> u32 {
        self.cluster.nodes[node as usize].zone
    }

    fn led(&self) -> Vec<Vec<usize>> {
        let mut led = vec![Vec::new(); self.loads.len()];
        for (at, list) in self.lists.iter().enumerate() {
            if let Some(leader) = list.first() {
                led[*leader as usize].push(at);
            }
        }
        led
    }

    fn hottest_node(&self) -> Option<usize> {
        let loads = self.loads.iter().enumerate();
        loads
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(node, _)| node)
    }

    fn may_lead(&self, step: HandOver) -> bool {
        self.cluster.nodes[self.lists[step.at][step.place] as usize].may_lead
    }

    fn take(&mut self, step: HandOver) {
        for (node, change) in self.changes(step) {
            self.loads[node as usize] += change;
        }
        self.lists[step.at].swap(0, step.place);
    }

    fn changes(&self, step: HandOver) -> [(u32, f64); 2] {
        let (partition, list) = (&self.cluster.partitions[step.at], &self.lists[step.at]);
        let moved = partition.leader_load - partition.follower_load;
        [(list[0], -moved), (list[step.place], moved)]
    }

    fn copy_changes(&self, step: CopyMove) -> Vec<(u32, f64)> {
        let (partition, list) = (&self.cluster.partitions[step.at], &self.lists[step.at]);
        let of_place = |place: usize| match place {
            0 => partition.leader_load,
            _ => partition.follower_load,
        };
        if !step.leads || step.place == 0 {
            let moved = of_place(step.place);
            return vec![(list[step.place], -moved), (step.to, moved)];
        }
        let led = partition.leader_load - partition.follower_load;
        vec![
            (list[0], -led),
            (list[step.place], -partition.follower_load),
            (step.to, partition.leader_load),
        ]
    }

    fn least_gain(&self) -> f64 {
        LEAST_GAIN * self.mean * self.mean
    }
}
