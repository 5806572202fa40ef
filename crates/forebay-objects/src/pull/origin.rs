//! Where the files of a store are brought from: object storage, a directory, another node.

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

/// What of a file is fetched together, and again after a pull was interrupted.
pub const RANGE_BYTES: u64 = 4 << 20;
/// What is read or written at once on a disk of here.
pub const PIECE_BYTES: usize = 128 << 10;

/// A place that has files of a store, by their names in it (`tables/T/runs/ID.run`). What comes
/// from it is verified by whoever asked, so that it need not be trusted.
pub trait Origin: fmt::Debug + Send + Sync {
    /// For messages; tells it from other origins.
    fn name(&self) -> String;

    /// A whole document, such as a manifest; `NotFound` where there is none.
    fn get(&self, name: &str) -> io::Result<Bytes>;

    /// The names right below a directory, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;

    /// How much is asked for at once: what is near in small pieces, as one that is large keeps a
    /// processor for milliseconds, what is far in large ones, as each costs a request.
    fn piece_bytes(&self) -> u64 {
        RANGE_BYTES
    }

    /// All bytes of a range of a file, or an error. Called in a task of a tokio runtime that has
    /// timers and sockets.
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

/// The store in object storage at a URL. Nothing is asked yet.
pub fn object_origin(url: &str) -> Result<Arc<dyn Origin>, OpenError> {
    let address = Address::parse(url)?;
    let objects = Objects::connect(&address, Patience::Little);
    let objects = objects.map_err(|source| OpenError::Connect {
        url: address.url(),
        source,
    })?;
    Ok(Arc::new(objects))
}

/// A store in a directory, one that several nodes see.
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

/// Where the files of one version are.
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
    /// All of them in a store.
    pub fn of(store: Arc<dyn Origin>) -> Self {
        let peers = &|_: &VersionFile| Vec::new();
        Self { store, peers }
    }

    /// Each first where `peers` says, in that order. One that fails, or has sent what turns out
    /// damaged, is passed over; the store comes last.
    #[must_use]
    pub fn after(self, peers: &'a Peers<'a>) -> Self {
        Self { peers, ..self }
    }

    /// Has everything, the manifests among it.
    pub fn store(&self) -> &Arc<dyn Origin> {
        &self.store
    }

    pub(super) fn peers(&self, file: &VersionFile) -> Vec<Arc<dyn Origin>> {
        (self.peers)(file)
    }
}
