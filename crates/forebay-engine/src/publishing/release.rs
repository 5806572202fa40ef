//! Removes the files of partitions that a store no longer holds.

use std::collections::HashSet;

use crate::documents::layout::run_file;
use crate::documents::manifest::{Manifest, Partition};
use crate::error::{At, StoreError};
use crate::keys::partition::OpenPartitions;
use crate::publishing::cleanup::remove_if_there;
use crate::publishing::install::VersionFile;
use crate::tables::table::Table;

/// The result of [`Table::release`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseReport {
    pub files: usize,
    pub bytes: u64,
}

impl Table {
    /// Removes the files that versions of the table name only in partitions that the store does not
    /// hold. Readers that have such a file open can keep reading. A reader that opens a version
    /// with the earlier partitions does not find it, so the caller waits for some time first.
    /// Refused while a version is being made or fetched, because these may be its files. If
    /// interrupted, it is safe to repeat.
    pub fn release(&self) -> Result<ReleaseReport, StoreError> {
        let _push = self.lock_against_pushes("a removal of partitions")?;
        let _pointer = self.lock_pointer("a removal of partitions")?;
        // An unreadable manifest may need any file.
        let manifests: Vec<Manifest> = self
            .version_numbers()?
            .into_iter()
            .map(|version| self.manifest(version))
            .collect::<Result<_, _>>()?;
        let held = |manifest| self.files_of(manifest).into_iter().map(|file| file.name);
        let needed: HashSet<String> = manifests.iter().flat_map(held).collect();
        let goes = |partition: &Partition| {
            let mut runs = partition.runs.iter();
            runs.any(|run| !needed.contains(&run_file(&run.id)))
        };
        self.disprove_where(&goes)?;
        let mut done = HashSet::new();
        let mut released = ReleaseReport::default();
        for file in manifests
            .iter()
            .flat_map(|manifest| self.files_in(manifest, &OpenPartitions::All))
        {
            if needed.contains(&file.name) || !done.insert(file.name.clone()) {
                continue;
            }
            if let Some(bytes) = self.remove_released(&file)? {
                released.files += 1;
                released.bytes += bytes;
            }
        }
        Ok(released)
    }

    /// Returns the length of the removed file; `None` if there was none.
    fn remove_released(&self, file: &VersionFile) -> Result<Option<u64>, StoreError> {
        let disk = &**self.disk();
        if !disk.exists(&file.path).at("look for", &file.path)? {
            return Ok(None);
        }
        remove_if_there(disk, &file.path)?;
        Ok(Some(file.len_bytes))
    }
}
