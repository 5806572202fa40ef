//! Access to the cluster's store for the runs of loads.

use std::fmt::Debug;
use std::io;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use forebay_engine::{TableName, VersionFile};

/// The cluster's store as a source of staged runs.
pub trait StagedFiles: Debug + Send + Sync {
    /// Reads a whole document; the error is `NotFound` if it does not exist.
    fn document(&self, name: &str) -> io::Result<Bytes>;

    /// Fetches files of a run of a table, at the rate of all fetches of the node. If this fails,
    /// the fetched parts stay.
    fn fetch_copy(
        &self,
        table: &TableName,
        files: &[VersionFile],
        is_over: &AtomicBool,
    ) -> io::Result<()>;

    /// Returns the number of fetched bytes of the files.
    fn came_bytes(&self, files: &[VersionFile]) -> u64;

    /// Removes the fetched parts of the files.
    fn forget(&self, files: &[VersionFile]) -> io::Result<()>;

    /// Returns the free bytes on the disk.
    fn free_bytes(&self) -> Option<u64>;
}
