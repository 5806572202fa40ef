//! Splits partitions of live tables, by a [`PlannedSplit`](crate::model::PlannedSplit) in the
//! catalog.

use forebay_engine::{Bound, MAX_PARTITIONS, PartitionId, TableName};
use forebay_replica::GroupId;
use forebay_run::MAX_KEY_BYTES;
use forebay_run::hash::SLOTS;

use super::Step;
use super::groups::GroupWatch;
use super::requests::Refusal;
use crate::model::{
    ChildIds, GroupEntry, PeerEntry, PeerState, PlanGoal, PlannedSplit, SplitChange, TableGroups,
    fresh_id,
};

impl Step<'_> {
    /// Returns whether a partition of the table is being split.
    pub fn is_being_split(&self, table: &TableName) -> bool {
        let groups = self.model.groups.get(table).into_iter();
        let mut all = groups.flat_map(|groups| groups.all());
        all.any(|group| group.split.is_some())
    }

    /// Checks that a plan may split a table at this point. Whether the split is possible at that
    /// time is checked later.
    pub fn check_split(&self, goal: &PlanGoal, split: &SplitChange) -> Result<(), String> {
        let SplitChange { table, at } = split;
        if !goal.inserts_into(table) {
            return Err(format!(
                "the plan splits table {table}, which is not what it is for: make a new plan"
            ));
        }
        let Some(groups) = self.model.groups.get(table) else {
            return Err(format!("the cluster has no live table {table}"));
        };
        let order = groups.all().next().map(|group| &group.bounds.lower);
        check_place(table, order, at)
    }

    /// Plans a split, unless a partition already begins at this point or is about to.
    pub fn plan_split(&mut self, table: &TableName, at: &Bound) -> Result<(), Refusal> {
        let Some(groups) = self.model.groups.get(table) else {
            return Err(format!("the cluster has no live table {table}").into());
        };
        let order = groups.all().next().map(|group| &group.bounds.lower);
        check_place(table, order, at)?;
        let found = groups.all().find(|group| group.bounds.holds(at));
        let Some(group) = found else {
            return Err(format!("no partition of table {table} has {at}").into());
        };
        let comes = |split: &PlannedSplit| split.points().any(|point| point == at);
        if group.bounds.lower == *at || group.split.as_ref().is_some_and(comes) {
            return Ok(());
        }
        let group = group.clone();
        self.split_at(table, &group, std::slice::from_ref(at))
    }

    /// Plans the split of a partition at points that rise and are within it.
    pub fn split_at(
        &mut self,
        table: &TableName,
        group: &GroupEntry,
        points: &[Bound],
    ) -> Result<(), Refusal> {
        self.check_splittable(table, group, points.len())?;
        let Some(groups) = self.model.groups.get(table) else {
            return Ok(());
        };
        let next = fresh_id(self.model.work.next_group, self.term);
        let leading = self.groups.leading(group.group);
        let ids = ChildIds {
            partition: PartitionId(newest(groups).0 + 1),
            group: GroupId(next),
            term: self.term,
            revision: self.revision,
        };
        let mut whole = group.clone();
        whole.plan_split(points, leading.map(|leading| leading.node), ids);
        self.model.work.edit().next_group = next + points.len() as u64;
        self.model.put_group(table, whole);
        Ok(())
    }

    /// Checks that a partition can be split into so many children now.
    fn check_splittable(
        &self,
        table: &TableName,
        group: &GroupEntry,
        children: usize,
    ) -> Result<(), Refusal> {
        let id = group.partition;
        if let Some(at) = group.split.as_ref().and_then(|split| split.points().next()) {
            return Err(Refusal::Busy(format!(
                "partition {id} of table {table} is being split at {at}: wait for that, then ask again"
            )));
        }
        let groups = self.model.groups.get(table).into_iter();
        let all = groups.flat_map(|groups| groups.all());
        let counts = all.map(|group| 1 + group.split.as_ref().map_or(0, |it| it.children.len()));
        if counts.sum::<usize>() + children > MAX_PARTITIONS {
            return Err(format!(
                "table {table} can have {MAX_PARTITIONS} partitions, and would have more"
            )
            .into());
        }
        // The load's runs match the partitions for which the load was made.
        if let Some(load) = self.model.work.load_of(table) {
            return Err(Refusal::Busy(format!(
                "load {} of table {table} is under way: wait for that, then ask again",
                load.draft.id
            )));
        }
        if !self.is_settled(table, group) {
            return Err(Refusal::Busy(format!(
                "the replicas of partition {id} of table {table} are not all where they are wanted, or it has no \
                 leader: wait until it has all (forebay cluster status), then ask again"
            )));
        }
        Ok(())
    }

    fn is_settled(&self, table: &TableName, group: &GroupEntry) -> bool {
        let wanted = self.model.desired_groups(table);
        let wanted = wanted.iter().find(|(known, _)| known.group == group.group);
        let is_made = |made: &PeerEntry| made.state == PeerState::Made;
        group.peers.iter().all(is_made)
            && self.has_leader(group)
            && wanted.is_some_and(|(_, wanted)| self.groups.is_there(group, wanted))
    }

    /// Returns whether the group has a leader that sends heartbeats, and a majority on nodes that
    /// are up.
    fn has_leader(&self, group: &GroupEntry) -> bool {
        let leading = self.groups.leading(group.group);
        let received = leading.and_then(|leading| self.received.get(&leading.node));
        let lost = self.model.timing().heartbeat_lost();
        let is_received = received.is_some_and(|received| self.now.since(received.at) < lost);
        let up = group.peers.iter().filter(|peer| self.is_alive(peer.node));
        is_received && up.count() > group.peers.len() / 2
    }

    /// Makes the children partitions of their own, once a node has reported the split.
    pub fn take_children(&mut self) {
        let all = self.model.all_groups();
        let split = all.filter(|(_, group)| is_split(self.groups, group));
        let split: Vec<(TableName, GroupId)> = split
            .map(|(table, group)| (table.clone(), group.group))
            .collect();
        for (table, group) in split {
            self.model.split_group(&table, group);
        }
    }
}

