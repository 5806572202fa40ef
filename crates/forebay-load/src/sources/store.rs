//! Reads from the stores of source files: this machine's file system, buckets and web servers.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use forebay_io::check_threads;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, ObjectStoreExt};
use tokio::runtime::{Builder, Runtime};

/// The bytes of one of several concurrent requests.
const PIECE_BYTES: u64 = 8 << 20;
/// The number of concurrent requests of one reader.
const REQUESTS: usize = 8;

/// A store and the runtime that waits for it.
#[derive(Debug)]
pub(in crate::sources) struct Store {
    pub objects: Arc<dyn ObjectStore>,
    pub runtime: Arc<Runtime>,
    /// Whether it is across a network: a request takes long, and several concurrent ones take
    /// hardly longer.
    pub far: bool,
    /// The secret that no message may show: the query of a signed URL.
    pub secret: Option<String>,
}

/// One file of a store.
#[derive(Debug, Clone)]
pub(in crate::sources) struct Object {
    pub store: Arc<Store>,
    pub path: Path,
    /// The tag that identifies its content; without it, only changes of the length are detected.
    pub tag: Option<String>,
    pub modified: DateTime<Utc>,
}

impl Store {
    pub fn local() -> io::Result<Store> {
        check_threads()?;
        Ok(Store {
            objects: Arc::new(LocalFileSystem::new()),
            runtime: Arc::new(Builder::new_current_thread().build()?),
            far: false,
            secret: None,
        })
    }

    /// Creates the runtime that waits for remote stores, for any number of threads.
    pub fn far_runtime() -> io::Result<Runtime> {
        check_threads()?;
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("forebay-sources")
            .enable_all()
            .build()
    }

    pub fn said(&self, error: Error) -> io::Error {
        let error = forebay_objects::said(error);
        match self.secret.as_deref() {
            Some(secret) if error.to_string().contains(secret) => {
                io::Error::new(error.kind(), error.to_string().replace(secret, "..."))
            }
            _ => error,
        }
    }
}

impl Object {
    /// Returns whether the file is still the one that was found, by its size and time.
    pub fn is_as_found(&self, size_bytes: u64) -> io::Result<bool> {
        let head = self.store.objects.head(&self.path);
        let meta = self.store.runtime.block_on(head);
        let meta = meta.map_err(|error| self.store.said(error))?;
        Ok(meta.size == size_bytes && meta.last_modified == self.modified)
    }

    /// Reads a range within the file.
    pub fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        self.store.runtime.block_on(self.clone().fetch(range))
    }

    /// Begins to read a range.
    pub fn begin(&self, range: Range<u64>) -> Fetch {
        let task = self.store.runtime.spawn(self.clone().fetch(range));
        Fetch { task }
    }

    /// Reads a range with several concurrent requests.
    pub fn read_at_once(&self, range: Range<u64>) -> io::Result<Bytes> {
        let starts = range.clone().step_by(PIECE_BYTES as usize);
        let fetch = |start: u64| {
            let end = range.end.min(start + PIECE_BYTES);
            self.clone().fetch(start..end)
        };
        let mut pieces = futures::stream::iter(starts.map(fetch)).buffered(REQUESTS);
        self.store.runtime.block_on(async {
            let mut all = Vec::with_capacity((range.end - range.start) as usize);
            while let Some(piece) = pieces.try_next().await? {
                all.extend_from_slice(&piece);
            }
            Ok(all.into())
        })
    }

    async fn fetch(self, range: Range<u64>) -> io::Result<Bytes> {
        let expected = range.end - range.start;
        let bytes = if self.store.far {
            let options = GetOptions {
                range: Some(range.into()),
                if_match: self.tag.clone(),
                ..GetOptions::default()
            };
            match self.store.objects.get_opts(&self.path, options).await {
                // Not every server checks the condition.
                Ok(found) if self.tag.is_some() && found.meta.e_tag != self.tag => {
                    return Err(changed());
                }
                Ok(found) => found.bytes().await,
                Err(Error::Precondition { .. }) => return Err(changed()),
                Err(error) => Err(error),
            }
        } else {
            self.store.objects.get_range(&self.path, range).await
        };
        let bytes = bytes.map_err(|error| self.store.said(error))?;
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => Err(changed()),
        }
    }
}

fn changed() -> io::Error {
    io::Error::other("the file changed while it was read")
}

/// A range being fetched; dropping it cancels the request.
#[derive(Debug)]
pub(in crate::sources) struct Fetch {
    task: tokio::task::JoinHandle<io::Result<Bytes>>,
}

impl Fetch {
    pub fn wait(mut self, runtime: &Runtime) -> io::Result<Bytes> {
        let done = runtime.block_on(&mut self.task);
        done.map_err(io::Error::other)?
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
