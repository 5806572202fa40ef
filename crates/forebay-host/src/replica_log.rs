//! The log of a table's groups as the engine keeps it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use forebay_engine::live::{DiskRoom, LogError};
use forebay_engine::replica_log::{
    EntryDraft, EntryPlace, GroupRecords, LoggedEntry, ReplicaLog, ReplicaLogError, SEGMENT_BYTES,
};
use forebay_replica::{CodecError, Content, GroupId, LogEntry, Persist, Place, Promise};
use parking_lot::RwLock;
use tracing::{debug, warn};

use crate::log_room::LogRoom;
use crate::outside::{Acknowledged, FoundEntries, GroupLog, NoEntries, WriteError, Writing};

/// What is kept of entries that restarts do not need, for peers that are behind, unless it is said
/// otherwise.
pub const KEPT_BYTES: u64 = 64 << 20;
/// A log that has so much more than that is shortened by writing what is in memory to runs.
const LONG_BYTES: u64 = 192 << 20;
/// Between two looks whether segments can go: so many trims, or the bytes of a segment.
const LOOK_TRIMS: u64 = 16;

/// See the module's text.
#[derive(Debug)]
pub struct EngineLog {
    /// None: it is closed.
    log: RwLock<Option<ReplicaLog>>,
    kept_bytes: AtomicU64,
    trims: AtomicU64,
    /// How long it was when it was looked at.
    looked_bytes: AtomicU64,
    /// Some group has so much that is not trimmed that no segment can go.
    is_held: AtomicBool,
    /// It was told that segments could not be removed.
    is_stuck: AtomicBool,
    room: LogRoom,
}

impl EngineLog {
    pub fn new(log: ReplicaLog) -> Self {
        Self {
            log: RwLock::new(Some(log)),
            kept_bytes: AtomicU64::new(KEPT_BYTES),
            trims: AtomicU64::new(0),
            looked_bytes: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
            room: LogRoom::default(),
        }
    }

    /// It takes no more of this disk than it should.
    #[must_use]
    pub fn within(self, disk: DiskRoom) -> Self {
        let room = LogRoom::on(disk);
        self.with(|log| {
            if let Some(allowed) = room.look(log, KEPT_BYTES) {
                log.set_segment_bytes(allowed.segment_bytes);
            }
        });
        Self { room, ..self }
    }

