//! Makes a backup.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Disk, Lock, give_way, replace_file};
use forebay_run::Order;
use forebay_run::verify::read_back;
use serde_json::Value;

use super::place::{BackupPlace, Documents};
use super::{
    BACKUP_FORMAT, BackupDocument, BackupError, ManifestText, TableDocument, TableSummary, unseal,
};
use crate::documents::holder::{holder_words, try_lock, utc};
use crate::documents::layout::{TableFiles, run_of};
use crate::documents::seal::seal;
use crate::error::{At, StoreError};
use crate::live::{DiskFiles, RunFiles, TableCheckpoint, copy_file};
use crate::name::TableName;
use crate::publishing::cleanup::remove_if_there;
use crate::tables::table::Table;

const ENDING: &str = ".backup";

/// A backup in progress. If it is dropped before [`NewBackup::finish`], the backup does not exist.
/// The next one removes the files that it copied, and uses none of them.
#[derive(Debug)]
pub struct NewBackup {
    place: BackupPlace,
    document: BackupDocument,
    /// The existing backups, the oldest first.
    earlier: Vec<BackupDocument>,
    /// The backups whose documents cannot be read.
    damaged: Vec<String>,
    copied_bytes: u64,
    reused_bytes: u64,
    _lock: Box<dyn Lock>,
}

/// Bytes of files that are in the backup now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupProgress {
    Copied(u64),
    /// An earlier backup has the files.
    There(u64),
}

/// The backups that were removed, and the removals that failed.
#[derive(Debug, Default)]
struct PruneReport {
    removed: Vec<String>,
    problems: Vec<BackupError>,
}

impl PruneReport {
    /// Returns the result; for an error, notes the problem and returns `None`.
    fn known<T>(&mut self, result: Result<T, BackupError>) -> Option<T> {
        result.map_err(|problem| self.problems.push(problem)).ok()
    }
}

/// The result of a backup.
#[derive(Debug, Clone, PartialEq)]
pub struct BackupReport {
    pub document: BackupDocument,
    /// Bytes of files that were copied for it.
    pub copied_bytes: u64,
    /// Bytes of files that earlier backups had copied.
    pub reused_bytes: u64,
    /// Older backups that were removed.
    pub removed: Vec<String>,
    /// The reasons that unneeded files could not be removed, with their paths.
    pub unremoved: Vec<String>,
    /// Backups whose documents cannot be read. While there are any, no file is removed.
    pub damaged: Vec<String>,
}

impl NewBackup {
    pub(super) fn begin(
        place: BackupPlace,
        source: &str,
        lock: Box<dyn Lock>,
    ) -> Result<Self, BackupError> {
        let Documents { documents, damaged } = place.documents()?;
        // The files of a failed backup may take the space that this one needs.
        if damaged.is_empty() {
            // Failed removals are reported at the end.
            place.prune(&documents, None);
        }
        let names = place.names()?;
        // Names rise even if the clock goes back. For a damaged backup only the name counts.
        let after = documents.last().map_or(0, |last| last.taken_unix_ms + 1);
        let mut taken_unix_ms = place.clock.unix_ms().max(after);
        while names.contains(&name_of(taken_unix_ms)) {
            taken_unix_ms += 1;
        }
        let document = BackupDocument {
            forebay_backup: BACKUP_FORMAT,
            name: name_of(taken_unix_ms),
            taken_unix_ms,
            source: source.to_owned(),
            tables: BTreeMap::new(),
            cluster: None,
        };
        Ok(Self {
            place,
            document,
            earlier: documents,
            damaged: damaged.into_iter().map(|(name, _)| name).collect(),
            copied_bytes: 0,
            reused_bytes: 0,
            _lock: lock,
        })
    }

    /// Copies a version of a batch table. `advance` receives the bytes of all its files, and may
    /// sleep to slow the copy down.
    pub fn add_version(
        &mut self,
        table: &Table,
        version: u64,
        advance: &mut dyn FnMut(BackupProgress),
    ) -> Result<(), BackupError> {
        let path = table.files.manifest(version);
        let bytes = table.disk().read(&path).at("read", &path)?;
        let manifest = table.manifest(version)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let files = table.files_of(&manifest).into_iter();
        let files = files.map(|file| (file.name, file.len_bytes)).collect();
        let document = TableDocument {
            forebay_table_backup: BACKUP_FORMAT,
            table: table.name().clone(),
            order: manifest.order,
            manifest: ManifestText::Batch(text),
        };
        let source = DiskFiles::new(Arc::clone(table.disk()), &table.files);
        let counts = (Some(version), manifest.totals.rows);
        self.add((document, files), counts, &source, advance)
    }

