//! A load of a live table of a cluster, as it lies in the cluster's store: its runs, and a
//! document that names them. It is whole once the document is there. What becomes of it is for the
//! cluster to decide.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use forebay_run::format::RunSummary;
use serde::{Deserialize, Serialize};

use forebay_io::{Lock, replace_file};

use super::offer::{PREFIX, staged, sweep};
use super::{Load, LoadError};
use crate::error::{At, StoreError};
use crate::install::VersionFile;
use crate::layout::{TableFiles, extent_file, run_file};
use crate::live::LiveOptions;
use crate::manifest::RunRef;
use crate::name::{RunId, TableName};
use crate::partition::{PartitionId, PartitionRange};
use crate::seal::{DocumentError, seal, unseal};
use crate::store::Store;

/// The format number of such documents that this program writes and reads.
const STAGED_FORMAT: u64 = 1;

/// What a load adds to the partitions of its table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedLoad {
    forebay_staged_load: u64,
    pub table: TableName,
    pub id: RunId,
    /// One a partition at most; a partition without rows has none.
    pub runs: Vec<StagedRun>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StagedRun {
    pub partition: PartitionId,
    pub id: RunId,
    /// What was read back of it before it was staged.
    pub summary: RunSummary,
}

impl StagedLoad {
    /// The document's name in the store.
    pub fn document(table: &TableName, id: &RunId) -> String {
        format!("tables/{table}/{PREFIX}{id}.staged")
    }

    /// With the document's checksum, which identifies it.
    pub fn parse(bytes: &[u8]) -> Result<(Self, u64), DocumentError> {
        unseal(bytes, "forebay_staged_load", STAGED_FORMAT)
    }

    pub fn run(&self, partition: PartitionId) -> Option<&StagedRun> {
        self.runs.iter().find(|run| run.partition == partition)
    }
}

/// Nobody else stages a load of a table while this lives.
#[derive(Debug)]
pub struct LoadTurn {
    table: TableName,
    files: TableFiles,
    lock: Box<dyn Lock>,
}

impl StagedRun {
    /// Its files in the store, that come to be a run at this path.
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
    /// Keeps others from beginning to stage a load of a live table of the cluster that the store
    /// belongs to. Waits some seconds for one that is being built.
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

    /// Begins to stage a load; the table is as its catalog says. What earlier loads left is
    /// removed. REQUIRES: none of them is under way in the cluster, also none whose command has
    /// died.
    pub fn stage_load(
        &self,
        turn: LoadTurn,
        options: &LiveOptions,
        partitions: Vec<PartitionRange>,
    ) -> Result<Load, LoadError> {
        let LoadTurn { table, files, lock } = turn;
        let (disk, runs) = (&**self.disk(), files.runs());
        // In object storage the place of work is made only now.
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

    /// Removes what loads of a table of the store's cluster left, unless one is being built.
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
    /// Finishes a staged load: from now on the store has it whole. Returns its id, and the checksum
    /// of its document.
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

    /// Ends here, and leaves its files: nobody knows whether the cluster goes on with it.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}
