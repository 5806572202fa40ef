//! A table of a store: its versions, and the pointer to the serving one.

use std::io;
use std::sync::Arc;

use forebay_io::{Disk, Lock};
use forebay_run::content::ContentSum;

use crate::documents::holder::wait_lock;
use crate::documents::layout::{TableFiles, version_of};
use crate::documents::manifest::Manifest;
use crate::documents::pins::PinnedVersion;
use crate::documents::pointer::{LastRollback, Pointer};
use crate::documents::pointers::{PointerMove, SwapReport};
use crate::error::{At, ReadError, StoreError};
use crate::keys::partition::OpenPartitions;
use crate::name::TableName;
use crate::tables::history::{HistoryAction, HistoryNote};
use crate::tables::store::Store;
use crate::tables::version::Version;

/// For so long after a rollback, another one has to name the version that it replaces.
const ROLLBACKS_APART_MS: u64 = 60_000;

/// A handle to a table; it holds no file open.
#[derive(Debug, Clone)]
pub struct Table {
    store: Store,
    name: TableName,
    pub(crate) files: TableFiles,
}

/// An entry of a table's list of versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    pub version: u64,
    /// [`Manifest::rows_between`].
    pub rows_between: (u64, u64),
    /// The number of runs of its fullest partition.
    pub runs_deep: usize,
    /// Keys and values, in bytes.
    pub bytes: u64,
    /// The length of its files.
    pub file_bytes: u64,
    /// The start of its push, in milliseconds since 1970-01-01 UTC.
    pub created_unix_ms: u64,
    /// [`Manifest::content`].
    pub content: Option<ContentSum>,
    /// Whether it is the serving version.
    pub serving: bool,
    /// Whether a rollback would restore this version.
    pub previous: bool,
    /// The reason that its manifest cannot be read; the counts are 0 then.
    pub problem: Option<String>,
}

impl Store {
    /// Returns the batch tables, sorted: those with at least one version, and those whose versions
    /// cannot be listed. See also [`Store::live_tables`].
    pub fn tables(&self) -> Result<Vec<TableName>, StoreError> {
        let mut tables = self.table_dirs()?;
        tables.retain(|name| self.any_table(name).exists().unwrap_or(true));
        Ok(tables)
    }

    /// Returns an existing batch table; [`StoreError::NoTable`] for any other name,
    /// [`StoreError::IsLive`] for a live one.
    pub fn table(&self, name: &TableName) -> Result<Table, StoreError> {
        let table = self.any_table(name);
        let name = name.clone();
        if table.exists()? {
            Ok(table)
        } else if self.is_live(&name)? {
            Err(StoreError::IsLive { table: name })
        } else {
            Err(StoreError::NoTable { table: name })
        }
    }

    pub(crate) fn any_table(&self, name: &TableName) -> Table {
        Table {
            store: self.clone(),
            name: name.clone(),
            files: TableFiles::new(self.root(), name),
        }
    }

    /// Removes a table with all its versions, or a live table. Refused during a push to it, and
    /// while a process that is not a server has a live table open. From the first durable step on,
    /// the table does not exist for any reader. If the removal is interrupted, another drop, the
    /// next push to that name, or the next creation of a live table completes it.
    pub fn drop_table(&self, name: &TableName) -> Result<(), StoreError> {
        self.drop_unnoted(name)?;
        self.note(name, HistoryAction::Drop, HistoryNote::default());
        Ok(())
    }

    fn drop_unnoted(&self, name: &TableName) -> Result<(), StoreError> {
        self.remove_overdue();
        if self.is_live(name)? {
            return self.drop_live(name);
        }
        match self.table(name) {
            Err(StoreError::NoTable { .. }) if self.any_table(name).is_tombstone()? => {
                self.any_table(name).drop_all()
            }
            Err(StoreError::NoTable { .. }) if self.was_live(name)? => self.drop_live(name),
            table => table?.drop_all(),
        }
    }
}

