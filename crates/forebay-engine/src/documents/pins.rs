//! Pins, which keep versions and files that no pointer names from removal.
//!
//! Pinned are versions, and files that an unfinished version reuses. Pins hold in this process
//! only.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::name::TableName;

#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// The number of pins of each version.
    versions: Mutex<BTreeMap<(TableName, u64), usize>>,
    files: Mutex<Vec<Weak<PinnedFiles>>>,
}

/// A pin of a version: [`Table::retain`](crate::Table::retain) keeps the version until this is
/// dropped. It holds in this process only, and ends with it.
#[derive(Debug)]
pub struct PinnedVersion {
    pins: Arc<Pins>,
    version: (TableName, u64),
}

/// Pinned files in a table's directory of runs, by name.
#[derive(Debug)]
pub(crate) struct PinnedFiles {
    pub table: TableName,
    pub names: HashSet<String>,
}

impl Pins {
    pub fn pin(self: &Arc<Self>, table: &TableName, version: u64) -> PinnedVersion {
        let version = (table.clone(), version);
        *self.versions.lock().entry(version.clone()).or_default() += 1;
        let pins = Arc::clone(self);
        PinnedVersion { pins, version }
    }

    pub fn holds(&self, table: &TableName, version: u64) -> bool {
        let version = (table.clone(), version);
        self.versions.lock().contains_key(&version)
    }

    /// Pins the files until the result is dropped.
    pub fn pin_files(&self, files: PinnedFiles) -> Arc<PinnedFiles> {
        let files = Arc::new(files);
        let mut all = self.files.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&files));
        files
    }

    pub fn holds_file(&self, table: &TableName, name: &str) -> bool {
        let all = self.files.lock();
        let mut pinned = all.iter().filter_map(Weak::upgrade);
        pinned.any(|files| files.table == *table && files.names.contains(name))
    }
}

impl Drop for PinnedVersion {
    fn drop(&mut self) {
        let mut versions = self.pins.versions.lock();
        debug_assert!(
            versions.get(&self.version).is_some_and(|count| *count > 0),
            "version {:?} is let go and was not pinned",
            self.version
        );
        if let Some(count) = versions.get_mut(&self.version) {
            *count -= 1;
            if *count == 0 {
                versions.remove(&self.version);
            }
        }
    }
}
