//! The log of a table's groups as the engine keeps it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_engine::live::LogError;
use forebay_engine::replica_log::{
    EntryDraft, EntryPlace, GroupRecords, ReplicaLog, ReplicaLogError,
};
use forebay_replica::{GroupId, Persist, Place, Promise};
use parking_lot::RwLock;
use tracing::warn;

use crate::outside::{Acknowledged, GroupLog, WriteError, Writing};

/// What is kept of entries that restarts do not need, for peers that are behind.
const KEPT_BYTES: u64 = 64 << 20;
/// A log that is longer is shortened by writing what is in memory to runs.
const LONG_BYTES: u64 = 4 * KEPT_BYTES;
/// Between two looks whether segments can go: so many trims.
const LOOK_TRIMS: u64 = 16;

/// See the module's text.
#[derive(Debug)]
pub struct EngineLog {
    /// None: it is closed.
    log: RwLock<Option<ReplicaLog>>,
    trims: AtomicU64,
    /// Some group has so much that is not trimmed that no segment can go.
    is_held: AtomicBool,
}

impl EngineLog {
    pub fn new(log: ReplicaLog) -> Self {
        Self {
            log: RwLock::new(Some(log)),
            trims: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
        }
    }

    /// Closes it: it says then that it was stopped cleanly. Nothing is written to it any more.
    pub fn close(&self) -> Result<(), WriteError> {
        let log = self.log.write().take();
        log.map_or(Ok(()), ReplicaLog::close).map_err(refused)
    }

    /// Lets go of it as a kill would: it does not say that it was stopped cleanly.
    pub fn abandon(&self) {
        let log = self.log.write().take();
        drop(log);
    }

    /// Why it takes no more records, if it does not.
    pub fn failure(&self) -> Option<String> {
        let log = self.log.read();
        let failure = log.as_ref().and_then(ReplicaLog::failure);
        failure.map(|error| error.to_string())
    }

    fn append(&self, records: &[GroupRecords<'_>], is_awaited: bool) -> Result<(), WriteError> {
        let log = self.log.read();
        let log = log.as_ref().ok_or_else(closed)?;
        let written = log.append(records).map_err(refused)?;
        match is_awaited {
            true => log.wait_durable(written).map_err(refused),
            false => Ok(()),
        }
    }

    fn remove_unneeded(&self, log: &ReplicaLog) {
        match log.remove_unneeded(KEPT_BYTES) {
            Ok(removed) => {
                let is_held = removed.held_by.is_some();
                self.is_held.store(is_held, Ordering::Relaxed);
            }
            Err(error) => warn!(%error, "old segments of the log of replicas stay for now"),
        }
    }

    /// Says of a group, before its replica begins, where its log begins, and what it promised.
    pub fn begin(
        &self,
        group: GroupId,
        behind: EntryPlace,
        promise: &[u8],
    ) -> Result<(), WriteError> {
        let records = GroupRecords {
            group: group.0,
            begins: Some(behind),
            promise: Some(promise),
            ..GroupRecords::default()
        };
        self.append(&[records], true)
    }

    /// Reads the engine's log; `None`: it is closed.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&ReplicaLog) -> R) -> Option<R> {
        self.log.read().as_ref().map(read)
    }

    /// Nothing of the group is needed any more.
    pub fn forget(&self, group: GroupId) -> Result<(), WriteError> {
        let records = GroupRecords {
            group: group.0,
            is_gone: true,
            ..GroupRecords::default()
        };
        self.append(&[records], false)
    }
}

impl GroupLog for EngineLog {
    fn write(&self, all: &[Writing<'_>], then: Acknowledged) -> Result<(), WriteError> {
        let encoded: Vec<EncodedWish> = all.iter().map(EncodedWish::of).collect();
        let log = self.log.read();
        let log = log.as_ref().ok_or_else(closed)?;
        let mut last = None;
        for wishes in each_group_once(&encoded) {
            let records: Vec<GroupRecords<'_>> = wishes.iter().map(EncodedWish::records).collect();
            last = Some(log.append(&records).map_err(refused)?);
        }
        match last {
            None => then(Ok(())),
            Some(last) => {
                let told = move |outcome: Result<(), LogError>| {
                    then(outcome.map_err(|error| refused(error.into())));
                };
                log.on_durable(last, Box::new(told));
            }
        }
        Ok(())
    }

    fn trim(&self, group: GroupId, through: u64) -> bool {
        let log = self.log.read();
        let Some(log) = &*log else {
            return false;
        };
        log.trim(group.0, through);
        let trims = self.trims.fetch_add(1, Ordering::Relaxed);
        if trims.is_multiple_of(LOOK_TRIMS) {
            self.remove_unneeded(log);
        }
        log.size_bytes() > LONG_BYTES || self.is_held.load(Ordering::Relaxed)
    }
}

/// A wish with its entries as bytes.
#[derive(Debug)]
struct EncodedWish {
    group: GroupId,
    begins: Option<EntryPlace>,
    entries: Vec<(EntryPlace, Bytes)>,
    promise: Option<[u8; 24]>,
}

impl EncodedWish {
    fn of(writing: &Writing<'_>) -> Self {
        let Persist {
            snapshot,
            entries,
            promise,
            ..
        } = writing.persist;
        let entries = entries.iter();
        Self {
            group: writing.group,
            begins: snapshot.as_ref().map(|facts| entry_place(facts.place)),
            entries: entries
                .map(|entry| (entry_place(entry.place), entry.content.to_bytes()))
                .collect(),
            promise: promise.as_ref().map(Promise::to_bytes),
        }
    }

    fn records(&self) -> GroupRecords<'_> {
        let entries = self.entries.iter();
        GroupRecords {
            group: self.group.0,
            is_gone: false,
            begins: self.begins,
            entries: entries
                .map(|(place, bytes)| EntryDraft {
                    place: *place,
                    bytes,
                })
                .collect(),
            promise: self.promise.as_ref().map(<[u8; 24]>::as_slice),
        }
    }
}

/// The wishes in their order, in parts that have one of each group at most.
fn each_group_once(mut wishes: &[EncodedWish]) -> impl Iterator<Item = &[EncodedWish]> {
    std::iter::from_fn(move || {
        let mut groups = BTreeSet::new();
        let is_new = |wish: &&EncodedWish| groups.insert(wish.group);
        let count = wishes.iter().take_while(is_new).count();
        let (first, rest) = wishes.split_at(count);
        wishes = rest;
        (!first.is_empty()).then_some(first)
    })
}

pub(crate) fn entry_place(place: Place) -> EntryPlace {
    EntryPlace {
        term: place.term,
        index: place.index,
    }
}

fn closed() -> WriteError {
    WriteError::Broken("it is closed".to_owned())
}

fn refused(error: ReplicaLogError) -> WriteError {
    match &error {
        ReplicaLogError::Log(LogError::Full { .. }) => WriteError::Full(error.to_string()),
        _ => WriteError::Broken(error.to_string()),
    }
}
