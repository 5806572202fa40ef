//! Repairs a store that lost files of tables, with the files in nodes' caches.
//!
//! The repair covers each version that serves, or to which a rollback would go. It writes the files
//! that the store lacks or has at another length. It does not trust a cache: it first reads a
//! partition and compares it with the manifest. It writes the manifest last, so that a version
//! exists only if it is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use forebay_engine::{
    Holding, Manifest, OpenPartitions, PartitionId, PushError, RunId, Store, StoreError, TableName,
    VersionFile,
};
use forebay_io::{ReadFile, replace_file};
use thiserror::Error;

use crate::model::Model;
use crate::node::VersionPlace;

/// A function that writes a file to the store and overwrites an existing one. Its last argument
/// receives the number of bytes written.
pub type PutFile<'a> =
    dyn Fn(&TableName, &VersionFile, &dyn ReadFile, &dyn Fn(u64)) -> io::Result<()> + 'a;

/// The store, and the caches from which to fetch its files.
pub struct StoreRepair<'a> {
    pub store: &'a Store,
    pub caches: &'a [Store],
    pub put: &'a PutFile<'a>,
    /// Receives the number of bytes written.
    pub advance: &'a dyn Fn(u64),
}

#[derive(Debug, Error)]
pub enum StoreRepairError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Busy(#[from] PushError),
    #[error("cannot write {name}: {source}")]
    Put { name: String, source: io::Error },
}

/// The files of a version that are still missing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Lack {
    /// Neither a cache nor the store has the manifest, so the version's files are unknown.
    pub manifest: bool,
    pub files: usize,
    pub bytes: u64,
}

/// The outcome of a repair.
#[derive(Debug, Default)]
pub struct RepairedStore {
    pub files: usize,
    pub bytes: u64,
    pub manifests: usize,
    pub lacks: BTreeMap<VersionPlace, Lack>,
    /// Damage found in the caches.
    pub problems: Vec<String>,
}

/// Returns the versions that the store has to have: those that serve, those to which a rollback
/// would go, and those of rollouts in progress.
pub fn needed(model: &Model) -> BTreeSet<VersionPlace> {
    let mut needed = BTreeSet::new();
    for (table, entry) in model.all_tables() {
        let versions = entry
            .serving
            .into_iter()
            .chain(entry.history.last().copied());
        needed.extend(versions.map(|version| (table.clone(), version)));
    }
    for rollout in model.work.under_way() {
        for (table, part) in &rollout.tables {
            let versions = part.from.into_iter().chain([part.to]);
            needed.extend(versions.map(|version| (table.clone(), version)));
        }
    }
    needed
}

