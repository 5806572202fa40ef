//! Redirects that make clients ask for the classes again when these have changed.
//!
//! Any node that holds a key answers for it, and a class's port for all keys of live tables. So a
//! client of an old list would never learn of another replica, or that another node heads the
//! class. Some reads on a connection are answered with MOVED therefore: up to five for each change,
//! as some clients take in one slot with each and ask for all with the fifth; with others in
//! between, as clients take several redirects of one command for an error. Only who is known to
//! follow redirects gets them: who came to a class's port, or asked for reads of replicas by
//! READONLY.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cluster::map::{Class, ClusterMap};
use forebay_cluster::{HostPort, LivePlaces, NodeId};
use forebay_engine::TableName;
use parking_lot::Mutex;

use super::place::{moved_to, place_of};
use crate::command::split;
use crate::table_view::TableView;

/// Redirects for one change.
const NUDGES: u8 = 5;
/// One command in so many.
const ONE_IN: u16 = 8;
/// Commands of a connection until the change is left to itself.
const COMMANDS: u16 = 1024;

/// The classes of the last map that was looked at, and what was new in it.
#[derive(Debug, Default)]
pub struct ClassChanges {
    state: Mutex<ClassState>,
}

#[derive(Debug, Default)]
struct ClassState {
    /// As all see them, and as those who are bound to a table that has a layout of its own.
    seen: BTreeMap<Option<TableName>, SeenClasses>,
    /// How many changes there were.
    number: u64,
}

#[derive(Debug, Default)]
struct SeenClasses {
    known: Vec<Class>,
    changed: Arc<[(u16, u16)]>,
}

/// The redirects that a connection is to get.
#[derive(Debug)]
pub struct ClassRedirects {
    /// First and last slots.
    changed: Arc<[(u16, u16)]>,
    left: u8,
    /// Commands on keys of these slots.
    hits: u16,
    commands: u16,
}

impl ClassChanges {
    /// Compares a map's classes with those before; answers whether some have changed.
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

    /// How many changes there were.
    pub fn number(&self) -> u64 {
        self.state.lock().number
    }

    /// The redirects for the last change, for who is bound to this table.
    pub fn redirects(&self, table: Option<&TableName>) -> ClassRedirects {
        let state = self.state.lock();
        let own = table.and_then(|table| state.seen.get(&Some(table.clone())));
        let seen = own.or_else(|| state.seen.get(&None));
        ClassRedirects {
            changed: seen.map_or_else(Arc::default, |seen| Arc::clone(&seen.changed)),
            left: NUDGES,
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
    /// Where a client is led to that comes with a command on this key, if it is its turn.
    pub fn take(
        &mut self,
        (map, live): (&ClusterMap, &LivePlaces),
        tables: &TableView,
        wire: &[u8],
    ) -> Option<String> {
        let (table, key) = split(wire).ok()?;
        // Of a live table any class's port answers for all keys.
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
            left: NUDGES,
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