impl Table {
    pub fn name(&self) -> &TableName {
        &self.name
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Protects a version from [`Table::retain`] in this process, for this handle's store and its
    /// clones, until the result is dropped.
    pub fn pin(&self, version: u64) -> PinnedVersion {
        self.store.pins().pin(&self.name, version)
    }

    pub(crate) fn disk(&self) -> &Arc<dyn Disk> {
        self.store.disk()
    }

    /// Returns whether a plain file has the name of the table's directory. Such a file is not a
    /// table.
    pub(crate) fn is_plain_file(&self) -> bool {
        let listed = self.disk().list(&self.files.dir);
        listed.is_err_and(|error| error.kind() == io::ErrorKind::NotADirectory)
    }

    /// Refuses to change a directory that belongs to another table: a link to it, or a copy.
    pub(crate) fn check_own(&self) -> Result<(), StoreError> {
        // In object storage there are no links, and each check costs a request.
        if self.disk().is_object_storage() {
            return Ok(());
        }
        let newest = self
            .version_numbers()
            .ok()
            .and_then(|numbers| numbers.last().copied());
        let bytes = newest.and_then(|newest| self.disk().read(&self.files.manifest(newest)).ok());
        // The operation that needs a damaged manifest will report it.
        match bytes.and_then(|bytes| Manifest::parse(&bytes).ok()) {
            Some((manifest, _)) if manifest.table != self.name => Err(StoreError::OfAnother {
                dir: self.files.dir.clone(),
                table: self.name.clone(),
                owner: manifest.table,
            }),
            _ => Ok(()),
        }
    }

    /// Returns whether it has a version and was not dropped.
    pub(crate) fn exists(&self) -> Result<bool, StoreError> {
        if self.version_numbers()?.is_empty() {
            return Ok(false);
        }
        match self.read_pointer() {
            Ok(pointer) => Ok(pointer.is_none_or(|pointer| !pointer.dropped)),
            Err(StoreError::DamagedPointer { .. }) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the current pointer; [`Pointer::unset`] before the first swap.
    pub fn pointer(&self) -> Result<Pointer, StoreError> {
        match self.read_pointer()? {
            Some(pointer) if pointer.dropped => Err(self.no_table()),
            Some(pointer) => Ok(pointer),
            None => Ok(Pointer::unset()),
        }
    }

    /// Returns `None` if there is no pointer yet.
    pub(crate) fn read_pointer(&self) -> Result<Option<Pointer>, StoreError> {
        match self.store.pointers() {
            Some(pointers) => pointers.read(&self.name),
            None => Pointer::read(&**self.disk(), &self.files.pointer()),
        }
    }

    /// Makes the next reads bypass caches of the store's state. In object storage, answers may
    /// otherwise be a second old, and older than a change by another handle of this process.
    pub fn look_again(&self) {
        self.disk().look_again(&self.files.dir);
    }

    /// Returns the serving version; [`StoreError::NothingServes`] before the first swap.
    pub fn serving(&self) -> Result<u64, StoreError> {
        let nothing = || StoreError::NothingServes {
            table: self.name.clone(),
        };
        self.pointer()?.serving.ok_or_else(nothing)
    }

    /// Returns the numbers of all versions, in rising order.
    pub fn version_numbers(&self) -> Result<Vec<u64>, StoreError> {
        let dir = self.files.versions();
        let names = match self.disk().list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory && self.is_plain_file() => {
                Vec::new()
            }
            names => names.at("list", &dir)?,
        };
        let mut versions: Vec<u64> = names.iter().filter_map(|name| version_of(name)).collect();
        versions.sort_unstable();
        Ok(versions)
    }

    /// Returns all versions, in rising order. One with a damaged manifest is listed with its
    /// problem.
    pub fn versions(&self) -> Result<Vec<VersionInfo>, StoreError> {
        let pointer = self.pointer()?;
        let numbers = self.version_numbers()?;
        let mut list = Vec::with_capacity(numbers.len());
        for version in numbers {
            match self.manifest(version) {
                Ok(manifest) => list.push(VersionInfo::new(version, &pointer, Ok(&manifest))),
                Err(StoreError::NoVersion { .. }) => {}
                Err(error @ StoreError::Damaged { .. }) => {
                    list.push(VersionInfo::new(version, &pointer, Err(error.to_string())));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(list)
    }

    /// Returns a version's manifest, checked.
    pub fn manifest(&self, version: u64) -> Result<Manifest, StoreError> {
        self.manifest_and_sum(version).map(|(manifest, _)| manifest)
    }

    /// Returns a manifest with the checksum that identifies it.
    pub(crate) fn manifest_and_sum(&self, version: u64) -> Result<(Manifest, u64), StoreError> {
        let path = self.files.manifest(version);
        let bytes = match self.disk().read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let existing = self.version_numbers()?;
                return Err(StoreError::NoVersion {
                    table: self.name.clone(),
                    version,
                    existing,
                });
            }
            bytes => bytes.at("read", &path)?,
        };
        let damaged = |problem| StoreError::Damaged {
            path: path.clone(),
            problem,
        };
        let (manifest, sum) = Manifest::parse(&bytes).map_err(damaged)?;
        if manifest.table != self.name || manifest.version != version {
            let (table, version) = (&manifest.table, manifest.version);
            let problem = format!("it is that of version {version} of table {table}");
            return Err(damaged(
                crate::documents::seal::DocumentError::Inconsistent(problem),
            ));
        }
        Ok((manifest, sum))
    }

    /// Opens a version for reading, with the partitions that the store holds. It stays readable
    /// until the last handle is dropped, even if its files are unlinked.
    pub fn open_version(&self, version: u64) -> Result<Arc<Version>, ReadError> {
        let read = self.manifest_and_sum(version)?;
        let held = self.store.held(&read.0);
        self.open_read(read, &held, &[])
    }

    /// Does [`Table::open_version`] with other partitions than the store's. Shares the runs that
    /// `known`, open versions of this table, have open; these may include the same version with
    /// other partitions. Touches no file of partitions that are not held.
    pub fn open_partitions(
        &self,
        version: u64,
        held: &OpenPartitions,
        known: &[&Version],
    ) -> Result<Arc<Version>, ReadError> {
        self.open_read(self.manifest_and_sum(version)?, held, known)
    }

    /// Opens the same version as an open one, with other partitions.
    pub(crate) fn open_again(
        &self,
        open: &Version,
        held: &OpenPartitions,
    ) -> Result<Arc<Version>, ReadError> {
        self.open_read(open.manifest_and_sum(), held, &[open])
    }

    /// Does [`Table::open_partitions`] for a version whose manifest and checksum are given.
    pub(crate) fn open_read(
        &self,
        (manifest, sum): (Manifest, u64),
        held: &OpenPartitions,
        known: &[&Version],
    ) -> Result<Arc<Version>, ReadError> {
        let (store, files) = (&self.store, &self.files);
        Version::open(store, files, manifest, sum, held, known).map(Arc::new)
    }

    /// Makes `version` the serving one. Before the pointer moves, this checks the version's
    /// manifest, and that all its files exist with their lengths. After success, the new version
    /// serves permanently. After [`StoreError::NotSynced`] it serves, but a power cut may undo it.
    /// After another error of the pointer's write, either version may serve. The pointer is written
    /// even if the version serves already, because the swap before may have ended with that error.
    pub fn swap(&self, version: u64) -> Result<SwapReport, StoreError> {
        let swapped = self.swap_unnoted(version)?;
        if swapped.from != Some(swapped.to) {
            self.store.note(&self.name, HistoryAction::Swap, swapped);
        }
        Ok(swapped)
    }

    /// Does [`Table::swap`] without an entry in the history.
    pub(crate) fn swap_unnoted(&self, version: u64) -> Result<SwapReport, StoreError> {
        if let Some(pointers) = self.store.pointers() {
            self.check_complete(version)?;
            return pointers.change(&self.name, PointerMove::Swap { to: version });
        }
        let _lock = self.lock_pointer("a swap")?;
        self.swap_locked(version, usize::MAX)
    }

    /// Makes `version` the serving one and removes from the pointer's history the versions that
    /// [`Table::retain`] of `keep` would remove then. REQUIRES the pointer lock.
    pub(crate) fn swap_locked(&self, version: u64, keep: usize) -> Result<SwapReport, StoreError> {
        let pointer = self.pointer()?;
        self.check_complete(version)?;
        let mut next = pointer.swapped(version);
        if keep < usize::MAX {
            let (_, removed) = self.kept_and_old(&next, keep)?;
            next = next.pruned(|past| !removed.contains(&past));
        }
        self.write_pointer(next)?;
        Ok(SwapReport {
            from: pointer.serving,
            to: version,
        })
    }

    /// Restores the version that served before; see [`Pointer::history`]. Same guarantees as
    /// [`Table::swap`]. Refused within a minute of another rollback: two people who see the same
    /// fault want to go back only once.
    pub fn rollback(&self) -> Result<SwapReport, StoreError> {
        self.roll_back(None)
    }

    /// Does [`Table::rollback`] at any time, if version `from` serves. If another one serves,
    /// nothing changes.
    pub fn rollback_from(&self, from: u64) -> Result<SwapReport, StoreError> {
        self.roll_back(Some(from))
    }

    fn roll_back(&self, from: Option<u64>) -> Result<SwapReport, StoreError> {
        let swapped = self.roll_back_unnoted(from)?;
        self.store
            .note(&self.name, HistoryAction::Rollback, swapped);
        Ok(swapped)
    }

    fn roll_back_unnoted(&self, from: Option<u64>) -> Result<SwapReport, StoreError> {
        if let Some(pointers) = self.store.pointers() {
            return pointers.change(&self.name, PointerMove::Rollback { from });
        }
        let _lock = self.lock_pointer("a rollback")?;
        let pointer = self.pointer()?;
        let table = self.name.clone();
        let Some(serving) = pointer.serving else {
            return Err(StoreError::NothingServes { table });
        };
        let unix_ms = self.store.clock().unix_ms();
        match from {
            Some(from) if from != serving => {
                return Err(StoreError::ServesOther {
                    table,
                    from,
                    serving,
                });
            }
            None => check_not_just_rolled_back(table.clone(), serving, &pointer, unix_ms)?,
            Some(_) => {}
        }
        let Some(mut next) = pointer.rolled_back() else {
            return Err(StoreError::NothingBefore { table, serving });
        };
        next.last_rollback = Some(LastRollback {
            from: serving,
            unix_ms,
        });
        let to = self.write_pointer_checked(next)?;
        Ok(SwapReport {
            from: Some(serving),
            to,
        })
    }

    /// Does [`Table::replace_locked`] if a cluster's catalog names the serving version.
    pub(crate) fn replace_in_catalog(&self, from: u64, to: u64) -> Result<bool, StoreError> {
        let Some(pointers) = self.store.pointers() else {
            return Ok(false);
        };
        if self.pointer()?.serving != Some(from) {
            return Ok(false);
        }
        self.check_complete(to)?;
        pointers.change(&self.name, PointerMove::Replace { from, to })?;
        Ok(true)
    }

    /// Makes `to` the serving version in the place of `from`, if `from` still serves; returns
    /// whether it did. The versions to roll back to stay the same. Same guarantees as
    /// [`Table::swap`]. REQUIRES the pointer lock.
    pub(crate) fn replace_locked(&self, from: u64, to: u64) -> Result<bool, StoreError> {
        let pointer = self.pointer()?;
        if pointer.serving != Some(from) {
            return Ok(false);
        }
        self.check_complete(to)?;
        self.write_pointer(pointer.replaced(to))?;
        Ok(true)
    }

    fn write_pointer_checked(&self, next: Pointer) -> Result<u64, StoreError> {
        let nothing = || StoreError::NothingServes {
            table: self.name.clone(),
        };
        let to = next.serving.ok_or_else(nothing)?;
        self.check_complete(to)?;
        self.write_pointer(next)?;
        Ok(to)
    }

    /// REQUIRES the pointer lock.
    pub(crate) fn write_pointer(&self, next: Pointer) -> Result<Pointer, StoreError> {
        let stamp = self.store.random().next_u64();
        next.write(&**self.disk(), &self.name, &self.files.pointer(), stamp)
    }

    pub(crate) fn lock_pointer(&self, what: &str) -> Result<Box<dyn Lock>, StoreError> {
        let what = format!("{what} of table {}", self.name);
        wait_lock(
            &**self.disk(),
            &**self.store.clock(),
            &self.files.pointer_lock(),
            &what,
        )
    }

    pub(crate) fn no_table(&self) -> StoreError {
        StoreError::NoTable {
            table: self.name.clone(),
        }
    }

    /// Checks that every file of a version that this store is to have exists with its length.
    pub fn check_complete(&self, version: u64) -> Result<Manifest, StoreError> {
        let manifest = self.manifest(version)?;
        match check_files(
            &**self.disk(),
            &self.files,
            &manifest,
            &self.store.held(&manifest),
        ) {
            Ok(()) => Ok(manifest),
            Err(problem) => {
                let table = self.name.clone();
                Err(StoreError::Incomplete {
                    table,
                    version,
                    problem,
                })
            }
        }
    }
}

impl VersionInfo {
    fn new(version: u64, pointer: &Pointer, manifest: Result<&Manifest, String>) -> Self {
        let known = manifest.as_ref().ok();
        Self {
            version,
            rows_between: known.map_or((0, 0), |manifest| manifest.rows_between()),
            runs_deep: known.map_or(0, |manifest| manifest.runs_deep()),
            bytes: known.map_or(0, |manifest| manifest.bytes()),
            file_bytes: known.map_or(0, |manifest| manifest.file_bytes()),
            created_unix_ms: known.map_or(0, |manifest| manifest.created_unix_ms),
            content: known.and_then(|manifest| manifest.content()),
            serving: pointer.serving == Some(version),
            previous: pointer.before() == Some(version),
            problem: manifest.err(),
        }
    }
}

/// Refuses a rollback within a minute of another one.
pub fn check_not_just_rolled_back(
    table: TableName,
    serving: u64,
    pointer: &Pointer,
    now_unix_ms: u64,
) -> Result<(), StoreError> {
    match pointer.last_rollback {
        Some(last) if now_unix_ms.abs_diff(last.unix_ms) < ROLLBACKS_APART_MS => {
            Err(StoreError::JustRolledBack {
                table,
                from: last.from,
                serving,
                seconds: now_unix_ms.abs_diff(last.unix_ms) / 1000,
            })
        }
        _ => Ok(()),
    }
}

/// Checks that all files that a manifest names for the partitions `held` exist with their lengths.
pub(crate) fn check_files(
    disk: &dyn Disk,
    files: &TableFiles,
    manifest: &Manifest,
    held: &OpenPartitions,
) -> Result<(), String> {
    for run in manifest.runs_held(held) {
        let extent = (run.summary.ext_bytes > 0).then(|| files.extent(&run.id));
        let lengths = [run.summary.file_bytes, run.summary.ext_bytes];
        for (path, expected) in [Some(files.run(&run.id)), extent]
            .into_iter()
            .flatten()
            .zip(lengths)
        {
            let found = match disk.open(&path) {
                Ok(file) => file.len_bytes(),
                Err(error) => return Err(format!("{}: {error}", path.display())),
            };
            if found != expected {
                let path = path.display();
                return Err(format!("{path} has {found} bytes, {expected} were written"));
            }
        }
    }
    Ok(())
}
