//! Checkpoints: a moment of a live table as a store of its own.
//!
//! They work whether another process has the table open or not. This module also lets a process ask
//! the owner to close a table.
//!
//! Runs never change, so a moment of a table is a manifest and links to the files of runs. The
//! process that has the table open (the owner) makes them on request. If no process has it open,
//! the asker opens it. A request is made by files, in a directory of its own for each asker:
//!
//! 1. The asker makes `asks/ID/lock`, and holds it for as long as it wants the answer. Then it
//!    makes `asks/ID/ask`.
//! 2. The owner writes memory to runs, makes the store `asks/ID/store` with links to the runs, and
//!    last `asks/ID/done`; or `asks/ID/refused`, which says why.
//! 3. The asker reads the store, or copies it, and removes `asks/ID`.
//!
//! A process that drops a table holds `drop.lock`, which needs no space. The owner then closes the
//! table, and `live.lock` is free.
//!
//! An owner that serves requests holds `asks.lock`. If no process holds it, the asker gives up
//! soon.
//!
//! A directory whose lock is free was left by a dead process. The next process that looks removes
//! it.

mod ask;
mod copy;
mod part;
mod run_files;
mod take;
mod whole;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_io::Lock;
use thiserror::Error;
use tracing::warn;

use crate::documents::holder::{holder_words, lock_within, try_lock};
use crate::documents::layout::TableFiles;
use crate::error::StoreError;
use crate::live::{Budget, LiveError};
use crate::name::TableName;
use crate::tables::store::Store;
pub(crate) use ask::sweep_asks;
use ask::{AskFiles, POLL, patience};
pub use take::CheckpointRequest;

/// How long a drop waits for another one, or for the owner to look for it.
const DROPS: Duration = Duration::from_secs(10);

/// The reason why a checkpoint of a live table failed.
#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error(
        "live table {table} is in use: {holder}; that process does not do what it is asked: end it, or have \
         forebay serve serve the table, then try again"
    )]
    NotTaken { table: TableName, holder: String },
    #[error("no checkpoint of table {table} was made: {why}")]
    Refused { table: TableName, why: String },
    #[error("{} is in the directory of a store: name one outside of it", dir.display())]
    Inside { dir: PathBuf },
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A moment of a live table, for as long as this is held. It takes space only for runs that are
/// merged away meanwhile.
#[derive(Debug)]
pub struct Checkpoint {
    asking: RequestDir,
    store: Store,
}

/// The directory of a request. Dropping it removes the directory.
#[derive(Debug)]
struct RequestDir {
    store: Store,
    table: TableName,
    files: AskFiles,
    _lock: Box<dyn Lock>,
}

impl Store {
    /// Makes a checkpoint of a live table. It has everything that was written before the call, and
    /// nothing that is written after it returns. `budget` is used to open the table if no process
    /// has it open.
    pub fn checkpoint(
        &self,
        name: &TableName,
        budget: &Arc<Budget>,
    ) -> Result<Checkpoint, CheckpointError> {
        if !self.is_live(name)? {
            let table = name.clone();
            return Err(LiveError::NoTable { table }.into());
        }
        let asking = RequestDir::begin(self, name)?;
        asking.wait(|asking| match self.live_table(name, budget) {
            Ok(table) => {
                // The files report the outcome, as with another owner.
                table.take_asks()?;
                Ok(asking
                    .outcome()?
                    .map(|outcome| outcome.map_err(|why| (None, why))))
            }
            Err(LiveError::Store(StoreError::InUse { holder, .. })) => match asking.outcome()? {
                Some(Ok(())) => Ok(Some(Ok(()))),
                Some(Err(why)) => Ok(Some(Err((None, why)))),
                None => Ok(Some(Err((Some(holder), String::new())))),
            },
            Err(error) => Err(error.into()),
        })?;
        let (disk, clock, random) = (self.disk(), self.clock(), self.random());
        let root = asking.files.store();
        let store = Store::open(
            Arc::clone(disk),
            Arc::clone(clock),
            Arc::clone(random),
            &root,
        )?;
        Ok(Checkpoint { asking, store })
    }

    /// Asks the process that has a live table open, if any, to close it, for as long as `then`
    /// runs. Takes no space unless the table was never open.
    pub(crate) fn given_up<R>(
        &self,
        name: &TableName,
        then: impl FnOnce(Box<dyn Lock>) -> Result<R, StoreError>,
    ) -> Result<R, StoreError> {
        let files = TableFiles::new(self.root(), name);
        let (disk, clock) = (&**self.disk(), &**self.clock());
        let table = || name.clone();
        let is_there = || Ok::<_, StoreError>(self.is_live(name)? || self.was_live(name)?);
        let gone = |error| match is_there() {
            Ok(false) => StoreError::NoTable { table: table() },
            _ => error,
        };
        let words = "a drop";
        let asking = lock_within(disk, clock, &files.drop_lock(), words, DROPS).map_err(gone)?;
        let _asking = asking.map_err(|holder| StoreError::PushRuns {
            table: table(),
            holder,
        })?;
        let began = clock.monotonic();
        let words = holder_words(disk, clock, words);
        loop {
            if !is_there()? {
                return Err(StoreError::NoTable { table: table() });
            }
            match try_lock(disk, &files.live_lock(), &words).map_err(gone)? {
                Ok(lock) => return then(lock),
                Err(holder) => {
                    let waited = clock.monotonic().saturating_sub(began);
                    if waited >= patience(disk, clock, &files)? {
                        let table = table();
                        return Err(StoreError::InUse { table, holder });
                    }
                }
            }
            clock.sleep(POLL);
        }
    }
}

