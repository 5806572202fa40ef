//! Installs a version that another store has, from its files as they arrive.
//!
//! The caller copies the files to the paths that [`Install::missing`] returns. [`Install::verify`]
//! reads them. [`Install::commit`] makes the version visible, as a push does, and notes which
//! partitions were verified. When the other store's pointer moves, [`Table::point_as`] moves the
//! pointer of this store. If there is no commit, the fetched files stay, and the next installation
//! uses them. A push to the table removes them.
//!
//! A proof is the result of a verification, noted beside the manifest ([`Proof`]). A proven, or
//! sound, partition was read completely and matches the manifest. To disprove a partition is to
//! remove it from that note, because its files are missing or replaced.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Lock, replace_file};
use parking_lot::Mutex;

use crate::documents::layout::{extent_file, run_file};
use crate::documents::manifest::{Manifest, Partition};
use crate::documents::pins::PinnedFiles;
use crate::documents::pointer::Pointer;
use crate::error::{At, PushError, StoreError};
use crate::keys::partition::{OpenPartitions, PartitionId};
use crate::name::{RunId, TableName};
use crate::publishing::cleanup::remove_if_there;
use crate::publishing::proof::Proof;
use crate::publishing::push::{lock_push, make_table};
use crate::publishing::verify::{PartitionProof, VerifyReport};
use crate::tables::store::Store;
use crate::tables::table::{Table, check_files};

/// An installation of a version into a store. No push to its table can begin meanwhile.
#[derive(Debug)]
pub struct Install {
    table: Table,
    manifest: Manifest,
    sum: u64,
    bytes: Vec<u8>,
    /// The held partitions, as the store reported them at the start.
    held: OpenPartitions,
    missing: Vec<VersionFile>,
    /// The partitions that were verified, now or earlier.
    proven: Mutex<BTreeMap<PartitionId, PartitionProof>>,
    /// Existing files may belong to versions that are removed meanwhile.
    _files: Arc<PinnedFiles>,
    _lock: Box<dyn Lock>,
}

/// A file of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionFile {
    pub partition: PartitionId,
    pub run: RunId,
    /// The name, the same in every store.
    pub name: String,
    pub path: PathBuf,
    pub len_bytes: u64,
}

impl Store {
    /// Begins to install a version, given the bytes of its manifest in the other store. Refused
    /// with the holder's text during a push to the table.
    pub fn begin_install(&self, name: &TableName, manifest: &[u8]) -> Result<Install, PushError> {
        let table = self.any_table(name);
        let bad = |version, problem: String| PushError::BadManifest {
            table: name.clone(),
            version,
            problem,
        };
        let (parsed, sum) = Manifest::parse(manifest).map_err(|error| bad(0, error.to_string()))?;
        if parsed.table != *name {
            let problem = format!("it is that of table {}", parsed.table);
            return Err(bad(parsed.version, problem));
        }
        let what = format!("the pull of version {}", parsed.version);
        let lock = lock_push(&table, &what)?;
        // The pointer lock, if there is one, is held until the end of this function.
        let _pointer = make_table(&table)?;
        let held = self.held(&parsed);
        let mut missing = table.files_in(&parsed, &held);
        let files = self.pins().pin_files(PinnedFiles {
            table: name.clone(),
            names: missing.iter().map(|file| file.name.clone()).collect(),
        });
        missing.retain(|file| !self.is_here(file));
        let runs: HashSet<&RunId> = missing.iter().map(|file| &file.run).collect();
        let lost = |partition: &Partition| partition.runs.iter().any(|run| runs.contains(&run.id));
        if !runs.is_empty() {
            table.disprove_where(&lost)?;
        }
        let known = table.known_proofs(&parsed)?.into_iter();
        let known = known.filter(|proof| held.holds(proof.id));
        Ok(Install {
            proven: Mutex::new(known.map(|proof| (proof.id, proof)).collect()),
            table,
            manifest: parsed,
            sum,
            bytes: manifest.to_vec(),
            held,
            missing,
            _files: files,
            _lock: lock,
        })
    }

    /// Blocks pushes to a table, even one that does not exist, until the result is dropped.
    /// Meanwhile the caller may add files that no version names. Refused during a push.
    pub fn keep_pushes_away(
        &self,
        name: &TableName,
        what: &str,
    ) -> Result<Box<dyn Lock>, PushError> {
        lock_push(&self.any_table(name), what)
    }

    /// Returns the files of a version that this store is to have, even if the version or its table
    /// is missing.
    pub fn files_of(&self, manifest: &Manifest) -> Vec<VersionFile> {
        self.any_table(&manifest.table).files_of(manifest)
    }

    /// Returns whether a file exists with its length.
    pub fn is_here(&self, file: &VersionFile) -> bool {
        let found = self.disk().open(&file.path);
        found.is_ok_and(|found| found.len_bytes() == file.len_bytes)
    }
}

impl Install {
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the files of the version that this store is to have.
    pub fn files(&self) -> Vec<VersionFile> {
        self.table.files_in(&self.manifest, &self.held)
    }

    /// Returns the files that were missing at the start, or had another length.
    pub fn missing(&self) -> &[VersionFile] {
        &self.missing
    }

    /// Verifies the partitions that are not known to be sound, as [`Table::verify`] does. A
    /// partition is sound if it was verified in this store. For files that have existed since, a
    /// verification in a version that has the same partition counts, too.
    pub fn verify(&self, advance: &mut dyn FnMut(u64)) -> Result<VerifyReport, StoreError> {
        let mut proven = self.proven.lock();
        let wanted = |partition: &Partition| {
            self.held.holds(partition.id) && !proven.contains_key(&partition.id)
        };
        let (table, manifest) = (&self.table, &self.manifest);
        let report = table.verify_some(manifest, &wanted, false, advance);
        let sound = report.partitions.iter().cloned();
        proven.extend(sound.map(|proof| (proof.id, proof)));
        Ok(report)
    }

