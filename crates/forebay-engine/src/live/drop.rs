//! Drops live tables, and removes their files.
//!
//! A drop renames the table's manifest to a mark. From then on the table does not exist, and its
//! remaining files are garbage. Making a table begins with the same mark, which is removed when the
//! table is complete and opened. Runs and a log without a manifest and without the mark belong to a
//! table whose manifest was lost. Only another drop removes them.

use std::io;
use std::path::PathBuf;

use forebay_io::Disk;
use tracing::warn;

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{TableFiles, tables_dir};
use crate::error::{At, StoreError};
use crate::name::TableName;
use crate::publishing::cleanup::{remove_if_there, remove_table_dir};
use crate::tables::store::Store;
use crate::tables::table::Table;

impl Store {
    /// Drops a live table. A server that has it open closes it. The drop is refused while another
    /// process keeps it open, and during a load of it.
    pub(crate) fn drop_live(&self, name: &TableName) -> Result<(), StoreError> {
        self.given_up(name, |_lock| self.drop_closed(name))
    }

    /// Drops a table that is closed. REQUIRES: this process has the table's lock.
    fn drop_closed(&self, name: &TableName) -> Result<(), StoreError> {
        let files = TableFiles::new(self.root(), name);
        let words = holder_words(&**self.disk(), &**self.clock(), "a drop");
        let push = try_lock(&**self.disk(), &files.push_lock(), &words)?;
        let _push = push.map_err(|holder| StoreError::PushRuns {
            table: name.clone(),
            holder,
        })?;
        retire(&**self.disk(), &files)?;
        let synced = self.disk().sync_dir(&files.dir);
        synced.map_err(|source| StoreError::NotSynced {
            table: name.clone(),
            serves: None,
            dir: files.dir.clone(),
            source,
        })?;
        let removed = self.remove_live_files(&files);
        removed.map_err(|source| StoreError::remains(name, source))?;
        remove_table_dir(self, &files);
        Ok(())
    }

    /// Removes the files of a live table that could not be made. REQUIRES the push lock.
    pub(crate) fn unmake_live(&self, name: &TableName) {
        let table = self.any_table(name);
        // A process that has it open found it complete.
        let Ok(_lock) = self.lock_live(name, &table.files) else {
            return;
        };
        // Files are removed only when a power cut cannot bring the manifest back.
        let dir = &table.files.dir;
        let unmade = retire(&**self.disk(), &table.files)
            .and_then(|()| self.disk().sync_dir(dir).at("sync", dir));
        match unmade {
            Ok(()) => table.remove_void(),
            Err(error) => warn!(table = %name, %error, "a table that was not made may be there"),
        }
    }

    /// Marks and removes what a partial drop, or a push that died, left under this name. Makes the
    /// directories durable.
    pub(crate) fn clear_for_live(&self, files: &TableFiles) -> Result<(), StoreError> {
        let (disk, mark) = (&**self.disk(), files.dropped_mark());
        match disk.create(&mark) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(error).at("create", &mark);
            }
            _ => disk.sync_dir(&files.dir).at("sync", &files.dir)?,
        }
        self.remove_live_files(files)?;
        for dir in [files.runs(), files.log_dir()] {
            disk.create_dir_all(&dir).at("create", &dir)?;
        }
        for dir in [self.root(), &tables_dir(self.root()), &files.dir] {
            disk.sync_dir(dir).at("sync", dir)?;
        }
        Ok(())
    }

    /// Removes what an interrupted drop or creation left, for a table of the other kind. REQUIRES
    /// the push lock.
    pub(crate) fn finish_live_drop(&self, table: &Table) -> Result<(), StoreError> {
        let (disk, mark) = (&**self.disk(), table.files.dropped_mark());
        if disk.is_object_storage()
            || !disk.exists(&mark).at("look for", &mark)?
            || table.exists()?
        {
            return Ok(());
        }
        self.remove_live_files(&table.files)?;
        remove_if_there(disk, &mark)
    }

    /// Removes the files in the directories of a dropped table. The log is last, as
    /// [`Store::was_live`] looks for it if there is no mark.
    fn remove_live_files(&self, files: &TableFiles) -> Result<(), StoreError> {
        let disk = &**self.disk();
        remove_if_there(disk, &files.log_note())?;
        for dir in [files.runs(), files.scratch(), files.log_dir()] {
            if disk.exists(&dir).at("look for", &dir)? {
                disk.remove_dir_all(&dir).at("remove", &dir)?;
            }
        }
        disk.sync_dir(&files.dir).at("sync", &files.dir)
    }

    /// Returns whether files are left of a live table that no longer exists.
    pub(crate) fn was_live(&self, name: &TableName) -> Result<bool, StoreError> {
        let files = TableFiles::new(self.root(), name);
        let there = |path: PathBuf| self.disk().exists(&path).at("look for", &path);
        Ok(!self.is_live(name)? && (there(files.log_dir())? || there(files.dropped_mark())?))
    }

    /// Returns whether runs or a log are left of a live table that was not dropped, and whose
    /// manifest is gone.
    pub(crate) fn is_lost(&self, name: &TableName) -> Result<bool, StoreError> {
        let (disk, files) = (&**self.disk(), TableFiles::new(self.root(), name));
        let mark = files.dropped_mark();
        // Object stores have no live tables.
        if disk.is_object_storage()
            || !self.was_live(name)?
            || disk.exists(&mark).at("look for", &mark)?
            || self.any_table(name).exists()?
        {
            return Ok(false);
        }
        for dir in [files.log_dir(), files.runs()] {
            let names = match disk.list(&dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                names => names.at("list", &dir)?,
            };
            if !names.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Refuses to make a table in the place of one whose manifest was lost.
    pub(crate) fn refuse_lost(&self, name: &TableName) -> Result<(), StoreError> {
        if !self.is_lost(name)? {
            return Ok(());
        }
        let files = TableFiles::new(self.root(), name);
        Err(StoreError::LostManifest {
            table: name.clone(),
            path: files.live_manifest(),
            dir: files.dir,
        })
    }
}

/// Renames a table's manifest to the mark of a dropped table, if there is a manifest. If a full
/// device has no room for the name, the manifest is removed: after a crash, another drop is needed
/// then.
fn retire(disk: &dyn Disk, files: &TableFiles) -> Result<(), StoreError> {
    let manifest = files.live_manifest();
    match disk.rename(&manifest, &files.dropped_mark()) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => remove_if_there(disk, &manifest),
        _ => Ok(()),
    }
}
