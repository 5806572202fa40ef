//! The cluster's store, as the runs of loads are brought from it.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use forebay_engine::{TableName, VersionFile};

/// See the module's text.
pub trait StagedFiles: Debug + Send + Sync {
    /// A whole document; `NotFound` where there is none.
    fn document(&self, name: &str) -> io::Result<Bytes>;

    /// Brings files of a run of a table, at the pace of all that the node brings. What came stays
    /// when this fails.
    fn fetch_copy(
        &self,
        table: &TableName,
        files: &[VersionFile],
        is_over: &AtomicBool,
    ) -> io::Result<()>;

    /// How many bytes of them have come.
    fn came_bytes(&self, files: &[VersionFile]) -> u64;

    /// Removes what came of them.
    fn forget(&self, files: &[VersionFile]) -> io::Result<()>;

    /// Bytes that are free on the disk.
    fn free_bytes(&self) -> Option<u64>;
}
