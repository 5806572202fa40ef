//! The write-ahead log of a live table.
//!
//! A log is a directory of segments, `N.log`, each a header and frames
//! (`docs/reference/log-format.md`). Its user defines the records (`LogKind`): a table's
//! operations, or the records of groups in [`crate::replica_log`]. A record is written (write(2))
//! before [`Log::append`] returns, so it outlives its process. The log's [`Durability`] defines
//! when it is acknowledged, and what a power cut may lose.
//!
//! A failed sync closes the log for good. So does a write that fails for any reason but lack of
//! space: the device's content is unknown then. Without space only that write is refused. The
//! segment ends where its last record ended, and the next write begins another one.
//!
//! Lock order: `writer`, `commits` and `note` are never held together.

mod commit;
mod error;
mod frame;
mod header;
mod note;
mod reads;
mod recover;
mod segment;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use forebay_io::{Clock, Disk};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::error::LogError;
pub use self::frame::MAX_RECORD_BYTES;
pub use self::recover::Replay;

pub(crate) use self::commit::Callback;
pub(crate) use self::frame::FramePlace;
pub(crate) use self::header::LogKind;
pub(crate) use self::note::note_path;
pub(crate) use self::reads::RecordReads;
pub(crate) use self::recover::PlacedReplay;

use self::commit::Commits;
use self::note::{DurableNote, read_note};
use self::recover::Recovery;
use self::writer::Writer;
use crate::name::TableName;

/// How many bytes count as growth in [`Log::has_grown`].
const GROWTH_BYTES: u64 = 256 << 10;

/// When a write is acknowledged, and so what a power cut may lose. The death of the process loses
/// no acknowledged write, whichever this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Durability {
    /// When it is durable. No acknowledged write is lost.
    Sync,
    /// When the system has it. The log is synced this many milliseconds later. Writes acknowledged
    /// in that time, and while the sync runs, may be lost.
    EveryMs(u64),
    /// When the system has it. A power cut may lose what the system has not written out.
    Os,
}

/// The error for a text that is not the name of a durability.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0:?} is no durability: say sync, os, or a number of milliseconds such as 100ms")]
pub struct DurabilityError(String);

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Durability::Sync => f.write_str("sync"),
            Durability::EveryMs(ms) => write!(f, "{ms}ms"),
            Durability::Os => f.write_str("os"),
        }
    }
}

impl FromStr for Durability {
    type Err = DurabilityError;

    fn from_str(text: &str) -> Result<Self, DurabilityError> {
        match text {
            "sync" => Ok(Durability::Sync),
            "os" => Ok(Durability::Os),
            _ => {
                let ms = text.strip_suffix("ms").and_then(|ms| ms.parse().ok());
                let ms = ms.filter(|ms| *ms > 0);
                ms.map(Durability::EveryMs)
                    .ok_or_else(|| DurabilityError(text.to_owned()))
            }
        }
    }
}

impl TryFrom<String> for Durability {
    type Error = DurabilityError;

    fn try_from(text: String) -> Result<Self, DurabilityError> {
        text.parse()
    }
}

impl From<Durability> for String {
    fn from(durability: Durability) -> String {
        durability.to_string()
    }
}

#[derive(Debug, Clone)]
pub struct LogOptions {
    pub table: TableName,
    /// Drawn at random when the table was made and kept with it. It distinguishes this table's
    /// files from those of another table of that name.
    pub table_id: u64,
    pub durability: Durability,
}

/// A position in the log, as [`Log::append`] returns it. It covers all records up to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lsn(u64);

/// An open log. Any number of threads may call its methods. Dropping it syncs what its durability
/// would have synced.
#[derive(Debug)]
pub struct Log {
    shared: Arc<LogShared>,
}

#[derive(Debug)]
struct LogShared {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    dir: PathBuf,
    options: LogOptions,
    kind: LogKind,
    writer: Mutex<Writer>,
    commits: Commits,
    note: Mutex<DurableNote>,
    /// See [`Log::has_grown`].
    reported_bytes: AtomicU64,
}

