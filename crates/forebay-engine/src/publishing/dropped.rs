//! Keeps dropped tables for a while, so that they can be restored.
//!
//! A table's directory moves to `STORE/dropped/TABLE@FROM@UNTIL`, in one step. Both numbers are
//! milliseconds since 1970-01-01 UTC. It moves back the same way. So if a process dies at any
//! moment, the table, or the dropped table, is complete. When its time is over, the directory gets
//! the ending `@over` before its files are removed. A drop or a push removes it.

use std::io;
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use crate::documents::layout::{TableFiles, dropped_dir, tables_dir};
use crate::error::{At, StoreError};
use crate::name::TableName;
use crate::publishing::push::take_push_lock;
use crate::tables::history::{HistoryAction, HistoryNote};
use crate::tables::store::Store;
use crate::utc;

/// A dropped table that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedTable {
    pub table: TableName,
    pub dropped_unix_ms: u64,
    /// The time from which it may be removed, at any moment.
    pub until_unix_ms: u64,
}

impl DroppedTable {
    fn dir_name(&self) -> String {
        let Self {
            table,
            dropped_unix_ms,
            until_unix_ms,
        } = self;
        format!("{table}@{dropped_unix_ms}@{until_unix_ms}")
    }

    fn of_dir(name: &str) -> Option<Self> {
        let mut parts = name.split('@');
        let table = TableName::new(parts.next()?).ok()?;
        let dropped = Self {
            table,
            dropped_unix_ms: parts.next()?.parse().ok()?,
            until_unix_ms: parts.next()?.parse().ok()?,
        };
        // Each number has only one valid text.
        (dropped.dir_name() == name).then_some(dropped)
    }
}

const OVER: &str = "@over";

impl Store {
    /// Drops a table as [`Store::drop_table`] does, but keeps it for a time, in which
    /// [`Store::undrop_table`] restores it. Only for a store in a directory that belongs to no
    /// cluster.
    pub fn drop_table_keeping(
        &self,
        name: &TableName,
        keep: Duration,
    ) -> Result<DroppedTable, StoreError> {
        if self.disk().is_object_storage() || self.pointers().is_some() {
            return Err(StoreError::NotKeeping {
                root: self.root().to_path_buf(),
            });
        }
        let now_unix_ms = self.clock().unix_ms();
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
        let dropped = DroppedTable {
            table: name.clone(),
            dropped_unix_ms: now_unix_ms,
            until_unix_ms: now_unix_ms.saturating_add(keep_ms),
        };
        if self.is_live(name)? {
            self.given_up(name, |_lock| {
                let _push = self
                    .any_table(name)
                    .lock_against_pushes("a drop of the table")?;
                self.set_aside(&dropped)
            })?;
        } else {
            let _locks = self.table(name)?.lock_drop()?;
            self.set_aside(&dropped)?;
        }
        self.remove_overdue();
        self.note(name, HistoryAction::Drop, HistoryNote::default());
        Ok(dropped)
    }

    /// Restores the kept table of that name that was dropped at that time, as [`utc`] writes it, or
    /// else last.
    pub fn undrop_table(
        &self,
        name: &TableName,
        dropped_at: Option<&str>,
    ) -> Result<DroppedTable, StoreError> {
        let is_it = |dropped: &DroppedTable| {
            let time = utc(dropped.dropped_unix_ms);
            dropped.table == *name && dropped_at.is_none_or(|wanted| wanted == time)
        };
        let kept = self.dropped_tables()?.into_iter().rfind(is_it);
        let kept = kept.ok_or_else(|| StoreError::NotKept {
            table: name.clone(),
        })?;
        let table = self.any_table(name);
        let lock = take_push_lock(&table, "an undrop")?;
        let _lock = lock.map_err(|holder| StoreError::PushRuns {
            table: name.clone(),
            holder,
        })?;
        if table.exists()? || self.is_live(name)? || self.was_live(name)? {
            return Err(StoreError::NameTaken {
                table: name.clone(),
                dropped: utc(kept.dropped_unix_ms),
            });
        }
        // A directory without a table has locks and the debris of a failed push.
        let (disk, to) = (&**self.disk(), &table.files.dir);
        disk.remove_dir_all(to).at("remove", to)?;
        let dir = dropped_dir(self.root());
        let from = dir.join(kept.dir_name());
        disk.move_dir(&from, to).at("move", &from)?;
        for dir in [tables_dir(self.root()), dir] {
            disk.sync_dir(&dir).at("sync", &dir)?;
        }
        self.note(name, HistoryAction::Undrop, HistoryNote::default());
        Ok(kept)
    }

