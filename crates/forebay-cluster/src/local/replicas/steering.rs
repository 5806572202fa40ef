//! Having the groups that are led here become what the catalog wants.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use forebay_engine::live::LiveTable;
use forebay_host::GroupStanding;
use forebay_replica::{SplitEntry, SteeringStep, next_step};

use super::commons::ReplicaCommons;
use crate::live::ReplicaOrder;

impl ReplicaCommons {
    /// One step of each group; whether there was one to be made. REQUIRES: the catalog is certain
    /// to want this.
    pub fn steer(&self, orders: &[ReplicaOrder]) -> bool {
        // Who hands its groups over neither takes one nor changes one.
        if self.hands_over.load(Ordering::Relaxed) {
            return false;
        }
        let mut is_steering = false;
        for order in orders.iter().filter(|order| !order.is_new) {
            let group = self.host.standing(order.group);
            let Some(group) = group.filter(|group| group.me == order.peer) else {
                continue;
            };
            let (members, standing) = (&group.members, &group.standing);
            let cut = order.cut.as_ref().filter(|cut| cut.is_for(members));
            let wanted = match group.ails {
                true => Cow::Owned(order.wanted.led_by_others(order.peer)),
                false => Cow::Borrowed(&order.wanted),
            };
            is_steering |= members.is_joint() || !members.learners.is_empty();
            if let Some(cut) = cut.filter(|_| !self.is_cut(order)) {
                self.host.split(order.group, SplitEntry::clone(cut));
                is_steering = true;
                continue;
            }
            let step = next_step(order.peer, &wanted, members, standing);
            is_steering |= step.is_some();
            match step {
                Some(SteeringStep::Change(changes)) => self.host.wish(order.group, changes),
                Some(SteeringStep::HandOver(to)) => self.host.transfer(order.group, to),
                None => {}
            }
        }
        is_steering
    }

    /// Whether a partition here ends where it is to be cut, or before.
    fn is_cut(&self, order: &ReplicaOrder) -> bool {
        let tables = self.tables.load();
        let ranges = tables.get(&order.table).map(LiveTable::partitions);
        let mut ranges = ranges.unwrap_or_default().into_iter();
        let range = ranges.find(|range| range.id == order.partition);
        range.is_none_or(|range| range.bounds != order.bounds)
    }

    /// Has others lead the groups that are led here, as far as they can. Returns how many are left
    /// that somebody else could lead.
    pub fn hand_over(&self) -> usize {
        self.hands_over.store(true, Ordering::Relaxed);
        let groups = self.host.groups().into_iter();
        let heir = |group: &GroupStanding| group.standing.heir(group.me, &group.members);
        let led = groups.filter_map(|group| Some((group, heir(&self.host.standing(group)?)?)));
        led.map(|(group, to)| self.host.transfer(group, to)).count()
    }
}
