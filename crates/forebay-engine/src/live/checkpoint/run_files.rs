//! The places of the files of a checkpoint's runs.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Disk, ReadFile};

use crate::documents::layout::{TableFiles, run_of};
use crate::name::RunId;

/// A source of the files of runs, by their names (`ID.run`, `ID.ext`).
pub trait RunFiles: Debug + Send + Sync {
    fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>>;

    /// Returns the path of the file, if it is on this machine and may be linked.
    fn path(&self, file: &str) -> Option<PathBuf>;
}

/// Files in a directory of runs.
#[derive(Debug)]
pub(crate) struct DiskFiles {
    disk: Arc<dyn Disk>,
    runs: PathBuf,
    may_link: bool,
}

impl DiskFiles {
    pub fn new(disk: Arc<dyn Disk>, files: &TableFiles) -> Self {
        let (runs, may_link) = (files.runs(), !disk.is_object_storage());
        Self {
            disk,
            runs,
            may_link,
        }
    }

    /// Returns files that are always copied, never linked.
    pub fn copied(disk: Arc<dyn Disk>, files: &TableFiles) -> Self {
        Self {
            may_link: false,
            ..Self::new(disk, files)
        }
    }
}

impl RunFiles for DiskFiles {
    fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.disk.open(&self.runs.join(file))
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        self.may_link.then(|| self.runs.join(file))
    }
}

/// Files in several places.
#[derive(Debug)]
pub struct JoinedFiles {
    files: HashMap<RunId, Arc<dyn RunFiles>>,
}

impl JoinedFiles {
    pub fn new(files: HashMap<RunId, Arc<dyn RunFiles>>) -> Self {
        Self { files }
    }

    fn of(&self, file: &str) -> Option<&Arc<dyn RunFiles>> {
        self.files.get(&run_of(file.as_ref())?)
    }
}

impl RunFiles for JoinedFiles {
    fn open(&self, file: &str) -> io::Result<Arc<dyn ReadFile>> {
        self.of(file).ok_or(io::ErrorKind::NotFound)?.open(file)
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        self.of(file)?.path(file)
    }
}
