//! Partitions of model groups that are split.
//!
//! A split is decided as a change is. A replica has split once its log reaches the entry, and then
//! has its peers of the children, if it has any. A replica that forgot comes back as another peer,
//! which has none.

use std::sync::Arc;

use forebay_replica::{GroupId, Membership, PeerId, SplitEntry};

use super::live::{SimGroup, SimReplica, is_majority};
use super::world::{Life, MS, World};
use crate::routing::live::ReplicaOrder;

impl World {
    /// Returns the split that the group's leader has to propose.
    pub fn split_due(&self, order: &ReplicaOrder, members: &Membership) -> Option<Arc<SplitEntry>> {
        let split = order.split.as_ref();
        let split = split.filter(|split| split.is_for(members))?;
        let splits = &self.live.groups.get(&order.group)?.splits;
        let is_done = splits
            .iter()
            .any(|(_, done)| done.children == split.children);
        (!is_done).then(|| Arc::clone(split))
    }

    /// Decides the split a while later, if a majority answers then, and the members are the same.
    pub fn propose_split(&mut self, by: Life, order: &ReplicaOrder, split: Arc<SplitEntry>) {
        let (id, leader) = (order.group, (by, order.peer));
        if let Some(group) = self.live.groups.get_mut(&id) {
            group.is_changing = true;
        }
        let pause = self.rng.between(20, 600) * MS;
        self.after(pause, move |world| {
            let Some(group) = world.live.groups.get_mut(&id) else {
                return;
            };
            group.is_changing = false;
            let (is_leader, members) = (group.leader == Some(leader), group.members.clone());
            let answering = world.answering(by.host, id, &members);
            if !is_leader || !is_majority(&answering, &members.voters) || !split.is_for(&members) {
                return;
            }
            world.count("splits");
            if split.children.len() > 1 {
                world.count("splits into three or more");
            }
            if let Some(group) = world.live.groups.get_mut(&id) {
                group.entries += 1;
                group.splits.push((group.entries, Arc::clone(&split)));
            }
            for child in &split.children {
                let founded = SimGroup {
                    members: Membership::founders(&child.founders()),
                    entries: 1,
                    ..SimGroup::default()
                };
                world.live.groups.insert(child.group, founded);
            }
            for peer in answering {
                world.catch_up(id, peer);
            }
            // Replicas with the entry apply it; others may get a copy from after it.
            world.split_those(id, 0);
        });
    }

    /// Splits the replicas that have the split in their log.
    pub fn split_replicas(&mut self, id: GroupId) {
        self.split_those(id, 300);
    }

    /// Does the same; of a thousand replicas, `by_copy` get it by a copy.
    fn split_those(&mut self, id: GroupId, by_copy: u64) {
        let splits = self.live.groups.get(&id).map(|group| group.splits.clone());
        for (index, split) in splits.unwrap_or_default() {
            for voter in &split.voters {
                self.split_replica((id, index), *voter, (&split, by_copy));
            }
        }
    }

    fn split_replica(
        &mut self,
        (id, index): (GroupId, u64),
        voter: PeerId,
        (split, by_copy): (&SplitEntry, u64),
    ) {
        let groups = split.children.iter().map(|child| child.group);
        let peers = split.peers_of(voter).into_iter().flatten();
        let places: Vec<(GroupId, PeerId)> = groups.zip(peers).collect();
        if places
            .iter()
            .any(|place| self.checks.split_off.contains(place))
        {
            return;
        }
        let has_it = |replica: &SimReplica| replica.matched >= index && !replica.is_damaged;
        let mut hosts = self.hosts.iter();
        let host = hosts.position(|host| {
            let whole = host.disk.replicas.get(&(id, voter));
            whole.is_some_and(has_it)
        });
        let Some(host) = host else { return };
        if let Some(place) = places
            .iter()
            .find(|place| self.live.ran.contains_key(place))
        {
            return self.fail(format!("peer {place:?} has run, and is made again"));
        }
        // A copy has only what the partition itself keeps: the children then come as other peers.
        let is_by_copy = self.rng.chance(by_copy);
        for place in places {
            self.checks.split_off.insert(place);
            let replica = SimReplica {
                planned_in: split.planned_in,
                matched: 1,
                ..SimReplica::default()
            };
            match is_by_copy {
                true => drop(self.checks.missed.insert(place)),
                false => drop(self.hosts[host].disk.replicas.insert(place, replica)),
            }
        }
        // Its peers may have been removed meanwhile.
        self.remove_unordered(host);
    }

    /// Creates an empty peer that never existed because its parent received the split in a copy.
    pub fn make_missed(&mut self, host: usize, order: &ReplicaOrder) {
        let place = (order.group, order.peer);
        if self.has_parent_here(host, order) && self.checks.missed.remove(&place) {
            self.count("missed children made");
            let replicas = &mut self.hosts[host].disk.replicas;
            replicas.insert(place, SimReplica::default());
        }
    }

    fn has_parent_here(&self, host: usize, order: &ReplicaOrder) -> bool {
        let replicas = &self.hosts[host].disk.replicas;
        let whole = order.comes_from.and_then(|whole| replicas.get(&whole));
        whole.is_some_and(|whole| !whole.is_damaged)
    }

    /// Returns whether a replica does not exist yet because its parent was not split yet, or itself
    /// has to result from a split.
    pub fn awaits_split(&self, host: usize, order: &ReplicaOrder, orders: &[ReplicaOrder]) -> bool {
        let place = (order.group, order.peer);
        let has_missed = self.checks.missed.contains(&place);
        let is_to_come = has_missed || !self.checks.split_off.contains(&place);
        let is_here = self.hosts[host].disk.replicas.contains_key(&place);
        let is_whole = |whole: &&ReplicaOrder| order.comes_from == Some((whole.group, whole.peer));
        let mut wholes = orders.iter().filter(is_whole);
        let comes = self.has_parent_here(host, order)
            || wholes.any(|whole| self.awaits_split(host, whole, orders));
        !order.is_new && !is_here && is_to_come && comes
    }
}
