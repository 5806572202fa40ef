//! Sends the files of a version while the next ones are still being built.
//!
//! A sealed file is divided into parts, which are sent in parallel, each signed with its checksum;
//! the store joins them. Sent parts are recorded (`crate::journal`) one by one. The store also gets
//! a note that an upload has begun, `tables/T/uploads/FILE.json`. With it another process can give
//! the upload up if this machine never comes back.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, Disk, ReadFile, within};
use object_store::multipart::PartId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info};
use xxhash_rust::xxh3::xxh3_64;

use crate::journal::{Entry, Journal, part_bytes};
use crate::objects::Objects;
use crate::put_file::not_as_sent;

/// Parts on their way at a time, each in memory.
const PARTS_AT_ONCE: usize = 6;
const REPORT: Duration = Duration::from_millis(100);

/// The progress of a push's uploads.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// The bytes of all files sealed so far.
    pub total_bytes: u64,
    pub sent_bytes: u64,
    /// The bytes that an earlier, unfinished push sent.
    pub found_bytes: u64,
}

/// The uploads of one push.
#[derive(Debug)]
pub struct Uploads {
    work: Arc<Work>,
    clock: Arc<dyn Clock>,
    tasks: Mutex<Vec<JoinHandle<io::Result<()>>>>,
}

#[derive(Debug)]
struct Work {
    objects: Objects,
    disk: Arc<dyn Disk>,
    journal: Journal,
    /// The directory of the files on this machine, and the prefix of their names in the store.
    runs: PathBuf,
    table: String,
    permits: Arc<Semaphore>,
    total: AtomicU64,
    sent: AtomicU64,
    found: AtomicU64,
    /// Files that are complete in the store, with their lengths, until a caller takes them.
    arrived: Mutex<Vec<(String, u64)>>,
}

/// The note in the store that an upload has begun.
#[derive(Debug, Serialize, Deserialize)]
struct Begun {
    upload: String,
}

impl Uploads {
    /// Creates the uploads. `table`: the name of the table's directory in the store.
    pub fn new(
        objects: Objects,
        (disk, clock): (Arc<dyn Disk>, Arc<dyn Clock>),
        journal: Journal,
        runs: PathBuf,
        table: String,
    ) -> Self {
        let work = Work {
            objects,
            disk,
            journal,
            runs,
            table,
            permits: Arc::new(Semaphore::new(PARTS_AT_ONCE)),
            total: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            found: AtomicU64::new(0),
            arrived: Mutex::default(),
        };
        Self {
            work: Arc::new(work),
            clock,
            tasks: Mutex::default(),
        }
    }

    /// Begins to send a sealed file.
    pub fn begin(&self, file: &str) {
        let (work, file) = (Arc::clone(&self.work), file.to_owned());
        let runtime = self.work.objects.runtime();
        let task = runtime.spawn(async move { work.send(&file).await });
        self.tasks.lock().push(task);
    }

    pub fn uploaded(&self) -> Uploaded {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Uploaded {
            total_bytes: of(&self.work.total),
            sent_bytes: of(&self.work.sent),
            found_bytes: of(&self.work.found),
        }
    }

    /// Waits until all begun uploads are complete, and fails if one of them failed.
    pub fn wait(&self, report: &dyn Fn(Uploaded)) -> io::Result<()> {
        let tasks: Vec<_> = std::mem::take(&mut *self.tasks.lock());
        let mut outcome = Ok(());
        for mut task in tasks {
            let ended = self.work.objects.runtime().block_on(async {
                loop {
                    match within(&*self.clock, REPORT, &mut task).await {
                        Some(ended) => return ended,
                        None => report(self.uploaded()),
                    }
                }
            });
            // The others continue, because what they send need not be sent again.
            outcome = outcome.and(ended.map_err(io::Error::other).and_then(|ended| ended));
        }
        report(self.uploaded());
        outcome
    }

    /// Returns the files that were completed in the store since the last call, with their lengths.
    pub fn take_arrived(&self) -> Vec<(String, u64)> {
        std::mem::take(&mut self.work.arrived.lock())
    }

    /// Gives up, in the store, the uploads of pushes that are unknown on this machine. `names`: all
    /// notes in the store. REQUIRES the push lock.
    pub fn abort_strangers(&self, names: &[String]) -> io::Result<()> {
        let dir = format!("{}/uploads", self.work.table);
        for name in names {
            let Some(file) = name.strip_suffix(".json") else {
                continue;
            };
            if self.work.journal.read(file)?.is_none() {
                let (bytes, _) = match self.work.objects.get(&format!("{dir}/{name}")) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    found => found?,
                };
                if let Ok(begun) = serde_json::from_slice::<Begun>(&bytes) {
                    self.work.abort(file, &begun.upload)?;
                }
                self.work.objects.delete(&format!("{dir}/{name}"))?;
            }
        }
        Ok(())
    }

    /// Forgets a file, and gives up its upload if that is not complete.
    pub fn forget(&self, file: &str) -> io::Result<()> {
        if let Some(entry) = self.work.journal.read(file)?
            && !entry.complete
            && let Some(upload) = &entry.upload
        {
            self.work.abort(file, upload)?;
            self.work.objects.delete(&self.work.note(file))?;
        }
        self.work.journal.remove(file)
    }
}

impl Work {
    fn name(&self, file: &str) -> String {
        format!("{}/runs/{file}", self.table)
    }

    fn note(&self, file: &str) -> String {
        format!("{}/uploads/{file}.json", self.table)
    }

    fn abort(&self, file: &str, upload: &str) -> io::Result<()> {
        info!(file, "an upload that was not finished is given up");
        let (objects, name) = (&self.objects, self.name(file));
        let id = upload.to_owned();
        objects.runtime().block_on(objects.abort_parts(&name, &id))
    }

