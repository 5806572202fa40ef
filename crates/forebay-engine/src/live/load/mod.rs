//! Bulk loads of a live table, whether another process has it open or not.
//!
//! A loader writes runs beside those of the table and offers them. The process that has the table
//! open (the owner) takes them. This is a server, which looks for offers. If no process has the
//! table open, the loader opens it itself. A table has one load at a time: the loader holds the
//! push lock.
//!
//! 1. The loader writes `runs/load-ID.run`, one a partition, then `load-ID.offer`, which lists
//!    them.
//! 2. The owner renames the offer to `load-ID.taken`. From here on the loader cannot withdraw it.
//! 3. The owner renames the runs to `runs/ID.run` and adds them ([`LiveTable::ingest`]). The one
//!    replacement of the manifest that adds them also names the load.
//! 4. The owner renames `load-ID.taken` to `load-ID.done`, or to `load-ID.refused` beside a
//!    `load-ID.why`. Neither rename needs space, so a full disk is reported, too.
//!
//! Whichever process dies, the load is in the manifest or it is not. The owner takes an offer only
//! while its loader lives. If the owner dies, the next owner continues from step 2. A manifest that
//! names the load shows that step 3 is done. Opening a table keeps the load's runs. The next load,
//! or the next opening of the table, removes what a dead loader leaves.
//!
//! A live table of a cluster is open on its nodes, and the cluster's store has none of its data.
//! There a load is only staged (`staged`): the nodes fetch the runs, and the groups decide. Other
//! processes may write its runs; they need a `ticket` and no lock.

mod offer;
mod staged;
mod take;
mod ticket;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_io::{Disk, Lock, replace_file};
use forebay_run::format::RunOptions;
use thiserror::Error;
use tracing::warn;

use crate::documents::holder::lock_within;
use crate::documents::layout::TableFiles;
use crate::error::{At, StoreError};
use crate::keys::partition::{PartitionId, PartitionRange};
use crate::live::{Budget, IngestRun, LiveError, LiveOptions, LiveTable};
use crate::name::{RunId, TableName};
use crate::publishing::cleanup::remove_uploads;
use crate::publishing::push::NewRun;
use crate::tables::store::Store;
pub(crate) use offer::kept_for_load;
use offer::{Offer, OfferState, file_of, staged, sweep};
pub use staged::{LoadTurn, StagedLoad, StagedRun};
pub use take::LoadOutcome;
pub use ticket::LoadTicket;

/// How long an offer may wait while a process has the table open: a server looks several times a
/// second.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// How long a loader waits for its lock. A process that opens the table holds it for a moment, to
/// remove what a dead load left.
const CLEANING: Duration = Duration::from_secs(1);

/// A load that failed. Nothing of it was added, unless the text says that this is unknown.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error(
        "table {table} is a batch table, which consists of whole versions: add the rows with \
         forebay push"
    )]
    Batch { table: TableName },
    #[error(
        "another load of table {table} is under way: {holder}; wait for it to end, or end that process: \
         nothing of its load is added then"
    )]
    Busy { table: TableName, holder: String },
    #[error(
        "table {table} is in use: {holder}; that process takes no loads: end it, or have forebay serve \
         serve the table, then load again"
    )]
    NotTaken { table: TableName, holder: String },
    #[error("the load was not added to table {table}: {why}")]
    Refused { table: TableName, why: String },
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A load in progress. If it is dropped before its end, all its files are removed.
#[derive(Debug)]
pub struct Load {
    store: Store,
    table: TableName,
    files: TableFiles,
    id: RunId,
    table_id: u64,
    options: LiveOptions,
    partitions: Vec<PartitionRange>,
    /// Whether its files stay when it is dropped.
    is_left: bool,
    /// Whether other processes write runs of it, too.
    is_shared: bool,
    lock: Box<dyn Lock>,
}

impl Store {
    /// Begins to load a live table. During another load of it, this is refused with the holder's
    /// description.
    pub fn begin_load(&self, name: &TableName) -> Result<Load, LoadError> {
        let table = name.clone();
        if !self.is_live(name)? {
            return Err(match self.table(name).is_ok() {
                true => LoadError::Batch { table },
                false => LiveError::NoTable { table }.into(),
            });
        }
        let files = TableFiles::new(self.root(), name);
        let lock = self.lock_load(name, &files)?;
        sweep(&**self.disk(), &files)?;
        let manifest = self.read_live_manifest(name, &files)?;
        let manifest = manifest.ok_or_else(|| LiveError::NoTable {
            table: table.clone(),
        })?;
        Ok(Load {
            store: self.clone(),
            table,
            files,
            id: RunId::plain(format!("{:016x}", self.random().next_u64())),
            table_id: manifest.table_id,
            partitions: manifest.ranges(),
            options: manifest.options,
            is_left: false,
            is_shared: false,
            lock,
        })
    }

    fn lock_load(&self, name: &TableName, files: &TableFiles) -> Result<Box<dyn Lock>, LoadError> {
        let path = files.push_lock();
        let lock = lock_within(&**self.disk(), &**self.clock(), &path, "a load", CLEANING)?;
        lock.map_err(|holder| LoadError::Busy {
            table: name.clone(),
            holder,
        })
    }
}

