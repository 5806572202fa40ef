//! Keeps a local store, a node's cache, in step with a store in object storage.
//!
//! A thread requests the store's document of all tables (`all_tables`), by requests that return no
//! content while nothing has changed. It checks the pointers whose entries have changed. Commands
//! and other nodes send hints when to ask.
//!
//! If a pointer names a version that the cache lacks, another thread fetches it (`fetch_version`),
//! in two steps. First the version is prepared: its files are fetched by ranges, throttled,
//! resumable, and verified, which changes nothing that serves. Then it is activated: the local
//! pointer changes, which servers follow. A version that the cache has serves at once. An
//! unreachable store stops nothing that serves from the cache.

mod all_tables;
pub(crate) mod error;
mod fetch;
#[cfg(test)]
mod fetch_tests;
mod fetch_version;
mod fetching;
mod file_turns;
mod jobs;
mod measured;
mod origin;
mod pace;
#[cfg(test)]
mod pace_tests;
mod pulled_store;
mod size_turns;
mod state;
mod throttle;
mod turns;
mod watch;
mod watched;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::{RunId, Store, StoreError, TableName};
use forebay_io::{Disk, replace_file, start_thread};

use crate::address::Address;
use crate::backend::Patience;
use crate::objects::Objects;
use crate::open_error::OpenError;

pub use error::PullError;
pub use fetch_version::{Fetcher, Prepared};
pub use origin::{DirectoryOrigin, Origin, Origins, object_origin};
pub use pulled_store::PulledVersion;
pub use state::{PullState, TablePull};
pub use throttle::{PullActive, PullRate, PullThrottle};

use pace::Pacer;
use pulled_store::PulledStore;
use watch::{Hints, Watcher};

/// The file that marks a directory as the cache of one store in object storage.
const CLAIM_FILE: &str = "pulled-from";
/// With a node's other requests, 0.2 requests a second.
const DEFAULT_POLL: Duration = Duration::from_secs(6);

/// The address of a node's HTTP port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// `HOST:PORT`.
    pub address: String,
    pub tls: bool,
}

/// The options of a puller.
#[derive(Debug, Clone)]
pub struct PullOptions {
    pub rate: PullRate,
    /// The time between two polls of the store.
    pub poll: Duration,
    /// How many versions of a table to keep.
    pub keep: usize,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            rate: PullRate::default(),
            poll: DEFAULT_POLL,
            keep: 2,
        }
    }
}

/// The server of pulled versions.
pub trait ServedVersions: Send + Sync {
    /// Reopens a table whose files were replaced by intact ones while they may be open.
    fn reopen(&self, table: &TableName);

    /// Returns tables in whose serving versions readers found damage, those versions, and the runs.
    fn damaged(&self) -> Vec<(TableName, u64, Vec<RunId>)>;

    /// Returns how many commands took up to 1, 2, 4... microseconds so far.
    fn latencies(&self) -> Vec<u64>;
}

/// A store in object storage, as a source of versions for a local store.
#[derive(Debug, Clone)]
pub struct Puller {
    pulled: Arc<PulledStore>,
    options: PullOptions,
    hints: Arc<Hints>,
}

/// A running puller. Dropping it stops it.
#[derive(Debug)]
pub struct Pulling {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Puller {
    /// Creates a puller from the store at a URL into a local one, which has nothing else. Sends no
    /// request yet.
    pub fn new(
        url: &str,
        local: forebay_engine::Store,
        options: PullOptions,
    ) -> Result<Self, OpenError> {
        let address = Address::parse(url)?;
        let objects = Objects::connect(&address, Patience::Little);
        let objects = objects.map_err(|source| OpenError::Connect {
            url: address.url(),
            source,
        })?;
        claim(&local, &address.url())?;
        Ok(Self::over(objects, local, options))
    }

    pub(crate) fn over(
        objects: Objects,
        local: forebay_engine::Store,
        options: PullOptions,
    ) -> Self {
        let runtime = Arc::clone(objects.runtime());
        let fetcher = Fetcher::with(runtime, local, options.rate);
        Self {
            pulled: Arc::new(PulledStore::new(fetcher, objects, options.keep)),
            options,
            hints: Arc::default(),
        }
    }

    /// Makes it poll the store now, unless the document of all tables still has this stamp.
    pub fn notify(&self, stamp: u64) {
        self.hints.give(stamp);
    }

