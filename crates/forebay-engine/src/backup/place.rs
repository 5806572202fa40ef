//! The directory or bucket that backups are kept in.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Clock, Disk, replace_file};
use serde::Deserialize;

use super::{Backup, BackupDocument, BackupError, NewBackup, unseal};
use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{STORE_FILE, tables_dir};
use crate::error::At;
use crate::live::is_below;
use crate::name::TableName;

const PLACE_FILE: &str = "forebay-backup.json";
const PLACE_LOCK: &str = "backup.lock";
/// The files that an unfinished place may have.
const OF_CREATION: [&str; 2] = [PLACE_LOCK, ".forebay-backup.json.new"];
const PLACE_TEXT: &str = "{\"forebay_backup_place\": 1}\n";
const PLACE_FORMAT: u64 = 1;
const ENDING: &str = ".json";

/// The content of the marker.
#[derive(Debug, Deserialize)]
struct Marker {
    forebay_backup_place: u64,
}

/// A directory or bucket of backups. Clones are handles to the same place.
#[derive(Debug, Clone)]
pub struct BackupPlace {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) root: PathBuf,
}

impl BackupPlace {
    /// Opens a place that has backups, or had some.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        root: &Path,
    ) -> Result<Self, BackupError> {
        let marker = root.join(PLACE_FILE);
        let root = root.to_path_buf();
        let place = Self { disk, clock, root };
        if place.disk.exists(&marker).at("look for", &marker)? {
            place.check_marker(&marker)?;
            return Ok(place);
        }
        let has_backups = !place.names()?.is_empty();
        let root = place.root;
        Err(match has_backups {
            true => BackupError::NoMarker { root },
            false => BackupError::NoPlace { root },
        })
    }

    /// Refuses a place of a later format, and one whose marker is damaged.
    fn check_marker(&self, path: &Path) -> Result<(), BackupError> {
        let refused = |problem: String| BackupError::Marker {
            path: path.to_path_buf(),
            problem,
        };
        let bytes = self.read(path, &refused)?;
        let marker: Marker = serde_json::from_slice(&bytes).map_err(|error| {
            refused(format!(
                "{error}. It should have the content {}",
                PLACE_TEXT.trim()
            ))
        })?;
        match marker.forebay_backup_place {
            PLACE_FORMAT => Ok(()),
            found => Err(refused(format!(
                "it is of format {found}, this program knows format {PLACE_FORMAT}: use a newer forebay"
            ))),
        }
    }

    /// Opens a place and creates it first if the directory is absent or empty.
    pub fn open_or_create(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        root: &Path,
    ) -> Result<Self, BackupError> {
        let marker = root.join(PLACE_FILE);
        if !disk.exists(&marker).at("look for", &marker)? {
            if !disk.is_object_storage() && is_below(&*disk, root, &[STORE_FILE, PLACE_FILE])? {
                let root = root.to_path_buf();
                return Err(BackupError::Inside { root });
            }
            match disk.list(root) {
                Ok(names) if names.iter().all(|name| OF_CREATION.contains(&&**name)) => {}
                // Another process may have created it since the last check.
                Ok(_) if disk.exists(&marker).at("look for", &marker)? => {}
                Ok(_) => {
                    let there = Self::open(disk, clock, root);
                    return there.map_err(|error| match error {
                        BackupError::NoPlace { root } => BackupError::NotEmpty { root },
                        other => other,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).at("list", root)?,
            }
            disk.create_dir_all(root).at("create", root)?;
            let written = replace_file(&*disk, &marker, PLACE_TEXT.as_bytes());
            // Two processes that create it at the same time write the same content.
            if !disk.exists(&marker).at("look for", &marker)? {
                written.at("write", &marker)?;
            }
        }
        Self::open(disk, clock, root)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the names of all backups, the oldest first.
    pub fn names(&self) -> Result<Vec<String>, BackupError> {
        let found = self.list(&self.backups_dir())?;
        let names = found.iter().filter_map(|name| name.strip_suffix(ENDING));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// Returns a backup by its name, or the newest.
    pub fn backup(&self, name: Option<&str>) -> Result<Backup, BackupError> {
        let names = self.names()?;
        let found = match name {
            Some(name) => names.iter().find(|found| *found == name),
            None => names.last(),
        };
        let root = || self.root.clone();
        let found = found.ok_or_else(|| match name {
            Some(name) if !names.is_empty() => BackupError::NoBackup {
                root: root(),
                name: name.to_owned(),
                there: listed(names.iter()),
            },
            _ => BackupError::Empty { root: root() },
        })?;
        let document = self.document(found)?;
        Ok(Backup::new(self.clone(), document))
    }

    /// Returns the documents of all backups, the oldest first, and the unreadable ones, each with
    /// the reason.
    pub fn documents(&self) -> Result<Documents, BackupError> {
        let mut all = Documents::default();
        for name in self.names()? {
            match self.document(&name) {
                Ok(document) => all.documents.push(document),
                Err(error @ BackupError::Damaged { .. }) => all.damaged.push((name, error)),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    /// Returns the document of a backup.
    pub fn document(&self, name: &str) -> Result<BackupDocument, BackupError> {
        let path = self.document_path(name);
        let damaged = |problem: String| BackupError::Damaged {
            path: path.clone(),
            problem,
        };
        let bytes = self.read(&path, &damaged)?;
        let unsealed = unseal(&bytes, "forebay_backup");
        let (document, _): (BackupDocument, _) =
            unsealed.map_err(|problem| damaged(problem.to_string()))?;
        match document.name == name {
            true => Ok(document),
            false => Err(damaged(format!(
                "it is the document of backup {}",
                document.name
            ))),
        }
    }

    /// Returns the bytes of a document. If it is missing or not a file, `damaged` makes the error.
    pub(super) fn read(
        &self,
        path: &Path,
        damaged: &dyn Fn(String) -> BackupError,
    ) -> Result<Vec<u8>, BackupError> {
        use io::ErrorKind::{InvalidInput, NotFound};
        // A directory may contain a pipe, and a read of it would block.
        let is_file = match self.disk.is_object_storage() {
            true => Ok(()),
            false => self.disk.open(path).map(drop),
        };
        match is_file.and_then(|()| self.disk.read(path)) {
            Err(error) if error.kind() == NotFound => Err(damaged("it is missing".to_owned())),
            Err(error) if error.kind() == InvalidInput => Err(damaged(error.to_string())),
            read => Ok(read.at("read", path)?),
        }
    }

    /// Begins a backup. A place allows one at a time.
    pub fn begin(&self, source: &str) -> Result<NewBackup, BackupError> {
        let path = self.root.join(PLACE_LOCK);
        let words = holder_words(&*self.disk, &*self.clock, "a backup");
        let lock = try_lock(&*self.disk, &path, &words)?;
        let lock = lock.map_err(|holder| BackupError::Busy { holder })?;
        NewBackup::begin(self.clone(), source, lock)
    }

    pub(super) fn backups_dir(&self) -> PathBuf {
        self.root.join("backups")
    }

    pub(super) fn document_path(&self, name: &str) -> PathBuf {
        self.backups_dir().join(format!("{name}{ENDING}"))
    }

    /// Returns the tables that have files in the place, in a backup or not.
    pub(super) fn tables(&self) -> Result<Vec<TableName>, BackupError> {
        let names = self.list(&tables_dir(&self.root))?;
        let names = names.iter().filter_map(|name| TableName::new(name).ok());
        Ok(names.collect())
    }

    pub(super) fn list(&self, dir: &Path) -> Result<Vec<String>, BackupError> {
        match self.disk.list(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => Ok(names.at("list", dir)?),
        }
    }
}

/// The documents of backups.
#[derive(Debug, Default)]
pub struct Documents {
    pub documents: Vec<BackupDocument>,
    /// The unreadable ones, by name.
    pub damaged: Vec<(String, BackupError)>,
}

/// Formats names for a message.
pub(super) fn listed(names: impl Iterator<Item = impl ToString>) -> String {
    let names: Vec<String> = names.map(|name| name.to_string()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}
