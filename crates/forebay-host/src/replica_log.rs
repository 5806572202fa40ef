//! The log of a table's groups, stored in the engine.

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

use crate::environment::{Acknowledged, FoundEntries, GroupLog, NoEntries, WriteError, Writing};
use crate::log_room::LogRoom;

/// The default number of bytes of entries that the log retains for lagging peers, beyond what
/// restarts need.
pub const KEPT_BYTES: u64 = 64 << 20;
/// If the log is this many bytes longer than that, the table shortens it by flushing its memtable.
const LONG_BYTES: u64 = 192 << 20;
/// The limits between two checks for segments to remove: this many trims, or the bytes of a
/// segment.
const LOOK_TRIMS: u64 = 16;

/// The log of a table's groups, with its limits on disk space.
#[derive(Debug)]
pub struct EngineLog {
    /// None: the log is closed.
    log: RwLock<Option<ReplicaLog>>,
    kept_bytes: AtomicU64,
    trims: AtomicU64,
    /// The length of the log at the last check.
    looked_bytes: AtomicU64,
    /// A group has so many entries that are not trimmed that no segment can be removed.
    is_held: AtomicBool,
    /// A failure to remove segments was reported.
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

    /// Limits the log to its share of this disk.
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

    /// Sets the number of bytes of entries to retain that restarts do not need.
    pub fn keep_for_peers(&self, bytes: u64) {
        self.kept_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of the log that restarts need, and those that it has besides for lagging
    /// peers.
    pub fn size_bytes(&self) -> (u64, u64) {
        let size = self.with(|log| (log.needed_bytes(), log.size_bytes()));
        let (needed, all) = size.unwrap_or_default();
        (needed, all.saturating_sub(needed))
    }

    /// Closes the log, with a record of a clean stop. Nothing is written to it afterwards.
    pub fn close(&self) -> Result<(), WriteError> {
        let log = self.log.write().take();
        log.map_or(Ok(()), ReplicaLog::close).map_err(refused)
    }

    /// Drops the log without a record of a clean stop, as a kill would.
    pub fn abandon(&self) {
        let log = self.log.write().take();
        drop(log);
    }

    /// Returns the reason if the log accepts no more records.
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
            // Report a repeated failure once.
            Err(error) if !self.is_stuck.swap(true, Ordering::Relaxed) => {
                warn!(%error, "old segments of the log of replicas stay for now");
            }
            Err(error) => debug!(%error, "old segments of the log of replicas still stay"),
        }
        self.looked_bytes.store(log.size_bytes(), Ordering::Relaxed);
    }

    /// Returns the number of trims until the next check for segments to remove. If the disk is
    /// short of space, this is at most one trim of each group.
    fn look_trims(&self, log: &ReplicaLog) -> u64 {
        match self.room.is_short() {
            true => (log.groups_count() as u64).clamp(1, LOOK_TRIMS),
            false => LOOK_TRIMS,
        }
    }

    /// Records, before a group's replica starts, where the group's log begins, and what the replica
    /// promised.
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

    /// Reads the engine's log, or returns `None` if it is closed.
    pub(crate) fn with<R>(&self, read: impl FnOnce(&ReplicaLog) -> R) -> Option<R> {
        self.log.read().as_ref().map(read)
    }

    /// Removes everything of a group.
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

/// A write with its entries as bytes.
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

/// Splits the writes, in their order, into parts that have at most one write of each group.
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

/// Maps an error of a read. Entries before the first retained one are removed. Entries that cannot
/// be read count as removed.
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
