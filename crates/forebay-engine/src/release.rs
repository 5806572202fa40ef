//! Removing the files of partitions that a store holds no more.

use std::collections::HashSet;

use crate::cleanup::remove_if_there;
use crate::error::{At, StoreError};
use crate::install::VersionFile;
use crate::layout::run_file;
use crate::manifest::{Manifest, Partition};
use crate::partition::OpenPartitions;
use crate::table::Table;

/// What [`Table::release`] removed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseReport {
    pub files: usize,
    pub bytes: u64,
}

impl Table {
    /// Removes the files that are named by versions of the table, and by none of them in a
    /// partition that the store holds. Who has such a file open reads on; whoever opens a version
    /// by what was held before does not find it, so a caller lets some time pass first. Refused
    /// while a version is made or brought, whose files these may be. Cut short, it is safe to
    /// repeat.
    pub fn release(&self) -> Result<ReleaseReport, StoreError> {
        let _push = self.lock_against_pushes("a removal of partitions")?;
        let _pointer = self.lock_pointer("a removal of partitions")?;
        // One that cannot be read may need anything.
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

    /// How many bytes the file had; `None`: it was not there.
    fn remove_released(&self, file: &VersionFile) -> Result<Option<u64>, StoreError> {
        let disk = &**self.disk();
        if !disk.exists(&file.path).at("look for", &file.path)? {
            return Ok(None);
        }
        remove_if_there(disk, &file.path)?;
        Ok(Some(file.len_bytes))
    }
}