    /// Returns what is being pulled, and the problems.
    pub fn state(&self) -> PullState {
        let requests = self.pulled.objects.requests();
        PullState {
            requests,
            ..self.pulled.fetcher.state()
        }
    }

    /// Returns the tables of the store.
    pub fn tables(&self) -> Result<Vec<TableName>, PullError> {
        self.pulled.tables()
    }

    /// Fetches the version of a table that serves in the store, and verifies it. It does not serve
    /// locally yet.
    pub fn prepare(&self, table: &TableName) -> Result<PulledVersion, PullError> {
        self.pulled.prepare_serving(table)
    }

    /// Makes a prepared version the local serving one.
    pub fn activate(&self, pulled: &PulledVersion) -> Result<(), PullError> {
        self.pulled.activate(pulled)
    }

    /// Follows the pointers until the result is dropped. `node`: the address for notifications,
    /// which is registered in the store.
    pub fn start(
        &self,
        served: Arc<dyn ServedVersions>,
        node: Option<NodeAddress>,
    ) -> Result<Pulling, StoreError> {
        let mut pulling = self.pulled.fetcher.pace(Arc::clone(&served))?;
        let mut watcher = Watcher::new(
            Arc::clone(&self.pulled),
            (self.options.poll, node),
            served,
            (Arc::clone(&pulling.stop), Arc::clone(&self.hints)),
        );
        pulling.spawn("forebay-pull", move || watcher.run())?;
        Ok(pulling)
    }
}

impl Fetcher {
    /// Adapts the rate to the latency of commands, if it is adaptive, until the result is dropped.
    pub fn pace(&self, served: Arc<dyn ServedVersions>) -> Result<Pulling, StoreError> {
        let mut pulling = Pulling {
            stop: Arc::default(),
            threads: Vec::new(),
        };
        if self.shared.throttle.is_adaptive() {
            let stop = Arc::clone(&pulling.stop);
            let clock = Arc::clone(self.local().clock());
            let mut pacer = Pacer::new(Arc::clone(&self.shared.throttle));
            pulling.spawn("forebay-pace", move || {
                while !stop.load(Ordering::Relaxed) {
                    clock.sleep(pace::LOOK);
                    pacer.look(clock.monotonic(), served.latencies());
                }
            })?;
        }
        Ok(pulling)
    }

    /// Returns what is being fetched, without the state of requests.
    pub fn state(&self) -> PullState {
        let mut state = self.shared.state.get();
        let limit = self.shared.throttle.limit_bytes();
        state.rate_bytes = (limit < u64::MAX).then_some(limit);
        state.slowed = self.shared.throttle.slowed();
        state
    }
}

impl Pulling {
    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), StoreError> {
        let thread = start_thread(name, run);
        self.threads.push(thread.map_err(StoreError::Thread)?);
        Ok(())
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The thread reported its own panic.
            let _ = thread.join();
        }
    }
}

/// Returns whether a directory is a cache, of any store.
pub fn is_claimed(disk: &dyn Disk, dir: &Path) -> io::Result<bool> {
    disk.exists(&dir.join(CLAIM_FILE))
}

/// Makes sure that a local store is the cache of the store at `url`, or of whatever other text
/// identifies it. Marks it if it is empty. What that store does not have is removed from the cache,
/// so nothing else may be in it.
pub fn claim(local: &Store, url: &str) -> Result<(), PullError> {
    let path = local.root().join(CLAIM_FILE);
    let at = |source| PullError::Disk {
        name: path.display().to_string(),
        source,
    };
    let other = |other: String| PullError::NotACache {
        dir: local.root().to_path_buf(),
        other,
    };
    match local.disk().read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            match text.trim() {
                known if known == url => Ok(()),
                known => Err(other(format!("is the cache of {known}"))),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if holds_tables(local)? {
                return Err(other("holds tables of its own".to_owned()));
            }
            let path: &Path = &path;
            replace_file(&**local.disk(), path, format!("{url}\n").as_bytes()).map_err(at)
        }
        Err(error) => Err(at(error)),
    }
}

fn holds_tables(local: &Store) -> Result<bool, StoreError> {
    Ok(!local.tables()?.is_empty() || !local.live_tables()?.is_empty())
}