/// The outcome of a look for the answer: the result, or the table's owner and why the result is
/// unknown.
type CheckpointAnswer = Option<Result<(), (Option<String>, String)>>;

/// How many times a request is retried after another process removed its directory as abandoned.
const BEGINNINGS: usize = 10;

/// Returns whether another process removed the directory before it was locked.
fn was_swept(error: &StoreError) -> bool {
    match error {
        StoreError::Locked { .. } => true,
        StoreError::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

impl RequestDir {
    /// Creates the directory and its lock. In between, any process may remove the directory.
    fn begin(store: &Store, table: &TableName) -> Result<Self, StoreError> {
        let dir = TableFiles::new(store.root(), table);
        sweep_asks(&**store.disk(), &**store.clock(), &dir)?;
        for _ in 1..BEGINNINGS {
            match Self::try_begin(store, table, &dir) {
                Err(error) if was_swept(&error) => {}
                begun => return begun,
            }
        }
        Self::try_begin(store, table, &dir)
    }

    fn try_begin(store: &Store, table: &TableName, dir: &TableFiles) -> Result<Self, StoreError> {
        let disk = &**store.disk();
        let id = format!("{:016x}", store.random().next_u64());
        let files = AskFiles::new(dir, &id);
        files.create(disk)?;
        let words = holder_words(disk, &**store.clock(), "a checkpoint");
        let lock = try_lock(disk, &files.lock(), &words)?;
        let lock = lock.map_err(|holder| StoreError::Locked {
            path: files.lock(),
            holder,
        })?;
        let asking = Self {
            store: store.clone(),
            table: table.clone(),
            files,
            _lock: lock,
        };
        asking.files.put(disk, "ask", "")?;
        Ok(asking)
    }

    /// Waits for an answer. The owner gets some seconds.
    fn wait(
        &self,
        look: impl Fn(&Self) -> Result<CheckpointAnswer, CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let clock = self.store.clock();
        let began = clock.monotonic();
        let table = || self.table.clone();
        loop {
            match look(self)? {
                Some(Ok(())) => return Ok(()),
                Some(Err((None, why))) => {
                    return Err(CheckpointError::Refused {
                        table: table(),
                        why,
                    });
                }
                Some(Err((Some(holder), _))) => {
                    let waited = clock.monotonic().saturating_sub(began);
                    if waited > self.patience()? && !self.files.is_taken(&**self.store.disk())? {
                        let table = table();
                        return Err(CheckpointError::NotTaken { table, holder });
                    }
                }
                None => {}
            }
            clock.sleep(POLL);
        }
    }

    fn patience(&self) -> Result<Duration, StoreError> {
        let files = TableFiles::new(self.store.root(), &self.table);
        patience(&**self.store.disk(), &**self.store.clock(), &files)
    }

    /// Returns the outcome, once it is known.
    fn outcome(&self) -> Result<Option<Result<(), String>>, StoreError> {
        self.files.outcome(&**self.store.disk())
    }
}

impl Drop for RequestDir {
    fn drop(&mut self) {
        if let Err(error) = self.files.remove(&**self.store.disk()) {
            let table = &self.table;
            warn!(%table, %error, "files of a checkpoint stay; the next one removes them");
        }
    }
}

impl Checkpoint {
    /// Returns the store that has the table as it was, and nothing else.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Returns the table in it, to be copied.
    pub fn table(&self) -> Result<TableCheckpoint, LiveError> {
        TableCheckpoint::of_store(&self.store, &self.asking.table)
    }

    /// Copies the checkpoint into the store at `root`, which is created if absent. Files are linked
    /// within one file system, and copied otherwise; `advance` gets their bytes. After a crash the
    /// table exists as a whole or not at all.
    pub fn copy_to(
        &self,
        root: &Path,
        advance: &mut dyn FnMut(u64),
    ) -> Result<CheckpointCopy, CheckpointError> {
        let store = &self.store;
        let parts = (store.disk(), store.clock(), store.random());
        let parts = (
            Arc::clone(parts.0),
            Arc::clone(parts.1),
            Arc::clone(parts.2),
        );
        self.table()?.copy_to(parts, root, advance)
    }
}

pub use copy::CheckpointCopy;
pub(crate) use copy::{copy_file, is_below};
pub use part::PartCheckpoint;
pub(crate) use run_files::DiskFiles;
pub use run_files::RunFiles;
pub use whole::{CheckpointRun, JoinError, TableCheckpoint};

#[cfg(test)]
mod tests;
