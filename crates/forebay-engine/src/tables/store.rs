//! A store: one directory of tables.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Clock, Disk, OsDisk, Random, SystemClock, SystemRandom, replace_file};
use parking_lot::Mutex;

use crate::documents::holder::wait_lock;
use crate::documents::layout::{store_file, tables_dir};
use crate::documents::manifest::Manifest;
use crate::documents::pins::Pins;
use crate::documents::pointers::Pointers;
use crate::documents::seal::check_format;
use crate::error::{At, StoreError};
use crate::keys::partition::OpenPartitions;
use crate::name::TableName;

/// The format number in `forebay.json`.
pub const STORE_FORMAT: u64 = 1;
/// The format number of a store whose pointers are in a cluster's catalog.
pub const CLUSTER_STORE_FORMAT: u64 = 2;
/// The lock held while the store is created, so that several processes can create it at the same
/// time.
pub(crate) const CREATION_LOCK: &str = "creation.lock";

/// Opens the store in a directory of this machine's file system. Creates it if the directory is
/// absent or empty.
pub fn open(dir: &Path) -> Result<Store, StoreError> {
    let disk = Arc::new(OsDisk::default());
    Store::open_or_create(disk, Arc::new(SystemClock), Arc::new(SystemRandom), dir)
}

/// A source of the partitions that a store holds of a version, if these are not all of them. A
/// store has the manifests of all versions, so it knows bounds and order of each. It needs files of
/// the held partitions only.
///
/// The answer may change at any time. Open versions stay open, and
/// [`Serving::rehold`](crate::Serving::rehold) reopens the serving versions.
pub trait Holding: fmt::Debug + Send + Sync {
    fn held(&self, manifest: &Manifest) -> OpenPartitions;
}

/// The person or program that acts on a store, as the history records it.
#[derive(Debug, Clone, Default)]
pub struct Actor {
    pub user: String,
    /// The machine, or the address that a request came from.
    pub host: String,
    /// The reason that a history entry could not be written, for a caller that prints warnings.
    pub problem: Arc<Mutex<Option<String>>>,
}

/// A store on a disk. Clones are handles to the same store. Several processes may use one store at
/// the same time: they change files under locks and by atomic replacement.
#[derive(Debug, Clone)]
pub struct Store {
    parts: Arc<StoreParts>,
    /// If absent, the store has all partitions of all versions.
    holding: Option<Arc<dyn Holding>>,
    /// If absent, nothing is added to the history.
    actor: Option<Arc<Actor>>,
}

#[derive(Debug)]
struct StoreParts {
    disk: Arc<dyn Disk>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    root: PathBuf,
    pins: Arc<Pins>,
    /// If absent, pointers are files of the store.
    pointers: Option<Arc<dyn Pointers>>,
}

impl Store {
    /// Opens an existing store. Fails with [`StoreError::NoStore`] if there is none.
    pub fn open(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        root: &Path,
    ) -> Result<Self, StoreError> {
        Self::open_with(disk, clock, random, root, None)
    }