impl Load {
    pub fn table(&self) -> &TableName {
        &self.table
    }

    pub fn options(&self) -> &LiveOptions {
        &self.options
    }

    /// Returns the partitions that the runs are for, in the table's order: those of the table when
    /// the load began, unless `repartition` has replaced them.
    pub fn partitions(&self) -> &[PartitionRange] {
        &self.partitions
    }

    /// Replaces the partitions by those that the cluster's catalog has now.
    pub fn repartition(&mut self, partitions: Vec<PartitionRange>) {
        self.partitions = partitions;
    }

    /// Returns an id and a path for a run of a partition. Each call returns another one.
    pub fn new_run(&self, partition: PartitionId) -> NewRun {
        let chance = self.store.random().next_u64();
        let id = RunId::plain(format!("{:05}-{chance:016x}", partition.0));
        let path = self.files.run(&staged(&id));
        NewRun { id, path }
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        self.store.disk()
    }

    /// Returns the options for such runs; the writer chooses sizes of pages and filters.
    pub fn run_options(&self) -> RunOptions {
        let prefix = self.table.wire_prefix();
        RunOptions::new(self.options.order, self.options.compression, &prefix)
    }

    /// Returns a directory for spill files, created if absent. It is removed with the load.
    pub fn scratch_dir(&self) -> Result<PathBuf, StoreError> {
        let scratch = self.files.scratch();
        let made = self.store.disk().create_dir_all(&scratch);
        made.at("create", &scratch)?;
        Ok(scratch)
    }

    /// Adds finished, synced runs to the table at one moment of its history, and returns once that
    /// is durable. `budget` is used to open the table if no process has it open.
    pub fn add(self, runs: &[IngestRun], budget: &Arc<Budget>) -> Result<(), LoadError> {
        self.offer(runs)?;
        let clock = self.store.clock();
        let began = clock.monotonic();
        loop {
            if let Some(outcome) = self.outcome()? {
                return outcome;
            }
            match self.store.live_table(&self.table, budget) {
                Ok(table) => {
                    // The files report the outcome, as with another owner.
                    table.take_load()?;
                    return self.outcome()?.unwrap_or_else(|| {
                        Err(self.refused("its files were removed meanwhile".to_owned()))
                    });
                }
                Err(LiveError::Store(StoreError::InUse { holder, .. })) => {
                    let waited = clock.monotonic().saturating_sub(began);
                    if waited > PATIENCE && self.withdraw()? {
                        let table = self.table.clone();
                        return Err(LoadError::NotTaken { table, holder });
                    }
                }
                Err(error) => return Err(error.into()),
            }
            clock.sleep(POLL);
        }
    }

    fn offer(&self, runs: &[IngestRun]) -> Result<(), StoreError> {
        let disk = &**self.store.disk();
        let dir = self.files.runs();
        disk.sync_dir(&dir).at("sync", &dir)?;
        let offer = Offer::new(self.id.clone(), self.table_id, runs);
        let path = file_of(&self.files, &self.id, OfferState::Offer);
        let bytes = offer.to_bytes().map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        })?;
        replace_file(disk, &path, &bytes).at("write", &path)
    }

    /// Returns the outcome of the offer, once it is known.
    fn outcome(&self) -> Result<Option<Result<(), LoadError>>, StoreError> {
        let disk = self.store.disk();
        let file = |state| file_of(&self.files, &self.id, state);
        let (done, refused) = (file(OfferState::Done), file(OfferState::Refused));
        if disk.exists(&done).at("look for", &done)? {
            return Ok(Some(Ok(())));
        }
        if !disk.exists(&refused).at("look for", &refused)? {
            return Ok(None);
        }
        let why = disk.read(&file(OfferState::Why));
        let why = why.map_or_else(
            |_| "its log says why".to_owned(),
            |text| String::from_utf8_lossy(&text).into_owned(),
        );
        Ok(Some(Err(self.refused(why))))
    }

    fn refused(&self, why: String) -> LoadError {
        let table = self.table.clone();
        LoadError::Refused { table, why }
    }

    /// Withdraws the offer, if no owner has taken it.
    fn withdraw(&self) -> Result<bool, StoreError> {
        let file = |state| file_of(&self.files, &self.id, state);
        let (from, to) = (file(OfferState::Offer), file(OfferState::Withdrawn));
        match self.store.disk().rename(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).at("rename", &from),
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if self.is_left {
            return;
        }
        let disk = &**self.store.disk();
        let removed = sweep(disk, &self.files).and_then(|()| match self.is_shared {
            true => remove_uploads(disk, &self.files),
            false => Ok(()),
        });
        if let Err(error) = removed {
            let table = &self.table;
            warn!(%table, %error, "an ended load left files; the next load removes them");
        }
    }
}

impl LiveTable {
    /// Takes a waiting load and adds it to this table, if there is one; see the module `load`. A
    /// process that keeps tables open should call this several times a second.
    pub fn take_load(&self) -> Result<Option<LoadOutcome>, StoreError> {
        let shared = self.shared();
        shared.take_load(&shared.names()?)
    }
}

#[cfg(test)]
mod tests;
