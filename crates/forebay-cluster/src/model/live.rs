//! The catalog's entries about live tables.

use std::collections::BTreeSet;

use forebay_engine::TableName;
use forebay_engine::live::{Expiry, LiveOptions};
use forebay_replica::GroupId;
use serde::{Deserialize, Serialize};

use super::{EndedLoad, GroupEntry, Model, TableEntry};
use crate::ids::NodeId;

/// A live table's settings, as the engine creates it on each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveEntry {
    pub options: LiveOptions,
    pub replication: Replication,
    /// The load that ended last.
    #[serde(default, skip_serializing_if = "is_none")]
    pub last_load: EndedLoad,
}

fn is_none(load: &EndedLoad) -> bool {
    load.number == 0
}

/// The way in which writes are replicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// One replica of each partition leads. A majority of replicas has every acknowledged write.
    Leader,
}

/// A group and the desired nodes of its replicas. The preferred first leader comes first.
pub type DesiredGroup<'m> = (&'m GroupEntry, &'m [NodeId]);

impl LiveEntry {
    /// Checks the settings. The error says what to do.
    pub fn check(&self) -> Result<(), String> {
        let options = &self.options;
        if options.durability.is_none() {
            return Err(
                "the table has no log, and replication needs one: choose a durability".to_owned(),
            );
        }
        if !(2..=32).contains(&options.factor) {
            let factor = options.factor;
            return Err(format!("its factor is {factor}: choose one from 2 to 32"));
        }
        if options.expiry == Expiry::AfterMs(0) {
            return Err("its records expire after 0 ms, and are never there".to_owned());
        }
        if options.merge_bytes_per_second == Some(0) {
            return Err("its merges may write 0 bytes a second, and never end".to_owned());
        }
        Ok(())
    }
}

/// Checks that a live table can have so many replicas. The error says why not.
pub fn live_replicas(count: usize) -> Result<usize, String> {
    match count {
        1 | 3 | 5 => Ok(count),
        2 | 4 => Err(format!(
            "{count} replicas tolerate no more failed nodes than {} do, because a majority must answer: choose 1, 3 or 5",
            count - 1
        )),
        _ => Err(format!("{count} replicas: a live table has 1, 3 or 5")),
    }
}

impl TableEntry {
    /// Returns the table's live settings, if it is a live table.
    pub fn live(&self) -> Option<&LiveEntry> {
        self.live.as_deref()
    }
}

impl Model {
    /// Returns the live tables.
    pub fn live_tables(&self) -> impl Iterator<Item = (&TableName, &TableEntry)> {
        let named = self.groups.keys();
        named.filter_map(|name| Some((name, self.table(name)?)))
    }

    /// Returns all groups, with their tables.
    pub fn all_groups(&self) -> impl Iterator<Item = (&TableName, &GroupEntry)> {
        let tables = self.groups.iter();
        tables.flat_map(|(name, groups)| groups.all().map(move |group| (name, group)))
    }

    /// Returns whether any work waits for replicas: a plan, a load, a split, or the first leader of
    /// a new group.
    pub fn waits_for_replicas(&self) -> bool {
        let mut loads = self.work.loads.iter();
        let mut groups = self.all_groups();
        self.work.moving().is_some()
            || loads.any(|load| !load.stage.is_over())
            || groups.any(|(_, group)| group.split.is_some() || group.term == 0)
    }

    /// Returns the ids of all groups, and of the planned children of splits.
    pub fn group_ids(&self) -> BTreeSet<GroupId> {
        let all = self.all_groups();
        let ids = all.flat_map(|(_, group)| {
            let children = group.split.iter().flat_map(|split| &split.children);
            let children = children.map(|child| child.group);
            children.chain([group.group])
        });
        ids.collect()
    }

    /// Replaces the entry of a group. An unchanged entry causes no write.
    pub fn put_group(&mut self, table: &TableName, entry: GroupEntry) {
        if let Some(groups) = self.groups.get_mut(table) {
            groups.put(entry);
        }
    }

    /// Replaces one group with another.
    pub fn replace_group(&mut self, table: &TableName, old: GroupId, entry: GroupEntry) {
        if let Some(groups) = self.groups.get_mut(table) {
            groups.replace(old, entry);
        }
    }

    /// Completes a split: the partition and its children are separate partitions from now on.
    pub fn split_group(&mut self, table: &TableName, group: GroupId) {
        let Some(groups) = self.groups.get_mut(table) else {
            return;
        };
        let whole = groups.all().find(|known| known.group == group).cloned();
        let Some(mut kept) = whole else {
            return;
        };
        let children = kept.take_children();
        groups.put(kept);
        let mut before = group;
        for child in children {
            let next = child.group;
            groups.put_behind(before, child);
            before = next;
        }
    }

    /// Returns the groups of a table with their desired nodes. While a plan moves a partition,
    /// these are the nodes after the move.
    pub fn desired_groups(&self, name: &TableName) -> Vec<DesiredGroup<'_>> {
        let found = self.table(name).zip(self.groups.get(name));
        let found = found.and_then(|(entry, groups)| Some((entry, groups, self.layout_of(entry)?)));
        let Some((entry, groups, layout)) = found else {
            return Vec::new();
        };
        let mut ranges = layout.ranges().peekable();
        let mut list: &[NodeId] = &[];
        let wanted = groups.all().map(|group| {
            while let Some(range) = ranges.next_if(|range| range.lower <= group.bounds.lower) {
                list = range.next.as_ref().unwrap_or(&range.list);
            }
            (group, &list[..list.len().min(entry.holding())])
        });
        wanted.collect()
    }
}
