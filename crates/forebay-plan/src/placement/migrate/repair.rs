//! Makes the changes that a migration needs at any load.
//!
//! It adds missing replicas, relieves nodes that have more than they may, and spreads partitions
//! that are in too few zones.

use std::collections::HashSet;

use super::work::Work;
use crate::InputError;

/// The most nodes of other zones that a copy is tried on.
const MOST_TRIED: usize = 64;

impl Work<'_> {
    /// Gives every partition its least number of replicas, and every node no more than fits.
    pub fn repair(&mut self) -> Result<(), InputError> {
        self.routing.route();
        self.targets.refresh(&self.routing);
        let min = self.cluster.min;
        let mut short: Vec<u32> = (0..self.cluster.partitions() as u32)
            .filter(|&id| self.holders[id as usize].len() < min)
            .collect();
        short.sort_by_key(|&id| std::cmp::Reverse(self.routing.load(id)));
        for partition in short {
            while self.holders[partition as usize].len() < min {
                if self.copy_somewhere(partition, &|_, _| true).is_none() {
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

    /// Spreads partitions whose replicas are in fewer zones than required to other zones, if these
    /// have room.
    fn spread_over_zones(&mut self) {
        let needed = self.zones_needed();
        for partition in 0..self.cluster.partitions() as u32 {
            loop {
                let zones = self.zones_of(partition);
                if zones.len() >= needed || !self.enter_zone(partition, &zones) {
                    break;
                }
            }
        }
    }

    /// Adds a copy outside of these zones. It replaces one in a crowded zone if there are as many
    /// copies as allowed, or no room for one more.
    fn enter_zone(&mut self, partition: u32, zones: &HashSet<usize>) -> bool {
        let outside = |work: &Self, to: u32| !zones.contains(&work.zone(to));
        if self.holders[partition as usize].len() < self.cluster.max
            && self.copy_somewhere(partition, &outside).is_some()
        {
            return true;
        }
        let order = self.targets.in_order(super::targets::Fit::Roomiest, 0);
        let targets: Vec<u32> = order
            .filter(|&to| outside(self, to))
            .take(MOST_TRIED)
            .collect();
        let crowded: Vec<u32> = self.crowded(partition);
        crowded.into_iter().any(|from| {
            targets
                .iter()
                .any(|&to| self.move_copy(partition, from, to, true))
        })
    }

    /// Returns the nodes of a partition that share their zone with another one.
    fn crowded(&self, partition: u32) -> Vec<u32> {
        let holders = &self.holders[partition as usize];
        let shares = |&&node: &&u32| {
            let same = holders
                .iter()
                .filter(|&&other| self.zone(other) == self.zone(node));
            same.count() > 1
        };
        holders.iter().filter(shares).copied().collect()
    }

    /// Removes from a node what is beyond its slots or bytes.
    fn relieve(&mut self, node: u32) -> Result<(), InputError> {
        while self.slots[node as usize] < 0 || self.bytes[node as usize] < 0 {
            if let Some(&spare) = self.by_use(node).first() {
                self.drop_copy(node, spare);
                continue;
            }
            let movable = self.held[node as usize].clone();
            let moved = movable.into_iter().find(|&id| {
                !self.made.contains(&(node, id))
                    && self.copy_somewhere(id, &|_, to| to != node).is_some()
            });
            match moved {
                Some(partition) => self.drop_copy(node, partition),
                None => {
                    let first = self.held[node as usize].first();
                    return Err(no_room(first.copied().unwrap_or(0)));
                }
            }
        }
        Ok(())
    }
}

fn no_room(partition: u32) -> InputError {
    let what = format!(
        "no node that stays has room for partition {partition}, which has to be moved or copied; add \
         nodes, slots or bytes"
    );
    InputError::new("slots", what)
}
