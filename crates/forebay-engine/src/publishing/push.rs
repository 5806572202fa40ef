//! Makes a version beside the serving one.
//!
//! 1. [`Store::begin_push`](crate::Store::begin_push) takes the table's push lock, removes the
//!    debris of failed pushes and chooses the version's number.
//! 2. The caller writes runs at the paths that [`Push::new_run`] returns. Each is synced when
//!    finished.
//! 3. [`Push::manifest`] adds up their contents, [`Push::open`] reads them back.
//! 4. [`Push::commit`] makes the version visible in one step: it syncs the directory of the runs,
//!    writes the manifest to a temporary file, syncs it, renames it and syncs its directory.
//!
//! If a push is dropped before its commit, it removes the files that it wrote. If its process dies,
//! it leaves debris that no reader sees.
//!
//! Other processes write the runs of a shared push. They need its [`Ticket`] and no lock. Only the
//! manifest determines which of these runs belong to the version. When the push is dropped, with or
//! without a commit, it removes all runs that no manifest names.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_io::{Lock, replace_file};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::{TableFiles, tables_dir};
use crate::documents::manifest::{Manifest, ManifestDraft};
use crate::documents::pointer::Pointer;
use crate::documents::reserve::Reserve;
use crate::error::{At, PushError, ReadError, StoreError};
use crate::keys::partition::OpenPartitions;
use crate::name::{RunId, TableName};
use crate::publishing::cleanup::{remove_if_there, remove_uploads};
use crate::publishing::committed::Committed;
use crate::tables::store::Store;
use crate::tables::table::{Table, check_files};
use crate::tables::version::Version;

/// The options of a push.
#[derive(Debug, Default, Clone)]
pub struct PushOptions {
    /// The version's number, which must be greater than every existing one; by default the next.
    pub version: Option<u64>,
    /// Other processes write runs of the push, too: [`Push::ticket`].
    pub shared: bool,
}

/// A push that makes one version of a table.
#[derive(Debug)]
pub struct Push {
    table: Table,
    version: u64,
    /// The version that served when the push began.
    served: Option<u64>,
    created_unix_ms: u64,
    started: Mutex<Vec<RunId>>,
    /// The runs that stay when this is dropped.
    kept: Vec<RunId>,
    ticket: Ticket,
    shared: bool,
    lock: Box<dyn Lock>,
}

/// A run to be written: its id for the manifest, its path for the writer.
#[derive(Debug, Clone)]
pub struct NewRun {
    pub id: RunId,
    pub path: PathBuf,
}

/// A push that others write runs for, as they know it. Its text may come from anywhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ticket {
    pub table: TableName,
    pub version: u64,
    pub created_unix_ms: u64,
    /// Random.
    pub stamp: u64,
}

impl Ticket {
    /// Returns a new id and path for a run of the partition of that index, for a writer of the
    /// push. The run is visible when the push commits a manifest that names it. A run that no
    /// manifest names is removed at the end of the push, or by the next push.
    pub fn new_run(&self, store: &Store, partition: usize) -> NewRun {
        let chance = store.random().next_u64();
        let id = RunId::plain(format!("{}{chance:016x}", self.run_prefix(partition)));
        let files = TableFiles::new(store.root(), &self.table);
        let path = files.run(&id);
        NewRun { id, path }
    }

    /// Returns whether a run was written for this push and this partition, by its id.
    pub fn is_of(&self, id: &RunId, partition: usize) -> bool {
        let digits = id.as_str().strip_prefix(&*self.run_prefix(partition));
        digits.is_some_and(|digits| digits.len() == 16)
    }

    /// Makes the directory entries of the push's runs durable. For a store in object storage, waits
    /// for the uploads.
    pub fn sync(&self, store: &Store) -> Result<(), StoreError> {
        let runs = TableFiles::new(store.root(), &self.table).runs();
        store.disk().sync_dir(&runs).at("sync", &runs)
    }

