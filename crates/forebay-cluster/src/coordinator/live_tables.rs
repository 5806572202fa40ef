//! Creates live tables, and refuses requests that do not apply to them.

use forebay_engine::{Bound, Bounds, MAX_PARTITIONS, PartitionId, TableName};
use forebay_replica::GroupId;
use forebay_run::Order;

use super::Step;
use crate::formats::has_live_tables;
use crate::model::{
    GroupEntry, Layout, LayoutName, LiveEntry, TableEntry, TableGroups, fresh_id, live_replicas,
};
use crate::routing::layouts::live_layout;

impl Step<'_> {
    /// Creates a live table with a group for each partition, on the nodes that are up.
    pub fn make_live(
        &mut self,
        table: &TableName,
        live: &LiveEntry,
        lowers: &[Bound],
        replicas: usize,
    ) -> Result<(), String> {
        has_live_tables(self.format)?;
        if self.model.table(table).is_some() {
            return Err(format!(
                "there is a table {table} already: choose another name, or drop that one first (forebay drop {table})"
            ));
        }
        if self.is_planned(table) {
            return Err(format!(
                "the plan that is carried out moves a table {table} that was dropped: wait for it (forebay cluster \
                 watch), or choose another name"
            ));
        }
        let wrong = |problem: String| format!("table {table} cannot be made: {problem}");
        live.check().map_err(wrong)?;
        check_lowers(live.options.order, lowers).map_err(wrong)?;
        let replicas = live_replicas(replicas).map_err(wrong)?;
        let ranges = live_layout(&self.model, lowers, replicas).map_err(wrong)?;
        let (order, name) = (live.options.order, LayoutName::Table(table.clone()));
        let mut entry = TableEntry::new(order, name.clone(), replicas);
        entry.live = Some(Box::new(live.clone()));
        self.model.put_table(table, entry);
        self.model.layouts.insert(name, Layout::new(order, ranges));
        self.found_groups(table, lowers);
        Ok(())
    }

    /// Returns whether the plan under way changes a table of this name.
    fn is_planned(&self, table: &TableName) -> bool {
        let name = LayoutName::Table(table.clone());
        let plan = self.model.plan.iter();
        let mut batches = plan.flat_map(|plan| &plan.batches);
        batches.any(|batch| {
            let mut lists = batch.lists.iter();
            let mut replicas = batch.replicas.iter();
            lists.any(|change| change.layout == name)
                || replicas.any(|change| change.table == *table)
        })
    }

    fn found_groups(&mut self, table: &TableName, lowers: &[Bound]) {
        let uppers = lowers.iter().skip(1).cloned().map(Some).chain([None]);
        let term = self.term;
        let next = fresh_id(self.model.work.next_group, term);
        // The desired nodes of a group are known only when the group is in the model.
        let unfounded = lowers
            .iter()
            .zip(uppers)
            .zip(0..)
            .map(|((lower, upper), at)| {
                let lower = lower.clone();
                let bounds = Bounds { lower, upper };
                let group = GroupId(next + u64::from(at));
                GroupEntry::founded(group, PartitionId(at), bounds, &[], term)
            });
        let unfounded: Vec<GroupEntry> = unfounded.collect();
        self.model.work.edit().next_group = next + unfounded.len() as u64;
        let groups = TableGroups::new(&unfounded);
        self.model.groups.insert(table.clone(), groups);
        let wanted = self.model.desired_groups(table).into_iter();
        let founded = wanted.map(|(group, nodes)| {
            let GroupEntry {
                group,
                partition,
                bounds,
                ..
            } = group.clone();
            GroupEntry::founded(group, partition, bounds, nodes, term)
        });
        let groups = TableGroups::new(&founded.collect::<Vec<_>>());
        self.model.groups.insert(table.clone(), groups);
    }

    /// Refuses if the table is a live table, which has no versions.
    pub fn refuse_live(&self, table: &TableName) -> Result<(), String> {
        match self.model.groups.contains_key(table) {
            true => Err(format!(
                "table {table} is a live table: it is written to, and has no versions to push, swap or roll back"
            )),
            false => Ok(()),
        }
    }
}

/// Checks that partitions can begin at these places.
fn check_lowers(order: Order, lowers: &[Bound]) -> Result<(), String> {
    let begins = match order {
        Order::Hashed => Bound::Slot(0),
        Order::Ordered => Bound::Key(Vec::new()),
    };
    let is_of_order = |bound: &Bound| matches!(bound, Bound::Slot(_)) == (order == Order::Hashed);
    if lowers.first() != Some(&begins) || !lowers.iter().all(is_of_order) {
        return Err("its first partition has to begin where its order does".to_owned());
    }
    if lowers.windows(2).any(|two| two[0] >= two[1]) {
        return Err("its partitions do not rise".to_owned());
    }
    let is_outside = |bound: &Bound| matches!(bound, Bound::Slot(slot) if *slot >= SLOTS_END);
    if lowers.iter().any(is_outside) {
        return Err(format!(
            "a partition begins after the last slot, {}",
            SLOTS_END - 1
        ));
    }
    match lowers.len() <= MAX_PARTITIONS {
        true => Ok(()),
        false => Err(format!(
            "{} partitions: there can be {MAX_PARTITIONS} at most",
            lowers.len()
        )),
    }
}

const SLOTS_END: u16 = forebay_run::hash::SLOTS as u16;
