//! The log of the replicas of one live table on a node: one log for all of its groups.
//!
//! It consists of segments and frames like that of a table ([`crate::live::log`]). The frames have
//! records of groups (`docs/reference/log-format.md`): entries, a promise, a new beginning of a
//! group's log, the end of a group. After a crash, the records of one call are all there or none
//! is. One sync serves all groups.
//!
//! Memory has the place of each entry (24 bytes an entry that the log keeps) and each group's
//! promise. Entries are read from the disk on request. Segments are removed from the front. Their
//! needed records are first rewritten at the end (`removal`).
//!
//! A damaged log is refused. A log that opens may still have lost records, with durabilities other
//! than `sync`. Its user must decide about that: see [`OpenedLog`].
//!
//! Lock order: `removing`, `ends`, `state`; the log's own locks come after these.

mod error;
mod index;
mod reading;
mod record;
mod removal;
mod spare;
mod state;
#[cfg(test)]
mod tests;
mod writing;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_io::{Clock, Disk, dir_of, may_pass};
use parking_lot::Mutex;

use self::index::{GroupIndex, LogIndex};
use self::record::RecordReader;
use self::spare::{SpareFile, remove_spare};
use self::state::{FoundState, LogState, StateFile, read_state, state_path};
use crate::live::log::{
    Callback, Durability, FramePlace, Log, LogError, LogKind, LogOptions, Lsn, note_path,
};
use crate::name::TableName;

pub use self::error::ReplicaLogError;
pub use self::record::{EntryDraft, EntryPlace, GroupRecords, LoggedEntry};
pub use self::removal::RemovedSegments;

/// The length of a segment at which the next one begins.
pub const SEGMENT_BYTES: u64 = 16 << 20;
/// The greatest length of segments in the options.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The longest promise: each group's is in memory.
pub const MAX_PROMISE_BYTES: usize = 1024;

#[derive(Debug, Clone)]
pub struct ReplicaLogOptions {
    pub table: TableName,
    /// The table's id, as in the table's own log.
    pub table_id: u64,
    pub durability: Durability,
    /// The machine's boot. It distinguishes a restart of the machine from one of the process
    /// (Linux: /proc/sys/kernel/random/boot_id).
    pub boot_id: u128,
    /// The length at which a segment takes no more records: [`SEGMENT_BYTES`], except in tests. At
    /// most 1 GiB.
    pub segment_bytes: u64,
}

/// The logged state of a group. [`ReplicaLog::entries`] reads the entries between these places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedGroup {
    /// The place before the first entry that is kept.
    pub before: EntryPlace,
    /// The place of the last entry; `before` if there is none.
    pub last: EntryPlace,
    /// `None` if none was logged.
    pub promise: Option<Vec<u8>>,
}

/// The state of a log when it was opened. All records that were found are complete, and durable by
/// now.
///
/// With a durability other than `sync` and another boot than `boot_then`, acknowledged records may
/// be missing at the end, unless the log was stopped cleanly. If so, do not append to it or remove
/// segments: drop it, and [`ReplicaLog::remove`] it. Until something is appended, the next opening
/// finds the same `boot_then`, and on another boot the same `stopped_clean`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLog {
    /// The boot on which it was last written to; `None` for a log that never was.
    pub boot_then: Option<u128>,
    /// Whether its last writer has called [`ReplicaLog::close`].
    pub stopped_clean: bool,
    pub groups: BTreeMap<u64, LoggedGroup>,
}

/// An open log. Any number of threads may call its methods. Dropping it syncs what its durability
/// would have synced; only [`ReplicaLog::close`] leaves a log that was stopped cleanly.
#[derive(Debug)]
pub struct ReplicaLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: ReplicaLogOptions,
    log: Log,
    /// Held by a removal of segments: only one runs at a time.
    removing: Mutex<SpareFile>,
    ends: Mutex<LogEnds>,
    state: Mutex<StateFile>,
    /// See [`ReplicaLog::set_segment_bytes`].
    segment_bytes: AtomicU64,
}

/// The state that changes with each write.
#[derive(Debug)]
struct LogEnds {
    index: LogIndex,
    /// Whether the state says that this boot writes, and has not stopped.
    is_begun: bool,
    buffer: Vec<u8>,
}

