//! Redirects that make clients fetch the list of classes again after it changed.
//!
//! Any node that has a key answers for it, and a class's port answers for all keys of live tables.
//! A client with an old list would therefore never learn of another replica or another primary of
//! the class. So after each change some reads on a connection are answered with MOVED, up to five:
//! some clients update one slot with each, and fetch the whole list after the fifth. Other commands
//! run between them, because clients take several redirects of one command for an error.
//!
//! Only clients that are known to follow redirects get them. They have connected to a class's port,
//! or asked for reads of replicas by READONLY.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cluster::map::{Class, ClusterMap};
use forebay_cluster::{HostPort, LivePlaces, NodeId};
use forebay_engine::TableName;
use parking_lot::Mutex;

use super::place::{moved_to, place_of};
use crate::command::split;
use crate::table_view::TableView;

/// The most redirects for one change.
const REDIRECTS: u8 = 5;
/// One of this many commands is redirected.
const ONE_IN: u16 = 8;
/// Commands of a connection after which the change is dropped.
const COMMANDS: u16 = 1024;

/// The classes of the last map, and what has changed in it.
#[derive(Debug, Default)]
pub struct ClassChanges {
    state: Mutex<ClassState>,
}

#[derive(Debug, Default)]
struct ClassState {
    /// The classes as all users see them (`None`), and as users bound to a table with a layout of
    /// its own do.
    seen: BTreeMap<Option<TableName>, SeenClasses>,
    /// The number of changes so far.
    number: u64,
}

#[derive(Debug, Default)]
struct SeenClasses {
    known: Vec<Class>,
    changed: Arc<[(u16, u16)]>,
}

/// The pending redirects of a connection.
#[derive(Debug)]
pub struct ClassRedirects {
    /// First and last slots.
    changed: Arc<[(u16, u16)]>,
    left: u8,
    /// The number of commands on keys of these slots.
    hits: u16,
    commands: u16,
}

impl ClassChanges {
    /// Compares a map's classes with the previous ones. Returns whether some have changed.
    pub fn look(&self, map: &ClusterMap) -> bool {
        let mut state = self.state.lock();
        let own = map
            .own_tables()
            .map(|(name, own)| (Some(name.clone()), own.classes()));
        let all = own.chain([(None, map.classes())]);
        let mut seen = std::mem::take(&mut state.seen);
        let mut is_news = false;
        for (table, classes) in all {
            let mut one = seen.remove(&table).unwrap_or_default();
            is_news |= one.look(classes);
            state.seen.insert(table, one);
        }
        state.number += u64::from(is_news);
        is_news
    }

    /// Returns the number of changes so far.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// Returns the redirects for the last change, for users bound to this table.
    pub fn redirects(&self, table: Option<&TableName>) -> ClassRedirects {
        let state = self.state.lock();
        let own = table.and_then(|table| state.seen.get(&Some(table.clone())));
        let seen = own.or_else(|| state.seen.get(&None));
        ClassRedirects {
            changed: seen.map_or_else(Arc::default, |seen| Arc::clone(&seen.changed)),
            left: REDIRECTS,
            hits: 0,
            commands: 0,
        }
    }
}

impl SeenClasses {
    fn look(&mut self, classes: &[Class]) -> bool {
        if self.known == classes {
            return false;
        }
        let is_first = self.known.is_empty();
        let before = std::mem::replace(&mut self.known, classes.to_vec());
        let reported = |class: &Class| -> (u16, u16, Vec<NodeId>, HostPort) {
            let mut nodes = class.nodes.clone();
            nodes.sort();
            (class.first, class.last, nodes, class.primary.clone())
        };
        let before: Vec<_> = before.iter().map(reported).collect();
        let changed = classes
            .iter()
            .filter(|class| !before.contains(&reported(class)));
        let changed: Vec<(u16, u16)> = changed.map(|class| (class.first, class.last)).collect();
        if is_first || changed.is_empty() {
            return false;
        }
        self.changed = changed.into();
        true
    }
}

impl ClassRedirects {
    /// Returns the address to redirect a command on this key to, if it is due.
    pub fn take(
        &mut self,
        (map, live): (&ClusterMap, &LivePlaces),
        tables: &TableView,
        wire: &[u8],
    ) -> Option<String> {
        let (table, key) = split(wire).ok()?;
        // For a live table, any class's port answers for all keys.
        let (slot, holders) = match live.table(table) {
            Some(place) => (place.slot(key), None),
            None => {
                let place = place_of(map, tables, wire).ok()?;
                (place.slot, Some(place.holders))
            }
        };
        if !self.is_due(slot) {
            return None;
        }
        let (slot, class) = (slot?, map.class_of(slot?)?);
        let acting = class.nodes.first()?;
        let answers = holders.is_none_or(|holders| holders.contains(acting));
        (answers && !class.primary.host.is_empty()).then(|| moved_to(slot, &class.primary))
    }

    fn is_due(&mut self, slot: Option<u16>) -> bool {
        self.commands = self.commands.saturating_add(1);
        let is_changed = |slot| {
            let mut changed = self.changed.iter();
            changed.any(|(first, last)| (*first..=*last).contains(&slot))
        };
        let is_hit = slot.is_some_and(is_changed);
        let is_due = is_hit && self.hits.is_multiple_of(ONE_IN) && self.left > 0;
        self.hits = self.hits.saturating_add(u16::from(is_hit));
        self.left -= u8::from(is_due);
        is_due
    }

    pub fn is_over(&self) -> bool {
        self.left == 0 || self.commands >= COMMANDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_in_eight_is_redirected_five_times() {
        let mut redirects = ClassRedirects {
            changed: [(5, 7), (100, 100)].into(),
            left: REDIRECTS,
            hits: 0,
            commands: 0,
        };
        let slots = [4, 5, 6, 7, 8, 100, 101];
        let mut due = Vec::new();
        for turn in 0..500 {
            let slot = slots[turn % slots.len()];
            if redirects.is_due(Some(slot)) {
                assert!([5, 6, 7, 100].contains(&slot));
                due.push(turn);
            }
            assert!(!redirects.is_due(None));
            assert_eq!(
                redirects.is_over(),
                due.len() == 5 || redirects.commands >= COMMANDS
            );
        }
        assert_eq!(due.len(), 5);
        assert!(due.windows(2).all(|pair| pair[1] - pair[0] >= 8), "{due:?}");
    }
}
