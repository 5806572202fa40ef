//! Keeping a local store, a node's cache, in step with a store in object storage.
//!
//! A thread looks at every table's pointer there, by requests that bring nothing while nothing has
//! changed. When one names a version that is not here, another thread brings it (`bring`): its files by
//! ranges, throttled, resumable; then it is verified, and only then does the pointer here move, which
//! servers follow. A version that is here already serves at once. Nothing here stops for a store that is
//! out of reach.

mod bring;
mod claim;
mod fetch;
mod state;
mod watch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_engine::{PushError, StoreError, TableName};
use thiserror::Error;

use crate::address::Address;
use crate::objects::{Objects, Patience};
use crate::open::OpenError;

pub use state::{PullState, TablePull};

use bring::Bringer;
use claim::claim;
use state::SharedState;
use watch::Watcher;

/// How to pull.
#[derive(Debug, Clone)]
pub struct PullOptions {
    /// At most so many bytes a second.
    pub rate_bytes: Option<u64>,
    /// Between two looks at the pointers.
    pub poll: Duration,
    /// How many versions of a table to keep.
    pub keep: usize,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            rate_bytes: None,
            poll: Duration::from_millis(500),
            keep: 2,
        }
    }
}

/// Why a version is not here.
#[derive(Debug, Error)]
pub enum PullError {
    #[error("{name}: {source}")]
    Request {
        name: String,
        source: std::io::Error,
    },
    #[error("{name} is damaged in the store: {problem}")]
    Damaged { name: String, problem: String },
    #[error("version {version} of table {table} is damaged in the store: {problem}; push it again")]
    Unsound {
        table: TableName,
        version: u64,
        problem: String,
    },
    #[error(
        "{} {other}: name another directory, one that is empty or not there",
        dir.display()
    )]
    NotACache {
        dir: std::path::PathBuf,
        other: String,
    },
    #[error("the pointer moved on meanwhile")]
    Superseded,
    #[error("cannot write {name} here: {source}")]
    Disk {
        name: String,
        source: std::io::Error,
    },
    #[error(transparent)]
    Push(#[from] PushError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Told of a table whose files were replaced by sound ones while they may be open.
pub type Reopen = Box<dyn Fn(&TableName) + Send + Sync>;

/// A store in object storage, as a source of versions for a local store.
#[derive(Debug, Clone)]
pub struct Puller {
    bringer: Arc<Bringer>,
    options: PullOptions,
}

/// A puller at work. Dropping it stops it.
#[derive(Debug)]
pub struct Pulling {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Puller {
    /// From the store at a URL into a local one, which holds nothing else. Nothing is asked yet.
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
        let state = Arc::new(SharedState::default());
        let bringer = Bringer::new(objects, local, options.clone(), state);
        Self {
            bringer: Arc::new(bringer),
            options,
        }
    }

    /// What is pulled now, and what is wrong.
    pub fn state(&self) -> PullState {
        self.bringer.state.get(self.bringer.objects.requests())
    }

    /// The tables there.
    pub fn tables(&self) -> Result<Vec<TableName>, PullError> {
        self.bringer.tables()
    }

    /// Brings the version of a table that serves there, once, and lets it serve here. Returns its number.
    pub fn pull(&self, table: &TableName) -> Result<u64, PullError> {
        self.bringer.pull_now(table)
    }

    /// Follows the pointers until the result is dropped.
    pub fn start(&self, reopen: Reopen) -> Result<Pulling, StoreError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut watcher = Watcher::new(
            Arc::clone(&self.bringer),
            self.options.poll,
            reopen,
            Arc::clone(&stop),
        );
        let thread = std::thread::Builder::new()
            .name("forebay-pull".to_owned())
            .spawn(move || watcher.run())
            .map_err(StoreError::Thread)?;
        Ok(Pulling {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}