    /// Returns the proof of the held partitions that are verified so far.
    pub fn proof(&self) -> Proof {
        let proven = self.proven.lock().values().cloned().collect();
        Proof::new(&self.manifest, self.sum, proven)
    }

    /// Makes the version visible and durable. Replaces an existing version of this number. Removes
    /// files that no version needs.
    pub fn commit(self) -> Result<Table, PushError> {
        let proof = self.proof();
        let (table, manifest, held) = (self.table, &self.manifest, &self.held);
        let disk = table.disk().clone();
        let lock = table.lock_pointer("a commit")?;
        check_files(&*disk, &table.files, manifest, held).map_err(|problem| {
            PushError::BadManifest {
                table: table.name().clone(),
                version: manifest.version,
                problem,
            }
        })?;
        let runs = table.files.runs();
        disk.sync_dir(&runs).at("sync", &runs)?;
        let path = table.files.manifest(manifest.version);
        replace_file(&*disk, &path, &self.bytes).at("write", &path)?;
        table.write_proof(&proof)?;
        table.sweep(&[])?;
        drop(lock);
        Ok(table)
    }
}

impl Table {
    /// Restores a lost or damaged manifest from its bytes in the other store. Does not check the
    /// version's files.
    pub fn put_manifest(&self, version: u64, bytes: &[u8]) -> Result<Manifest, PushError> {
        let bad = |problem: String| PushError::BadManifest {
            table: self.name().clone(),
            version,
            problem,
        };
        let (manifest, _) = Manifest::parse(bytes).map_err(|error| bad(error.to_string()))?;
        if manifest.table != *self.name() || manifest.version != version {
            return Err(bad("it is that of another version".to_owned()));
        }
        let _pointer = self.lock_pointer("a manifest")?;
        let path = self.files.manifest(version);
        replace_file(&**self.disk(), &path, bytes).at("write", &path)?;
        Ok(manifest)
    }

    /// Returns the files of a version of this table that this store is to have, even if they are
    /// missing.
    pub fn files_of(&self, manifest: &Manifest) -> Vec<VersionFile> {
        self.files_in(manifest, &self.store().held(manifest))
    }

    /// Returns the files of some partitions of a version.
    pub(crate) fn files_in(&self, manifest: &Manifest, held: &OpenPartitions) -> Vec<VersionFile> {
        let here = manifest
            .held(held)
            .map(|(place, _)| &manifest.partitions[place]);
        let runs = here.flat_map(|part| part.runs.iter().map(|run| (part.id, run)));
        let files = runs.flat_map(|(partition, run)| {
            let file = |name: String, len_bytes| VersionFile {
                partition,
                run: run.id.clone(),
                path: self.files.runs().join(&name),
                name,
                len_bytes,
            };
            let extent = run.summary.ext_bytes;
            let extent = (extent > 0).then(|| file(extent_file(&run.id), extent));
            [
                Some(file(run_file(&run.id), run.summary.file_bytes)),
                extent,
            ]
        });
        files.flatten().collect()
    }

    /// Makes the version that another store's pointer names the serving one, with the part of its
    /// history that this store has. Returns whether that changed anything. Same guarantees as
    /// [`Table::swap`].
    pub fn point_as(&self, other: &Pointer) -> Result<bool, StoreError> {
        let Some(serving) = other.serving else {
            return Ok(false);
        };
        let _lock = self.lock_pointer("a swap")?;
        let pointer = self.pointer()?;
        self.check_complete(serving)?;
        let here = self.version_numbers()?;
        let mut next = pointer.clone();
        next.serving = Some(serving);
        next.history = other.history.clone();
        next.history.retain(|past| here.contains(past));
        if next == pointer {
            return Ok(false);
        }
        self.write_pointer(next)?;
        Ok(true)
    }

    /// Does [`Table::verify`], but leaves cached pages in memory.
    pub fn verify_warm(&self, version: u64) -> Result<VerifyReport, StoreError> {
        let manifest = self.manifest(version)?;
        let held = self.store().held(&manifest);
        let wanted = |partition: &Partition| held.holds(partition.id);
        Ok(self.verify_some(&manifest, &wanted, false, &mut |_| {}))
    }

    /// Does [`Table::verify_warm`] for the partitions that have one of these runs.
    pub fn verify_runs_of(&self, version: u64, runs: &[RunId]) -> Result<VerifyReport, StoreError> {
        let manifest = self.manifest(version)?;
        let held = self.store().held(&manifest);
        let among = |partition: &Partition| {
            let mut named = partition.runs.iter();
            held.holds(partition.id) && named.any(|run| runs.contains(&run.id))
        };
        Ok(self.verify_some(&manifest, &among, false, &mut |_| {}))
    }

    /// Returns whether a version exists with exactly this manifest, and all files that this store
    /// is to have, at their lengths.
    pub fn has_installed(&self, version: u64, manifest: &[u8]) -> Result<bool, StoreError> {
        let path = self.files.manifest(version);
        match self.disk().read(&path) {
            Ok(bytes) if bytes == manifest => Ok(self.check_complete(version).is_ok()),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// Removes a damaged file, so that a sound one can replace it. Readers that have it open can
    /// keep reading.
    pub fn remove_file(&self, file: &VersionFile) -> Result<(), StoreError> {
        remove_if_there(&**self.disk(), &file.path)
    }
}
