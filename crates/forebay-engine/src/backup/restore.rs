//! Verifies a finished backup and restores its tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_run::verify::read_back;
use forebay_run::{RunError, RunSummary};

use super::place::{BackupPlace, listed};
use super::{BackupDocument, BackupError, ManifestText, TableDocument, TableSummary};
use crate::documents::layout::{TableFiles, run_file};
use crate::documents::manifest::Manifest;
use crate::error::At;
use crate::live::{DiskFiles, RunFiles, TableCheckpoint, copy_file};
use crate::live::{JoinError, LiveError};
use crate::name::TableName;
use crate::tables::store::Store;
use crate::tables::table::Table;

/// A finished backup.
#[derive(Debug)]
pub struct Backup {
    place: BackupPlace,
    document: BackupDocument,
}

impl Backup {
    pub(super) fn new(place: BackupPlace, document: BackupDocument) -> Self {
        Self { place, document }
    }

    pub fn document(&self) -> &BackupDocument {
        &self.document
    }

    /// Reads all files of a table in the place and verifies them; `advance` receives their bytes.
    /// The error names the first damaged one.
    pub fn check(&self, name: &TableName, advance: &mut dyn FnMut(u64)) -> Result<(), BackupError> {
        let (document, _) = self.table(name)?;
        let runs = TableFiles::new(&self.place.root, name).runs();
        let disk = &*self.place.disk;
        let summaries = self.run_summaries(name, &document)?;
        for (file, len_bytes) in &self.summary(name)?.files {
            let path = runs.join(file);
            let damaged = |source| BackupError::DamagedRun {
                table: name.clone(),
                source,
            };
            let opened = disk.open(&path).map_err(|error| {
                damaged(RunError::damaged(
                    &path,
                    format!("it cannot be opened: {error}"),
                ))
            })?;
            let read = match path.extension().is_some_and(|end| end == "run") {
                true => read_back(disk, &path, document.order, &mut |_| ()).map(Some),
                false => Ok(None),
            };
            let read = read.and_then(|run| match run {
                Some(run) if summaries.get(file) != Some(run.summary()) => Err(RunError::refused(
                    &path,
                    "it is not the run that the manifest names",
                )),
                _ => Ok(()),
            });
            let read = read.and_then(|()| match opened.len_bytes() == *len_bytes {
                true => Ok(()),
                false => Err(RunError::damaged(&path, "it has another length")),
            });
            read.map_err(damaged)?;
            advance(*len_bytes);
        }
        Ok(())
    }

    /// Returns the summary of each run of a table, by the name of its file.
    fn run_summaries(
        &self,
        name: &TableName,
        document: &TableDocument,
    ) -> Result<BTreeMap<String, RunSummary>, BackupError> {
        let ManifestText::Batch(text) = &document.manifest else {
            return Ok(self.live(name)?.summaries());
        };
        let parsed = Manifest::parse(text.as_bytes());
        let (manifest, _) = parsed.map_err(|problem| BackupError::Restored {
            table: name.clone(),
            problem: problem.to_string(),
        })?;
        let runs = manifest.runs();
        Ok(runs.map(|run| (run_file(&run.id), run.summary)).collect())
    }

    /// Returns an error if [`Backup::restore_version`] would be refused because of existing files.
    pub fn check_version(&self, name: &TableName, store: &Store) -> Result<(), BackupError> {
        let (document, _) = self.table(name)?;
        match (&document.manifest, store.table(name)) {
            (ManifestText::Batch(text), Ok(table)) => {
                has_version(&table, text.as_bytes()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Copies a version of a batch table into a store and verifies it; it does not serve yet.
    /// `advance` receives the number of copied bytes. If the same version exists, it is left
    /// unchanged. If another one has its number, this is an error.
    pub fn restore_version(
        &self,
        name: &TableName,
        store: &Store,
        advance: &mut dyn FnMut(u64),
    ) -> Result<(Table, u64), BackupError> {
        let (document, source) = self.table(name)?;
        let ManifestText::Batch(text) = &document.manifest else {
            return Err(self.other_kind(name, "live", "batch"));
        };
        let bytes = text.as_bytes();
        if let Ok(table) = store.table(name)
            && let Some(version) = has_version(&table, bytes)?
        {
            return Ok((table, version));
        }
        let install = store.begin_install(name, bytes)?;
        let version = install.manifest().version;
        let disk = &**store.disk();
        for file in install.missing() {
            crate::publishing::cleanup::remove_if_there(disk, &file.path)?;
            let opened = source.open(&file.name).at("open", file.name.as_ref())?;
            copy_file(disk, &*opened, &file.path, advance)?;
        }
        let report = install.verify(&mut |_| {})?;
        if let Some(problem) = report.problems.first() {
            return Err(BackupError::Restored {
                table: name.clone(),
                problem: problem.to_string(),
            });
        }
        Ok((install.commit()?, version))
    }

    /// Returns the live table of the backup, to be copied into a store or loaded into a cluster.
    pub fn live(&self, name: &TableName) -> Result<TableCheckpoint, BackupError> {
        let (document, files) = self.table(name)?;
        let ManifestText::Live(text) = document.manifest else {
            return Err(self.other_kind(name, "batch", "live"));
        };
        let joined = TableCheckpoint::join(vec![(text.into_bytes(), Arc::new(files))]);
        joined.map_err(|error| {
            let (table, problem) = (name.clone(), error.to_string());
            match error {
                JoinError::Unreadable(_) => BackupError::Restored { table, problem },
                _ => LiveError::Options { table, problem }.into(),
            }
        })
    }

    /// Returns an error if a table's document in the backup cannot be read.
    pub fn check_document(&self, name: &TableName) -> Result<(), BackupError> {
        self.table(name).map(drop)
    }

    /// Returns an error if the backup does not contain the table.
    pub fn check_has(&self, name: &TableName) -> Result<(), BackupError> {
        self.summary(name).map(drop)
    }

    fn summary(&self, name: &TableName) -> Result<&TableSummary, BackupError> {
        let summary = self.document.tables.get(name);
        summary.ok_or_else(|| BackupError::NoTable {
            backup: self.document.name.clone(),
            table: name.clone(),
            there: listed(self.document.tables.keys()),
        })
    }

    fn table(&self, name: &TableName) -> Result<(TableDocument, DiskFiles), BackupError> {
        let summary = self.summary(name)?;
        let document = self
            .place
            .table_document(name, &self.document.name, summary.sum)?;
        let files = TableFiles::new(&self.place.root, name);
        let files = DiskFiles::copied(Arc::clone(&self.place.disk), &files);
        Ok((document, files))
    }

    fn other_kind(&self, table: &TableName, is: &'static str, wanted: &'static str) -> BackupError {
        BackupError::OtherKind {
            backup: self.document.name.clone(),
            table: table.clone(),
            is,
            wanted,
        }
    }
}

/// Returns the version of this manifest if the table has it completely; an error if it has another
/// version of that number.
fn has_version(table: &Table, bytes: &[u8]) -> Result<Option<u64>, BackupError> {
    let parsed = Manifest::parse(bytes);
    let Ok((Manifest { version, .. }, _)) = parsed else {
        return Ok(None);
    };
    if table.has_installed(version, bytes)? {
        return Ok(Some(version));
    }
    let path = table.files.manifest(version);
    match table.disk().read(&path) {
        Ok(there) if there != bytes => Err(BackupError::OtherVersion {
            table: table.name().clone(),
            version,
        }),
        _ => Ok(None),
    }
}
