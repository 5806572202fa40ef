//! Opens the replicas of a table that a process finds when it starts.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_engine::PartitionId;
use forebay_engine::live::{LiveError, LiveTable};
use forebay_engine::replica_log::{
    EntryPlace, LoggedEntry, LoggedGroup, OpenedLog, ReplicaLog, ReplicaLogError,
};
use forebay_replica::{
    Durability, FoundMemory, GroupId, LogEntry, MemoryLoss, OlderEntries, PeerId, Place, Promise,
    SnapshotFacts, Start, check_memory,
};
use thiserror::Error;

use crate::partition_state::facts_of;
use crate::replica_log::{EngineLog, entry_of, entry_place};

/// The number of bytes of entries in one read.
const READ_BYTES: u64 = 16 << 20;

/// A replica that this node is to have: a partition of the table, and its peer number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundReplica {
    pub partition: PartitionId,
    pub group: GroupId,
    pub peer: PeerId,
    /// The replica is new on this node, so the log may have no records of its group.
    pub is_new: bool,
    /// The seed of its random numbers: a different one at each start.
    pub seed: u64,
}

/// The log of a table, and the start of each of its replicas.
#[derive(Debug)]
pub struct OpenReplicas {
    pub log: Arc<EngineLog>,
    pub starts: BTreeMap<GroupId, Start>,
}

