//! Removes old versions, the debris of failed pushes, and whole tables.
//!
//! The order is always the same, so that no reader and no crash meets a version without its runs.
//! First the pointer stops naming a version. Then its manifest is removed, durably. Only then are
//! its runs removed. A run that no manifest names is debris; removing debris is safe to repeat.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use forebay_io::{Disk, Lock};
use tracing::{debug, warn};

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{
    TableFiles, extent_file, is_unfinished, proven_version, run_file, store_file, tables_dir,
};
use crate::documents::manifest::Manifest;
use crate::documents::pointer::Pointer;
use crate::documents::pointers::PointerMove;
use crate::error::{At, StoreError};
use crate::name::{RunId, TableName};
use crate::tables::store::{CREATION_LOCK, Store};
use crate::tables::table::Table;

impl Store {
    /// Removes a store that has no table, and its directory if `dir` is set.
    pub(crate) fn unmake(&self, dir: bool) -> Result<(), StoreError> {
        let (disk, root, tables) = (&**self.disk(), self.root(), tables_dir(self.root()));
        match disk.remove_dir(&tables) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).at("remove", &tables);
            }
            _ => {}
        }
        remove_if_there(disk, &store_file(root))?;
        remove_if_there(disk, &root.join(CREATION_LOCK))?;
        match dir {
            true => disk.remove_dir(root).at("remove", root),
            false => Ok(()),
        }
    }
}

impl Store {
    /// Removes files of a table that no version names. Refused while a version of it is being made
    /// or fetched, because these may be its files.
    pub fn remove_leftovers(&self, name: &TableName) -> Result<(), StoreError> {
        let table = self.any_table(name);
        let dir = &table.files.runs();
        if !self.disk().exists(dir).at("look for", dir)? {
            return Ok(());
        }
        let _push = table.lock_against_pushes("a removal of debris")?;
        let _pointer = table.lock_pointer("a removal of debris")?;
        table.sweep(&[])
    }
}

/// A drop of a table whose locks are held.
#[derive(Debug)]
pub(crate) struct Dropping {
    table: Table,
    _locks: [Box<dyn Lock>; 2],
}

impl Dropping {
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Marks the pointer: from now on the table does not exist for its readers.
    pub fn mark(&self) -> Result<(), StoreError> {
        let table = &self.table;
        if let Some(pointers) = table.store().pointers() {
            return pointers.change(table.name(), PointerMove::Drop).map(drop);
        }
        let last = match Pointer::read(&**table.disk(), &table.files.pointer()) {
            Err(StoreError::DamagedPointer { .. }) => Pointer::unset(),
            pointer => pointer?.unwrap_or_else(Pointer::unset),
        };
        table.write_pointer(last.tombstone()).map(drop)
    }

    /// REQUIRES [`Dropping::mark`].
    pub fn finish(self) -> Result<(), StoreError> {
        let table = &self.table;
        let removed = table.remove_content();
        removed.map_err(|source| StoreError::remains(table.name(), source))?;
        remove_table_dir(table.store(), &table.files);
        Ok(())
    }
}

impl Table {
    /// Removes old versions and returns their numbers, in rising order. Kept are the `keep`
    /// versions with the greatest numbers, the serving version, the version that a rollback would
    /// restore, and pinned versions ([`Table::pin`]). Readers that have a removed version open can
    /// keep reading.
    pub fn retain(&self, keep: usize) -> Result<Vec<u64>, StoreError> {
        let _lock = self.lock_pointer("a removal of old versions")?;
        self.retain_locked(keep)
    }

    /// REQUIRES the pointer lock.
    pub(crate) fn retain_locked(&self, keep: usize) -> Result<Vec<u64>, StoreError> {
        let pointer = self.pointer()?;
        let (kept, removed) = self.kept_and_old(&pointer, keep)?;
        if !removed.is_empty() {
            self.remove_versions(&pointer, &kept, &removed)?;
        }
        Ok(removed)
    }

    /// Returns the versions to keep and to remove, for `keep` and this pointer.
    pub(crate) fn kept_and_old(
        &self,
        pointer: &Pointer,
        keep: usize,
    ) -> Result<(Vec<u64>, Vec<u64>), StoreError> {
        let numbers = self.version_numbers()?;
        let newest = numbers.len().saturating_sub(keep);
        let pins = self.store().pins();
        let is_cluster = self.store().pointers().is_some();
        let needed = |version: u64| {
            let pointed = [pointer.serving, pointer.before()];
            // In a cluster, the catalog limits its own history.
            let is_past = is_cluster && pointer.history.contains(&version);
            pointed.contains(&Some(version)) || is_past || pins.holds(self.name(), version)
        };
        let (old, new) = numbers.split_at(newest);
        let (kept_old, removed): (Vec<u64>, Vec<u64>) =
            old.iter().partition(|version| needed(**version));
        let kept: Vec<u64> = kept_old.iter().chain(new).copied().collect();
        Ok((kept, removed))
    }