    fn run_prefix(&self, partition: usize) -> String {
        // 60 bytes at most, with the rest of the id.
        let partition = partition % 100_000;
        format!("{}-{partition:05}-{:016x}-", self.version, self.stamp)
    }
}

impl Store {
    /// Begins to make a version of a table, which need not exist. Refused with the holder's text
    /// during another push to it. Removes the debris of an earlier failed push.
    pub fn begin_push(&self, name: &TableName, options: PushOptions) -> Result<Push, PushError> {
        self.remove_overdue();
        Push::begin(self.any_table(name), options)
    }

    /// Returns the number that a push begun now would give its version.
    pub fn next_version(&self, name: &TableName, wanted: Option<u64>) -> Result<u64, PushError> {
        if self.is_live(name)? {
            let table = name.clone();
            return Err(StoreError::IsLive { table }.into());
        }
        self.refuse_lost(name)?;
        let table = self.any_table(name);
        match table.pointer() {
            // The table was dropped: a push creates it again.
            Err(StoreError::NoTable { .. }) => Ok(wanted.unwrap_or(1)),
            pointer => next_version(&table, &pointer?, wanted),
        }
    }
}

impl Push {
    pub(crate) fn begin(table: Table, options: PushOptions) -> Result<Self, PushError> {
        let what = match options.version {
            Some(version) => format!("a push of version {version}"),
            None => "a push".to_owned(),
        };
        let lock = lock_push(&table, &what)?;
        let (version, served) = match Self::settle(&table, &options) {
            Ok(settled) => settled,
            Err(error) => {
                table.remove_void();
                return Err(error);
            }
        };
        let created_unix_ms = table.store().clock().unix_ms();
        let started = Mutex::new(Vec::new());
        let ticket = Ticket {
            table: table.name().clone(),
            version,
            created_unix_ms,
            stamp: table.store().random().next_u64(),
        };
        Ok(Self {
            table,
            version,
            served,
            created_unix_ms,
            started,
            kept: Vec::new(),
            ticket,
            shared: options.shared,
            lock,
        })
    }

    /// Makes the table's directories, removes debris, and chooses the number of the version.
    /// Returns it with the number of the serving version.
    fn settle(table: &Table, options: &PushOptions) -> Result<(u64, Option<u64>), PushError> {
        let pointer_lock = make_table(table)?;
        table.sweep(&[])?;
        drop(pointer_lock);
        let pointer = table.pointer()?;
        let version = next_version(table, &pointer, options.version)?;
        Ok((version, pointer.serving))
    }

    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Returns the number of the new version.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version that served when the push began.
    pub fn served(&self) -> Option<u64> {
        self.served
    }

    pub fn created_unix_ms(&self) -> u64 {
        self.created_unix_ms
    }

    /// Fails if another push has begun meanwhile, because this one was delayed. The other push has
    /// removed the runs that others wrote for this one.
    pub fn check_lock_held(&self) -> Result<(), StoreError> {
        self.lock
            .check_held()
            .at("hold", &self.table.files.push_lock())
    }

    /// Returns the ticket with which others write runs for this push. REQUIRES that the push was
    /// begun as a shared one: otherwise their runs stay until the next push.
    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Returns a new id and path for a run of the partition of that index.
    pub fn new_run(&self, partition: usize) -> NewRun {
        let chance = self.table.store().random().next_u64();
        let mut started = self.started.lock();
        let count = started.len();
        let text = format!("{}-{partition:05}-{count:x}-{chance:016x}", self.version);
        let id = RunId::plain(text);
        started.push(id.clone());
        let path = self.table.files.run(&id);
        NewRun { id, path }
    }

    /// Returns a directory for spill files, made if absent. It is removed with the push.
    pub fn scratch_dir(&self) -> Result<PathBuf, StoreError> {
        let scratch = self.table.files.scratch();
        self.table
            .disk()
            .create_dir_all(&scratch)
            .at("create", &scratch)?;
        Ok(scratch)
    }