/// A reason why the replicas of a table cannot continue as the peers that they were.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The log may have lost promises. Each replica joins its group as a new peer.
    #[error(transparent)]
    Forgot(#[from] MemoryLoss),
    /// The log may have lost promises of one group. Its replica joins the group as a new peer.
    #[error("group {group}: {problem}; its replica here joins it again as a new peer")]
    Group { group: u64, problem: String },
    #[error(transparent)]
    Log(#[from] ReplicaLogError),
    #[error(transparent)]
    Table(#[from] LiveError),
}

/// Returns what the replicas of a table start with: its partitions as they were opened, and the
/// log. Removes from the log the records of groups that are not among them.
pub fn open_replicas(
    table: &LiveTable,
    (log, opened): (ReplicaLog, OpenedLog),
    durability: Durability,
    boot_now: u128,
    replicas: &[FoundReplica],
) -> Result<OpenReplicas, OpenError> {
    check_memory(&FoundMemory {
        durability,
        boot_then: opened.boot_then.unwrap_or(boot_now),
        boot_now,
        stopped_clean: opened.stopped_clean,
        log_is_whole: true,
    })?;
    let mut starts = BTreeMap::new();
    for replica in replicas {
        let known = opened.groups.get(&replica.group.0);
        let start = start_of(table, &log, known, replica)?;
        let other = starts.insert(replica.group, start);
        debug_assert!(
            other.is_none(),
            "two replicas of group {} are here",
            replica.group
        );
    }
    let log = EngineLog::new(log).within(table.disk_room());
    for group in opened.groups.keys().map(|group| GroupId(*group)) {
        let forgotten = match starts.contains_key(&group) {
            true => Ok(()),
            false => log.forget(group),
        };
        forgotten.map_err(|error| of_group(group, error.to_string()))?;
    }
    for (group, start) in &starts {
        let known = opened.groups.get(&group.0);
        let before = entry_place(start.before);
        // The copy was installed before the log recorded it.
        let is_passed = |known: &LoggedGroup| start.entries.is_empty() && known.last != before;
        if known.is_none_or(is_passed) {
            let promise = start.promise.to_bytes();
            let begun = log.begin(*group, before, &promise);
            begun.map_err(|error| of_group(*group, error.to_string()))?;
        }
    }
    let log = Arc::new(log);
    Ok(OpenReplicas { log, starts })
}

/// Returns what a replica starts with that was ended, or was split off another, after the log was
/// opened.
pub fn start_again(
    table: &LiveTable,
    log: &EngineLog,
    replica: &FoundReplica,
) -> Result<Start, OpenError> {
    let group = replica.group;
    let start = log.with(|log| start_of(table, log, log.group(group.0).as_ref(), replica));
    start.unwrap_or_else(|| Err(of_group(group, "the log is closed".to_owned())))
}

fn start_of(
    table: &LiveTable,
    log: &ReplicaLog,
    known: Option<&LoggedGroup>,
    replica: &FoundReplica,
) -> Result<Start, OpenError> {
    let group = replica.group;
    let applied = facts_of(&table.applied(replica.partition)?);
    let applied = applied.map_err(|error| of_group(group, error.to_string()))?;
    let promise = match known.and_then(|known| known.promise.clone()) {
        Some(promise) => Promise::from_bytes(promise.into()),
        None if replica.is_new => Ok(Promise {
            term: applied.place.term,
            vote: None,
            committed: applied.place.index,
        }),
        // Without its log records, the replica's promises are lost.
        None => return Err(of_group(group, "its log has nothing of it".to_owned())),
    };
    let promise = promise.map_err(|error| of_group(group, error.to_string()))?;
    let entries = match known {
        Some(known) => entries_behind(log, group, known, &applied)?,
        None => Vec::new(),
    };
    let older = match known {
        Some(known) => older_entries(log, group, known, applied.place)?,
        None => OlderEntries::none(applied.place),
    };
    debug_assert!(
        (entries.first()).is_none_or(|first| first.place.index == applied.place.index + 1),
        "group {group} is at {}, and continues with {:?}",
        applied.place,
        entries.first().map(|first| first.place)
    );
    debug_assert_eq!(
        older.term(applied.place.index),
        Some(applied.place.term),
        "the entries in files of group {group} do not lead to {}",
        applied.place
    );
    Ok(Start {
        group,
        me: replica.peer,
        promise,
        older,
        before: applied.place,
        applied,
        entries,
        seed: replica.seed,
    })
}

/// Returns the log's entries after the applied one. If a copy was installed and the log does not
/// record it yet, the log has no entries that follow it.
fn entries_behind(
    log: &ReplicaLog,
    group: GroupId,
    known: &LoggedGroup,
    applied: &SnapshotFacts,
) -> Result<Vec<LogEntry>, OpenError> {
    let place = applied.place;
    if known.before.index > place.index {
        let problem = format!(
            "its state is at {place}, but its log begins after {}",
            known.before
        );
        return Err(of_group(group, problem));
    }
    if known.last.index <= place.index || !goes_on(log, group, known, place)? {
        return Ok(Vec::new());
    }
    let mut entries = Vec::new();
    let mut next = place.index + 1;
    loop {
        let some = log.entries(group.0, next, READ_BYTES)?;
        let Some(last) = some.last() else {
            return Ok(entries);
        };
        next = last.place.index + 1;
        for entry in some {
            let decoded = entry_of(entry);
            entries.push(decoded.map_err(|error| of_group(group, error.to_string()))?);
        }
    }
}

/// Returns the log's entries up to the applied one, for peers that lag.
fn older_entries(
    log: &ReplicaLog,
    group: GroupId,
    known: &LoggedGroup,
    place: Place,
) -> Result<OlderEntries, OpenError> {
    if known.before.index >= place.index || !goes_on(log, group, known, place)? {
        return Ok(OlderEntries::none(place));
    }
    let terms = log.terms(group.0, place.index).into_iter();
    let mut terms = terms.map(|EntryPlace { term, index }| Place { term, index });
    let before = terms.next().unwrap_or(place);
    let older = OlderEntries::new(before, terms);
    older.ok_or_else(|| of_group(group, "the terms of its log fall".to_owned()))
}

/// Returns whether the log has the last applied entry, or begins just after it.
fn goes_on(
    log: &ReplicaLog,
    group: GroupId,
    known: &LoggedGroup,
    place: Place,
) -> Result<bool, OpenError> {
    if known.before.index == place.index {
        return Ok(known.before == entry_place(place));
    }
    let found = log.entries(group.0, place.index, 1)?;
    let is_it = |entry: &LoggedEntry| entry.place == entry_place(place);
    Ok(found.first().is_some_and(is_it))
}

fn of_group(group: GroupId, problem: String) -> OpenError {
    let group = group.0;
    OpenError::Group { group, problem }
}
