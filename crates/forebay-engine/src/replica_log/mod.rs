//! The log of the replicas of one live table on a node: one log for all of its groups.
//!
//! It is a log of segments and frames like that of a table ([`crate::live::log`]), whose frames
//! hold records of groups (`docs/reference/log-format.md`): entries, a promise, where a group's log
//! begins anew, that a group is gone. What is written in one call survives whole or not at all, and
//! one sync serves all groups.
//!
//! Memory holds where each entry lies (24 bytes an entry that the log keeps) and each group's
//! promise. Entries are read from the disk when they are asked for. Segments are removed from the
//! front; what is still needed of them is written again behind (`removal`).
//!
//! A log that was damaged is refused. Whether one that opens may have lost something nevertheless,
//! with durabilities other than `sync`, is for its user to say: see [`OpenedLog`].
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

/// How long a segment becomes before the next one is begun.
pub const SEGMENT_BYTES: u64 = 16 << 20;
/// The longest segments that may be asked for.
const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The longest promise: each group's lies in memory.
pub const MAX_PROMISE_BYTES: usize = 1024;

#[derive(Debug, Clone)]
pub struct ReplicaLogOptions {
    pub table: TableName,
    /// As the table's own log has it.
    pub table_id: u64,
    pub durability: Durability,
    /// The machine's boot, by which a restart of it is told from one of the process (Linux:
    /// /proc/sys/kernel/random/boot_id).
    pub boot_id: u128,
    /// A segment that has become so long is the last one written to: [`SEGMENT_BYTES`], but for
    /// tests. At most 1 GiB.
    pub segment_bytes: u64,
}

/// What the log has of a group. The entries between these places are read by
/// [`ReplicaLog::entries`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedGroup {
    /// The place before the first entry that is kept.
    pub before: EntryPlace,
    /// The last entry's; `before` where there is none.
    pub last: EntryPlace,
    /// `None` where none was logged.
    pub promise: Option<Vec<u8>>,
}

/// A log as it was found. All that was found is whole, and durable by now.
///
/// With a durability other than `sync` and another boot than `boot_then`, acknowledged records may
/// be missing at the end, unless it was stopped cleanly. Then nothing may be appended to it, and no
/// segments removed: drop it, and [`ReplicaLog::remove`] it. Until something is appended, the next
/// opening finds the same `boot_then`, and on another boot the same `stopped_clean`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedLog {
    /// On which boot it was last written to; `None` for a log that never was.
    pub boot_then: Option<u128>,
    /// Whoever wrote to it has called [`ReplicaLog::close`].
    pub stopped_clean: bool,
    pub groups: BTreeMap<u64, LoggedGroup>,
}

/// An open log. All methods may be called by any number of threads. Dropping it syncs what its
/// durability would have synced; only [`ReplicaLog::close`] leaves a log that was stopped cleanly.
#[derive(Debug)]
pub struct ReplicaLog {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    options: ReplicaLogOptions,
    log: Log,
    /// One removal at a time.
    removing: Mutex<SpareFile>,
    ends: Mutex<LogEnds>,
    state: Mutex<StateFile>,
    /// See [`ReplicaLog::set_segment_bytes`].
    segment_bytes: AtomicU64,
}

/// What changes with each write.
#[derive(Debug)]
struct LogEnds {
    index: LogIndex,
    /// Whether the state says that this boot writes, and has not stopped.
    is_begun: bool,
    buffer: Vec<u8>,
}

impl ReplicaLog {
    /// Opens the log in `dir`, or begins it; its note and its state lie beside `dir`, whose parent
    /// exists. What was found is durable when this returns. A torn last record that was never
    /// acknowledged is cut off. Fails when the log is damaged, which
    /// [`ReplicaLogError::is_damage`] tells, or is of another table or format.
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

    /// Writes what is to be logged of several groups, each named once; when this returns, the
    /// system has it, behind all that was written before. After a crash all of it is there or
    /// nothing. What is refused for want of room, or as it cannot follow what is logged, has
    /// changed nothing, and later writes may succeed.
    pub fn append(&self, groups: &[GroupRecords<'_>]) -> Result<Lsn, ReplicaLogError> {
        self.write(&mut self.ends.lock(), groups)
    }

    /// What the log has of a group now, if anything.
    pub fn group(&self, group: u64) -> Option<LoggedGroup> {
        let ends = self.ends.lock();
        let known = ends.index.groups.get(&group)?;
        Some(logged((&group, known)).1)
    }

    /// Whether all up to `lsn` is acknowledged: durable, where that is asked for.
    pub fn durable(&self, lsn: Lsn) -> bool {
        self.log.durable(lsn)
    }

    /// Waits until all up to `lsn` is acknowledged. After an error nobody knows whether it is
    /// durable.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), ReplicaLogError> {
        Ok(self.log.wait_durable(lsn)?)
    }

    /// Calls `then` once all up to `lsn` is acknowledged, or will not be: at once, or from the
    /// thread that syncs. It must not wait for the log.
    pub fn on_durable(&self, lsn: Lsn, then: Callback) {
        self.log.on_durable(lsn, then);
    }

    /// Makes everything durable that was written so far, whatever the log's durability.
    pub fn sync(&self) -> Result<(), ReplicaLogError> {
        Ok(self.log.sync()?)
    }

    /// Why the log takes no more records, if it does not.
    pub fn failure(&self) -> Option<LogError> {
        self.log.failure()
    }

    /// How many bytes the log's files hold.
    pub fn size_bytes(&self) -> u64 {
        self.log.size_bytes()
    }

    /// How many of them are needed: entries that are not trimmed.
    pub fn needed_bytes(&self) -> u64 {
        self.ends.lock().index.needed_bytes()
    }

    /// How many groups it has something of.
    pub fn groups_count(&self) -> usize {
        self.ends.lock().index.groups.len()
    }

    /// A segment that has become so long is not written to any more, from now on; none becomes
    /// longer than the options say. Short ones are sooner removed.
    pub fn set_segment_bytes(&self, bytes: u64) {
        let bytes = bytes.clamp(1, self.options.segment_bytes);
        if self.segment_bytes.swap(bytes, Ordering::Relaxed) > bytes {
            self.log.roll_at(bytes);
        }
    }

    fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Entries of `group` up to `through_index` need not be kept: the partition's runs have them.
    /// Peers may still be sent them until their segments are removed. This is not logged: after a
    /// restart it is said again.
    pub fn trim(&self, group: u64, through_index: u64) {
        if let Some(known) = self.ends.lock().index.groups.get_mut(&group) {
            known.trim(through_index);
        }
    }

    /// Makes all that was written durable, and notes that the log was stopped cleanly, should this
    /// boot have written to it. Nobody waits for it any more.
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

    /// Whether an earlier process of this boot wrote to it. What that left was made durable when it
    /// was opened.
    fn is_of_this_boot(&self) -> bool {
        let state = self.state.lock();
        state.is_written() && state.state.boot_id == self.options.boot_id
    }

    /// Removes the log in `dir`, which nobody has open, with its note and its state: its replicas
    /// have forgotten what they promised. Whatever a crash leaves of it is refused as damaged, or
    /// found to be of the boot of before, and is removed again.
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

    /// What a write is refused with as the state cannot be written.
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

/// The state of the log in `dir`, and how often it was written; `None` for a log that is new.
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