impl StoreRepair<'_> {
    /// Returns the number of bytes to write for these versions, as far as is known.
    pub fn missing_bytes(&self, places: &BTreeSet<VersionPlace>) -> Result<u64, StoreRepairError> {
        let mut runs = BTreeSet::new();
        let mut bytes = 0;
        for place in places {
            let Some((manifest, _)) = self.manifest(place)? else {
                continue;
            };
            for file in self.missing(&manifest) {
                if runs.insert((place.0.clone(), file.name.clone())) {
                    bytes += file.len_bytes;
                }
            }
        }
        Ok(bytes)
    }

    /// Writes the files of these versions that the caches have.
    pub fn carry_out(
        &self,
        places: &BTreeSet<VersionPlace>,
    ) -> Result<RepairedStore, StoreRepairError> {
        let mut done = RepairedStore::default();
        for place in places {
            self.fetch_copy(place, &mut done)?;
        }
        Ok(done)
    }

    fn fetch_copy(
        &self,
        place: &VersionPlace,
        done: &mut RepairedStore,
    ) -> Result<(), StoreRepairError> {
        let Some((manifest, bytes)) = self.manifest(place)? else {
            let lack = Lack {
                manifest: true,
                ..Lack::default()
            };
            done.lacks.insert(place.clone(), lack);
            return Ok(());
        };
        let path = self.store.root().join(manifest_name(place));
        let is_there = read_if_there(self.store, &path)?.is_some_and(|there| there == bytes);
        if is_there && self.missing(&manifest).is_empty() {
            return Ok(());
        }
        let what = format!("the reseeding of version {}", place.1);
        let _lock = self.store.keep_pushes_away(&place.0, &what)?;
        for cache in self.caches {
            self.fetch_from(cache, place, (&manifest, &bytes), done)?;
        }
        let missing = self.missing(&manifest);
        if !missing.is_empty() {
            let lack = Lack {
                manifest: false,
                files: missing.len(),
                bytes: missing.iter().map(|file| file.len_bytes).sum(),
            };
            done.lacks.insert(place.clone(), lack);
        } else if !is_there {
            let dir = forebay_io::dir_of(&path);
            let put = self.store.disk().create_dir_all(dir);
            let put = put.and_then(|()| replace_file(&**self.store.disk(), &path, &bytes));
            put.map_err(|source| StoreRepairError::Put {
                name: path.display().to_string(),
                source,
            })?;
            done.manifests += 1;
        }
        Ok(())
    }

    /// Writes the partitions that a cache has intact and of which the store lacks files.
    fn fetch_from(
        &self,
        cache: &Store,
        place: &VersionPlace,
        (manifest, bytes): (&Manifest, &[u8]),
        done: &mut RepairedStore,
    ) -> Result<(), StoreRepairError> {
        let missing = self.missing(manifest);
        let path = cache.root().join(manifest_name(place));
        let is_same = read_if_there(cache, &path)?.is_some_and(|here| here == bytes);
        if missing.is_empty() || !is_same {
            return Ok(());
        }
        let here: BTreeSet<PartitionId> = here(cache, manifest);
        let wanted = missing.iter().filter(|file| here.contains(&file.partition));
        let runs: Vec<RunId> = wanted.map(|file| file.run.clone()).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let cache = cache.clone().holding(Arc::new(CachedPartitions(here)));
        let report = cache.table(&place.0)?.verify_runs_of(place.1, &runs)?;
        done.problems
            .extend(report.problems.iter().map(ToString::to_string));
        let sound: BTreeSet<PartitionId> = report.partitions.iter().map(|part| part.id).collect();
        let files = cache.files_of(manifest);
        for file in files.iter().filter(|file| sound.contains(&file.partition)) {
            if missing.iter().any(|lost| lost.name == file.name) {
                self.send(&place.0, file, &cache)?;
                done.files += 1;
                done.bytes += file.len_bytes;
            }
        }
        Ok(())
    }

    fn send(
        &self,
        table: &TableName,
        file: &VersionFile,
        cache: &Store,
    ) -> Result<(), StoreRepairError> {
        let opened = cache.disk().open(&file.path);
        let put = opened.and_then(|opened| (self.put)(table, file, &*opened, self.advance));
        put.map_err(|source| StoreRepairError::Put {
            name: format!("{} of table {table}", file.name),
            source,
        })
    }

    /// Returns the manifest of a version and its bytes: from the store, otherwise from the first
    /// cache that has one.
    fn manifest(
        &self,
        place: &VersionPlace,
    ) -> Result<Option<(Manifest, Vec<u8>)>, StoreRepairError> {
        for store in [self.store].into_iter().chain(self.caches) {
            let path = store.root().join(manifest_name(place));
            let Some(bytes) = read_if_there(store, &path)? else {
                continue;
            };
            if let Ok((manifest, _)) = Manifest::parse(&bytes)
                && (&manifest.table, manifest.version) == (&place.0, place.1)
            {
                return Ok(Some((manifest, bytes)));
            }
        }
        Ok(None)
    }

    /// Returns the files of a version that the store lacks, or has at another length.
    fn missing(&self, manifest: &Manifest) -> Vec<VersionFile> {
        let mut files = self.store.files_of(manifest);
        files.retain(|file| !self.store.is_here(file));
        files
    }
}

fn manifest_name((table, version): &VersionPlace) -> String {
    format!("tables/{table}/versions/{version}.manifest")
}

fn read_if_there(
    store: &Store,
    path: &std::path::Path,
) -> Result<Option<Vec<u8>>, StoreRepairError> {
    match store.disk().read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(StoreRepairError::Put {
            name: path.display().to_string(),
            source,
        }),
    }
}

/// Returns the partitions of a version of which a cache has all files at their lengths.
fn here(cache: &Store, manifest: &Manifest) -> BTreeSet<PartitionId> {
    let mut here: BTreeSet<PartitionId> = manifest.partitions.iter().map(|part| part.id).collect();
    for file in cache.files_of(manifest) {
        if here.contains(&file.partition) && !cache.is_here(&file) {
            here.remove(&file.partition);
        }
    }
    here
}

/// Partitions that a cache has.
#[derive(Debug)]
struct CachedPartitions(BTreeSet<PartitionId>);

impl Holding for CachedPartitions {
    fn held(&self, _: &Manifest) -> OpenPartitions {
        OpenPartitions::Only(self.0.clone())
    }
}