    /// Copies a checkpoint of a live table, as [`NewBackup::add_version`] copies a version.
    pub fn add_live(
        &mut self,
        checkpoint: &TableCheckpoint,
        advance: &mut dyn FnMut(BackupProgress),
    ) -> Result<(), BackupError> {
        let bytes = checkpoint.manifest.to_bytes();
        let bytes = bytes.map_err(|problem| StoreError::Damaged {
            path: PathBuf::from(checkpoint.table().as_str()),
            problem,
        })?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let document = TableDocument {
            forebay_table_backup: BACKUP_FORMAT,
            table: checkpoint.table().clone(),
            order: checkpoint.options().order,
            manifest: ManifestText::Live(text),
        };
        let files = checkpoint.file_names().collect();
        let counts = (None, checkpoint.records());
        self.add((document, files), counts, &*checkpoint.files, advance)
    }

    fn add(
        &mut self,
        (document, named): (TableDocument, BTreeMap<String, u64>),
        (version, records): (Option<u64>, u64),
        source: &dyn RunFiles,
        advance: &mut dyn FnMut(BackupProgress),
    ) -> Result<(), BackupError> {
        let (place, table) = (self.place.clone(), document.table.clone());
        let disk = &*place.disk;
        let files = TableFiles::new(&place.root, &table);
        let runs = files.runs();
        disk.create_dir_all(&runs).at("create", &runs)?;
        let words = holder_words(disk, &*place.clock, "a backup");
        let lock = try_lock(disk, &files.push_lock(), &words)?;
        let _lock = lock.map_err(|holder| BackupError::Busy { holder })?;
        // In object storage, the working directory is created only now.
        disk.create_dir_all(&runs).at("create", &runs)?;
        // These were verified when they were copied.
        let known = named_by(&self.earlier, &table);
        let mut copied = Vec::new();
        for (name, &len_bytes) in &named {
            let path = runs.join(name);
            if known.contains(name) && is_there(disk, &path, len_bytes) {
                self.reused_bytes += len_bytes;
                advance(BackupProgress::There(len_bytes));
                continue;
            }
            remove_if_there(disk, &path)?;
            let file = source.open(name).at("open", name.as_ref())?;
            copy_file(disk, &*file, &path, &mut |bytes| {
                advance(BackupProgress::Copied(bytes));
            })?;
            self.copied_bytes += len_bytes;
            copied.push(path);
        }
        check_runs(disk, &copied, document.order).map_err(|source| BackupError::Copy {
            table: table.clone(),
            source,
        })?;
        disk.sync_dir(&runs).at("sync", &runs)?;
        let summary = TableSummary {
            version,
            records,
            file_bytes: named.values().sum(),
            sum: place.put_table(&files, &self.document.name, &document)?,
            files: named,
        };
        self.document.tables.insert(table, summary);
        Ok(())
    }

    /// Completes the backup. Keeps the newest `keep` backups of each table.
    pub fn finish(
        mut self,
        keep: Option<usize>,
        cluster: Option<Value>,
    ) -> Result<BackupReport, BackupError> {
        self.document.cluster = cluster;
        let (place, dir) = (self.place.clone(), self.place.backups_dir());
        place.disk.create_dir_all(&dir).at("create", &dir)?;
        let path = place.document_path(&self.document.name);
        place.put(&path, &self.document)?;
        place.disk.sync_dir(&place.root).at("sync", &place.root)?;
        self.earlier.push(self.document.clone());
        let pruned = match self.damaged.is_empty() {
            true => place.prune(&self.earlier, keep),
            false => PruneReport::default(),
        };
        Ok(BackupReport {
            document: self.document,
            copied_bytes: self.copied_bytes,
            reused_bytes: self.reused_bytes,
            removed: pruned.removed,
            unremoved: pruned.problems.iter().map(ToString::to_string).collect(),
            damaged: self.damaged,
        })
    }
}

/// Returns a name such as `20261129T020000.417Z`.
fn name_of(taken_unix_ms: u64) -> String {
    let second = utc(taken_unix_ms).replace(['-', ':', 'Z'], "");
    format!("{second}.{:03}Z", taken_unix_ms % 1000)
}

/// Returns the backups to keep and to remove. A backup stays while it is among the newest `keep` of
/// one of its tables.
fn kept_of(
    backups: &[BackupDocument],
    keep: usize,
) -> (Vec<&BackupDocument>, Vec<&BackupDocument>) {
    let mut counts: BTreeMap<&TableName, usize> = BTreeMap::new();
    let newest_first = backups.iter().rev();
    newest_first.partition(|backup| {
        let mut is_needed = false;
        for table in backup.tables.keys() {
            let count = counts.entry(table).or_default();
            is_needed |= *count < keep;
            *count += 1;
        }
        is_needed
    })
}

/// Returns the files of a table that backups name.
fn named_by<'a>(
    backups: impl IntoIterator<Item = &'a BackupDocument>,
    table: &TableName,
) -> BTreeSet<String> {
    let backups = backups.into_iter();
    let of_table = backups.filter_map(|backup| backup.tables.get(table));
    of_table
        .flat_map(|table| table.files.keys().cloned())
        .collect()
}

