//! A load of a live table of a cluster, staged in the cluster's store.
//!
//! It consists of its runs and a document that names them. It is complete once the document exists.
//! The cluster then decides whether to add it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use forebay_run::format::RunSummary;
use serde::{Deserialize, Serialize};

use forebay_io::{Lock, replace_file};

use super::offer::{PREFIX, staged, sweep};
use super::{Load, LoadError};
use crate::documents::layout::{TableFiles, extent_file, run_file};
use crate::documents::manifest::RunRef;
use crate::documents::seal::{DocumentError, seal, unseal};
use crate::error::{At, StoreError};
use crate::keys::partition::{PartitionId, PartitionRange};
use crate::live::LiveOptions;
use crate::name::{RunId, TableName};
use crate::publishing::install::VersionFile;
use crate::tables::store::Store;

/// The format number of such documents that this program writes and reads.
const STAGED_FORMAT: u64 = 1;

/// The runs that a load adds to the partitions of its table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedLoad {
    forebay_staged_load: u64,
    pub table: TableName,
    pub id: RunId,
    /// At most one for each partition. A partition without rows has none.
    pub runs: Vec<StagedRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedRun {
    pub partition: PartitionId,
    pub id: RunId,
    /// The summary that was read back before the load was staged.
    pub summary: RunSummary,
}

impl StagedLoad {
    /// Returns the document's name in the store.
    pub fn document(table: &TableName, id: &RunId) -> String {
        format!("tables/{table}/{PREFIX}{id}.staged")
    }

    /// Reads a document. Also returns its checksum, which identifies it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64), DocumentError> {
        unseal(bytes, "forebay_staged_load", STAGED_FORMAT)
    }

    pub fn run(&self, partition: PartitionId) -> Option<&StagedRun> {
        self.runs.iter().find(|run| run.partition == partition)
    }
}

/// The right to stage a load of a table. No other process has it while this lives.
#[derive(Debug)]
pub struct LoadTurn {
    table: TableName,
    files: TableFiles,
    lock: Box<dyn Lock>,
}

impl StagedRun {
    /// Returns its files in the store, which become a run at this path.
    pub fn files(&self, to: &Path) -> Vec<VersionFile> {
        let id = staged(&self.id);
        let file = |name: String, path: PathBuf, len_bytes| VersionFile {
            partition: self.partition,
            run: self.id.clone(),
            name,
            path,
            len_bytes,
        };
        let extent_bytes = self.summary.ext_bytes;
        let extent = || file(extent_file(&id), to.with_extension("ext"), extent_bytes);
        let run = file(run_file(&id), to.to_path_buf(), self.summary.file_bytes);
        let extent = (extent_bytes > 0).then(extent);
        extent.into_iter().chain([run]).collect()
    }
}

impl Store {
    /// Keeps other processes from staging a load of a live table of the store's cluster. Waits some
    /// seconds if one is being built.
    pub fn take_load_turn(&self, name: &TableName) -> Result<LoadTurn, LoadError> {
        let files = TableFiles::new(self.root(), name);
        let (disk, runs) = (&**self.disk(), files.runs());
        disk.create_dir_all(&runs).at("create", &runs)?;
        let lock = self.lock_load(name, &files)?;
        Ok(LoadTurn {
            table: name.clone(),
            files,
            lock,
        })
    }

    /// Begins to stage a load; options and partitions come from the table's catalog. Files of
    /// earlier loads are removed. REQUIRES: no earlier load is in progress in the cluster, not even
    /// one whose command has died.
    pub fn stage_load(
        &self,
        turn: LoadTurn,
        options: &LiveOptions,
        partitions: Vec<PartitionRange>,
    ) -> Result<Load, LoadError> {
        let LoadTurn { table, files, lock } = turn;
        let (disk, runs) = (&**self.disk(), files.runs());
        // In object storage the working directory is created only now.
        disk.create_dir_all(&runs).at("create", &runs)?;
        sweep(disk, &files)?;
        Ok(Load {
            store: self.clone(),
            table,
            files,
            id: RunId::plain(format!("{:016x}", self.random().next_u64())),
            table_id: 0,
            partitions,
            options: options.clone(),
            is_left: false,
            is_shared: false,
            lock,
        })
    }

    /// Removes the files of loads of a table of the store's cluster, unless one is being built.
    pub fn remove_staged(&self, name: &TableName) -> Result<(), LoadError> {
        let files = TableFiles::new(self.root(), name);
        let disk = &**self.disk();
        let left = match disk.list(&files.runs()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            names => names.at("list", &files.runs())?,
        };
        if !left.iter().any(|name| name.starts_with(PREFIX)) {
            return Ok(());
        }
        let _lock = self.lock_load(name, &files)?;
        Ok(sweep(disk, &files)?)
    }
}

impl Load {
    /// Finishes a staged load: from now on the store has it complete. Returns its id, and the
    /// checksum of its document.
    pub fn stage(&self, runs: &[(PartitionId, RunRef)]) -> Result<(RunId, u64), StoreError> {
        debug_assert!(
            runs.iter().map(|(id, _)| id).collect::<BTreeSet<_>>().len() == runs.len(),
            "load {} has several runs of one partition",
            self.id
        );
        let disk = &**self.store.disk();
        let dir = self.files.runs();
        disk.sync_dir(&dir).at("sync", &dir)?;
        let path = self
            .store
            .root()
            .join(StagedLoad::document(&self.table, &self.id));
        let staged = StagedLoad {
            forebay_staged_load: STAGED_FORMAT,
            table: self.table.clone(),
            id: self.id.clone(),
            runs: runs
                .iter()
                .map(|(partition, run)| StagedRun {
                    partition: *partition,
                    id: run.id.clone(),
                    summary: run.summary,
                })
                .collect(),
        };
        let sealed = seal(&staged).map_err(|problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        });
        let (bytes, sum) = sealed?;
        replace_file(disk, &path, &bytes).at("write", &path)?;
        Ok((self.id.clone(), sum))
    }

    /// Ends this handle and keeps the load's files: it is unknown whether the cluster adds it.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}