    async fn send(self: &Arc<Self>, file: &str) -> io::Result<()> {
        let len_bytes = self.send_whole(file).await?;
        self.arrived.lock().push((file.to_owned(), len_bytes));
        Ok(())
    }

    /// Returns the file's length, which the object has, too.
    async fn send_whole(self: &Arc<Self>, file: &str) -> io::Result<u64> {
        let source = self.disk.open(&self.runs.join(file))?;
        let len_bytes = source.len_bytes();
        self.total.fetch_add(len_bytes, Ordering::Relaxed);
        let fresh = Entry::new(len_bytes, &sums(Arc::clone(&source)).await?);
        let known = self.journal.read(file)?;
        let mut entry = match known {
            Some(known) if known.is_of(&fresh) => known,
            other => {
                if let Some(Entry {
                    upload: Some(upload),
                    complete: false,
                    ..
                }) = &other
                {
                    self.objects.abort_parts(&self.name(file), upload).await?;
                }
                fresh.clone()
            }
        };
        if entry.complete {
            if self.objects.length(&self.name(file)).await? == Some(len_bytes) {
                debug!(file, "an earlier push sent it");
                self.found.fetch_add(len_bytes, Ordering::Relaxed);
                return Ok(len_bytes);
            }
            entry = fresh.clone();
        }
        let resumes = entry.upload.is_some();
        match self.send_entry(file, &source, entry).await {
            // The store has given up an upload that was begun long ago, or has finished it.
            Err(error) if resumes && error.kind() == io::ErrorKind::NotFound => {
                self.send_entry(file, &source, fresh).await?;
            }
            sent => sent?,
        }
        Ok(len_bytes)
    }

    async fn send_entry(
        self: &Arc<Self>,
        file: &str,
        source: &Arc<dyn ReadFile>,
        mut entry: Entry,
    ) -> io::Result<()> {
        let name = self.name(file);
        let in_parts = entry.parts.len() > 1;
        if in_parts {
            self.send_parts(file, source, &mut entry).await?;
        } else {
            let _permit = self.permit().await?;
            let content = read(Arc::clone(source), entry.place(0)).await?;
            self.objects.put(&name, content).await?;
            self.sent.fetch_add(entry.len_bytes, Ordering::Relaxed);
        }
        let found = self.objects.length(&name).await?;
        if found != Some(entry.len_bytes) {
            return Err(not_as_sent(&name, entry.len_bytes, found));
        }
        entry.complete = true;
        self.journal.write(file, &entry)?;
        if in_parts {
            self.objects.remove(&self.note(file)).await?;
        }
        Ok(())
    }

    async fn send_parts(
        self: &Arc<Self>,
        file: &str,
        source: &Arc<dyn ReadFile>,
        entry: &mut Entry,
    ) -> io::Result<()> {
        let name = self.name(file);
        let upload = match &entry.upload {
            Some(upload) => upload.clone(),
            None => {
                let upload = self.objects.begin_parts(&name).await?;
                entry.upload = Some(upload.clone());
                self.journal.write(file, entry)?;
                let begun = Begun {
                    upload: upload.clone(),
                };
                let bytes = serde_json::to_vec(&begun).map_err(io::Error::other)?;
                self.objects.put(&self.note(file), bytes.into()).await?;
                upload
            }
        };
        let mut parts = JoinSet::new();
        for (index, part) in entry.parts.iter().enumerate() {
            let place = entry.place(index);
            if part.receipt.is_some() {
                self.found
                    .fetch_add(place.end - place.start, Ordering::Relaxed);
                continue;
            }
            let (work, source) = (Arc::clone(self), Arc::clone(source));
            let (name, upload) = (name.clone(), upload.clone());
            parts.spawn(async move {
                let _permit = work.permit().await?;
                let length = place.end - place.start;
                let content = read(source, place).await?;
                let sent = work
                    .objects
                    .put_part(&name, &upload, index, content)
                    .await?;
                work.sent.fetch_add(length, Ordering::Relaxed);
                Ok::<_, io::Error>((index, sent.content_id))
            });
        }
        let mut outcome = Ok(());
        while let Some(ended) = parts.join_next().await {
            match ended.map_err(io::Error::other).and_then(|sent| sent) {
                Ok((index, receipt)) => {
                    entry.parts[index].receipt = Some(receipt);
                    self.journal.write(file, entry)?;
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome?;
        let receipts = entry.parts.iter().filter_map(|part| part.receipt.clone());
        let receipts = receipts.map(|content_id| PartId { content_id }).collect();
        self.objects.finish_parts(&name, &upload, receipts).await
    }

    async fn permit(&self) -> io::Result<tokio::sync::OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).acquire_owned();
        permit.await.map_err(io::Error::other)
    }
}

/// Returns the checksums of a file's parts.
async fn sums(file: Arc<dyn ReadFile>) -> io::Result<Vec<u64>> {
    let work = tokio::task::spawn_blocking(move || {
        let len_bytes = file.len_bytes();
        let step = part_bytes(len_bytes);
        let mut sums = Vec::new();
        let mut start = 0;
        while start < len_bytes || sums.is_empty() {
            let end = (start + step).min(len_bytes);
            sums.push(xxh3_64(&read_now(&*file, start..end)?));
            start = end;
        }
        Ok(sums)
    });
    work.await.map_err(io::Error::other)?
}

async fn read(file: Arc<dyn ReadFile>, range: std::ops::Range<u64>) -> io::Result<Bytes> {
    let work = tokio::task::spawn_blocking(move || read_now(&*file, range));
    work.await.map_err(io::Error::other)?
}

fn read_now(file: &dyn ReadFile, range: std::ops::Range<u64>) -> io::Result<Bytes> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok(bytes.into())
}