fn is_there(disk: &dyn Disk, path: &std::path::Path, len_bytes: u64) -> bool {
    let found = disk.open(path);
    found.is_ok_and(|found| found.len_bytes() == len_bytes)
}

/// Verifies the copied runs in the place.
fn check_runs(
    disk: &dyn Disk,
    copied: &[PathBuf],
    order: Order,
) -> Result<(), forebay_run::RunError> {
    let runs = copied
        .iter()
        .filter(|path| path.extension().is_some_and(|end| end == "run"));
    for path in runs {
        read_back(disk, path, order, &mut |_| give_way())?;
    }
    Ok(())
}

impl BackupPlace {
    fn table_path(files: &TableFiles, backup: &str) -> PathBuf {
        files.dir.join("backups").join(format!("{backup}{ENDING}"))
    }

    /// Returns a table's document in a backup; `wanted_sum` is its checksum.
    pub(super) fn table_document(
        &self,
        table: &TableName,
        backup: &str,
        wanted_sum: u64,
    ) -> Result<TableDocument, BackupError> {
        let files = TableFiles::new(&self.root, table);
        let path = Self::table_path(&files, backup);
        let damaged = |problem: String| BackupError::DamagedTable {
            path: path.clone(),
            backup: backup.to_owned(),
            problem,
        };
        let bytes = self.read(&path, &damaged)?;
        let unsealed = unseal(&bytes, "forebay_table_backup");
        let (document, sum) = unsealed.map_err(|problem| damaged(problem.to_string()))?;
        match sum == wanted_sum {
            true => Ok(document),
            false => Err(damaged(
                "it is not the one that the backup names".to_owned(),
            )),
        }
    }

    fn put_table(
        &self,
        files: &TableFiles,
        backup: &str,
        document: &TableDocument,
    ) -> Result<u64, BackupError> {
        let path = Self::table_path(files, backup);
        let dir = files.dir.join("backups");
        self.disk.create_dir_all(&dir).at("create", &dir)?;
        let sum = self.put(&path, document)?;
        for dir in [
            &files.dir,
            &crate::documents::layout::tables_dir(&self.root),
        ] {
            self.disk.sync_dir(dir).at("sync", dir)?;
        }
        Ok(sum)
    }

    fn put<T: serde::Serialize>(
        &self,
        path: &std::path::Path,
        document: &T,
    ) -> Result<u64, BackupError> {
        let sealed = seal(document).map_err(|problem| StoreError::Damaged {
            path: path.to_path_buf(),
            problem,
        });
        let (bytes, sum) = sealed?;
        replace_file(&*self.disk, path, &bytes).at("write", path)?;
        Ok(sum)
    }

    /// Removes the backups that no table needs for its newest `keep`, and files that no backup
    /// names. A failed removal does not stop the others. REQUIRES: the lock, and that `backups` are
    /// all backups.
    fn prune(&self, backups: &[BackupDocument], keep: Option<usize>) -> PruneReport {
        let (mut kept, past) = kept_of(backups, keep.unwrap_or(usize::MAX));
        let mut pruned = PruneReport::default();
        for backup in past {
            match remove_if_there(&*self.disk, &self.document_path(&backup.name)) {
                Ok(()) => pruned.removed.push(backup.name.clone()),
                // If the document stays, its files stay with it.
                Err(error) => {
                    pruned.problems.push(error.into());
                    kept.push(backup);
                }
            }
        }
        let dir = self.backups_dir();
        // Before the first backup there is no such directory.
        if !pruned.removed.is_empty()
            && let Err(error) = self.disk.sync_dir(&dir).at("sync", &dir)
        {
            // Files are removed after their documents.
            pruned.problems.push(error.into());
            return pruned;
        }
        let tables = pruned.known(self.tables()).unwrap_or_default();
        for table in tables {
            self.prune_table(&table, &kept, &mut pruned);
        }
        pruned
    }

    fn prune_table(&self, table: &TableName, kept: &[&BackupDocument], pruned: &mut PruneReport) {
        let files = TableFiles::new(&self.root, table);
        let names = kept.iter().map(|backup| format!("{}{ENDING}", backup.name));
        let names: BTreeSet<String> = names.collect();
        let documents = files.dir.join("backups");
        let past = pruned.known(self.list(&documents)).unwrap_or_default();
        let past = past.into_iter();
        let past = past.filter(|name| name.ends_with(ENDING) && !names.contains(name));
        let past: Vec<PathBuf> = past.map(|name| documents.join(name)).collect();
        let named = named_by(kept.iter().copied(), table);
        let runs = pruned.known(self.list(&files.runs())).unwrap_or_default();
        let runs = runs.into_iter().filter(|name| !named.contains(name));
        let runs = runs.map(|name| files.runs().join(name));
        for path in past
            .into_iter()
            .chain(runs.filter(|path| run_of(path).is_some()))
        {
            let removed = remove_if_there(&*self.disk, &path);
            pruned.known(removed.map_err(BackupError::from));
        }
    }
}