impl Log {
    /// Opens the log in `dir`, or begins it. Passes every record of the segments from
    /// `from_segment` (at least 1) on to `replay`, in the order of writing; older segments are
    /// removed. All these records are durable when this returns, whatever the durability. Fails if
    /// the log is damaged, and then has changed nothing but that.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: LogOptions,
        from_segment: u64,
        replay: Replay<'_>,
    ) -> Result<Self, LogError> {
        let mut replay = |place: FramePlace, payload: &[u8]| replay(place.segment, payload);
        let kind = LogKind::Operations;
        Self::open_kind(disk, clock, dir, options, kind, from_segment, &mut replay)
    }

    /// [`Log::open`] of a log with records of that kind, which `replay` gets with their places.
    pub(crate) fn open_kind(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        options: LogOptions,
        kind: LogKind,
        from_segment: u64,
        replay: PlacedReplay<'_>,
    ) -> Result<Self, LogError> {
        let recovery = Recovery {
            disk: &*disk,
            dir,
            options: &options,
            kind,
            durable: read_note(&*disk, dir, &options)?,
        };
        let recovered = recovery.run(from_segment.max(1), replay)?;
        let writer = Writer::new(recovered, options.table_id);
        let note = DurableNote::new(dir, options.table_id);
        let shared = Arc::new(LogShared {
            disk,
            clock,
            dir: dir.to_path_buf(),
            options,
            kind,
            writer: Mutex::new(writer),
            commits: Commits::default(),
            note: Mutex::new(note),
            reported_bytes: AtomicU64::new(0),
        });
        shared.sync_recovered()?;
        Ok(Self { shared })
    }

    /// Writes one record. When this returns, the system has it, after all earlier records.
    pub fn append(&self, payload: &[u8]) -> Result<Lsn, LogError> {
        self.append_placed(payload).map(|(lsn, _)| lsn)
    }

    /// [`Log::append`], which also returns where the record's frame begins.
    pub(crate) fn append_placed(&self, payload: &[u8]) -> Result<(Lsn, FramePlace), LogError> {
        let shared = &self.shared;
        let appended = shared.writer.lock().append(shared, payload);
        match appended {
            Ok((lsn, place)) => {
                shared.commits.written.fetch_max(lsn.0, SeqCst);
                shared.wake_thread();
                Ok((lsn, place))
            }
            Err(error) => {
                if matches!(error, LogError::Closed { .. }) {
                    shared.fail(&error);
                }
                Err(error)
            }
        }
    }

    /// Ends the segment and returns the number of the first segment that later records can be in.
    pub fn roll(&self) -> u64 {
        self.shared.writer.lock().end_segment()
    }

    /// Ends the segment if it has reached this length.
    pub(crate) fn roll_at(&self, bytes: u64) {
        self.shared.writer.lock().end_segment_at(bytes);
    }

    /// Removes the segments before `segment`, whose records are stored elsewhere by now. If some
    /// cannot be removed, the next call or the next opening removes them.
    pub fn remove_before(&self, segment: u64) -> Result<(), LogError> {
        self.shared.remove_before(segment)
    }

    /// Returns the oldest and the newest segment that are not written any more.
    pub(crate) fn ended(&self) -> Option<(u64, u64)> {
        let writer = self.shared.writer.lock();
        let ended = writer.ended();
        Some((ended.first()?.0, ended.last()?.0))
    }

    /// Returns the length of the log's files.
    pub fn size_bytes(&self) -> u64 {
        self.shared.writer.lock().size_bytes()
    }

    /// Returns whether the log has grown by 256 KiB up to `lsn` since this last returned true.
    #[inline]
    pub fn has_grown(&self, lsn: Lsn) -> bool {
        let reported = self.shared.reported_bytes.load(Relaxed);
        lsn.0 >= reported + GROWTH_BYTES
            && (self.shared.reported_bytes)
                .compare_exchange(reported, lsn.0, Relaxed, Relaxed)
                .is_ok()
    }

    /// Returns whether everything up to `lsn` is acknowledged: durable, if the log's durability
    /// asks for that.
    pub fn durable(&self, lsn: Lsn) -> bool {
        self.shared.options.durability != Durability::Sync || self.shared.commits.is_synced(lsn)
    }

    /// Waits until everything up to `lsn` is acknowledged. After an error it is unknown whether it
    /// is durable.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<(), LogError> {
        match self.shared.options.durability {
            Durability::Sync => self.shared.wait(lsn),
            Durability::EveryMs(_) | Durability::Os => Ok(()),
        }
    }

    /// Calls `then` once everything up to `lsn` is acknowledged, or has failed. It is called at
    /// once, or from the thread that syncs. It must not wait for the log.
    pub fn on_durable(&self, lsn: Lsn, then: Callback) {
        match self.shared.options.durability {
            Durability::Sync => self.shared.call_back(lsn, then),
            Durability::EveryMs(_) | Durability::Os => then(Ok(())),
        }
    }

    /// Makes everything durable that was written so far, whatever the log's durability.
    pub fn sync(&self) -> Result<(), LogError> {
        let lsn = Lsn(self.shared.commits.written.load(SeqCst));
        self.shared.wait(lsn)
    }

    /// Returns why the log takes no more records, if it does not.
    pub fn failure(&self) -> Option<LogError> {
        self.shared.commits.failure()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.commits.stop();
        if self.shared.options.durability != Durability::Os {
            // All waiting threads have the error already, or have dropped their record.
            let _ = self.sync();
        }
        self.shared.close_files();
        self.shared.close_note();
    }
}

impl Durability {
    fn pause(self) -> Option<Duration> {
        match self {
            Durability::EveryMs(ms) => Some(Duration::from_millis(ms)),
            Durability::Sync | Durability::Os => None,
        }
    }
}

fn segment_path(dir: &Path, segment: u64) -> PathBuf {
    dir.join(format!("{segment}.log"))
}

/// Returns the segment number in a file's name. Only the form that this program writes is accepted.
fn segment_number(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".log")?;
    let number: u64 = digits.parse().ok()?;
    (number > 0 && number.to_string() == digits).then_some(number)
}
