//! Taking over a version that another store has, file by file as it is there.
//!
//! The caller brings the files to the places that [`Install::missing`] names; [`Install::verify`]
//! reads them; [`Install::commit`] makes the version visible as a push would, and notes what was
//! verified. Where the other
//! store's pointer moves, [`Table::point_as`] moves this one's. Until a commit, files that were
//! brought are debris for a push, but stay for the next installation.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Lock, replace_file};
use parking_lot::Mutex;

use crate::cleanup::remove_if_there;
use crate::error::{At, PushError, StoreError};
use crate::layout::{extent_file, run_file};
use crate::manifest::{Manifest, Partition};
use crate::name::{RunId, TableName};
use crate::partition::{OpenPartitions, PartitionId};
use crate::pins::PinnedFiles;
use crate::pointer::Pointer;
use crate::proof::Proof;
use crate::push::{lock_push, make_table};
use crate::store::Store;
use crate::table::{Table, check_files};
use crate::verify::{PartitionProof, VerifyReport};

/// A version on its way into a store; see the module's text. No push to its table can begin
/// meanwhile.
#[derive(Debug)]
pub struct Install {
    table: Table,
    manifest: Manifest,
    sum: u64,
    bytes: Vec<u8>,
    /// As the store said in the beginning.
    held: OpenPartitions,
    missing: Vec<VersionFile>,
    /// What was verified, now or earlier.
    proven: Mutex<BTreeMap<PartitionId, PartitionProof>>,
    /// What is here may be that of versions which are removed meanwhile.
    _files: Arc<PinnedFiles>,
    _lock: Box<dyn Lock>,
}

/// A file that a version consists of.
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
    /// Begins to take a version over, by the bytes of its manifest in the other store. Refused with
    /// the holder's words while a push to the table is under way.
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

    /// Keeps pushes to a table away, whether it exists or not, until the result is dropped: what no
    /// version names may be put into it meanwhile. Refused while one is under way.
    pub fn keep_pushes_away(
        &self,
        name: &TableName,
        what: &str,
    ) -> Result<Box<dyn Lock>, PushError> {
        lock_push(&self.any_table(name), what)
    }

    /// The files of a version that are to be here, whether the version, or its table, is here or
    /// not.
    pub fn files_of(&self, manifest: &Manifest) -> Vec<VersionFile> {
        self.any_table(&manifest.table).files_of(manifest)
    }

    /// Whether a file is here, at its length.
    pub fn is_here(&self, file: &VersionFile) -> bool {
        let found = self.disk().open(&file.path);
        found.is_ok_and(|found| found.len_bytes() == file.len_bytes)
    }
}

impl Install {
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The files of the version that are to be here.
    pub fn files(&self) -> Vec<VersionFile> {
        self.table.files_in(&self.manifest, &self.held)
    }

    /// Those of the files that were not here, at their lengths, in the beginning.
    pub fn missing(&self) -> &[VersionFile] {
        &self.missing
    }

    /// Reads the partitions that were not found sound yet, here and now or, of files that are here
    /// since, in a version that has them as this one does. As [`Table::verify`] does.
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

    /// What was verified of the partitions held, by now.
    pub fn proof(&self) -> Proof {
        let proven = self.proven.lock().values().cloned().collect();
        Proof::new(&self.manifest, self.sum, proven)
    }

    /// Makes the version visible, and durable; one of this number that was there before is
    /// replaced. What no version needs is removed.
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
    /// Puts a manifest back, by its bytes in the other store, where that here was lost or damaged.
    /// The version's files are not looked at.
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

    /// The files of a version of this table that are to be here, whether they are or not.
    pub fn files_of(&self, manifest: &Manifest) -> Vec<VersionFile> {
        self.files_in(manifest, &self.store().held(manifest))
    }

    /// The files of some partitions of a version.
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

    /// Lets the version serve that another store's pointer names, with as much of its history as
    /// there is here. Returns whether that changed anything. Same guarantees as [`Table::swap`].
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

    /// [`Table::verify`], leaving in memory what is there.
    pub fn verify_warm(&self, version: u64) -> Result<VerifyReport, StoreError> {
        let manifest = self.manifest(version)?;
        let held = self.store().held(&manifest);
        let wanted = |partition: &Partition| held.holds(partition.id);
        Ok(self.verify_some(&manifest, &wanted, false, &mut |_| {}))
    }

    /// [`Table::verify_warm`] of the partitions that have one of these runs.
    pub fn verify_runs_of(&self, version: u64, runs: &[RunId]) -> Result<VerifyReport, StoreError> {
        let manifest = self.manifest(version)?;
        let held = self.store().held(&manifest);
        let among = |partition: &Partition| {
            let mut named = partition.runs.iter();
            held.holds(partition.id) && named.any(|run| runs.contains(&run.id))
        };
        Ok(self.verify_some(&manifest, &among, false, &mut |_| {}))
    }

    /// Whether a version is here with just this manifest, and all files that are to be here at
    /// their lengths.
    pub fn has_installed(&self, version: u64, manifest: &[u8]) -> Result<bool, StoreError> {
        let path = self.files.manifest(version);
        match self.disk().read(&path) {
            Ok(bytes) if bytes == manifest => Ok(self.check_complete(version).is_ok()),
            Ok(_) => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// Takes a damaged file out of the way of a sound one. Who has it open reads on.
    pub fn remove_file(&self, file: &VersionFile) -> Result<(), StoreError> {
        remove_if_there(&**self.disk(), &file.path)
    }
}