/// Returns whether a peer of a planned child exists. Then the parent's log has decided the split.
fn is_split(watch: &GroupWatch, group: &GroupEntry) -> bool {
    let children = group.split.iter().flat_map(|split| &split.children);
    let mut peers = children.flat_map(|child| child.peers.iter().map(move |peer| (child, peer)));
    peers.any(|(child, peer)| {
        let report = watch.report(child.group, peer);
        report.is_some_and(|report| report.problem.is_none())
    })
}

/// Returns the highest number of a partition of the table, planned children included.
fn newest(groups: &TableGroups) -> PartitionId {
    let ids = groups.all().flat_map(|group| {
        let children = group.split.iter().flat_map(|split| &split.children);
        children
            .map(|child| child.partition)
            .chain([group.partition])
    });
    ids.max().unwrap_or(PartitionId(0))
}

fn check_place(table: &TableName, order: Option<&Bound>, at: &Bound) -> Result<(), String> {
    match (order, at) {
        (Some(Bound::Slot(_)), Bound::Key(_)) => Err(format!(
            "table {table} is hashed: it is split at a slot, from 1 to {}",
            SLOTS - 1
        )),
        (Some(Bound::Key(_)), Bound::Slot(_)) => {
            Err(format!("table {table} is ordered: it is split at a key"))
        }
        (_, Bound::Key(key)) if key.is_empty() => Err(format!(
            "table {table} begins with the empty key: it is split at a later one"
        )),
        (_, Bound::Key(key)) if key.len() > MAX_KEY_BYTES => Err(format!(
            "a key of {} bytes: keys have up to {MAX_KEY_BYTES}",
            key.len()
        )),
        _ => Ok(()),
    }
}
