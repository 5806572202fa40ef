//! The owner's side of a checkpoint: it serves the requests of other processes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use forebay_io::replace_file;

use super::ask::{AskFiles, living_asks};
use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::TableFiles;
use crate::error::{At, StoreError};
use crate::live::LiveTable;
use crate::live::LoadOutcome;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::LiveManifest;
use crate::live::partition::shared::LiveShared;
use crate::name::TableName;
use crate::tables::store::Store;

/// The owner looks for a drop of the table once every this many looks.
const DROP_LOOKS: u64 = 5;

/// A request of another process, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointRequest {
    /// A checkpoint, which was made.
    Checkpoint,
    /// A checkpoint, which could not be made.
    Refused { why: String },
    /// A request to close the table, and not to open it again while [`Store::is_to_be_given_up`] is
    /// true.
    GiveUp,
}

impl Store {
    /// Returns whether another process waits for this live table to be closed. Writes nothing.
    pub fn is_to_be_given_up(&self, name: &TableName) -> Result<bool, StoreError> {
        let path = TableFiles::new(self.root(), name).drop_lock();
        self.disk().is_locked(&path).at("look at", &path)
    }
}

impl LiveTable {
    /// Serves the requests of other processes for this table; see the module `checkpoint`. A
    /// process that keeps tables open should call this several times a second.
    pub fn take_asks(&self) -> Result<Vec<CheckpointRequest>, StoreError> {
        let shared = self.shared();
        shared.take_asks(&shared.names()?)
    }

    /// [`LiveTable::take_asks`] and [`LiveTable::take_load`] with one look at the table's
    /// directory. Writes nothing while there are no requests.
    pub fn take_all(&self) -> Result<(Vec<CheckpointRequest>, Option<LoadOutcome>), StoreError> {
        let shared = self.shared();
        let names = shared.names()?;
        let asked = shared.take_asks(&names)?;
        Ok((asked, shared.take_load(&names)?))
    }
}

impl LiveShared {
    /// Returns the names in the table's directory: each request begins with an entry there.
    pub fn names(&self) -> Result<Vec<String>, StoreError> {
        let dir = &self.files.dir;
        self.disk().list(dir).at("list", dir)
    }

    fn take_asks(&self, names: &[String]) -> Result<Vec<CheckpointRequest>, StoreError> {
        let disk = &**self.disk();
        let mut says_so = self.asks_lock.lock();
        if says_so.is_none() {
            let words = holder_words(disk, &**self.clock(), "it takes what is asked");
            *says_so = try_lock(disk, &self.files.asks_lock(), &words)?.ok();
        }
        // Less often, as it costs more.
        let looks = self.counts.looks.fetch_add(1, Relaxed);
        let is_due = looks.is_multiple_of(DROP_LOOKS);
        if is_due && self.is_to_be_given_up(looks == 0)? {
            return Ok(vec![CheckpointRequest::GiveUp]);
        }
        let mut taken = Vec::new();
        if !names.iter().any(|name| self.files.asks().ends_with(name)) {
            return Ok(taken);
        }
        for ask in living_asks(disk, &**self.clock(), &self.files)? {
            if ask.is_open(disk)? {
                ask.put(disk, "taken", "")?;
                taken.push(self.answer(&ask)?);
            }
        }
        Ok(taken)
    }

    /// Returns whether a process drops the table. The first look creates the lock file: a process
    /// that drops a table on a full disk has no space for it.
    fn is_to_be_given_up(&self, is_first: bool) -> Result<bool, StoreError> {
        if !is_first {
            return self.store.is_to_be_given_up(&self.shape.table);
        }
        let disk = &**self.disk();
        let words = holder_words(disk, &**self.clock(), "a look for who drops the table");
        Ok(try_lock(disk, &self.files.drop_lock(), &words)?.is_err())
    }

    fn answer(&self, ask: &AskFiles) -> Result<CheckpointRequest, StoreError> {
        let disk = &**self.disk();
        match self.checkpoint(&ask.store()) {
            Ok(()) => {
                ask.put(disk, "done", "")?;
                Ok(CheckpointRequest::Checkpoint)
            }
            Err(error) => {
                let why = error.to_string();
                ask.put(disk, "refused", &why)?;
                Ok(CheckpointRequest::Refused { why })
            }
        }
    }

    /// Makes a store at `root` that has this table as it is now.
    fn checkpoint(&self, root: &Path) -> Result<(), LiveError> {
        self.flush()?;
        let (disk, clock, random) = (self.disk(), self.clock(), self.store.random());
        let (disk, clock, random) = (Arc::clone(disk), Arc::clone(clock), Arc::clone(random));
        Store::open_or_create(disk, clock, random, root)?;
        let files = TableFiles::new(root, &self.shape.table);
        let disk = &**self.disk();
        for dir in [files.runs(), files.log_dir()] {
            disk.create_dir_all(&dir).at("create", &dir)?;
        }
        // Runs are removed after a manifest without them is in place. None is replaced while this
        // is held.
        let structure = self.structure.lock();
        let manifest = structure.without_log();
        for run in manifest.files() {
            let of_run = (self.files.run(&run.id), files.run(&run.id));
            disk.link(&of_run.0, &of_run.1).at("link", &of_run.0)?;
            let extent = (self.files.extent(&run.id), files.extent(&run.id));
            if run.summary.ext_bytes > 0 {
                disk.link(&extent.0, &extent.1).at("link", &extent.0)?;
            }
        }
        drop(structure);
        Ok(put_manifest(disk, &files, &manifest)?)
    }
}

/// Puts a manifest in place whose runs exist. From here on the table exists.
pub(super) fn put_manifest(
    disk: &dyn forebay_io::Disk,
    files: &TableFiles,
    manifest: &LiveManifest,
) -> Result<(), StoreError> {
    for dir in [files.runs(), files.log_dir(), files.dir.clone()] {
        disk.sync_dir(&dir).at("sync", &dir)?;
    }
    let path = files.live_manifest();
    let bytes = manifest.to_bytes().map_err(|problem| StoreError::Damaged {
        path: path.clone(),
        problem,
    })?;
    replace_file(disk, &path, &bytes).at("write", &path)
}
