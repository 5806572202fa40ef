//! A model of a log of replicas.

use std::collections::BTreeMap;

use forebay_io::sim::Rng;

use super::super::record::{EntryDraft, EntryPlace, GroupRecords, LoggedEntry};
use super::super::{LoggedGroup, ReplicaLog};

/// [`GroupRecords`] with its own bytes.
#[derive(Debug, Clone, Default)]
pub struct Change {
    pub group: u64,
    pub is_gone: bool,
    pub begins: Option<EntryPlace>,
    pub entries: Vec<LoggedEntry>,
    pub promise: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelGroup {
    before: EntryPlace,
    entries: Vec<LoggedEntry>,
    trimmed: u64,
    promise: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Model(pub BTreeMap<u64, ModelGroup>);

impl Change {
    pub fn records(&self) -> GroupRecords<'_> {
        let entries = self.entries.iter().map(|entry| EntryDraft {
            place: entry.place,
            bytes: &entry.bytes,
        });
        GroupRecords {
            group: self.group,
            is_gone: self.is_gone,
            begins: self.begins,
            entries: entries.collect(),
            promise: self.promise.as_deref(),
        }
    }

    /// Some change that can follow what the model has.
    pub fn any(rng: &mut Rng, group: u64, model: &Model) -> Self {
        let known = model.0.get(&group);
        let is_gone = known.is_some() && rng.below(40) == 0;
        let mut known = known.filter(|_| !is_gone).cloned().unwrap_or_default();
        let begins = (rng.below(15) == 0).then(|| EntryPlace {
            term: known.last().term + rng.below(2),
            index: known.last().index + rng.below(5),
        });
        if let Some(begins) = begins {
            known = ModelGroup {
                before: begins,
                trimmed: begins.index,
                ..ModelGroup::default()
            };
        }
        let untrimmed = known.last().index - known.trimmed;
        let back = match rng.below(6) {
            0 => rng.below(untrimmed + 1),
            _ => 0,
        };
        let mut before = known.place_of(known.last().index - back).unwrap();
        let mut entries = Vec::new();
        for _ in 0..rng.below(5) {
            before = EntryPlace {
                term: before.term + rng.below(8) / 7,
                index: before.index + 1,
            };
            let length = [20, 20, 200, 900][rng.below(4) as usize];
            let bytes = vec![rng.below(4) as u8; rng.below(length) as usize];
            let place = before;
            entries.push(LoggedEntry { place, bytes });
        }
        let has_promise = entries.is_empty() || rng.below(3) == 0;
        Self {
            group,
            is_gone,
            begins,
            entries,
            promise: has_promise.then(|| rng.next_u64().to_le_bytes().to_vec()),
        }
    }
}

impl ModelGroup {
    pub fn last(&self) -> EntryPlace {
        self.entries.last().map_or(self.before, |entry| entry.place)
    }

    fn place_of(&self, index: u64) -> Option<EntryPlace> {
        let mut places = self.entries.iter().map(|entry| entry.place);
        let mut all = std::iter::once(self.before).chain(&mut places);
        all.find(|place| place.index == index)
    }

    fn differs(&self, group: u64, found: &LoggedGroup, log: &ReplicaLog) -> Option<String> {
        let before = found.before;
        if (&found.promise, found.last) != (&self.promise, self.last()) {
            return Some(format!("group {group} is {found:?}"));
        }
        if before.index > self.trimmed || self.place_of(before.index) != Some(before) {
            return Some(format!("group {group} begins after {before}"));
        }
        let kept = |entry: &&LoggedEntry| entry.place.index > before.index;
        let expected: Vec<LoggedEntry> = self.entries.iter().filter(kept).cloned().collect();
        match log.entries(group, before.index + 1, u64::MAX) {
            Ok(entries) if entries == expected => None,
            other => Some(format!("group {group} has {other:?}, not {expected:?}")),
        }
    }
}

impl Model {
    pub fn take(&mut self, changes: &[Change]) {
        for change in changes {
            if change.is_gone {
                self.0.remove(&change.group);
            }
            if change.begins.is_none() && change.entries.is_empty() && change.promise.is_none() {
                continue;
            }
            let known = self.0.entry(change.group).or_default();
            if let Some(begins) = change.begins {
                (known.before, known.trimmed) = (begins, begins.index);
                known.entries.clear();
            }
            if let Some(first) = change.entries.first() {
                let first = first.place.index;
                known.entries.retain(|entry| entry.place.index < first);
                known.trimmed = known.trimmed.min(first - 1);
                known.entries.extend(change.entries.iter().cloned());
            }
            if change.promise.is_some() {
                known.promise.clone_from(&change.promise);
            }
        }
    }

    pub fn trim(&mut self, group: u64, through: u64) {
        if let Some(known) = self.0.get_mut(&group) {
            known.trimmed = known.trimmed.max(through.min(known.last().index));
        }
    }

    /// Returns the differences of the log: groups, promises, places and all entries.
    pub fn differs(&self, found: &BTreeMap<u64, LoggedGroup>, log: &ReplicaLog) -> Option<String> {
        if !found.keys().eq(self.0.keys()) {
            return Some(format!("it has the groups {:?}", found.keys()));
        }
        let mut both = self.0.iter().zip(found.values());
        both.find_map(|((group, known), found)| known.differs(*group, found, log))
    }
}
