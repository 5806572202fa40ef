//! Partitions of live tables that are cut in two: see [`PlannedHalf`](crate::model::PlannedHalf).

use forebay_engine::{Bound, MAX_PARTITIONS, PartitionId, TableName};
use forebay_replica::GroupId;
use forebay_run::MAX_KEY_BYTES;
use forebay_run::hash::SLOTS;

use super::Step;
use super::groups::GroupWatch;
use super::requests::Refusal;
use crate::model::{GroupEntry, HalfIds, PeerEntry, PeerState, SplitChange, Wish, fresh_id};

impl Step<'_> {
    /// Whether a partition of the table is being cut.
    pub fn is_cut(&self, table: &TableName) -> bool {
        let groups = self.model.groups.get(table).into_iter();
        let mut all = groups.flat_map(|groups| groups.all());
        all.any(|group| group.splits_off.is_some())
    }

    /// Whether a plan may cut a table there; whether it can be now shows later.
    pub fn check_split(&self, wish: &Wish, split: &SplitChange) -> Result<(), String> {
        let SplitChange { table, at } = split;
        if !wish.inserts_into(table) {
            return Err(format!(
                "the plan cuts table {table}, which is not what it is for: make it anew"
            ));
        }
        let Some(groups) = self.model.groups.get(table) else {
            return Err(format!("the cluster has no live table {table}"));
        };
        let order = groups.all().next().map(|group| &group.bounds.lower);
        check_place(table, order, at)
    }

    /// Plans a cut, unless a partition begins there already, or comes to.
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
        let planned = group.splits_off.as_ref();
        if group.bounds.lower == *at || planned.is_some_and(|planned| planned.at() == at) {
            return Ok(());
        }
        let id = group.partition;
        if let Some(planned) = planned {
            return Err(Refusal::Busy(format!(
                "partition {id} of table {table} is being cut at {}: wait for that, then ask again",
                planned.at()
            )));
        }
        let halves = groups.all().filter(|group| group.splits_off.is_some());
        if groups.all().count() + halves.count() >= MAX_PARTITIONS {
            return Err(format!(
                "table {table} has {MAX_PARTITIONS} partitions, and there cannot be more"
            )
            .into());
        }
        // Its runs are those of the partitions that it was cut for.
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
        let next = fresh_id(self.model.work.next_group, self.term);
        let ids = groups.all().map(|group| {
            let half = group.splits_off.as_ref();
            half.map_or(group.partition, |planned| planned.half.partition)
                .max(group.partition)
        });
        let newest = ids.max().unwrap_or(group.partition);
        let leading = self.groups.leading(group.group);
        let mut whole = group.clone();
        whole.plan_half(
            at.clone(),
            leading.map(|leading| leading.node),
            HalfIds {
                partition: PartitionId(newest.0 + 1),
                group: GroupId(next),
                term: self.term,
                revision: self.revision,
            },
        );
        self.model.work.edit().next_group = next + 1;
        self.model.put_group(table, whole);
        Ok(())
    }

    fn is_settled(&self, table: &TableName, group: &GroupEntry) -> bool {
        let wanted = self.model.wanted_groups(table);
        let wanted = wanted.iter().find(|(known, _)| known.group == group.group);
        let is_made = |made: &PeerEntry| made.state == PeerState::Made;
        group.peers.iter().all(is_made)
            && self.has_leader(group)
            && wanted.is_some_and(|(_, wanted)| self.groups.is_there(group, wanted))
    }

    /// Whether a node that is heard leads it, and a majority is on nodes that are up.
    fn has_leader(&self, group: &GroupEntry) -> bool {
        let leading = self.groups.leading(group.group);
        let heard = leading.and_then(|leading| self.heard.get(&leading.node));
        let lost = self.model.timing().heartbeat_lost();
        let is_heard = heard.is_some_and(|heard| self.now.since(heard.at) < lost);
        let up = group.peers.iter().filter(|peer| self.is_alive(peer.node));
        is_heard && up.count() > group.peers.len() / 2
    }

    /// Names two partitions where somebody has said that the one is cut.
    pub fn take_halves(&mut self) {
        let all = self.model.all_groups();
        let cut = all.filter(|(_, group)| is_cut(self.groups, group));
        let cut: Vec<(TableName, GroupId)> = cut
            .map(|(table, group)| (table.clone(), group.group))
            .collect();
        for (table, group) in cut {
            self.model.cut_group(&table, group);
        }
    }
}

/// Whether a peer of the planned half is there: its log had the cut decided, then.
fn is_cut(watch: &GroupWatch, group: &GroupEntry) -> bool {
    let Some(planned) = &group.splits_off else {
        return false;
    };
    planned.half.peers.iter().any(|peer| {
        let report = watch.report(planned.half.group, peer);
        report.is_some_and(|report| report.problem.is_none())
    })
}

fn check_place(table: &TableName, order: Option<&Bound>, at: &Bound) -> Result<(), String> {
    match (order, at) {
        (Some(Bound::Slot(_)), Bound::Key(_)) => Err(format!(
            "table {table} is hashed: it is cut at a slot, from 1 to {}",
            SLOTS - 1
        )),
        (Some(Bound::Key(_)), Bound::Slot(_)) => {
            Err(format!("table {table} is ordered: it is cut at a key"))
        }
        (_, Bound::Key(key)) if key.is_empty() => Err(format!(
            "table {table} begins with the empty key: it is cut at a later one"
        )),
        (_, Bound::Key(key)) if key.len() > MAX_KEY_BYTES => Err(format!(
            "a key of {} bytes: keys have up to {MAX_KEY_BYTES}",
            key.len()
        )),
        _ => Ok(()),
    }
}