    /// Returns the manifest of the version: the draft, numbered and added up.
    pub fn manifest(&self, draft: ManifestDraft) -> Result<Manifest, PushError> {
        let name = self.table.name().clone();
        let manifest = Manifest::from_draft(draft, name, self.version, self.created_unix_ms);
        manifest.check().map_err(|problem| self.bad(problem))?;
        Ok(manifest)
    }

    /// Opens the version before it is committed, to verify it and compare it.
    pub fn open(&self, manifest: &Manifest) -> Result<Arc<Version>, ReadError> {
        let version = Version::open(
            self.table.store(),
            &self.table.files,
            manifest.clone(),
            0,
            &OpenPartitions::All,
            &[],
        )?;
        Ok(Arc::new(version))
    }

    /// Does [`Push::commit_held`] and releases all locks.
    pub fn commit(self, manifest: Manifest) -> Result<u64, PushError> {
        self.commit_held(manifest).map(|held| held.version())
    }

    /// Makes the version visible and durable, but not the serving one. After an error it is not
    /// visible. The result holds the push locks and the pointer lock.
    pub fn commit_held(mut self, manifest: Manifest) -> Result<Committed, PushError> {
        manifest.check().map_err(|problem| self.bad(problem))?;
        if manifest.table != *self.table.name() || manifest.version != self.version {
            return Err(self.bad("the manifest is that of another push".to_owned()));
        }
        let (bytes, _) = manifest
            .to_bytes()
            .map_err(|problem| self.bad(problem.to_string()))?;
        let disk = self.table.disk().clone();
        let runs = self.table.files.runs();
        if disk.is_object_storage() {
            // Uploads may take long; no swap has to wait for them.
            disk.sync_dir(&runs).at("sync", &runs)?;
        }
        let lock = self.table.lock_pointer("a commit")?;
        check_files(&*disk, &self.table.files, &manifest, &OpenPartitions::All)
            .map_err(|problem| self.bad(problem))?;
        disk.sync_dir(&runs).at("sync", &runs)?;
        let path = self.table.files.manifest(self.version);
        if disk.exists(&path).at("look for", &path)? {
            return Err(self.bad("its manifest exists already".to_owned()));
        }
        // From now on a power cut may leave the manifest. Its runs must stay until the next push
        // has checked.
        self.kept = manifest.runs().map(|run| run.id.clone()).collect();
        if let Err(error) = replace_file(&*disk, &path, &bytes) {
            let versions = self.table.files.versions();
            let removed = remove_if_there(&*disk, &path)
                .and_then(|()| disk.sync_dir(&versions).at("sync", &versions));
            match removed {
                // In object storage, a request that was abandoned may still arrive.
                Ok(()) if !disk.is_object_storage() => self.kept.clear(),
                Ok(()) => {}
                Err(left) => warn!(%left, "the manifest of a failed commit may have stayed"),
            }
            return Err(error).at("write", &path).map_err(PushError::from);
        }
        let (table, version) = (self.table.clone(), self.version);
        Ok(Committed::new(table, version, Box::new(self), lock))
    }

    fn bad(&self, problem: String) -> PushError {
        let table = self.table.name().clone();
        PushError::BadManifest {
            table,
            version: self.version,
            problem,
        }
    }

    fn remove_files(&self) -> Result<(), StoreError> {
        let disk = &**self.table.disk();
        let scratch = self.table.files.scratch();
        if disk.exists(&scratch).at("look for", &scratch)? {
            disk.remove_dir_all(&scratch).at("remove", &scratch)?;
        }
        if self.shared {
            // Other tasks have written to it.
            disk.look_again(&self.table.files.dir);
            let _lock = self.table.lock_pointer("the end of a push")?;
            self.table.sweep(&self.kept)?;
            return remove_uploads(disk, &self.table.files);
        }
        let started = self.started.lock();
        for id in started.iter().filter(|id| !self.kept.contains(id)) {
            remove_if_there(disk, &self.table.files.run(id))?;
            remove_if_there(disk, &self.table.files.extent(id))?;
        }
        drop(started);
        // If the fate of a manifest is unknown, it may reappear after a power cut.
        if self.kept.is_empty() {
            self.table.remove_void();
        }
        Ok(())
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        if let Err(error) = self.remove_files() {
            let (table, version) = (self.table.name(), self.version);
            warn!(%table, version, %error, "an ended push left files; the next push removes them");
        }
    }
}

