//! Putting back into the store what it lost of the tables' files, from nodes' caches.
//!
//! Of each version that serves, or that a rollback goes to, the files are sent that the store has
//! not, or at another length. A cache is not believed: a partition is read back and compared with
//! the manifest first. The manifest comes last, so that a version is there when all of it is.

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

/// Who writes a file into the store, whatever is there; the last is told of bytes sent.
pub type PutFile<'a> =
    dyn Fn(&TableName, &VersionFile, &dyn ReadFile, &dyn Fn(u64)) -> io::Result<()> + 'a;

/// The store, and the caches to bring its files from.
pub struct StoreRepair<'a> {
    pub store: &'a Store,
    pub caches: &'a [Store],
    pub put: &'a PutFile<'a>,
    /// Told of the bytes that are sent.
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

/// What a version needs still.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Lack {
    /// No cache has it, and the store has not: nothing is known of the version's files then.
    pub manifest: bool,
    pub files: usize,
    pub bytes: u64,
}

/// What was done.
#[derive(Debug, Default)]
pub struct RepairedStore {
    pub files: usize,
    pub bytes: u64,
    pub manifests: usize,
    pub lacks: BTreeMap<VersionPlace, Lack>,
    /// What is damaged in the caches.
    pub problems: Vec<String>,
}

/// The versions that the store has to have: those that serve, those that a rollback goes to, and
/// those of rollouts under way.
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
    /// The bytes that are to be sent of these versions, as far as is known.
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

    /// Brings what the caches have of these versions.
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

    /// Brings the partitions that are in a cache, and sound, of which the store lacks something.
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

    /// The manifest of a version and its bytes: the store's, else that of the first cache that has
    /// one.
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

    /// The files of a version that the store has not, or at another length.
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

/// The partitions of a version all files of which a cache has, at their lengths.
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
