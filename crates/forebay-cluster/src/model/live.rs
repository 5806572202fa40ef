//! What the catalog says of live tables.

use std::collections::BTreeSet;

use forebay_engine::TableName;
use forebay_engine::live::{Expiry, LiveOptions};
use forebay_replica::GroupId;
use serde::{Deserialize, Serialize};

use super::{EndedLoad, GroupEntry, Model, TableEntry};
use crate::ids::NodeId;

/// A table that is written to, as the engine makes it on each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveEntry {
    pub options: LiveOptions,
    pub replication: Replication,
    /// Of the loads that have ended.
    #[serde(default, skip_serializing_if = "is_none")]
    pub last_load: EndedLoad,
}

fn is_none(load: &EndedLoad) -> bool {
    load.number == 0
}

/// How writes come to be on several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replication {
    /// One replica of each partition leads, and a majority has what was acknowledged.
    Leader,
}

/// A group, and the nodes that are to have its replicas, whoever is to lead first.
pub type WantedGroup<'m> = (&'m GroupEntry, &'m [NodeId]);

impl LiveEntry {
    /// What is wrong with it, if anything; the words say what to do.
    pub fn check(&self) -> Result<(), String> {
        let options = &self.options;
        if options.durability.is_none() {
            return Err("it has no log, and replicas go by one: choose a durability".to_owned());
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

/// Whether a live table can have so many replicas; the words say why not.
pub fn live_replicas(count: usize) -> Result<usize, String> {
    match count {
        1 | 3 | 5 => Ok(count),
        2 | 4 => Err(format!(
            "{count} replicas survive no more deaths than {}, as a majority has to answer: choose 1, 3 or 5",
            count - 1
        )),
        _ => Err(format!("{count} replicas: a live table has 1, 3 or 5")),
    }
}

impl TableEntry {
    /// What it is as a live table.
    pub fn live(&self) -> Option<&LiveEntry> {
        self.live.as_deref()
    }
}

impl Model {
    /// The live tables, with their groups.
    pub fn live_tables(&self) -> impl Iterator<Item = (&TableName, &TableEntry)> {
        let named = self.groups.keys();
        named.filter_map(|name| Some((name, self.table(name)?)))
    }

    /// All groups, with their tables.
    pub fn all_groups(&self) -> impl Iterator<Item = (&TableName, &GroupEntry)> {
        let tables = self.groups.iter();
        tables.flat_map(|(name, groups)| groups.all().map(move |group| (name, group)))
    }

    /// Whether somebody waits for what replicas do: a plan, a load, a split, or a new group's first
    /// leader.
    pub fn waits_for_replicas(&self) -> bool {
        let mut loads = self.work.loads.iter();
        let mut groups = self.all_groups();
        self.work.moving().is_some()
            || loads.any(|load| !load.stage.is_over())
            || groups.any(|(_, group)| group.split.is_some() || group.term == 0)
    }

    /// All groups, and those of the children of partitions that are being split.
    pub fn group_ids(&self) -> BTreeSet<GroupId> {
        let all = self.all_groups();
        let ids = all.flat_map(|(_, group)| {
            let children = group.split.iter().flat_map(|split| &split.children);
            let children = children.map(|child| child.group);
            children.chain([group.group])
        });
        ids.collect()
    }

    /// Takes another entry of a group; nothing is written where nothing changes.
    pub fn put_group(&mut self, table: &TableName, entry: GroupEntry) {
        if let Some(groups) = self.groups.get_mut(table) {
            groups.put(entry);
        }
    }

    /// Puts a group in the place of another.
    pub fn replace_group(&mut self, table: &TableName, old: GroupId, entry: GroupEntry) {
        if let Some(groups) = self.groups.get_mut(table) {
            groups.replace(old, entry);
        }
    }

    /// A partition that is being split, and its children, are partitions from now on.
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

    /// The groups of a table, and who is to have them: while a plan moves them, those who come to.
    pub fn wanted_groups(&self, name: &TableName) -> Vec<WantedGroup<'_>> {
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