    /// Opens an existing store. If `pointers` are given, the store belongs to a cluster, and
    /// pointers are read and moved there. A store of the other kind is refused.
    pub fn open_with(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        root: &Path,
        pointers: Option<Arc<dyn Pointers>>,
    ) -> Result<Self, StoreError> {
        let path = store_file(root);
        match disk.read(&path) {
            Ok(bytes) => check_kind(&bytes, root, path, pointers.is_some())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::NoStore {
                    root: root.to_path_buf(),
                });
            }
            Err(error) => return Err(error).at("read", &path),
        }
        let root = root.to_path_buf();
        Ok(Self {
            parts: Arc::new(StoreParts {
                disk,
                clock,
                random,
                root,
                pins: Arc::default(),
                pointers,
            }),
            holding: None,
            actor: None,
        })
    }

    /// Returns a handle whose changes the history records under this actor.
    #[must_use]
    pub fn acting_as(mut self, actor: Actor) -> Self {
        self.actor = Some(Arc::new(actor));
        self
    }

    pub(crate) fn actor(&self) -> Option<&Actor> {
        self.actor.as_deref()
    }

    /// Returns a handle to the same store that holds only a part of its tables. Opening, checking,
    /// verifying and installing by this handle use only that part. A push still makes whole
    /// versions. A store without a holding is expected to have all files.
    #[must_use]
    pub fn holding(mut self, holding: Arc<dyn Holding>) -> Self {
        self.holding = Some(holding);
        self
    }

    /// Returns the partitions of a version that this store is to have.
    pub fn held(&self, manifest: &Manifest) -> OpenPartitions {
        let holding = self.holding.as_ref();
        holding.map_or(OpenPartitions::All, |holding| holding.held(manifest))
    }

    /// Opens a store and creates it if the directory is absent or empty. A directory with other
    /// content is refused.
    pub fn open_or_create(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        root: &Path,
    ) -> Result<Self, StoreError> {
        let path = store_file(root);
        if !disk.exists(&path).at("look for", &path)? {
            create(&*disk, &*clock, root)?;
        }
        Self::open(disk, clock, random, root)
    }

    /// Rewrites the file that marks a directory as a store of one machine. For caches whose file
    /// was damaged.
    pub fn rewrite_kind(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
        let path = store_file(root);
        replace_file(disk, &path, store_file_text().as_bytes()).at("write", &path)
    }

    /// Opens the store that a push would use; `None` if a push would create one. Writes nothing.
    pub fn look(
        disk: Arc<dyn Disk>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        root: &Path,
    ) -> Result<Option<Self>, StoreError> {
        match Self::open(Arc::clone(&disk), clock, random, root) {
            Ok(store) => Ok(Some(store)),
            Err(StoreError::NoStore { .. }) => match disk.list(root) {
                Ok(names) if names.iter().all(is_of_creation) => Ok(None),
                Ok(_) => Err(StoreError::NotEmpty {
                    root: root.to_path_buf(),
                }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error).at("list", root),
            },
            Err(error) => Err(error),
        }
    }

    /// Returns whether a directory contains no store.
    pub fn is_missing(disk: &dyn Disk, root: &Path) -> Result<bool, StoreError> {
        let path = store_file(root);
        Ok(!disk.exists(&path).at("look for", &path)?)
    }

    pub fn root(&self) -> &Path {
        &self.parts.root
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.parts.disk
    }

    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.parts.clock
    }

    pub fn random(&self) -> &Arc<dyn Random> {
        &self.parts.random
    }

    pub(crate) fn pointers(&self) -> Option<&Arc<dyn Pointers>> {
        self.parts.pointers.as_ref()
    }

    /// Assigns the store to a cluster. From now on its pointers are that cluster's, and programs
    /// that do not know the cluster refuse the store. Repeating it changes nothing.
    pub fn give_to_cluster(&self) -> Result<(), StoreError> {
        let path = store_file(self.root());
        let content = cluster_store_file();
        replace_file(&**self.disk(), &path, content.as_bytes()).at("write", &path)
    }

    pub(crate) fn pins(&self) -> &Arc<Pins> {
        &self.parts.pins
    }

    /// Returns every directory with the name of a table, even without a table in it.
    pub(crate) fn table_dirs(&self) -> Result<Vec<TableName>, StoreError> {
        let dir = tables_dir(self.root());
        let names = match self.disk().list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            names => names.at("list", &dir)?,
        };
        Ok(names
            .iter()
            .filter_map(|name| TableName::new(name).ok())
            .collect())
    }
}

fn store_file_text() -> String {
    format!("{{\"forebay_store\": {STORE_FORMAT}}}\n")
}

/// Returns the content of `forebay.json` in a cluster's store.
pub fn cluster_store_file() -> String {
    format!("{{\"forebay_store\": {CLUSTER_STORE_FORMAT}}}\n")
}

/// Checks that a store is of the expected kind: a cluster's or not.
fn check_kind(
    bytes: &[u8],
    root: &Path,
    path: PathBuf,
    in_cluster: bool,
) -> Result<(), StoreError> {
    let check = |format| check_format(bytes, "forebay_store", format);
    let wanted = match in_cluster {
        true => CLUSTER_STORE_FORMAT,
        false => STORE_FORMAT,
    };
    match check(wanted) {
        Err(_) if !in_cluster && check(CLUSTER_STORE_FORMAT).is_ok() => {
            let root = root.to_path_buf();
            Err(StoreError::InCluster { root })
        }
        checked => checked.map_err(|problem| StoreError::Damaged { path, problem }),
    }
}

/// Returns whether an unfinished store may have this file.
#[allow(clippy::ptr_arg, reason = "for use with iterators of names")]
fn is_of_creation(name: &String) -> bool {
    name == ".forebay.json.new" || name == CREATION_LOCK
}

/// Creates an empty store. If interrupted, it leaves a directory that another call completes.
fn create(disk: &dyn Disk, clock: &dyn Clock, root: &Path) -> Result<(), StoreError> {
    let path = store_file(root);
    match disk.list(root) {
        Ok(names) if names.iter().all(is_of_creation) => {}
        // Another process may have created the store since the last check.
        Ok(_) if disk.exists(&path).at("look for", &path)? => return Ok(()),
        Ok(_) => {
            return Err(StoreError::NotEmpty {
                root: root.to_path_buf(),
            });
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).at("list", root),
    }
    let is_new = !disk.exists(root).at("look for", root)?;
    disk.create_dir_all(root).at("create", root)?;
    let made = create_in(disk, clock, root, &path);
    if made.is_err() && is_new {
        // The directory stays unless it is empty.
        let _ = disk.remove_dir(root);
    }
    made
}

fn create_in(
    disk: &dyn Disk,
    clock: &dyn Clock,
    root: &Path,
    path: &Path,
) -> Result<(), StoreError> {
    let parent = root
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    disk.sync_dir(parent).at("sync", parent)?;
    let lock = root.join(CREATION_LOCK);
    let _lock = wait_lock(disk, clock, &lock, "the creation of the store")?;
    if disk.exists(path).at("look for", path)? {
        return Ok(());
    }
    let content = store_file_text();
    let written = replace_file(disk, path, content.as_bytes()).at("write", path);
    if written.is_err() && !disk.exists(path).unwrap_or(true) {
        let _ = disk.remove(&lock);
    }
    written
}
