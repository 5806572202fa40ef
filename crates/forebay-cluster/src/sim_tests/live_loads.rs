//! Loads into model groups: replicas fetch runs, and entries add them.

use super::live::{ReplicaPlace, is_majority};
use super::world::{Life, World};
use crate::measures::reports::{LoadPosition, LoadedState};
use crate::model::{GroupEntry, LoadStage, Model, TableLoad};
use crate::routing::live::ReplicaOrder;
use forebay_engine::TableName;
use forebay_replica::GroupId;

impl World {
    /// Advances a replica's load: it fetches the run, proposes it if it leads, and adds it.
    pub fn run_load(&mut self, by: Life, order: &ReplicaOrder) {
        let place = (order.group, order.peer);
        if let Some(load) = &order.load {
            let number = load.number;
            let has_it = self.loaded(place) >= number;
            let comes = !has_it && !self.store.is_away && self.rng.chance(200);
            if comes && let Some(process) = self.process(by) {
                process.live.runs.insert((place, number));
            }
            let leads = self.live.groups.get(&order.group);
            let leads = leads.is_some_and(|group| group.leader == Some((by, order.peer)));
            if load.is_adding && leads && self.has_run(by, place, number) {
                self.decide_load(by, order.group, number);
            }
        }
        self.add_decided(by, order);
    }

    fn loaded(&self, place: ReplicaPlace) -> u64 {
        let mut hosts = self.hosts.iter();
        let replica = hosts.find_map(|host| host.disk.replicas.get(&place));
        replica.map_or(0, |replica| replica.loaded)
    }

    fn has_run(&mut self, by: Life, place: ReplicaPlace, load: u64) -> bool {
        let process = self.process(by);
        process.is_some_and(|process| process.live.runs.contains(&(place, load)))
    }

    /// Decides a load once a majority has the entry.
    fn decide_load(&mut self, by: Life, id: GroupId, number: u64) {
        let Some(group) = self.live.groups.get(&id) else {
            return;
        };
        let answering = self.answering(by.host, id, &group.members);
        let has_majority = is_majority(&answering, &group.members.voters);
        if !has_majority || group.loads.contains_key(&number) {
            return;
        }
        let group = self.live.groups.entry(id).or_default();
        group.entries += 1;
        group.loads.insert(number, group.entries);
        let voters = group.members.voters.clone();
        for peer in answering.into_iter().filter(|peer| voters.contains(peer)) {
            self.catch_up(id, peer);
        }
        self.count("loads decided");
    }

    /// Adds decided loads in order: an entry that waits for its run blocks the entries after it.
    fn add_decided(&mut self, by: Life, order: &ReplicaOrder) {
        let place = (order.group, order.peer);
        let matched = self.matched(order.group, order.peer);
        let Some(group) = self.live.groups.get(&order.group) else {
            return;
        };
        let is_copied = group.members.learners.contains(&order.peer);
        let decided: Vec<u64> = group
            .loads
            .iter()
            .filter(|(_, end)| **end <= matched)
            .map(|(number, _)| *number)
            .collect();
        for number in decided {
            if self.loaded(place) >= number {
                continue;
            }
            if !is_copied && !self.has_run(by, place, number) {
                let is_ordered = order
                    .load
                    .as_ref()
                    .is_some_and(|load| load.number == number);
                if !is_ordered && order.last_load.number >= number {
                    self.miss(by, place);
                }
                return;
            }
            if let Some(replica) = self.hosts[by.host].disk.replicas.get_mut(&place) {
                (replica.loaded, replica.has_missed) = (number, false);
            }
            if let Some(process) = self.process(by) {
                process.live.runs.remove(&(place, number));
            }
        }
    }

    fn miss(&mut self, by: Life, place: ReplicaPlace) {
        let replica = self.hosts[by.host].disk.replicas.get_mut(&place);
        // Others lead, and it is removed once it is not needed.
        let is_new = replica.is_some_and(|replica| {
            replica.is_unhealthy = true;
            !std::mem::replace(&mut replica.has_missed, true)
        });
        if is_new {
            self.count("loads missed");
        }
    }

    pub fn load_position(&mut self, by: Life, order: &ReplicaOrder) -> Option<LoadPosition> {
        let load = order.load.as_ref()?.number;
        let place = (order.group, order.peer);
        let state = match self.loaded(place) >= load {
            true => LoadedState::Added,
            false if self.has_run(by, place, load) => LoadedState::Here,
            false => return None,
        };
        Some(LoadPosition { load, state })
    }

    /// Checks that a load is added only when it can be, and ends only when all partitions have it.
    /// No partition has a load that was cancelled.
    pub fn loaded_early(&self, old: &Model, new: &Model) -> Option<String> {
        let changed = new.work.loads.iter().filter_map(|load| {
            let mut before = old.work.loads.iter();
            let before = before.find(|before| before.number == load.number)?;
            (before.stage != load.stage).then_some((before, load))
        });
        for (before, load) in changed {
            let groups = old.groups.get(&load.table)?;
            let mut groups = groups.all().filter(|group| load.has(group.partition));
            let wrong = match (before.stage, load.stage) {
                (LoadStage::Fetching, LoadStage::Stopped) => {
                    groups.find(|group| self.is_decided(group, load))
                }
                (LoadStage::Fetching, LoadStage::Adding) => None,
                (LoadStage::Adding, LoadStage::Done) => {
                    groups.find(|group| !self.is_decided(group, load))
                }
                // The table is dropped, with all of its content.
                (LoadStage::Adding, LoadStage::Stopped)
                    if !new.groups.contains_key(&load.table) =>
                {
                    None
                }
                other => return Some(format!("load {} went {other:?}", load.number)),
            };
            if let Some(group) = wrong {
                return Some(format!(
                    "load {} became {:?}, but group {} did not",
                    load.number, load.stage, group.group
                ));
            }
        }
        None
    }

    fn is_decided(&self, group: &GroupEntry, load: &TableLoad) -> bool {
        let group = self.live.groups.get(&group.group);
        group.is_some_and(|group| group.loads.contains_key(&load.number))
    }

    /// Checks that each replica has all loads that its group decided in the end.
    pub fn unloaded(&self, table: &TableName, group: &GroupEntry) -> Option<String> {
        let there = self.live.groups.get(&group.group)?;
        let newest = there.loads.keys().next_back()?;
        let mut peers = group.peers.iter();
        let behind = peers.find(|peer| self.loaded((group.group, peer.peer)) < *newest)?;
        Some(format!(
            "peer {} of group {} of {table} has not added load {newest}",
            behind.peer, group.group
        ))
    }
}