    /// REQUIRES the pointer lock.
    fn remove_versions(
        &self,
        pointer: &Pointer,
        kept: &[u64],
        removed: &[u64],
    ) -> Result<(), StoreError> {
        let disk = &**self.disk();
        let mut orphans = HashSet::new();
        for &version in removed {
            // A damaged one names nothing: its runs are debris for the next push.
            if let Ok(manifest) = self.manifest(version) {
                orphans.extend(file_names(&manifest));
            }
        }
        let needed = self.files_named_by(kept)?;
        let pruned = pointer.pruned(|past| !removed.contains(&past));
        // A cluster's catalog prunes its own history.
        if pruned != *pointer && self.store().pointers().is_none() {
            self.write_pointer(pruned)
                .map_err(StoreError::but_for_readers)?;
        }
        for &version in removed {
            remove_if_there(disk, &self.files.manifest(version))?;
            self.remove_proof(version)?;
        }
        let versions = self.files.versions();
        disk.sync_dir(&versions).at("sync", &versions)?;
        let Some(needed) = needed else { return Ok(()) };
        let pins = self.store().pins();
        let orphans = orphans.difference(&needed);
        for name in orphans.filter(|name| !pins.holds_file(self.name(), name)) {
            remove_if_there(disk, &self.files.runs().join(name))?;
        }
        Ok(())
    }

