//! Invariants of live tables.

use std::collections::{BTreeMap, BTreeSet};

use forebay_replica::{GroupId, Membership, PeerId};

use super::live::ReplicaPlace;
use super::world::World;
use crate::ids::NodeId;
use crate::model::{Head, Model, MoveStage, PeerState};

impl World {
    fn remembers(&self, group: GroupId, peer: PeerId) -> bool {
        let mut replicas = self.hosts.iter();
        replicas.any(|host| {
            let replica = host.disk.replicas.get(&(group, peer));
            replica.is_some_and(|replica| !replica.is_damaged)
        })
    }

    /// Counts voters that have not lost their promises.
    pub fn remembering(&self, group: GroupId, voters: &[PeerId]) -> usize {
        let remembers = |peer: &&PeerId| self.remembers(group, **peer);
        voters.iter().filter(remembers).count()
    }

    /// Checks that a node may remove a replica.
    pub fn check_removed(&mut self, host: usize, place: ReplicaPlace) {
        let (group, peer) = place;
        let model = self.store.current();
        let is_named = model.all_groups().any(|(_, entry)| entry.group == group);
        let members = self.live.groups.get(&group).map(|group| &group.members);
        let is_voter = members.is_some_and(|members| members.voters.contains(&peer));
        let has_run = self.live.ran.contains_key(&place);
        // A damaged replica is removed earlier: its node has one replica of a partition.
        let on_disk = self.hosts[host].disk.replicas.get(&place);
        let is_unhealthy = on_disk.is_some_and(|replica| replica.is_unhealthy);
        if is_named && is_voter && has_run && !is_unhealthy && self.remembers(group, peer) {
            let name = &self.hosts[host].name;
            self.fail(format!(
                "{name} removes peer {peer} of group {group}, a voter"
            ));
        }
    }

    /// Checks a change of a group's members.
    pub fn check_members(&mut self, group: GroupId, before: &Membership) {
        let after = self.live.groups[&group].members.clone();
        let is_majority = |members: &Membership| {
            self.remembering(group, &members.voters) > members.voters.len() / 2
        };
        if is_majority(before) && !is_majority(&after) {
            self.fail(format!(
                "a change leaves group {group} without a majority: {before:?} to {after:?}"
            ));
        }
    }

    /// Checks the groups in the head that was just committed.
    pub fn check_live(&mut self, before: &Head) {
        let head = self.store.head.clone();
        let models = self
            .store
            .model(before)
            .cloned()
            .zip(self.store.model(&head).cloned());
        let Some((old, new)) = models else {
            return;
        };
        if new.groups.is_empty() && old.groups.is_empty() {
            return;
        }
        let problem = self
            .recurring(&old, &new)
            .or_else(|| self.loaded_early(&old, &new))
            .or_else(|| uneven(&new))
            .or_else(|| self.moved_early(&old, &new));
        if let Some(problem) = problem {
            self.fail(problem);
        }
    }

    /// Checks that each number is one peer on one node, from when the catalog names it until it no
    /// longer does.
    fn recurring(&mut self, old: &Model, new: &Model) -> Option<String> {
        let named = |model: &Model| -> BTreeMap<ReplicaPlace, NodeId> {
            let groups = model.all_groups();
            let peers = groups.flat_map(|(_, group)| {
                let peers = group.peers.iter();
                peers.map(|peer| ((group.group, peer.peer), peer.node))
            });
            peers.collect()
        };
        let (before, after) = (named(old), named(new));
        for (place, node) in &after {
            if before.get(place).is_some_and(|known| known != node) {
                return Some(format!("peer {place:?} went to node {node}"));
            }
            if !before.contains_key(place) && !self.checks.peers.insert(*place) {
                return Some(format!("peer {place:?} is named again"));
            }
        }
        let mut groups = BTreeSet::new();
        let mut all = new.all_groups().map(|(_, group)| group.group);
        let twice = all.find(|group| !groups.insert(*group));
        twice.map(|group| format!("two partitions have group {group}"))
    }

