//! Options for opening stores.

use std::path::Path;
use std::sync::Arc;

use forebay_engine::live::Budget;
use forebay_io::{OsDisk, SystemClock, SystemRandom};

use super::error::Error;
use super::store::Store;
use crate::{actor, memory};

/// How to open a store.
///
/// ```
/// # fn main() -> Result<(), forebay::Error> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// let store = forebay::Options::new()
///     .create(true)
///     .live_memory_bytes(64 << 20)
///     .open(dir.path())?;
/// assert!(store.live_tables()?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Options {
    create: bool,
    live_memory_bytes: Option<usize>,
}

impl Options {
    /// Opens an existing store only, with a quarter of the machine's memory for its live tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the store is created if the directory is absent or empty.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Sets the memory, in bytes, for writes to live tables that are not in runs yet, and for the
    /// filters and indexes of their runs. All tables that this store has open share it. At least 1
    /// MiB; the default is a quarter of the machine's or the container's memory.
    #[must_use]
    pub fn live_memory_bytes(mut self, bytes: usize) -> Self {
        self.live_memory_bytes = Some(bytes);
        self
    }

    /// Opens the store in a directory.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Store, Error> {
        let disk = Arc::new(OsDisk::default());
        let quarter = || usize::try_from(memory::quarter(&*disk)).unwrap_or(usize::MAX);
        let budget = Budget::new(self.live_memory_bytes.unwrap_or_else(quarter));
        let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
        let open = match self.create {
            true => forebay_engine::Store::open_or_create,
            false => forebay_engine::Store::open,
        };
        let actor = actor::of_process(&*disk);
        let store = open(disk, clock, random, path.as_ref())?;
        Ok(Store::new(store.acting_as(actor), budget))
    }
}

/// Opens the store in a directory. If there is none, the error is
/// [`ErrorKind::Missing`](crate::ErrorKind::Missing).
pub fn open(path: impl AsRef<Path>) -> Result<Store, Error> {
    Options::new().open(path)
}

/// Opens the store in a directory, and creates it if the directory is absent or empty. A directory
/// with other content is refused.
pub fn open_or_create(path: impl AsRef<Path>) -> Result<Store, Error> {
    Options::new().create(true).open(path)
}