fn make_dir(table: &Table, dir: &std::path::Path) -> Result<(), StoreError> {
    table.disk().create_dir_all(dir).at("create", dir)
}

/// Makes the directories themselves durable.
fn sync_parents(table: &Table) -> Result<(), StoreError> {
    let root = table.store().root();
    for dir in [root, &tables_dir(root), &table.files.dir] {
        table.disk().sync_dir(dir).at("sync", dir)?;
    }
    Ok(())
}

/// Makes a table's directories, or completes those that an interrupted drop left. REQUIRES the push
/// lock. Returns the pointer lock, because the next sweep removes unfinished replacements of the
/// pointer. In object storage there are none, and the lock would cost two requests.
pub(crate) fn make_table(table: &Table) -> Result<Option<Box<dyn Lock>>, PushError> {
    if table.store().is_live(table.name())? {
        let table = table.name().clone();
        return Err(StoreError::IsLive { table }.into());
    }
    table.store().refuse_lost(table.name())?;
    for dir in [table.files.dir.clone(), table.files.versions()] {
        make_dir(table, &dir)?;
    }
    table.store().finish_live_drop(table)?;
    make_dir(table, &table.files.runs())?;
    sync_parents(table)?;
    let lock = || table.lock_pointer("the beginning of a push");
    let in_place = !table.disk().is_object_storage();
    let mut pointer_lock = in_place.then(lock).transpose()?;
    if let Err(StoreError::NoTable { .. }) = table.pointer() {
        if pointer_lock.is_none() {
            pointer_lock = Some(lock()?);
        }
        table.finish_drop()?;
    }
    // Reserves space for the pointer, so that the swap works even if the push fills the disk.
    Reserve::of(&**table.disk(), &table.files.pointer()).keep(0);
    Ok(pointer_lock)
}

/// Makes the table's directory if there is none, and takes its push lock.
pub(crate) fn lock_push(table: &Table, what: &str) -> Result<Box<dyn Lock>, PushError> {
    take_push_lock(table, what)?.map_err(|holder| PushError::Busy {
        table: table.name().clone(),
        holder,
    })
}

/// Takes the push lock, or returns the holder's text.
pub(crate) fn take_push_lock(
    table: &Table,
    what: &str,
) -> Result<Result<Box<dyn Lock>, String>, StoreError> {
    let disk = &**table.disk();
    table.check_own()?;
    make_dir(table, &table.files.dir)?;
    let words = holder_words(disk, &**table.store().clock(), what);
    try_lock(disk, &table.files.push_lock(), &words).inspect_err(|_| {
        // The directory stays unless it is empty.
        let _ = disk.remove_dir(&table.files.dir);
    })
}

/// Returns the requested number, or the next one. Numbers in the pointer count too.
pub(crate) fn next_version(
    table: &Table,
    pointer: &Pointer,
    wanted: Option<u64>,
) -> Result<u64, PushError> {
    let known = table
        .version_numbers()?
        .into_iter()
        .chain(pointer.serving)
        .chain(pointer.history.iter().copied());
    let greatest = known.max().unwrap_or(0);
    let name = table.name().clone();
    match wanted {
        Some(version) if version > greatest => Ok(version),
        Some(version) => Err(PushError::NotRising {
            table: name,
            version,
            greatest,
        }),
        None => greatest
            .checked_add(1)
            .ok_or(PushError::NoNumberLeft { table: name }),
    }
}
