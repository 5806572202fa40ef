//! Partitions of model groups that are cut in two.
//!
//! A cut is decided as a change is. A replica has it once it has the log up to there, and its peer
//! of the new group with it, if it had one to come: a replica that forgot comes back as another
//! peer, which has none.

use std::sync::Arc;

use forebay_replica::{GroupId, Membership, PeerId, SplitEntry};

use super::live::{SimGroup, SimReplica, is_majority};
use super::world::{Life, MS, World};
use crate::live::ReplicaOrder;

impl World {
    /// What the group's leader is to propose.
    pub fn cut_due(&self, order: &ReplicaOrder, members: &Membership) -> Option<Arc<SplitEntry>> {
        let cut = order.cut.as_ref().filter(|cut| cut.is_for(members))?;
        let cuts = &self.live.groups.get(&order.group)?.cuts;
        let is_done = cuts.iter().any(|(_, done)| done.group == cut.group);
        (!is_done).then(|| Arc::clone(cut))
    }

    /// It is decided a while later, if a majority is there then, and the members are the same.
    pub fn propose_cut(&mut self, by: Life, order: &ReplicaOrder, cut: Arc<SplitEntry>) {
        let (id, leader) = (order.group, (by, order.peer));
        if let Some(group) = self.live.groups.get_mut(&id) {
            group.is_changing = true;
        }
        let pause = self.dice.between(20, 600) * MS;
        self.after(pause, move |world| {
            let Some(group) = world.live.groups.get_mut(&id) else {
                return;
            };
            group.is_changing = false;
            let (is_leader, members) = (group.leader == Some(leader), group.members.clone());
            let answering = world.answering(by.host, id, &members);
            if !is_leader || !is_majority(&answering, &members.voters) || !cut.is_for(&members) {
                return;
            }
            world.count("cuts");
            let founders = Membership::founders(&cut.founders());
            if let Some(group) = world.live.groups.get_mut(&id) {
                group.entries += 1;
                group.cuts.push((group.entries, Arc::clone(&cut)));
            }
            let half = SimGroup {
                members: founders,
                entries: 1,
                ..SimGroup::default()
            };
            world.live.groups.insert(cut.group, half);
            for peer in answering {
                world.catch_up(id, peer);
            }
            // Who has the entry does it; others may get a copy from behind it.
            world.cut_those(id, 0);
        });
    }

    /// Replicas that have a cut in their log have both halves.
    pub fn cut_replicas(&mut self, id: GroupId) {
        self.cut_those(id, 300);
    }

    /// The same; so many of a thousand have it by a copy.
    fn cut_those(&mut self, id: GroupId, by_copy: u64) {
        let cuts = self.live.groups.get(&id).map(|group| group.cuts.clone());
        for (index, cut) in cuts.unwrap_or_default() {
            for (left, new) in &cut.peers {
                self.cut_replica((id, index), (*left, *new), (&cut, by_copy));
            }
        }
    }

    fn cut_replica(
        &mut self,
        (id, index): (GroupId, u64),
        (left, new): (PeerId, PeerId),
        (cut, by_copy): (&SplitEntry, u64),
    ) {
        let place = (cut.group, new);
        if self.checks.cut_off.contains(&place) {
            return;
        }
        let has_it = |replica: &SimReplica| replica.matched >= index && !replica.is_damaged;
        let mut hosts = self.hosts.iter();
        let host = hosts.position(|host| host.disk.replicas.get(&(id, left)).is_some_and(has_it));
        let Some(host) = host else { return };
        if self.live.ran.contains_key(&place) {
            return self.fail(format!("peer {place:?} has run, and is made again"));
        }
        // By a copy it gets the left half alone: then the other one comes as another peer.
        self.checks.cut_off.insert(place);
        let replica = SimReplica {
            planned_in: cut.planned_in,
            matched: 1,
            ..SimReplica::default()
        };
        match self.dice.chance(by_copy) {
            true => drop(self.checks.missed.insert(place)),
            false => {
                self.hosts[host].disk.replicas.insert(place, replica);
                // Its peer may have been given up meanwhile.
                self.remove_unordered(host);
            }
        }
    }

    /// A peer that was never there, as the one that it comes from has the cut by a copy, is made
    /// empty.
    pub fn make_missed(&mut self, host: usize, order: &ReplicaOrder) {
        let place = (order.group, order.peer);
        if self.comes_from_here(host, order) && self.checks.missed.remove(&place) {
            self.count("missed halves made");
            let replicas = &mut self.hosts[host].disk.replicas;
            replicas.insert(place, SimReplica::default());
        }
    }

    fn comes_from_here(&self, host: usize, order: &ReplicaOrder) -> bool {
        let replicas = &self.hosts[host].disk.replicas;
        let left = order.comes_from.and_then(|left| replicas.get(&left));
        left.is_some_and(|left| !left.is_damaged)
    }

    /// Whether a replica is not here as the one that it comes from has not been cut yet, or is
    /// itself to come of a cut.
    pub fn comes_of_a_cut(
        &self,
        host: usize,
        order: &ReplicaOrder,
        orders: &[ReplicaOrder],
    ) -> bool {
        let place = (order.group, order.peer);
        let has_missed = self.checks.missed.contains(&place);
        let is_to_come = has_missed || !self.checks.cut_off.contains(&place);
        let is_here = self.hosts[host].disk.replicas.contains_key(&place);
        let is_left = |left: &&ReplicaOrder| order.comes_from == Some((left.group, left.peer));
        let mut lefts = orders.iter().filter(is_left);
        let comes = self.comes_from_here(host, order)
            || lefts.any(|left| self.comes_of_a_cut(host, left, orders));
        !order.is_new && !is_here && is_to_come && comes
    }
}