impl ReplicaLog {
    /// Opens the log in `dir`, or begins it. Its note and its state are beside `dir`, whose parent
    /// exists. All records that were found are durable when this returns. A torn last record that
    /// was never acknowledged is cut off. Fails if the log is damaged, which
    /// [`ReplicaLogError::is_damage`] reports, or is of another table or format.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        mut options: ReplicaLogOptions,
    ) -> Result<(Self, OpenedLog), ReplicaLogError> {
        options.segment_bytes = options.segment_bytes.clamp(1, MAX_SEGMENT_BYTES);
        let found = find_state(&*disk, dir, &options)?;
        let mut index = LogIndex::default();
        let mut first_record = None;
        let first_segment = found.map_or(1, |(state, _)| state.first_segment);
        let log = Log::open_kind(
            Arc::clone(&disk),
            clock,
            dir,
            LogOptions {
                table: options.table.clone(),
                table_id: options.table_id,
                durability: options.durability,
            },
            LogKind::Groups,
            first_segment,
            &mut |place, payload| {
                first_record.get_or_insert(place);
                replay(&mut index, place, payload)
            },
        );
        let log = log.map_err(ReplicaLogError::of)?;
        if first_record.is_some() && found.is_none() {
            let problem = "it is gone, and the log has records";
            return Err(options.damaged(&state_path(dir), problem));
        }
        let opened = OpenedLog {
            boot_then: found.map(|(state, _)| state.boot_id),
            stopped_clean: found.is_some_and(|(state, _)| state.stopped_clean),
            groups: index.groups.iter().map(logged).collect(),
        };
        let (state, number) = found.unwrap_or((
            LogState {
                boot_id: options.boot_id,
                first_segment,
                stopped_clean: false,
            },
            0,
        ));
        let state = StateFile::new(state_path(dir), options.table_id, state, number);
        let opened_log = Self {
            disk,
            dir: dir.to_path_buf(),
            log,
            removing: Mutex::default(),
            ends: Mutex::new(LogEnds {
                index,
                is_begun: false,
                buffer: Vec::new(),
            }),
            state: Mutex::new(state),
            segment_bytes: AtomicU64::new(options.segment_bytes),
            options,
        };
        Ok((opened_log, opened))
    }

    /// Writes the records of several groups, each named once. When this returns, the system has
    /// them, after all earlier ones. After a crash all of them are there or none is. Records that
    /// are refused for lack of space, or because they cannot follow the logged ones, have changed
    /// nothing, and later writes may succeed.
    pub fn append(&self, groups: &[GroupRecords<'_>]) -> Result<Lsn, ReplicaLogError> {
        self.write(&mut self.ends.lock(), groups)
    }

    /// Returns the current state of a group, if the log has one.
    pub fn group(&self, group: u64) -> Option<LoggedGroup> {
        let ends = self.ends.lock();
        let known = ends.index.groups.get(&group)?;
        Some(logged((&group, known)).1)
    }

    /// Returns whether everything up to `lsn` is acknowledged: durable, if the log's durability
    /// asks for that.
    pub fn durable(&self, lsn: Lsn) -> bool {
        self.log.durable(lsn)
    }

    /// Waits until everything up to `lsn` is acknowledged. After an error it is unknown whether it
    /// is durable.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), ReplicaLogError> {
        Ok(self.log.wait_durable(lsn)?)
    }

    /// Calls `then` once everything up to `lsn` is acknowledged, or has failed. It is called at
    /// once, or from the thread that syncs. It must not wait for the log.
    pub fn on_durable(&self, lsn: Lsn, then: Callback) {
        self.log.on_durable(lsn, then);
    }

    /// Makes everything durable that was written so far, whatever the log's durability.
    pub fn sync(&self) -> Result<(), ReplicaLogError> {
        Ok(self.log.sync()?)
    }

    /// Returns why the log takes no more records, if it does not.
    pub fn failure(&self) -> Option<LogError> {
        self.log.failure()
    }

    /// Returns the length of the log's files.
    pub fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }

    /// Returns how many of these bytes are needed: entries that are not trimmed.
    pub fn needed_bytes(&self) -> u64 {
        self.ends.lock().index.needed_bytes()
    }

    /// Returns the number of groups in the log.
    pub fn groups_count(&self) -> usize {
        self.ends.lock().index.groups.len()
    }

    /// Sets the length at which a segment takes no more records, from now on. No segment becomes
    /// longer than the options say. Short segments are removed sooner.
    pub fn set_segment_bytes(&self, bytes: u64) {
        let bytes = bytes.clamp(1, self.options.segment_bytes);
        if self.segment_bytes.swap(bytes, Ordering::Relaxed) > bytes {
            self.log.roll_at(bytes);
        }
    }

    fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Marks the entries of `group` up to `through_index` as not needed: the partition's runs have
    /// them. They may still be sent to peers until their segments are removed. This is not logged:
    /// after a restart the caller must trim again.
    pub fn trim(&self, group: u64, through_index: u64) {
        if let Some(known) = self.ends.lock().index.groups.get_mut(&group) {
            known.trim(through_index);
        }
    }

    /// Makes all writes durable, and records that the log was stopped cleanly, if this boot has
    /// written to it. No thread waits for it any more.
    pub fn close(self) -> Result<(), ReplicaLogError> {
        if !self.ends.lock().is_begun && !self.is_of_this_boot() {
            return Ok(());
        }
        self.log.sync()?;
        let Self {
            disk,
            options,
            log,
            state,
            ..
        } = self;
        drop(log);
        let mut state = state.into_inner();
        debug_assert_eq!(
            state.state.boot_id, options.boot_id,
            "a log is stopped that another boot wrote to"
        );
        let stopped = LogState {
            stopped_clean: true,
            ..state.state
        };
        let written = state.write(&*disk, stopped);
        written.map_err(|error| options.refused(state.path(), error))
    }

    /// Returns whether an earlier process of this boot wrote to it. Its records were made durable
    /// when the log was opened.
    fn is_of_this_boot(&self) -> bool {
        let state = self.state.lock();
        state.is_written() && state.state.boot_id == self.options.boot_id
    }

    /// Removes the log in `dir`, which no process has open, with its note and its state: its
    /// replicas have lost their promises. After a crash the remaining files are refused as damaged,
    /// or found to be of the earlier boot, and are removed again.
    pub fn remove(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let is_there = |removed: io::Result<()>| match removed {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        };
        is_there(disk.remove_dir_all(dir))?;
        disk.sync_dir(dir_of(dir))?;
        is_there(disk.remove(&note_path(dir)))?;
        is_there(disk.remove(&state_path(dir)))?;
        remove_spare(disk, dir)?;
        disk.sync_dir(dir_of(dir))
    }
}

