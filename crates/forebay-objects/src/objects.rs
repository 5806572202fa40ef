//! Blocking requests to an object store.

use std::fmt;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, check_threads};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{
    Error, GetOptions, MultipartId, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use tokio::runtime::Runtime;

use crate::address::{Address, Kind};
use crate::backend::{Backend, Patience, connect};
use crate::refusals::{lacks_bucket, said};

/// The time between two tries of an operation whose requests are retried themselves.
const PAUSE: Duration = Duration::from_millis(500);

/// Small objects that are requested at a time.
const AT_ONCE: usize = 16;

/// The outcome of a conditional request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PutOutcome {
    Done(ContentTag),
    /// Another process wrote it since.
    Changed,
}

/// The identity of an object's content; `None`: the object does not exist.
pub type ContentTag = Option<UpdateVersion>;

/// The answer to a request for changes.
#[derive(Debug)]
pub enum News {
    Same,
    Absent,
    Content(Bytes, UpdateVersion),
}

/// An object of a listing.
#[derive(Debug, Clone)]
pub struct ListedObject {
    /// The name below the listed directory.
    pub name: String,
    pub len_bytes: u64,
    pub seen: UpdateVersion,
}

/// Starts the threads that wait for requests.
pub fn start_runtime() -> io::Result<Arc<Runtime>> {
    check_threads()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("forebay-objects")
        .enable_all()
        .build()?;
    Ok(Arc::new(runtime))
}

/// The objects under one prefix. Clones share connections, the runtime and the count of requests.
#[derive(Clone)]
pub struct Objects {
    backend: Arc<dyn Backend>,
    runtime: Arc<Runtime>,
    prefix: Key,
    requests: Arc<AtomicU64>,
    /// How long [`Objects::patiently`] tries.
    patience: Duration,
    lists_conditions: bool,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Objects({} {})", self.backend, self.prefix)
    }
}

impl Objects {
    /// Connects, which sends nothing yet.
    pub fn connect(address: &Address, patience: Patience) -> io::Result<Self> {
        let connected = Self::over(connect(address, patience)?, address.prefix.clone())?;
        Ok(Self {
            // Google requires generations, which its listings do not have.
            lists_conditions: address.kind != Kind::Google,
            ..connected
        })
    }

    /// Returns whether a listing has enough of an object to replace it on the condition that it is
    /// unchanged.
    pub fn lists_conditions(&self) -> bool {
        self.lists_conditions
    }

    /// Returns the objects for a caller that can wait longer than its single requests do.
    pub fn for_who_waits(mut self, patience: Patience) -> Self {
        self.patience = patience.time();
        self
    }