    /// So much is kept of entries that restarts do not need.
    pub fn keep_for_peers(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    /// How many bytes it has for restarts, and besides for peers that are behind.
    pub fn size_bytes(&self) -> (u64, u64) {
        let size = self.with(|log| (log.needed_bytes(), log.size_bytes()));
        let (needed, all) = size.unwrap_or_default();
        (needed, all.saturating_sub(needed))
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

    fn remove_unneeded(&self, log: &ReplicaLog, kept_bytes: u64) {
        match log.remove_unneeded(kept_bytes) {
            Ok(removed) => {
                let is_held = removed.held_by.is_some();
                self.is_held.store(is_held, Ordering::Relaxed);
                self.is_stuck.store(false, Ordering::Relaxed);
            }
            // What is tried again all the time is told of once.
            Err(error) if !self.is_stuck.swap(true, Ordering::Relaxed) => {
                warn!(%error, "old segments of the log of replicas stay for now");
            }
            Err(error) => debug!(%error, "old segments of the log of replicas still stay"),
        }
        self.looked_bytes.store(log.size_bytes(), Ordering::Relaxed);
    }

    /// After so many trims it is looked whether segments can go: after all groups' at the latest
    /// where the disk is short.
    fn look_trims(&self, log: &ReplicaLog) -> u64 {
        match self.room.is_short() {
            true => (log.groups_count() as u64).clamp(1, LOOK_TRIMS),
            false => LOOK_TRIMS,
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
        let encoded: Vec<EncodedWrite> = all.iter().map(EncodedWrite::of).collect();
        let log = self.log.read();
        let log = log.as_ref().ok_or_else(closed)?;
        let bytes: u64 = encoded.iter().map(EncodedWrite::entries_bytes).sum();
        if bytes > 0 {
            self.room.admit(log, bytes)?;
        }
        let mut last = None;
        for orders in each_group_once(&encoded) {
            let records: Vec<GroupRecords<'_>> = orders.iter().map(EncodedWrite::records).collect();
            last = Some(log.append(&records).map_err(refused)?);
        }
        match last {
            None => then(Ok(())),
            Some(last) => {
                let reported = move |outcome: Result<(), LogError>| {
                    then(outcome.map_err(|error| refused(error.into())));
                };
                log.on_durable(last, Box::new(reported));
            }
        }
        Ok(())
    }

    fn entries(
        &self,
        group: GroupId,
        (from, to): (u64, u64),
        most_bytes: u64,
    ) -> Result<FoundEntries, NoEntries> {
        let read = self.with(|log| log.entries(group.0, from, most_bytes));
        let read = read.unwrap_or_else(|| Ok(Vec::new()));
        let entries = read.map_err(|error| not_read(group, from, &error))?;
        let asked = entries
            .into_iter()
            .take_while(|entry| entry.place.index < to);
        let asked: Vec<LoggedEntry> = asked.collect();
        debug_assert!(
            (from..)
                .zip(&asked)
                .all(|(index, entry)| entry.place.index == index),
            "entries from {from} on of group {group} do not follow each other"
        );
        let bytes = asked.iter().map(|entry| entry.bytes.len() as u64).sum();
        let entries: Result<Vec<LogEntry>, CodecError> = asked.into_iter().map(entry_of).collect();
        match entries {
            Ok(entries) => Ok(FoundEntries { entries, bytes }),
            Err(error) => {
                warn!(group = group.0, %error, "entries of the log of replicas are not read");
                Err(NoEntries { through: from })
            }
        }
    }

    fn trim(&self, group: GroupId, through: u64) -> bool {
        let log = self.log.read();
        let Some(log) = &*log else {
            return false;
        };
        log.trim(group.0, through);
        let wished_bytes = self.kept_bytes.load(Ordering::Relaxed);
        let allowed = self.room.look(log, wished_bytes);
        let kept_bytes = allowed.map_or(wished_bytes, |allowed| allowed.kept_bytes);
        let segment_bytes = allowed.map_or(SEGMENT_BYTES, |allowed| allowed.segment_bytes);
        log.set_segment_bytes(segment_bytes);
        if allowed.is_some_and(|allowed| allowed.is_plenty) {
            log.keep_spare();
        }
        let trims = self.trims.fetch_add(1, Ordering::Relaxed);
        let looked_bytes = self.looked_bytes.load(Ordering::Relaxed);
        let has_grown = log.size_bytes() >= looked_bytes + segment_bytes;
        if has_grown || trims.is_multiple_of(self.look_trims(log)) {
            self.remove_unneeded(log, kept_bytes);
        }
        let long_bytes = wished_bytes.saturating_add(LONG_BYTES);
        let is_long = log.size_bytes() > long_bytes || self.is_held.load(Ordering::Relaxed);
        match allowed {
            None => is_long,
            Some(allowed) => {
                (is_long || allowed.flushes) && self.room.asks(allowed.segment_bytes / 4)
            }
        }
    }

    fn is_short(&self) -> bool {
        self.room.is_short()
    }
}

/// A wish with its entries as bytes.
#[derive(Debug)]
struct EncodedWrite {
    group: GroupId,
    begins: Option<EntryPlace>,
    entries: Vec<(EntryPlace, Bytes)>,
    promise: Option<[u8; 24]>,
}

impl EncodedWrite {
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

    fn entries_bytes(&self) -> u64 {
        let entries = self.entries.iter();
        entries.map(|(_, bytes)| bytes.len() as u64).sum()
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
fn each_group_once(mut orders: &[EncodedWrite]) -> impl Iterator<Item = &[EncodedWrite]> {
    std::iter::from_fn(move || {
        let mut groups = BTreeSet::new();
        let is_new = |order: &&EncodedWrite| groups.insert(order.group);
        let count = orders.iter().take_while(is_new).count();
        let (first, rest) = orders.split_at(count);
        orders = rest;
        (!first.is_empty()).then_some(first)
    })
}

pub(crate) fn entry_of(entry: LoggedEntry) -> Result<LogEntry, CodecError> {
    let EntryPlace { term, index } = entry.place;
    Ok(LogEntry {
        place: Place { term, index },
        content: Content::from_bytes(Bytes::from(entry.bytes))?,
    })
}

pub(crate) fn entry_place(place: Place) -> EntryPlace {
    EntryPlace {
        term: place.term,
        index: place.index,
    }
}

/// Those before the first that is kept are gone; what cannot be read is as good as gone.
fn not_read(group: GroupId, from: u64, error: &ReplicaLogError) -> NoEntries {
    match error {
        ReplicaLogError::Trimmed { first, .. } => NoEntries {
            through: first.saturating_sub(1),
        },
        error => {
            warn!(group = group.0, %error, "a peer that is behind gets a copy");
            NoEntries { through: from }
        }
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