impl ReplicaLogOptions {
    fn damaged(&self, path: &Path, problem: &str) -> ReplicaLogError {
        ReplicaLogError::Damaged {
            table: self.table.clone(),
            path: path.to_path_buf(),
            offset: 0,
            problem: problem.to_owned(),
        }
    }

    /// Returns the error of a write that is refused because the state cannot be written.
    fn refused(&self, path: &Path, error: io::Error) -> ReplicaLogError {
        let passes = may_pass(&error);
        let (table, path, source) = (self.table.clone(), path.to_path_buf(), Arc::new(error));
        let action = "write";
        ReplicaLogError::Log(match passes {
            true => LogError::Full {
                table,
                action,
                path,
                source,
            },
            false => LogError::Io {
                table,
                action,
                path,
                source,
            },
        })
    }
}

/// Returns the state of the log in `dir`, and how often it was written; `None` for a new log.
fn find_state(
    disk: &dyn Disk,
    dir: &Path,
    options: &ReplicaLogOptions,
) -> Result<Option<(LogState, u64)>, ReplicaLogError> {
    let path = state_path(dir);
    let table = options.table.clone();
    match read_state(disk, &path, options.table_id) {
        Ok(FoundState::Absent) => Ok(None),
        Ok(FoundState::Sound { state, number }) => Ok(Some((state, number))),
        Ok(FoundState::Damaged) => Err(options.damaged(&path, "it is no longer what was written")),
        Ok(FoundState::OfOtherTable) => Err(ReplicaLogError::Log(LogError::Foreign {
            table,
            path,
            problem: "it is the state of another table's log".to_owned(),
        })),
        Err(error) => Err(ReplicaLogError::Log(LogError::Io {
            table,
            action: "read",
            path,
            source: Arc::new(error),
        })),
    }
}

fn replay(index: &mut LogIndex, place: FramePlace, payload: &[u8]) -> Result<(), String> {
    for record in RecordReader::new(payload) {
        let record = record.map_err(|problem| problem.to_string())?;
        index.replay(place, record)?;
    }
    Ok(())
}

fn logged((group, known): (&u64, &GroupIndex)) -> (u64, LoggedGroup) {
    let logged = LoggedGroup {
        before: known.before(),
        last: known.last(),
        promise: known.promise().map(<[u8]>::to_vec),
    };
    (*group, logged)
}