    /// Retries an operation while the store does not answer, or says that it cannot now.
    pub fn patiently<R>(
        &self,
        clock: &dyn Clock,
        mut work: impl FnMut() -> io::Result<R>,
    ) -> io::Result<R> {
        let end = clock.monotonic() + self.patience;
        loop {
            match work() {
                Err(error) if error.kind() == io::ErrorKind::Other && clock.monotonic() < end => {
                    clock.sleep(PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Creates the objects over an existing connection.
    pub fn over(backend: Arc<dyn Backend>, prefix: Key) -> io::Result<Self> {
        Ok(Self {
            backend,
            runtime: start_runtime()?,
            prefix,
            requests: Arc::default(),
            patience: Duration::ZERO,
            lists_conditions: true,
        })
    }

    /// Returns the number of requests sent, without retries.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub fn runtime(&self) -> &Arc<Runtime> {
        &self.runtime
    }

    /// Returns the name for people.
    pub fn place(&self) -> String {
        format!("{}/{}", self.backend, self.prefix)
    }

    fn wait<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.runtime.block_on(request)
    }

    /// Returns the whole key of a name below the prefix.
    fn key(&self, name: &str) -> Key {
        match (self.prefix.as_ref(), name) {
            ("", name) => Key::from(name),
            (prefix, "") => Key::from(prefix),
            (prefix, name) => Key::from(format!("{prefix}/{name}")),
        }
    }

    pub fn get(&self, name: &str) -> io::Result<(Bytes, UpdateVersion)> {
        match self.news(name, None)? {
            News::Content(bytes, seen) => Ok((bytes, seen)),
            News::Same | News::Absent => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Returns the content, unless it is what was `seen`.
    pub fn news(&self, name: &str, seen: Option<&UpdateVersion>) -> io::Result<News> {
        self.runtime.block_on(self.ask(name, seen))
    }

    /// Returns [`Objects::news`], for tasks.
    pub async fn ask(&self, name: &str, seen: Option<&UpdateVersion>) -> io::Result<News> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let options = GetOptions {
            if_none_match: seen.and_then(|seen| seen.e_tag.clone()),
            ..GetOptions::default()
        };
        match self.backend.get_opts(&self.key(name), options).await {
            Ok(found) => {
                let seen = UpdateVersion {
                    e_tag: found.meta.e_tag.clone(),
                    version: found.meta.version.clone(),
                };
                let expected = found.meta.size;
                let bytes = found.bytes().await.map_err(said)?;
                match bytes.len() as u64 == expected {
                    true => Ok(News::Content(bytes, seen)),
                    false => Err(short(bytes.len(), expected)),
                }
            }
            Err(Error::NotModified { .. }) => Ok(News::Same),
            Err(error @ Error::NotFound { .. }) if !lacks_bucket(&error) => Ok(News::Absent),
            Err(error) => Err(said(error)),
        }
    }

    /// Returns [`Objects::news`] of many objects, requested concurrently.
    pub fn news_of(&self, wanted: Vec<(String, ContentTag)>) -> Vec<io::Result<News>> {
        let asked = wanted
            .into_iter()
            .map(|(name, seen)| async move { self.ask(&name, seen.as_ref()).await });
        self.runtime
            .block_on(stream::iter(asked).buffered(AT_ONCE).collect())
    }

    /// Returns length and identity; `None`: the object does not exist.
    pub fn head(&self, name: &str) -> io::Result<Option<(u64, UpdateVersion)>> {
        let key = self.key(name);
        match self.wait(self.backend.head(&key)) {
            Ok(meta) => {
                let seen = UpdateVersion {
                    e_tag: meta.e_tag,
                    version: meta.version,
                };
                Ok(Some((meta.size, seen)))
            }
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }

    pub fn range(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        let this = self.clone();
        let name = name.to_owned();
        self.runtime
            .block_on(async move { this.fetch(&name, range).await })
    }

    /// Returns [`Objects::range`], for tasks.
    pub async fn fetch(&self, name: &str, range: Range<u64>) -> io::Result<Bytes> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let expected = range.end - range.start;
        let bytes = self
            .backend
            .get_range(&self.key(name), range)
            .await
            .map_err(said)?;
        if bytes.len() as u64 != expected {
            return Err(short(bytes.len(), expected));
        }
        Ok(bytes)
    }

    /// Writes an object if it is still what was `seen`. A store that wrote it and then failed to
    /// answer would refuse the retry. So after a refusal the object is read, and if it has the new
    /// content, the write is done. Content therefore has something unique: a stamp, a token.
    pub fn put_if(&self, name: &str, content: Bytes, seen: &ContentTag) -> io::Result<PutOutcome> {
        let mode = match seen {
            None => PutMode::Create,
            Some(seen) => PutMode::Update(seen.clone()),
        };
        let key = self.key(name);
        let options = PutOptions::from(mode);
        let put = self
            .backend
            .put_opts(&key, PutPayload::from(content.clone()), options);
        match self.wait(put) {
            Ok(done) => Ok(PutOutcome::Done(Some(done.into()))),
            Err(error) if lacks_bucket(&error) => Err(said(error)),
            Err(
                Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. },
            ) => match self.news(name, None)? {
                News::Content(found, seen) if found == content => Ok(PutOutcome::Done(Some(seen))),
                _ => Ok(PutOutcome::Changed),
            },
            Err(error) => Err(said(error)),
        }
    }

    /// Writes an object whatever was there before. For tasks.
    pub async fn put(&self, name: &str, content: Bytes) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let payload = PutPayload::from(content);
        self.backend
            .put(&self.key(name), payload)
            .await
            .map_err(said)?;
        Ok(())
    }

    /// Removes an object; a missing one counts as removed.
    pub fn delete(&self, name: &str) -> io::Result<()> {
        self.runtime.block_on(self.remove(name))
    }

    /// Does [`Objects::delete`], for tasks.
    pub async fn remove(&self, name: &str) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.backend.delete(&self.key(name)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(said(error)),
        }
    }

    /// Returns the names directly below `dir`, sorted: objects, and prefixes of objects.
    pub fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let key = self.key(dir);
        let prefix = (!key.as_ref().is_empty()).then_some(&key);
        let found = self
            .wait(self.backend.list_with_delimiter(prefix))
            .map_err(said)?;
        let objects = found.objects.iter().map(|object| &object.location);
        let mut names: Vec<String> = objects
            .chain(&found.common_prefixes)
            // Some stores list an empty directory by an object of its own name.
            .filter(|found| **found != key)
            .filter_map(|key| key.filename().map(str::to_owned))
            .collect();
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Returns all objects below `dir`, at any depth.
    pub fn list_all(&self, dir: &str) -> io::Result<Vec<ListedObject>> {
        let key = self.key(dir);
        let all = self
            .wait(self.backend.list(Some(&key)).try_collect::<Vec<_>>())
            .map_err(said)?;
        let listed = all.into_iter().filter_map(|meta| {
            let parts: Vec<_> = meta.location.prefix_match(&key)?.collect();
            let names: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
            Some(ListedObject {
                name: names.join("/"),
                len_bytes: meta.size,
                seen: UpdateVersion {
                    e_tag: meta.e_tag,
                    version: meta.version,
                },
            })
        });
        Ok(listed.filter(|found| !found.name.is_empty()).collect())
    }

    /// Removes all objects below `dir`.
    pub fn delete_all(&self, dir: &str) -> io::Result<()> {
        let key = self.key(dir);
        let all = self
            .wait(self.backend.list(Some(&key)).try_collect::<Vec<_>>())
            .map_err(said)?;
        for object in all {
            match self.wait(self.backend.delete(&object.location)) {
                Ok(()) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(said(error)),
            }
        }
        Ok(())
    }

    pub async fn begin_parts(&self, name: &str) -> io::Result<MultipartId> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let key = self.key(name);
        let begun = self.backend.create_multipart(&key);
        begun.await.map_err(said)
    }

    pub async fn put_part(
        &self,
        name: &str,
        upload: &MultipartId,
        index: usize,
        content: Bytes,
    ) -> io::Result<PartId> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let key = self.key(name);
        let put = self.backend.put_part(&key, upload, index, content.into());
        put.await.map_err(said)
    }

    pub async fn finish_parts(
        &self,
        name: &str,
        upload: &MultipartId,
        parts: Vec<PartId>,
    ) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let key = self.key(name);
        let finished = self.backend.complete_multipart(&key, upload, parts);
        finished.await.map_err(said)?;
        Ok(())
    }

    /// Gives an upload up; a missing one counts as given up.
    pub async fn abort_parts(&self, name: &str, upload: &MultipartId) -> io::Result<()> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.backend.abort_multipart(&self.key(name), upload).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(said(error)),
        }
    }

    /// Returns length and identity, for tasks.
    pub async fn length(&self, name: &str) -> io::Result<Option<u64>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match self.backend.head(&self.key(name)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(said(error)),
        }
    }
}

fn short(found: usize, expected: u64) -> io::Error {
    let text = format!("the store sent {found} bytes of {expected}");
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}
