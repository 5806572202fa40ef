//! Opens a store in object storage.

use std::path::PathBuf;
use std::sync::Arc;

use forebay_engine::{Pointers, Store};
use forebay_io::{Clock, Disk, Random};
use xxhash_rust::xxh3::xxh3_64;

use crate::address::Address;
use crate::backend::Patience;
use crate::disk::{Parts, RemoteDisk};
use crate::documents::StoreMemory;
use crate::objects::Objects;
use crate::open_error::OpenError;

/// The parts of this machine that a store in object storage needs.
#[derive(Debug, Clone)]
pub struct RemoteStore {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Where pushes build their runs; the default is a directory of the user's cache, one for each
    /// store.
    pub work_dir: Option<PathBuf>,
    pub patience: Patience,
    /// For a store of a cluster: the source of serving versions.
    pub pointers: Option<Arc<dyn Pointers>>,
    pub memory: StoreMemory,
}

/// Opens the store at a URL, and creates it if it does not exist and `create` is set. Also returns
/// the disk, for callers that listen to uploads.
pub fn open(
    url: &str,
    on: &RemoteStore,
    create: bool,
) -> Result<(Store, Arc<RemoteDisk>), OpenError> {
    let (disk, root) = open_disk(url, on)?;
    let (clock, random) = (Arc::clone(&on.clock), disk.random());
    let as_disk: Arc<dyn Disk> = disk.clone();
    let store = if create && on.pointers.is_none() {
        Store::open_or_create(as_disk, clock, random, &root)?
    } else {
        Store::open_with(as_disk, clock, random, &root, on.pointers.clone())?
    };
    Ok((store, disk))
}

/// Opens the objects at a URL as the files below a root, whether there is a store or not.
pub fn open_disk(url: &str, on: &RemoteStore) -> Result<(Arc<RemoteDisk>, PathBuf), OpenError> {
    let address = Address::parse(url)?;
    let url = address.url();
    let connect = |patience| {
        Objects::connect(&address, patience).map_err(|source| OpenError::Connect {
            url: url.clone(),
            source,
        })
    };
    let work_dir = match &on.work_dir {
        Some(dir) => dir.clone(),
        None => default_work_dir(&url).ok_or(OpenError::NoWorkDir)?,
    };
    let root = PathBuf::from(&url);
    let disk = RemoteDisk::new(Parts {
        root: root.clone(),
        objects: connect(on.patience)?,
        leases: connect(Patience::Little)?.for_who_waits(on.patience),
        local: Arc::clone(&on.disk),
        clock: Arc::clone(&on.clock),
        random: Arc::clone(&on.random),
        work_dir,
        memory: on.memory.clone(),
    });
    Ok((Arc::new(disk), root))
}

fn default_work_dir(url: &str) -> Option<PathBuf> {
    let of = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
    let cache = of("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(of("HOME")?).join(".cache")))?;
    let name = format!("{:016x}", xxh3_64(url.as_bytes()));
    Some(cache.join("forebay").join("pushes").join(name))
}
