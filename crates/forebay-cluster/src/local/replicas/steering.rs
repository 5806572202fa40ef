//! Moves the groups that this node leads towards the state that the catalog wants.

use std::borrow::Cow;
use std::collections::HashSet;
use std::collections::btree_map::Entry;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_engine::live::LiveTable;
use forebay_host::GroupStanding;
use forebay_replica::{GroupId, SplitEntry, SteeringStep, next_step};

use super::commons::{PreparedSplit, ReplicaCommons};
use crate::routing::live::ReplicaOrder;

/// The time after which leaders check again, because their proposals may have been dropped.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The time after which a split that waits is checked again.
const LOOK_SOON: Duration = Duration::from_millis(20);
/// The maximum time that a split waits before it is proposed anyway.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

impl ReplicaCommons {
    /// Takes one step in each group. Returns how soon to look for the next step, if there is any.
    /// REQUIRES: the catalog is certain to want this.
    pub fn steer(&self, orders: &[ReplicaOrder]) -> Option<Duration> {
        let splits: HashSet<GroupId> = orders.iter().filter_map(first_child).collect();
        self.prepared
            .lock()
            .retain(|child, _| splits.contains(child));
        // A node that hands its groups over neither leads nor changes a group.
        if self.hands_over.load(Ordering::Relaxed) {
            return None;
        }
        let orders = orders.iter().filter(|order| !order.is_new);
        orders.filter_map(|order| self.steer_group(order)).min()
    }

    fn steer_group(&self, order: &ReplicaOrder) -> Option<Duration> {
        let split = order.split.as_ref().filter(|_| !self.is_split(order));
        // Followers prepare, too: all children need a majority that has applied the split.
        let is_ready = split.is_none() || self.is_ready(order);
        let group = self.host.standing(order.group);
        let group = group.filter(|group| group.me == order.peer)?;
        let (members, standing) = (&group.members, &group.standing);
        if let Some(split) = split.filter(|split| split.is_for(members)) {
            if !is_ready {
                return Some(LOOK_SOON);
            }
            self.host.split(order.group, SplitEntry::clone(split));
            return Some(LOOK_AGAIN);
        }
        let wanted = match group.is_unhealthy {
            true => Cow::Owned(order.wanted.led_by_others(order.peer)),
            false => Cow::Borrowed(&order.wanted),
        };
        let step = next_step(order.peer, &wanted, members, standing);
        let is_changing = members.is_joint() || !members.learners.is_empty();
        let is_steering = is_changing || step.is_some();
        match step {
            Some(SteeringStep::Change(changes)) => self.host.order(order.group, changes),
            Some(SteeringStep::HandOver(to)) => self.host.transfer(order.group, to),
            None => {}
        }
        is_steering.then_some(LOOK_AGAIN)
    }

    /// Returns whether the split of a partition would not wait long: its memtable is flushed, and
    /// no merge is in progress.
    fn is_ready(&self, order: &ReplicaOrder) -> bool {
        let tables = self.tables.load();
        let Some((table, child)) = tables.get(&order.table).zip(first_child(order)) else {
            return true;
        };
        let now = self.clock.monotonic();
        let mut prepared = self.prepared.lock();
        let prepared = match prepared.entry(child) {
            Entry::Occupied(prepared) => prepared.into_mut(),
            Entry::Vacant(place) => match table.prepare_split(order.partition) {
                Ok(number) => place.insert(PreparedSplit { number, begun: now }),
                // The split itself reports the problem.
                Err(_) => return true,
            },
        };
        // Asking defers merges.
        let is_late = now.saturating_sub(prepared.begun) >= LONGEST_WAIT;
        is_late || table.is_ready_to_split(prepared.number)
    }

    /// Returns whether a local partition ends at its split point, or before.
    fn is_split(&self, order: &ReplicaOrder) -> bool {
        let tables = self.tables.load();
        let ranges = tables.get(&order.table).map(LiveTable::partitions);
        let mut ranges = ranges.unwrap_or_default().into_iter();
        let range = ranges.find(|range| range.id == order.partition);
        range.is_none_or(|range| range.bounds != order.bounds)
    }

    /// Hands the groups that this node leads over to other leaders, as far as possible. Returns the
    /// number of remaining groups that another node could lead.
    pub fn hand_over(&self) -> usize {
        self.hands_over.store(true, Ordering::Relaxed);
        let groups = self.host.groups().into_iter();
        let forced_peer =
            |group: &GroupStanding| group.standing.forced_peer(group.me, &group.members);
        let led =
            groups.filter_map(|group| Some((group, forced_peer(&self.host.standing(group)?)?)));
        led.map(|(group, to)| self.host.transfer(group, to)).count()
    }
}

/// Returns the group of the first child of a split.
fn first_child(order: &ReplicaOrder) -> Option<GroupId> {
    let split = order.split.as_ref()?;
    split.children.first().map(|child| child.group)
}