    /// Returns the names of all files that these versions need. If a manifest among them cannot be
    /// read, returns `None` with a warning, because any file may be needed.
    fn files_named_by(&self, versions: &[u64]) -> Result<Option<HashSet<String>>, StoreError> {
        let mut names = HashSet::new();
        for &version in versions {
            match self.manifest(version) {
                Ok(manifest) => names.extend(file_names(&manifest)),
                // An older program removes versions without the push lock.
                Err(StoreError::NoVersion { .. }) if self.disk().is_object_storage() => {}
                Err(error @ StoreError::Damaged { .. }) => {
                    warn!(table = %self.name(), version, %error, "no run is removed meanwhile");
                    return Ok(None);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(names))
    }

    /// Removes the debris of failed pushes and the unused runs that others wrote for this push.
    /// Runs in `spared` stay. REQUIRES the push lock and, except in object storage, the pointer
    /// lock.
    pub(crate) fn sweep(&self, spared: &[RunId]) -> Result<(), StoreError> {
        let disk = &**self.disk();
        // If a manifest's removal is not durable yet, the manifest could reappear after its runs
        // are gone.
        let versions = self.files.versions();
        disk.sync_dir(&versions).at("sync", &versions)?;
        for dir in [&self.files.dir, &versions] {
            for name in disk
                .list(dir)
                .at("list", dir)?
                .iter()
                .filter(|name| is_unfinished(name))
            {
                remove_if_there(disk, &dir.join(name))?;
            }
        }
        let scratch = self.files.scratch();
        if disk.exists(&scratch).at("look for", &scratch)? {
            disk.remove_dir_all(&scratch).at("remove", &scratch)?;
        }
        let numbers = self.version_numbers()?;
        let names = disk.list(&versions).at("list", &versions)?;
        let noted = names.iter().filter_map(|name| proven_version(name));
        for version in noted.filter(|version| !numbers.contains(version)) {
            self.remove_proof(version)?;
        }
        // A serving version that has lost its manifest may need any of the files.
        let is_lost = |version| !numbers.contains(&version);
        if self.store().pointers().is_none() && self.pointer()?.serving.is_some_and(is_lost) {
            return Ok(());
        }
        let Some(mut needed) = self.files_named_by(&numbers)? else {
            return Ok(());
        };
        needed.extend(spared.iter().flat_map(|id| [run_file(id), extent_file(id)]));
        let runs = self.files.runs();
        for name in disk.list(&runs).at("list", &runs)? {
            if !needed.contains(&name) {
                debug!(table = %self.name(), file = name, "removing debris");
                remove_if_there(disk, &runs.join(&name))?;
            }
        }
        Ok(())
    }

    /// Removes the directory of a table that was never completed: no version, no pointer. REQUIRES
    /// the push lock. Ignores errors, because the next push uses the directory.
    pub(crate) fn remove_void(&self) {
        let is_void = || -> Result<bool, StoreError> {
            let pointer = self.files.pointer();
            Ok(!self.disk().is_object_storage()
                && !self.store().is_live(self.name())?
                && !self.store().is_lost(self.name())?
                && self.version_numbers()?.is_empty()
                && !self.disk().exists(&pointer).at("look for", &pointer)?)
        };
        if is_void().is_ok_and(|is_void| is_void) {
            remove_table_dir(self.store(), &self.files);
        }
    }

    pub(crate) fn drop_all(&self) -> Result<(), StoreError> {
        let dropping = self.lock_drop()?;
        dropping.mark()?;
        dropping.finish()
    }

    /// Takes the locks of a drop.
    pub(crate) fn lock_drop(&self) -> Result<Dropping, StoreError> {
        let push = self.lock_against_pushes("a drop of the table")?;
        let pointer = self.lock_pointer("a drop")?;
        Ok(Dropping {
            table: self.clone(),
            _locks: [push, pointer],
        })
    }

    /// Takes the push lock for an operation that is not a push; refused during a push.
    pub(crate) fn lock_against_pushes(&self, what: &str) -> Result<Box<dyn Lock>, StoreError> {
        let disk = &**self.disk();
        self.check_own()?;
        let words = holder_words(disk, &**self.store().clock(), what);
        let lock = try_lock(disk, &self.files.push_lock(), &words)?;
        lock.map_err(|holder| StoreError::PushRuns {
            table: self.name().clone(),
            holder,
        })
    }

    /// Returns whether a push, or a load of changes, is running on this machine or a shared disk.
    pub fn is_push_under_way(&self) -> Result<bool, StoreError> {
        let path = self.files.push_lock();
        self.disk().is_locked(&path).at("look for", &path)
    }

    /// Returns whether the table was dropped but some of its files could not be removed.
    pub(crate) fn is_tombstone(&self) -> Result<bool, StoreError> {
        match self.read_pointer() {
            Ok(pointer) => Ok(pointer.is_some_and(|pointer| pointer.dropped)),
            Err(StoreError::DamagedPointer { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes all content of a table whose pointer marks it as dropped, and then that pointer.
    /// REQUIRES the push lock and the pointer lock.
    pub(crate) fn finish_drop(&self) -> Result<(), StoreError> {
        let disk = &**self.disk();
        self.remove_content()?;
        remove_if_there(disk, &self.files.pointer())?;
        disk.sync_dir(&self.files.dir).at("sync", &self.files.dir)
    }

    /// Removes versions and runs for good. REQUIRES the same locks as [`Table::finish_drop`].
    fn remove_content(&self) -> Result<(), StoreError> {
        let disk = &**self.disk();
        for dir in [self.files.versions(), self.files.runs()] {
            let names = match disk.list(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                names => names.at("list", &dir)?,
            };
            for name in names {
                remove_if_there(disk, &dir.join(name))?;
            }
            disk.sync_dir(&dir).at("sync", &dir)?;
        }
        Ok(())
    }
}

fn file_names(manifest: &Manifest) -> impl Iterator<Item = String> {
    manifest.runs().flat_map(|run| {
        let extent = (run.summary.ext_bytes > 0).then(|| extent_file(&run.id));
        [Some(run_file(&run.id)), extent].into_iter().flatten()
    })
}

/// Removes the rest of a dropped table: its directory, the lock files, the pointer that marks the
/// drop. The drop is complete even if they stay.
pub(crate) fn remove_table_dir(store: &Store, files: &TableFiles) {
    let disk = &**store.disk();
    let removed = disk.remove_dir_all(&files.dir);
    if let Err(error) = removed.and_then(|()| disk.sync_dir(&tables_dir(store.root()))) {
        let path = files.dir.display();
        warn!(%path, %error, "the directory of a dropped table stays");
    }
}

/// In object storage, aborts unfinished uploads of a table's files.
pub(crate) fn remove_uploads(disk: &dyn Disk, files: &TableFiles) -> Result<(), StoreError> {
    let uploads = files.uploads();
    match disk.remove_dir_all(&uploads) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.at("remove", &uploads),
    }
}

/// Removes a file; a missing file is no error.
pub(crate) fn remove_if_there(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).at("remove", path),
        _ => Ok(()),
    }
}
