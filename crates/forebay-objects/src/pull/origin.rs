//! The origins of a store's files: object storage, a directory, another node.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use forebay_engine::VersionFile;
use forebay_io::{Disk, give_way};
use futures::FutureExt;
use futures::future::BoxFuture;

use crate::address::Address;
use crate::backend::Patience;
use crate::objects::Objects;
use crate::open_error::OpenError;

/// The bytes of a file that are fetched together, and again after a pull was interrupted.
pub const RANGE_BYTES: u64 = 4 << 20;
/// The bytes that are read or written at once on a local disk.
pub const PIECE_BYTES: usize = 128 << 10;

/// A place that has files of a store, by their names in it (`tables/T/runs/ID.run`). The caller
/// verifies what it sends, so it need not be trusted.
pub trait Origin: fmt::Debug + Send + Sync {
    /// Returns the name for messages, which is unique among origins.
    fn name(&self) -> String;

    /// Returns a whole document, such as a manifest; `NotFound` if there is none.
    fn get(&self, name: &str) -> io::Result<Bytes>;

    /// Returns the names directly below a directory, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// Returns how much is requested at once. Near origins send small pieces, because a large one
    /// keeps a processor for milliseconds. Far origins send large ones, because each costs a
    /// request.
    fn piece_bytes(&self) -> u64 {
        RANGE_BYTES
    }

    /// Returns all bytes of a range of a file, or an error. Called in a task of a tokio runtime
    /// that has timers and sockets.
    fn fetch<'a>(&'a self, name: &'a str, range: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>>;
}

impl Origin for Objects {
    fn name(&self) -> String {
        self.place()
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        Objects::get(self, name).map(|(bytes, _)| bytes)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        Objects::list(self, dir)
    }

    fn fetch<'a>(&'a self, name: &'a str, range: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>> {
        Objects::fetch(self, name, range).boxed()
    }
}

/// Returns the store in object storage at a URL. Sends no request yet.
pub fn object_origin(url: &str) -> Result<Arc<dyn Origin>, OpenError> {
    let address = Address::parse(url)?;
    let objects = Objects::connect(&address, Patience::Little);
    let objects = objects.map_err(|source| OpenError::Connect {
        url: address.url(),
        source,
    })?;
    Ok(Arc::new(objects))
}

/// A store in a directory that several nodes see.
#[derive(Debug, Clone)]
pub struct DirectoryOrigin {
    disk: Arc<dyn Disk>,
    root: PathBuf,
}

impl DirectoryOrigin {
    pub fn new(disk: Arc<dyn Disk>, root: PathBuf) -> Self {
        Self { disk, root }
    }
}

impl Origin for DirectoryOrigin {
    fn name(&self) -> String {
        self.root.display().to_string()
    }

    fn piece_bytes(&self) -> u64 {
        PIECE_BYTES as u64
    }

    fn get(&self, name: &str) -> io::Result<Bytes> {
        self.disk.read(&self.root.join(name)).map(Bytes::from)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.disk.list(&self.root.join(dir))
    }

    fn fetch<'a>(&'a self, name: &'a str, range: Range<u64>) -> BoxFuture<'a, io::Result<Bytes>> {
        let (disk, path) = (Arc::clone(&self.disk), self.root.join(name));
        let read = tokio::task::spawn_blocking(move || {
            let file = disk.open(&path)?;
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start)?;
            give_way();
            Ok(Bytes::from(bytes))
        });
        async { read.await.map_err(io::Error::other)? }.boxed()
    }
}

type Peers<'a> = dyn Fn(&VersionFile) -> Vec<Arc<dyn Origin>> + Sync + 'a;

/// The origins of one version's files.
pub struct Origins<'a> {
    store: Arc<dyn Origin>,
    peers: &'a Peers<'a>,
}

impl fmt::Debug for Origins<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Origins({})", self.store.name())
    }
}

impl<'a> Origins<'a> {
    /// All files come from a store.
    pub fn of(store: Arc<dyn Origin>) -> Self {
        let peers = &|_: &VersionFile| Vec::new();
        Self { store, peers }
    }

    /// Adds the peers of each file, asked first and in this order. A peer that fails, or has sent
    /// damaged data, is skipped. The store is asked last.
    #[must_use]
    pub fn after(self, peers: &'a Peers<'a>) -> Self {
        Self { peers, ..self }
    }

    /// Returns the store, which has everything, including the manifests.
    pub fn store(&self) -> &Arc<dyn Origin> {
        &self.store
    }

    pub(super) fn peers(&self, file: &VersionFile) -> Vec<Arc<dyn Origin>> {
        (self.peers)(file)
    }
}
