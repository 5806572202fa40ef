//! A moment of a live table as a store of its own, whether another process has the table open or
//! not; and asking that process to give a table up.
//!
//! Runs never change, so a moment of a table is a manifest and links to the files of runs. Whoever
//! has the table open makes them, when asked to; nobody has, then who asks opens it. Asking goes by
//! files, in a directory of its own for each who asks:
//!
//! 1. Who asks makes `asks/ID/lock`, which it holds for as long as it wants the answer, then
//!    `asks/ID/ask`.
//! 2. The owner writes what is in memory to runs, makes the store `asks/ID/store` with links to the
//!    runs, and last `asks/ID/done`; or `asks/ID/refused`, which says why.
//! 3. Who asked reads the store, or copies it, and removes `asks/ID`.
//!
//! Who drops a table holds `drop.lock`, which needs no space; the owner closes the table then, and
//! `live.lock` is free.
//!
//! An owner that does what is asked holds `asks.lock`; where nobody does, who asks gives up soon.
//!
//! A directory whose lock nobody holds is left by a process that died; it is removed by the next
//! who looks.

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

use crate::error::StoreError;
use crate::holder::{holder_words, lock_within, try_lock};
use crate::layout::TableFiles;
use crate::live::{Budget, LiveError};
use crate::name::TableName;
use crate::store::Store;
pub(crate) use ask::sweep_asks;
use ask::{AskFiles, POLL, patience};
pub use take::CheckpointRequest;

/// How long a drop waits for another one, or for an owner's look whether there is one.
const DROPS: Duration = Duration::from_secs(10);

/// A moment of a live table was not to be had.
#[derive(Debug, Error)]
pub enum CheckpointError {
    #[error(
        "live table {table} is in use: {holder}; that process does not do what it is asked: end it, or have \
         forebay serve serve the table, then try again"
    )]
    NotTaken { table: TableName, holder: String },
    #[error("no checkpoint of table {table} was made: {why}")]
    Refused { table: TableName, why: String },
    #[error("{} lies in the directory of a store: name one that is outside of it", dir.display())]
    Inside { dir: PathBuf },
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A moment of a live table, for as long as this is held. It takes room only for what is merged
/// away meanwhile.
#[derive(Debug)]
pub struct Checkpoint {
    asking: RequestDir,
    store: Store,
}

/// A directory in which something is asked; dropped, it is removed.
#[derive(Debug)]
struct RequestDir {
    store: Store,
    table: TableName,
    files: AskFiles,
    _lock: Box<dyn Lock>,
}

impl Store {
    /// A moment of a live table: all that was written to it before, and nothing that is written
    /// after this returns. `budget` is for opening the table where nobody has it open.
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
                // What comes of it is told by the files, as it is by another owner.
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

    /// Has the process that has a live table open give it up, if one has, for as long as `then`
    /// takes. Takes no space but where the table was never open.
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

/// How a look at the answer ended: what came of it, or who has the table and why it is not known.
type CheckpointAnswer = Option<Result<(), (Option<String>, String)>>;

/// How often asking is begun anew whose directory was taken for one that a dead process left.
const BEGINNINGS: usize = 10;

/// Whether somebody took the directory away before it was locked.
fn was_swept(error: &StoreError) -> bool {
    match error {
        StoreError::Locked { .. } => true,
        StoreError::Io { source, .. } => source.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

impl RequestDir {
    /// Between the making of its directory and the lock in it anybody may sweep it away.
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

    /// Looks until an answer is there; who has the table is given some seconds.
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

    /// What came of it, once that is known.
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
    /// The store that has the table as it was, and nothing else.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The table in it, to be copied.
    pub fn table(&self) -> Result<TableCheckpoint, LiveError> {
        TableCheckpoint::of_store(&self.store, &self.asking.table)
    }

    /// Copies it into the store at `root`, which is made if there is none. Files are linked where
    /// both lie on one file system, and copied elsewhere; `advance` is told of their bytes. The
    /// table is there whole or not at all.
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
