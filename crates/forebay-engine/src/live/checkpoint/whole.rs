//! A moment of a whole live table, which can be copied into a store or a backup.
//!
//! Its files may be in a store, on the nodes of a cluster, or in a backup.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use forebay_run::format::RunSummary;
use thiserror::Error;

use super::copy::copy_file;
use super::run_files::{DiskFiles, JoinedFiles, RunFiles};
use crate::documents::layout::{TableFiles, extent_file, run_file};
use crate::documents::seal::DocumentError;
use crate::error::At;
use crate::keys::partition::{Bounds, FIRST_EPOCH, PartitionRange, check_whole};
use crate::keys::route::Router;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::{LiveManifest, LivePartition};
use crate::live::{LiveOptions, Load};
use crate::name::{RunId, TableName};
use crate::publishing::push::NewRun;
use crate::tables::store::Store;

/// A run of a checkpoint that has one run a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointRun {
    /// The bounds of its partition.
    pub bounds: Bounds,
    pub id: RunId,
    pub summary: RunSummary,
}

/// A moment of a whole table.
#[derive(Debug, Clone)]
pub struct TableCheckpoint {
    pub(crate) manifest: LiveManifest,
    pub(crate) files: Arc<dyn RunFiles>,
}

/// The reason why parts do not make a whole table.
#[derive(Debug, Error)]
pub enum JoinError {
    #[error("there is no part")]
    Empty,
    #[error("a part cannot be read: {0}")]
    Unreadable(#[from] DocumentError),
    #[error("a part is of table {found}, another one of {table}")]
    Other { table: TableName, found: TableName },
    /// Partitions have moved, or were split, while the parts were made. Make the parts again.
    #[error("the parts do not make the whole table: {0}")]
    NotWhole(String),
}

impl TableCheckpoint {
    /// Joins the parts that several open tables have of one table: the bytes of each
    /// [`PartCheckpoint`](super::PartCheckpoint), and where its files are. The result is a table of
    /// a single store, without replicas and their log.
    pub fn join(parts: Vec<(Vec<u8>, Arc<dyn RunFiles>)>) -> Result<Self, JoinError> {
        let mut whole: Option<LiveManifest> = None;
        let mut files = HashMap::new();
        for (bytes, of_part) in parts {
            let (part, _) = LiveManifest::parse(&bytes)?;
            for run in part.files() {
                files.insert(run.id.clone(), Arc::clone(&of_part));
            }
            match &mut whole {
                None => whole = Some(part),
                Some(whole) if whole.table != part.table => {
                    let (table, found) = (whole.table.clone(), part.table);
                    return Err(JoinError::Other { table, found });
                }
                Some(whole) => whole.partitions.extend(part.partitions),
            }
        }
        let mut manifest = whole.ok_or(JoinError::Empty)?;
        manifest.options.replication = None;
        for partition in &mut manifest.partitions {
            partition.applied = None;
            partition.epoch = FIRST_EPOCH;
        }
        let lower = |partition: &LivePartition| partition.bounds.lower.clone();
        manifest.partitions.sort_by_key(lower);
        let bounds = manifest.partitions.iter();
        check_whole(
            manifest.options.order,
            bounds.map(|partition| &partition.bounds),
        )
        .and_then(|()| manifest.check_partitions())
        .map_err(JoinError::NotWhole)?;
        let files = Arc::new(JoinedFiles::new(files));
        Ok(Self { manifest, files })
    }

    /// Returns a table of a store that no process has open, such as that of a checkpoint.
    pub fn of_store(store: &Store, name: &TableName) -> Result<Self, LiveError> {
        let files = TableFiles::new(store.root(), name);
        let manifest = store.read_live_manifest(name, &files)?;
        let manifest = manifest.ok_or_else(|| LiveError::NoTable {
            table: name.clone(),
        })?;
        let disk = Arc::clone(store.disk());
        let files = Arc::new(DiskFiles::new(disk, &files));
        Ok(Self { manifest, files })
    }

    /// Removes the partitions that have none of these keys.
    pub fn retain_partitions_of(&mut self, keys: &[Vec<u8>]) {
        let bounds = self.manifest.partitions.iter();
        let bounds = bounds.map(|partition| &partition.bounds).enumerate();
        let router = Router::new(self.table(), self.options().order, bounds);
        let places = keys.iter();
        let places = places.filter_map(|key| router.partition(router.hash(key), key));
        let wanted: HashSet<usize> = places.collect();
        let mut place = 0..;
        self.manifest
            .partitions
            .retain(|_| place.next().is_some_and(|place| wanted.contains(&place)));
    }

    pub fn table(&self) -> &TableName {
        &self.manifest.table
    }

    pub fn options(&self) -> &LiveOptions {
        &self.manifest.options
    }

    /// Returns the partitions, in the table's order.
    pub fn ranges(&self) -> Vec<PartitionRange> {
        self.manifest.ranges()
    }

    /// Returns the runs of all partitions.
    pub fn runs(&self) -> Vec<CheckpointRun> {
        let partitions = self.manifest.partitions.iter();
        let runs = partitions.flat_map(|partition| {
            let runs = partition.runs.iter();
            runs.map(|run| CheckpointRun {
                bounds: partition.bounds.clone(),
                id: run.id.clone(),
                summary: run.summary,
            })
        });
        runs.collect()
    }

    /// Copies a run as a run of a load, and reads it back. REQUIRES: the table is merged, so that
    /// each partition has one run at most.
    pub fn copy_run(
        &self,
        run: &CheckpointRun,
        load: &Load,
        new: &NewRun,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(), LiveError> {
        debug_assert!(
            self.manifest
                .partitions
                .iter()
                .all(|part| part.runs.len() <= 1),
            "table {} has several runs of a partition",
            self.table()
        );
        let disk = &**load.disk();
        let names = [(run_file(&run.id), new.path.clone())];
        let extent = (extent_file(&run.id), new.path.with_extension("ext"));
        let extent = (run.summary.ext_bytes > 0).then_some(extent);
        for (name, path) in names.into_iter().chain(extent) {
            let file = self.files.open(&name).at("open", name.as_ref())?;
            copy_file(disk, &*file, &path, advance)?;
        }
        self.check_copied(disk, &new.path, &run.summary)
    }

    /// Returns the records of all runs; duplicate keys are counted separately.
    pub fn records(&self) -> u64 {
        self.manifest.files().map(|run| run.summary.records).sum()
    }

    /// Returns the length of all files.
    pub fn file_bytes(&self) -> u64 {
        self.manifest.files().map(|run| run.files_bytes()).sum()
    }

    /// Returns the names of all files, with their lengths.
    pub(crate) fn file_names(&self) -> impl Iterator<Item = (String, u64)> {
        let files = self.manifest.files().flat_map(|run| {
            let extent_bytes = run.summary.ext_bytes;
            let extent = (extent_bytes > 0).then(|| (extent_file(&run.id), extent_bytes));
            // The run is last, so that it can be read back once it is copied.
            [extent, Some((run_file(&run.id), run.summary.file_bytes))]
        });
        files.flatten()
    }
}
