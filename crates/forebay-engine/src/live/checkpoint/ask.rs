//! The files by which a command asks a table's owner for a checkpoint.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use forebay_io::{Clock, Disk, Lock, replace_file};

use crate::documents::holder::{holder_words, try_lock};
use crate::documents::layout::TableFiles;
use crate::error::{At, StoreError};

/// How long the asker waits for an owner that serves requests: a server looks several times a
/// second.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it waits for one that has not said that it serves them: a server may just have opened
/// the table.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);
pub const POLL: Duration = Duration::from_millis(20);

/// The directory of one asker.
#[derive(Debug, Clone)]
pub struct AskFiles {
    pub dir: PathBuf,
}

impl AskFiles {
    pub fn new(files: &TableFiles, id: &str) -> Self {
        let dir = files.asks().join(id);
        Self { dir }
    }

    /// Creates the directory. Any process that looks for requests removes the parent while it is
    /// empty, which may happen now.
    pub fn create(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        const TRIES: usize = 10;
        let mut made = disk.create_dir_all(&self.dir);
        for _ in 0..TRIES {
            match &made {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    made = disk.create_dir_all(&self.dir);
                }
                _ => break,
            }
        }
        made.at("create", &self.dir)
    }

    pub fn lock(&self) -> PathBuf {
        self.dir.join("lock")
    }

    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    pub fn put(&self, disk: &dyn Disk, name: &str, text: &str) -> Result<(), StoreError> {
        let path = self.dir.join(name);
        replace_file(disk, &path, text.as_bytes()).at("write", &path)
    }

    fn text(&self, disk: &dyn Disk, name: &str) -> Result<Option<String>, StoreError> {
        let path = self.dir.join(name);
        match disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            bytes => {
                let bytes = bytes.at("read", &path)?;
                Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
            }
        }
    }

    /// Returns whether a checkpoint is requested, and not made yet.
    pub fn is_open(&self, disk: &dyn Disk) -> Result<bool, StoreError> {
        Ok(self.text(disk, "ask")?.is_some() && self.outcome(disk)?.is_none())
    }

    /// Returns whether the owner has begun.
    pub fn is_taken(&self, disk: &dyn Disk) -> Result<bool, StoreError> {
        let path = self.dir.join("taken");
        disk.exists(&path).at("look for", &path)
    }

    pub fn outcome(&self, disk: &dyn Disk) -> Result<Option<Result<(), String>>, StoreError> {
        if self.text(disk, "done")?.is_some() {
            return Ok(Some(Ok(())));
        }
        Ok(self.text(disk, "refused")?.map(Err))
    }

    /// Removes the store first: a store without its request takes no space.
    pub fn remove(&self, disk: &dyn Disk) -> Result<(), StoreError> {
        for dir in [&self.store(), &self.dir] {
            match disk.remove_dir_all(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.at("remove", dir)?,
            }
        }
        Ok(())
    }
}

/// Returns the directories of live askers, and removes those of dead ones.
pub fn living_asks(
    disk: &dyn Disk,
    clock: &dyn Clock,
    files: &TableFiles,
) -> Result<Vec<AskFiles>, StoreError> {
    let dir = files.asks();
    let names = match disk.list(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        names => names.at("list", &dir)?,
    };
    if names.is_empty() {
        // Without it, the next look finds nothing in the table's directory. It stays if a process
        // has begun to ask.
        let _ = disk.remove_dir(&dir);
    }
    let mut row_estimate = Vec::new();
    for name in names {
        let ask = AskFiles::new(files, &name);
        // A process that has just created it, and is about to lock it, finds it locked or gone.
        match left(disk, clock, &ask)? {
            None => row_estimate.push(ask),
            Some(_lock) => ask.remove(disk)?,
        }
    }
    Ok(row_estimate)
}

/// Returns how long an asker waits for the process that has the table open.
pub fn patience(
    disk: &dyn Disk,
    clock: &dyn Clock,
    files: &TableFiles,
) -> Result<Duration, StoreError> {
    let words = holder_words(disk, clock, "a look for who takes what is asked");
    Ok(match try_lock(disk, &files.asks_lock(), &words)? {
        Ok(_nobody) => SHORT_PATIENCE,
        Err(_taker) => PATIENCE,
    })
}

/// Returns the lock of a directory whose asker is gone; `None` if the asker lives.
fn left(
    disk: &dyn Disk,
    clock: &dyn Clock,
    ask: &AskFiles,
) -> Result<Option<Box<dyn Lock>>, StoreError> {
    let words = holder_words(disk, clock, "cleaning up after a checkpoint");
    Ok(try_lock(disk, &ask.lock(), &words)?.ok())
}

/// Removes the directories of dead askers.
pub(crate) fn sweep_asks(
    disk: &dyn Disk,
    clock: &dyn Clock,
    files: &TableFiles,
) -> Result<(), StoreError> {
    living_asks(disk, clock, files).map(drop)
}
