//! Proposes loads to the groups that replicas on this node lead.

use std::time::Duration;

use forebay_host::Effect;
use forebay_replica::GroupId;

use super::commons::ReplicaCommons;
use super::load_runs::ProposedLoad;
use crate::measures::reports::{LoadPosition, LoadedState};
use crate::routing::live::{OrderedLoad, ReplicaOrder};

/// The time after which a load is proposed again if it was not added.
const AGAIN: Duration = Duration::from_secs(10);

impl ReplicaCommons {
    /// Proposes the ordered loads to groups led by this node, once their runs are on the node. A
    /// load that is proposed twice is added once.
    pub fn add_loads(&self, orders: &[ReplicaOrder]) {
        let now = self.clock.monotonic();
        for order in orders.iter().filter(|order| !order.is_new) {
            if let Some(load) = &order.load
                && load.is_adding
                && self.is_due(now, order, load)
            {
                let done = Box::new(|_| ());
                let effect = Effect::Load(load.number).encode();
                self.host.propose(order.group, effect, done);
            }
        }
    }

    fn is_due(&self, now: Duration, order: &ReplicaOrder, load: &OrderedLoad) -> bool {
        let facts = self.host.facts(order.group);
        let Some(facts) = facts.filter(|facts| facts.leader == Some(facts.me)) else {
            return false;
        };
        let is_here = self
            .loads
            .is_here(&order.table, order.partition, load.number);
        if !is_here || self.has_load(order, load.number) {
            return false;
        }
        let proposed = ProposedLoad {
            load: load.number,
            term: facts.term,
            at: now,
        };
        let mut all = self.proposed.lock();
        let known = all.get(&order.group);
        let is_known = known.is_some_and(|known| {
            (known.load, known.term) == (load.number, facts.term) && now < known.at + AGAIN
        });
        if !is_known {
            all.insert(order.group, proposed);
        }
        !is_known
    }

    /// Returns whether a local partition has a load, and keeps it after a crash.
    fn has_load(&self, order: &ReplicaOrder, load: u64) -> bool {
        let tables = self.tables.load();
        let applied = tables
            .get(&order.table)
            .and_then(|table| table.applied(order.partition).ok());
        applied.is_some_and(|applied| applied.loaded >= load)
    }

    /// Returns the progress of a replica in the current load.
    pub fn load_position(&self, group: GroupId) -> Option<LoadPosition> {
        let ordered = self.ordered_loads.lock().get(&group).cloned();
        let order = ordered?;
        let load = order.load.as_ref()?.number;
        let (table, partition) = (&order.table, order.partition);
        let state = match self.has_load(&order, load) {
            true => LoadedState::Added,
            false => self
                .loads
                .state(table, partition, |files| self.staged.came_bytes(files))?,
        };
        Some(LoadPosition { load, state })
    }

    /// Returns whether the partition of a replica cannot continue without the run of a load.
    pub fn has_missed(&self, group: GroupId) -> bool {
        let orders = self.ordered_loads.lock();
        let order = orders.get(&group);
        order.is_some_and(|order| self.loads.has_missed(&order.table, order.partition))
    }

    /// Marks replicas that missed a load as unhealthy, so that replicas with the load lead.
    pub fn notice_missed(&self) {
        let groups: Vec<GroupId> = self.ordered_loads.lock().keys().copied().collect();
        for group in groups.into_iter().filter(|group| self.has_missed(*group)) {
            self.host
                .fall_ill(group, "it missed a load, whose files are gone");
        }
    }

    /// Records the ordered loads.
    pub fn order_loads(&self, orders: &[ReplicaOrder]) {
        self.loads.order(orders);
        let is_loaded = |order: &&ReplicaOrder| order.load.is_some() || order.last_load.number > 0;
        let loading = orders.iter().filter(is_loaded);
        let loading = loading.map(|order| (order.group, order.clone()));
        *self.ordered_loads.lock() = loading.collect();
        let ordered = self.ordered_loads.lock();
        self.proposed
            .lock()
            .retain(|group, _| ordered.contains_key(group));
        self.loads_ordered.wake();
    }

    /// Removes runs of loads that are no longer needed.
    pub fn tidy_loads(&self) {
        for table in self.tables.load().values() {
            self.loads.tidy(table);
        }
    }
}
