//! Limits how much of the disk the log of a table's replicas may take.
//!
//! The log is one of several that share a disk with the runs that its entries become. It can be
//! shortened once they are runs. The limits are:
//!
//! - What restarts need of the log is at most a fifth of what would be free without it. Beyond
//!   that, the table's memtable is flushed.
//! - What is retained for peers is at most as much, and nothing if the disk is short of space.
//! - Entries never take the space that the memtable needs for its flush. They wait until it is
//!   flushed.
//!
//! If space is short, segments are short, so that they are removed soon.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_engine::live::{DiskRoom, FoundRoom};
use forebay_engine::replica_log::{ReplicaLog, SEGMENT_BYTES};
use parking_lot::Mutex;
use tracing::debug;

use crate::environment::WriteError;

/// The most bytes that are written between two checks of the disk.
pub(crate) const LOOK_BYTES: u64 = 256 << 10;
/// A log that needs fewer bytes is not shortened for lack of disk space.
const LEAST_NEEDED_BYTES: u64 = 256 << 10;
/// The size of the shortest segments.
const LEAST_SEGMENT_BYTES: u64 = 64 << 10;
/// The free bytes divided by this are what the log may need, and as much what it may retain.
const SHARE: u64 = 4;
/// If nothing is written and the disk was not short of space, a check is valid for this many trims.
const TAKEN_TRIMS: u32 = 16;
/// The free bytes divided by this are the size of a segment.
const SEGMENT_SHARE: u64 = 32;

/// The disk space that the log of a table's replicas may take.
#[derive(Debug, Default)]
pub(crate) struct LogRoom {
    /// None: the free space of the disk is unknown.
    disk: Option<DiskRoom>,
    /// The bytes that may be written before the next check.
    unlooked_bytes: AtomicU64,
    /// The bytes that were written since the start.
    written_bytes: AtomicU64,
    /// The value of `written_bytes` at the last request to flush the table; 0: there was none.
    asked_bytes: AtomicU64,
    is_short: AtomicBool,
    is_refusing: AtomicBool,
    seen: Mutex<Option<SeenRoom>>,
}

/// The result of a check, with the bytes written at that time, and how often it was reused since.
#[derive(Debug, Clone, Copy)]
struct SeenRoom {
    written_bytes: u64,
    allowed: Allowed,
    taken: u32,
}

/// The log's limits at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allowed {
    /// The most bytes of entries that restarts do not need.
    pub kept_bytes: u64,
    pub segment_bytes: u64,
    /// The table has to be flushed.
    pub flushes: bool,
    /// There is plenty of space.
    pub is_plenty: bool,
}

impl Allowed {
    fn of(found: FoundRoom, needed_bytes: u64, wished_bytes: u64) -> Self {
        let is_tight = found.free_bytes < 2 * found.flush_bytes;
        let spare_bytes = found.spare_bytes().saturating_sub(found.flush_bytes);
        let segment_bytes = spare_bytes / SEGMENT_SHARE;
        let is_long = needed_bytes > found.free_bytes / SHARE || is_tight;
        Self {
            kept_bytes: wished_bytes.min(spare_bytes / SHARE),
            segment_bytes: segment_bytes.clamp(LEAST_SEGMENT_BYTES, SEGMENT_BYTES),
            flushes: is_long && needed_bytes >= LEAST_NEEDED_BYTES,
            is_plenty: !is_tight,
        }
    }
}

impl LogRoom {
    pub fn on(disk: DiskRoom) -> Self {
        Self {
            disk: Some(disk),
            ..Self::default()
        }
    }