    /// Checks that a batch's lists change only when the groups are where it wants them.
    fn moved_early(&self, old: &Model, new: &Model) -> Option<String> {
        let was = old.work.moving()?;
        let is = new
            .work
            .rebalances
            .iter()
            .find(|is| is.request == was.request)?;
        let has_changed = matches!(was.stage, MoveStage::Copying { .. })
            && matches!(is.stage, MoveStage::Changed { .. });
        if !has_changed {
            return None;
        }
        for (name, _) in new.live_tables() {
            let before = old.desired_groups(name);
            let after = new.desired_groups(name);
            let layouts = old.table(name).and_then(|entry| old.layout_of(entry));
            for ((_, _), (group, wanted)) in before.iter().zip(&after) {
                let mut ranges = layouts?.within(&group.bounds);
                if ranges.next()?.next.is_none() {
                    continue;
                }
                let members = &self.live.groups.get(&group.group)?.members;
                let node = |peer: &PeerId| group.peer(*peer).map(|peer| peer.node);
                let on: BTreeSet<Option<NodeId>> = members.voters.iter().map(node).collect();
                let wanted: BTreeSet<_> = wanted.iter().copied().map(Some).collect();
                // By the next moment the leader may have continued.
                if on != wanted && members.voters.len() == wanted.len() {
                    return Some(format!(
                        "the plan's lists change while group {} is on {on:?} instead of {wanted:?}",
                        group.group
                    ));
                }
            }
        }
        None
    }

    /// Returns the work that is left for live tables.
    pub fn unsettled_live(&self) -> Option<String> {
        let model = self.store.current();
        let mut loads = model.work.loads.iter();
        if let Some(load) = loads.find(|load| !load.stage.is_over()) {
            return Some(format!("load {} is {:?}", load.number, load.stage));
        }
        let mut named = BTreeSet::new();
        for (table, _) in model.live_tables() {
            for (group, wanted) in model.desired_groups(table) {
                let id = group.group;
                if group.split.is_some() {
                    let there = self.live.groups.get(&id);
                    return Some(format!("{group:?} of {table} is not split yet: {there:?}"));
                }
                let is_made = |node: &NodeId| {
                    let mut peers = group.peers.iter();
                    peers.any(|peer| peer.node == *node && peer.state == PeerState::Made)
                };
                if group.peers.len() != wanted.len() || !wanted.iter().all(is_made) {
                    return Some(format!(
                        "group {id} of {table} has {:?} instead of {wanted:?}; it is {:?}",
                        group.peers,
                        self.live.groups.get(&id)
                    ));
                }
                let Some(there) = self.live.groups.get(&id) else {
                    return Some(format!("group {id} of {table} is not founded"));
                };
                let peers: BTreeSet<PeerId> = group.peers.iter().map(|peer| peer.peer).collect();
                let voters: BTreeSet<PeerId> = there.members.voters.iter().copied().collect();
                if voters != peers || !there.members.learners.is_empty() {
                    return Some(format!(
                        "group {id} of {table} is {:?} instead of {peers:?}",
                        there.members
                    ));
                }
                if self.remembering(id, &there.members.voters) < voters.len() {
                    return Some(format!("group {id} of {table} has a peer that forgot"));
                }
                if let Some(problem) = self.unloaded(table, group) {
                    return Some(problem);
                }
                named.extend(peers.into_iter().map(|peer| (id, peer)));
            }
        }
        self.hosts.iter().find_map(|host| {
            let mut replicas = host.disk.replicas.keys();
            let unwanted = replicas.find(|place| !named.contains(place))?;
            Some(format!(
                "{} has peer {unwanted:?}, which was removed",
                host.name
            ))
        })
    }
}

/// Checks that the partitions of a table are adjacent, and do not overlap.
fn uneven(model: &Model) -> Option<String> {
    for (table, groups) in &model.groups {
        let all: Vec<_> = groups.all().collect();
        let ids: BTreeSet<_> = all.iter().map(|group| group.partition).collect();
        let is_next = |two: &[&crate::model::GroupEntry]| {
            two[0].bounds.upper.as_ref() == Some(&two[1].bounds.lower)
        };
        let ends = all.last().is_none_or(|last| last.bounds.upper.is_none());
        if ids.len() < all.len() || !ends || !all.windows(2).all(is_next) {
            return Some(format!(
                "the partitions of {table} are not adjacent: {all:?}"
            ));
        }
    }
    None
}
