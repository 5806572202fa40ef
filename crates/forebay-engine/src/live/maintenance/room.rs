//! The free space that flushes need on a table's disk.
//!
//! Memory must be flushed to runs before logs can be shortened, so this space is reserved. Merges
//! end before they use it, and logs of replicas take no entries.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::Disk;
use forebay_run::RunError;

use crate::live::LiveTable;
use crate::live::basics::error::LiveError;
use crate::live::partition::budget::Budget;
use crate::live::partition::shared::LiveShared;

/// The space that flushes need besides the bytes in memory: manifests, and pages that are not full.
const EXTRA_BYTES: u64 = 2 << 20;
/// A merge checks the free space each time that it has written this much.
pub(crate) const MERGE_LOOK_BYTES: u64 = 1 << 20;

/// A handle to the disk of a table. It does not keep the table open.
#[derive(Debug, Clone)]
pub struct DiskRoom {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    budget: Arc<Budget>,
}

/// The space at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundRoom {
    pub free_bytes: u64,
    /// The space that flushes of all tables of the budget together may need.
    pub flush_bytes: u64,
}

impl FoundRoom {
    /// Returns the free space besides that.
    pub fn spare_bytes(&self) -> u64 {
        self.free_bytes.saturating_sub(self.flush_bytes)
    }
}

impl DiskRoom {
    /// Returns the space; `None` if the free space is unknown.
    pub fn look(&self) -> Option<FoundRoom> {
        let free_bytes = self.disk.free_bytes(&self.dir).ok().flatten()?;
        let memory_bytes = self.budget.write_bytes() as u64;
        Some(FoundRoom {
            free_bytes,
            flush_bytes: memory_bytes + memory_bytes / 4 + EXTRA_BYTES,
        })
    }

    /// Returns the directory of the table.
    pub fn dir(&self) -> &std::path::Path {
        &self.dir
    }

    /// Asks tables of the budget with much memory to flush.
    pub fn ask_for_flushes(&self) {
        self.budget.ask_great_ones();
    }
}

impl LiveTable {
    /// Returns a handle to the table's disk.
    pub fn disk_room(&self) -> DiskRoom {
        self.shared().disk_room()
    }
}

impl LiveShared {
    fn disk_room(&self) -> DiskRoom {
        DiskRoom {
            disk: Arc::clone(self.disk()),
            dir: self.files.dir.clone(),
            budget: Arc::clone(self.budget()),
        }
    }

    /// Ends a merge that would use the space that flushes need. It is tried again later.
    pub fn check_merge_room(&self) -> Result<(), LiveError> {
        let room = self.disk_room();
        let Some(found) = room.look().filter(|found| found.spare_bytes() == 0) else {
            return Ok(());
        };
        room.ask_for_flushes();
        let what = format!(
            "no room to merge runs: {} bytes are free, of which what is in memory may need {}",
            found.free_bytes, found.flush_bytes
        );
        let full = io::Error::new(io::ErrorKind::StorageFull, what);
        let error = RunError::io(&self.files.runs(), "write to", full);
        Err(self.shape.run_error(error))
    }
}