    /// Returns the dropped tables that undrop can restore, the last dropped at the end.
    pub fn dropped_tables(&self) -> Result<Vec<DroppedTable>, StoreError> {
        if self.disk().is_object_storage() {
            return Ok(Vec::new());
        }
        let (names, now_unix_ms) = (self.dropped_names()?, self.clock().unix_ms());
        let mut tables: Vec<DroppedTable> = names
            .iter()
            .filter_map(|name| DroppedTable::of_dir(name))
            .filter(|dropped| dropped.until_unix_ms > now_unix_ms)
            .collect();
        tables.sort_by_key(|dropped| dropped.dropped_unix_ms);
        Ok(tables)
    }

    /// Removes the dropped tables whose time is over. Errors are logged; the next push or drop
    /// tries again.
    pub(crate) fn remove_overdue(&self) {
        if self.disk().is_object_storage() {
            return;
        }
        if let Err(error) = self.try_remove_overdue() {
            warn!(%error, "a dropped table stays, though its time is over");
        }
    }

    fn try_remove_overdue(&self) -> Result<(), StoreError> {
        let (disk, now_unix_ms) = (&**self.disk(), self.clock().unix_ms());
        let dir = dropped_dir(self.root());
        for name in self.dropped_names()? {
            let mut path = dir.join(&name);
            match DroppedTable::of_dir(&name) {
                Some(kept) if kept.until_unix_ms > now_unix_ms => continue,
                Some(_) => {
                    let over = dir.join(format!("{name}{OVER}"));
                    gone_or(disk.move_dir(&path, &over), "move", &path)?;
                    path = over;
                }
                None if name.ends_with(OVER) => {}
                None => continue,
            }
            gone_or(disk.remove_dir_all(&path), "remove", &path)?;
        }
        Ok(())
    }

    /// REQUIRES the locks of a drop.
    fn set_aside(&self, dropped: &DroppedTable) -> Result<(), StoreError> {
        let (disk, root) = (&**self.disk(), self.root());
        let from = TableFiles::new(root, &dropped.table).dir;
        let dir = dropped_dir(root);
        disk.create_dir_all(&dir).at("create", &dir)?;
        disk.sync_dir(root).at("sync", root)?;
        let to = dir.join(dropped.dir_name());
        disk.move_dir(&from, &to).at("move", &from)?;
        for dir in [dir, tables_dir(root)] {
            let synced = disk.sync_dir(&dir);
            synced.map_err(|source| StoreError::NotSynced {
                table: dropped.table.clone(),
                serves: None,
                dir,
                source,
            })?;
        }
        Ok(())
    }

    fn dropped_names(&self) -> Result<Vec<String>, StoreError> {
        let dir = dropped_dir(self.root());
        match self.disk().list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            names => names.at("list", &dir),
        }
    }
}

/// Ignores the error that another process was faster.
fn gone_or(done: io::Result<()>, action: &'static str, path: &Path) -> Result<(), StoreError> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.at(action, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_directories_are_read_back_and_others_skipped() {
        let kept = DroppedTable {
            table: TableName::new("shop.stats").expect("a name"),
            dropped_unix_ms: 7,
            until_unix_ms: u64::MAX,
        };
        assert_eq!(kept.dir_name(), "shop.stats@7@18446744073709551615");
        assert_eq!(DroppedTable::of_dir(&kept.dir_name()), Some(kept));
        for other in ["t", "t@7", "t@7@9@over", "t@07@9", "@7@9", "t@7@9@9", ""] {
            assert_eq!(DroppedTable::of_dir(other), None, "{other}");
        }
    }
}