    /// Returns whether the log should be trimmed soon.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed)
    }

    /// Refuses entries of this many bytes if they would take the space that flushes need.
    pub fn admit(&self, log: &ReplicaLog, bytes: u64) -> Result<(), WriteError> {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        let unlooked_bytes = self.unlooked_bytes.load(Ordering::Relaxed);
        if bytes <= unlooked_bytes {
            let left = unlooked_bytes - bytes;
            self.unlooked_bytes.store(left, Ordering::Relaxed);
            return Ok(());
        }
        let found = self.disk.as_ref().and_then(DiskRoom::look);
        let (Some(disk), Some(found)) = (&self.disk, found) else {
            self.unlooked_bytes.store(LOOK_BYTES, Ordering::Relaxed);
            return Ok(());
        };
        let is_tight = found.free_bytes < 2 * found.flush_bytes;
        if is_tight || log.size_bytes() > found.free_bytes / SHARE {
            self.is_short.store(true, Ordering::Relaxed);
        }
        if is_tight {
            disk.ask_for_flushes();
        }
        let refuses = found.spare_bytes() < bytes;
        self.is_refusing.store(refuses, Ordering::Relaxed);
        let unlooked_bytes = match refuses {
            true => 0,
            false => ((found.spare_bytes() - bytes) / 8).min(LOOK_BYTES),
        };
        self.unlooked_bytes.store(unlooked_bytes, Ordering::Relaxed);
        match refuses {
            true => Err(WriteError::Full(no_room(disk, found))),
            false => Ok(()),
        }
    }

    /// Returns the log's limits now, or `None` if the free space of the disk is unknown.
    pub fn look(&self, log: &ReplicaLog, wished_bytes: u64) -> Option<Allowed> {
        let written_bytes = self.written_bytes.load(Ordering::Relaxed);
        if let Some(allowed) = self.known(written_bytes) {
            return Some(allowed);
        }
        let found = self.disk.as_ref()?.look()?;
        let (needed, all) = (log.needed_bytes(), log.size_bytes());
        let allowed = Allowed::of(found, needed, wished_bytes);
        let kept = all.saturating_sub(needed);
        // The refused callers may no longer wait.
        if found.free_bytes >= 2 * found.flush_bytes {
            self.is_refusing.store(false, Ordering::Relaxed);
        }
        let is_refusing = self.is_refusing.load(Ordering::Relaxed);
        let has_more = kept > allowed.kept_bytes + 2 * allowed.segment_bytes;
        let is_short = allowed.flushes || is_refusing || has_more;
        if is_short != self.is_short.swap(is_short, Ordering::Relaxed) {
            debug!(
                ?found,
                needed, kept, "the log of replicas is short, or is not any more"
            );
        }
        *self.seen.lock() = Some(SeenRoom {
            written_bytes,
            allowed,
            taken: 0,
        });
        Some(allowed)
    }

    /// Returns the result of the last check if it is still valid: each of a thousand idle groups
    /// asks every second.
    fn known(&self, written_bytes: u64) -> Option<Allowed> {
        let mut seen = self.seen.lock();
        let is_short = self.is_short();
        let holds = |seen: &&mut SeenRoom| {
            seen.written_bytes == written_bytes && seen.taken < TAKEN_TRIMS && !is_short
        };
        let seen = seen.as_mut().filter(holds)?;
        seen.taken += 1;
        Some(seen.allowed)
    }

    /// Returns whether to flush the table if a check found that necessary: not for each record.
    pub fn asks(&self, least_bytes: u64) -> bool {
        let written = self.written_bytes.load(Ordering::Relaxed);
        let asked = self.asked_bytes.load(Ordering::Relaxed);
        let is_due = asked == 0 || written >= asked + least_bytes;
        if is_due || self.is_refusing.load(Ordering::Relaxed) {
            self.asked_bytes.store(written.max(1), Ordering::Relaxed);
            return true;
        }
        false
    }
}

fn no_room(disk: &DiskRoom, found: FoundRoom) -> String {
    format!(
        "{}: No space left for entries: {} bytes are free, and what is in memory may need {} to be \
         written. Writes continue once it is written, or once old entries are removed; if they do \
         not, make room on the disk",
        disk.dir().display(),
        found.free_bytes,
        found.flush_bytes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn allowed(free_mib: u64, flush_mib: u64, needed_mib: u64) -> Allowed {
        let found = FoundRoom {
            free_bytes: free_mib * MIB,
            flush_bytes: flush_mib * MIB,
        };
        Allowed::of(found, needed_mib * MIB, 64 * MIB)
    }

    #[test]
    fn a_disk_with_free_space_retains_the_requested_log() {
        let found = allowed(100_000, 300, 200);
        assert_eq!(found.kept_bytes, 64 * MIB);
        assert_eq!(found.segment_bytes, SEGMENT_BYTES);
        assert!(!found.flushes && found.is_plenty);
    }

    #[test]
    fn a_log_retains_less_as_the_disk_fills() {
        // A fifth of 250 MiB is needed.
        assert!(!allowed(200, 50, 49).flushes);
        assert!(allowed(200, 50, 51).flushes);
        let found = allowed(200, 50, 51);
        assert_eq!(found.kept_bytes, 25 * MIB);
        assert!(found.segment_bytes < 4 * MIB && found.is_plenty);
        // The flush needs half of the free space: nothing is retained, and the memtable is flushed.
        let tight = allowed(99, 50, 1);
        assert_eq!(tight.kept_bytes, 0);
        assert_eq!(tight.segment_bytes, LEAST_SEGMENT_BYTES);
        assert!(tight.flushes && !tight.is_plenty);
        // There is nothing to flush.
        assert!(!allowed(1, 2, 0).flushes);
    }
}
