//! A store's files in object storage, as a [`Disk`].
//!
//! | what the engine does | what happens |
//! | --- | --- |
//! | reads a small file, looks for one | GET, HEAD; the result is cached |
//! | replaces a small file (`.NAME.new`, renamed) | a PUT on the condition that the object is as it was seen |
//! | replaces a table's pointer | the same, then the document of all tables is updated (`crate::announcing`) |
//! | writes a run, a spill file | a file of this machine, in the work directory; a sealed run's upload begins |
//! | syncs `runs/` | waits for the uploads |
//! | opens a run | the file of this machine, while there is one; else ranges of the object |
//! | takes a lock | a lease (`crate::lease`), after a listing that answers requests under it (`locking`) |
//! | removes `uploads/` | gives up uploads that others began and did not finish |
//!
//! The names are those of a local store. Paths that are not below the store's root are this
//! machine's.

mod announce;
mod join;
mod listing;
mod locking;
mod writing;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use forebay_io::{Clock, Disk, Lock, LogFile, Random, ReadFile, WriteFile};
use parking_lot::Mutex;

use crate::attempt::Attempt;
use crate::documents::{Documents, StoreMemory};
use crate::file::RemoteFile;
use crate::lease::{KnownLocks, LeaseHolder};
use crate::objects::Objects;
use crate::tables_document::TABLES;
use crate::upload::Uploaded;
pub use join::Joined;
use listing::{Listing, POINTER};
use locking::{LockedTable, of_table};
use writing::{DocumentFile, RunFile};

/// A listener to uploads while a caller waits for them.
pub type Report = Box<dyn Fn(Uploaded) + Send + Sync>;

/// A disk whose files are objects.
pub struct RemoteDisk {
    shared: Arc<Shared>,
}

/// The parts of a [`RemoteDisk`].
pub struct Parts {
    /// The store's URL, as a path.
    pub root: PathBuf,
    pub objects: Objects,
    /// The objects for locks. A failed renewal is soon tried again anyway.
    pub leases: Objects,
    pub local: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// The work directory on this machine.
    pub work_dir: PathBuf,
    pub memory: StoreMemory,
}

struct Shared {
    parts: Parts,
    /// Files that were written and not renamed yet.
    unfinished: Mutex<HashMap<String, Bytes>>,
    /// The leases that this process holds.
    held: Mutex<Vec<Weak<LeaseHolder>>>,
    /// The tables of those leases, and what is cached of them.
    locked: Mutex<HashMap<String, LockedTable>>,
    known_locks: KnownLocks,
    /// The names in directories, and when they were listed.
    lists: Mutex<HashMap<String, (Vec<String>, Duration)>>,
    /// The running pushes, by table.
    attempts: Mutex<HashMap<String, Arc<Attempt>>>,
    report: Mutex<Option<Report>>,
}

/// The meaning of a path.
enum Place {
    /// A file of this machine.
    Local,
    /// A parent directory of the store.
    Above,
    /// `tables/T/runs/FILE`.
    Run { table: String, file: String },
    /// At or below `tables/T/scratch`.
    Scratch(PathBuf),
    /// Any other name below the root.
    Name(String),
}

impl std::fmt::Debug for RemoteDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteDisk({})", self.shared.parts.root.display())
    }
}

impl RemoteDisk {
    pub fn new(parts: Parts) -> Self {
        Self {
            shared: Arc::new(Shared {
                parts,
                unfinished: Mutex::default(),
                held: Mutex::default(),
                locked: Mutex::default(),
                known_locks: KnownLocks::default(),
                lists: Mutex::default(),
                attempts: Mutex::default(),
                report: Mutex::default(),
            }),
        }
    }

    /// Sets the listener to uploads while they are waited for.
    pub fn report_to(&self, report: Report) {
        *self.shared.report.lock() = Some(report);
    }

    /// Returns the random numbers of the store, or those of the running push, if there is one.
    pub fn random(&self) -> Arc<dyn Random> {
        Arc::new(PushRandom(Arc::clone(&self.shared)))
    }

    fn place(&self, path: &Path) -> Place {
        self.shared.place(path)
    }

    fn local(&self) -> &dyn Disk {
        &*self.shared.parts.local
    }

    fn objects(&self) -> &Objects {
        &self.shared.parts.objects
    }

    /// Returns the file of this machine that a running push has written, if it exists.
    fn staged(&self, table: &str, file: &str) -> io::Result<Option<PathBuf>> {
        let Some(attempt) = self.shared.attempt(table) else {
            return Ok(None);
        };
        let path = attempt.run(file);
        Ok(self.local().exists(&path)?.then_some(path))
    }
}

impl Shared {
    fn documents(&self) -> &Documents {
        &self.parts.memory.documents
    }

    fn place(&self, path: &Path) -> Place {
        let root = &self.parts.root;
        let Ok(below) = path.strip_prefix(root) else {
            return if root.starts_with(path) {
                Place::Above
            } else {
                Place::Local
            };
        };
        let words: Option<Vec<&str>> = below.iter().map(|word| word.to_str()).collect();
        let words = words.unwrap_or_default();
        match words[..] {
            ["tables", table, "runs", file] => Place::Run {
                table: table.to_owned(),
                file: file.to_owned(),
            },
            ["tables", table, "scratch", ..] => {
                let rest: PathBuf = words[2..].iter().collect();
                Place::Scratch(self.work_dir(table).join(rest))
            }
            _ => Place::Name(words.join("/")),
        }
    }

    fn work_dir(&self, table: &str) -> PathBuf {
        self.parts.work_dir.join("tables").join(table)
    }

    fn attempt(&self, table: &str) -> Option<Arc<Attempt>> {
        self.attempts.lock().get(table).cloned()
    }

    /// Fails if this process has lost one of its locks.
    fn confirm_locks(&self) -> io::Result<()> {
        let held: Vec<Arc<LeaseHolder>> = {
            let mut held = self.held.lock();
            held.retain(|lease| lease.strong_count() > 0);
            held.iter().filter_map(Weak::upgrade).collect()
        };
        held.iter().try_for_each(|lease| lease.confirm())
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("root", &self.parts.root)
            .finish()
    }
}

#[derive(Debug)]
struct PushRandom(Arc<Shared>);

impl Random for PushRandom {
    fn next_u64(&self) -> u64 {
        let attempts = self.0.attempts.lock();
        match attempts.values().next() {
            Some(attempt) => attempt.draw(),
            None => self.0.parts.random.next_u64(),
        }
    }
}

impl Disk for RemoteDisk {
    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let name = match self.place(path) {
            Place::Local => return self.local().open(path),
            Place::Scratch(path) => return self.local().open(&path),
            Place::Above => return Err(io::ErrorKind::IsADirectory.into()),
            Place::Run { table, file } => {
                if let Some(path) = self.staged(&table, &file)? {
                    return self.local().open(&path);
                }
                format!("tables/{table}/runs/{file}")
            }
            Place::Name(name) => name,
        };
        if let Some(file) = self.shared.listed_file(&name) {
            return Ok(file);
        }
        let (len_bytes, _) = self.objects().head(&name)?.ok_or(io::ErrorKind::NotFound)?;
        let objects = self.objects().clone();
        Ok(Arc::new(RemoteFile::new(objects, name, len_bytes)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        match self.place(path) {
            Place::Local => self.local().create(path),
            Place::Scratch(path) => self.local().create(&path),
            Place::Run { table, file } => {
                let attempt = self.shared.attempt(&table).ok_or_else(no_push)?;
                let inner = self.local().create(&attempt.run(&file));
                let inner = inner.map_err(|error| attempt.failed(error))?;
                Ok(Box::new(RunFile {
                    inner,
                    attempt,
                    file,
                }))
            }
            Place::Name(name) if is_unfinished(&name) => Ok(Box::new(DocumentFile {
                shared: Arc::clone(&self.shared),
                name,
                bytes: Vec::new(),
            })),
            Place::Name(_) | Place::Above => Err(unsupported("such a file")),
        }
    }

    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        match self.place(path) {
            Place::Local => self.local().create_log(path),
            _ => Err(unsupported("a live table")),
        }
    }

    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        match self.place(path) {
            Place::Local => self.local().open_log(path),
            _ => Err(unsupported("a live table")),
        }
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let name = match self.place(path) {
            Place::Local => return self.local().read(path),
            Place::Scratch(path) => return self.local().read(&path),
            Place::Above => return Err(io::ErrorKind::IsADirectory.into()),
            Place::Run { table, file } => format!("tables/{table}/runs/{file}"),
            Place::Name(name) => name,
        };
        let now = self.shared.parts.clock.monotonic();
        let trust = self.shared.trust(&name);
        let read = self
            .shared
            .documents()
            .read(self.objects(), &name, trust, now);
        read.map(|bytes| bytes.to_vec())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from_name, to_name) = match (self.place(from), self.place(to)) {
            (Place::Local, Place::Local) => return self.local().rename(from, to),
            (Place::Scratch(from), Place::Scratch(to)) => return self.local().rename(&from, &to),
            (Place::Name(from), Place::Name(to)) => (from, to),
            _ => return Err(unsupported("a renaming")),
        };
        let content = self.shared.unfinished.lock().remove(&from_name);
        let content = content.ok_or(io::ErrorKind::NotFound)?;
        self.shared.confirm_locks()?;
        let (len_bytes, now) = (content.len() as u64, self.shared.parts.clock.monotonic());
        self.shared
            .documents()
            .replace(self.objects(), &to_name, content.clone(), now)?;
        self.shared
            .changed(&to_name, |listing, name| listing.wrote(name, len_bytes));
        if let Some((table, POINTER)) = of_table(&to_name) {
            self.shared.announce(table, &content);
        }
        if let Some(table) = committed_by(&to_name)
            && let Some(attempt) = self.shared.attempt(table)
        {
            attempt.committed();
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match (self.place(from), self.place(to)) {
            (Place::Local, Place::Local) => self.local().link(from, to),
            _ => Err(unsupported("a second name of a file")),
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let name = match self.place(path) {
            Place::Local => return self.local().remove(path),
            Place::Scratch(path) => return self.local().remove(&path),
            Place::Above => return Err(io::ErrorKind::IsADirectory.into()),
            Place::Run { table, file } => {
                if let Some(attempt) = self.shared.attempt(&table) {
                    match self.local().remove(&attempt.run(&file)) {
                        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                        _ if !attempt.removes_there(&file) => return Ok(()),
                        _ => {}
                    }
                }
                format!("tables/{table}/runs/{file}")
            }
            Place::Name(name) if is_unfinished(&name) => {
                let removed = self.shared.unfinished.lock().remove(&name);
                return removed.map(drop).ok_or(io::ErrorKind::NotFound.into());
            }
            Place::Name(name) => name,
        };
        if self.shared.listed(&name, Listing::has) == Some(Some(false)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.shared.confirm_locks()?;
        self.shared.documents().forget(&name);
        self.objects().delete(&name)?;
        self.shared.changed(&name, Listing::removed);
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Local => self.local().create_dir_all(path),
            Place::Scratch(path) => self.local().create_dir_all(&path),
            Place::Name(name) => {
                match runs_of(&name).and_then(|table| self.shared.attempt(table)) {
                    Some(attempt) => self.local().create_dir_all(&attempt.run("")),
                    None => Ok(()),
                }
            }
            Place::Run { .. } | Place::Above => Ok(()),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Local => self.local().remove_dir(path),
            Place::Scratch(path) => self.local().remove_dir(&path),
            // There are no directories, only names with slashes.
            Place::Above | Place::Run { .. } | Place::Name(_) => Ok(()),
        }
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Local => self.local().remove_dir_all(path),
            Place::Scratch(path) => self.local().remove_dir_all(&path),
            Place::Name(name) if name.starts_with("tables/") => {
                match uploads_of(&name).and_then(|table| self.shared.attempt(table)) {
                    Some(attempt) => {
                        self.shared.confirm_locks()?;
                        let names = self.shared.names_below(&name)?;
                        attempt.uploads.abort_strangers(&names)
                    }
                    None => self.objects().delete_all(&name),
                }
            }
            _ => Err(unsupported("the removal of the whole store")),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.place(path) {
            Place::Local => self.local().list(path),
            Place::Scratch(path) => self.local().list(&path),
            Place::Name(name) => {
                let mut names = self.shared.names_below(&name)?;
                // The notes of serving nodes decide nothing, also not whether there is a store.
                names.retain(|found| !(name.is_empty() && found == TABLES));
                Ok(
                    match runs_of(&name).and_then(|table| self.shared.attempt(table)) {
                        Some(attempt) => attempt.without_kept(names),
                        None => names,
                    },
                )
            }
            Place::Run { .. } | Place::Above => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        match self.place(path) {
            Place::Local => self.local().sync_dir(path),
            Place::Name(name) => {
                match runs_of(&name).and_then(|table| self.shared.attempt(table)) {
                    Some(attempt) => {
                        attempt.wait(&|uploaded| {
                            if let Some(report) = &*self.shared.report.lock() {
                                report(uploaded);
                            }
                        })?;
                        for (file, len_bytes) in attempt.uploads.take_arrived() {
                            let name = format!("{name}/{file}");
                            let wrote =
                                |listing: &mut Listing, name: &str| listing.wrote(name, len_bytes);
                            self.shared.changed(&name, wrote);
                        }
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
            Place::Scratch(_) | Place::Run { .. } | Place::Above => Ok(()),
        }
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        match self.place(path) {
            Place::Local => self.local().exists(path),
            Place::Scratch(path) => self.local().exists(&path),
            Place::Above => Ok(true),
            Place::Run { table, file } => {
                let name = format!("tables/{table}/runs/{file}");
                Ok(self.staged(&table, &file)?.is_some() || self.objects().head(&name)?.is_some())
            }
            // There are no directories, so none is missing.
            Place::Name(name) if name.is_empty() => Ok(true),
            Place::Name(name) => match self.shared.listed(&name, Listing::has) {
                Some(Some(has)) => {
                    if !has {
                        self.shared.documents().saw(&name, None);
                    }
                    Ok(has)
                }
                _ => {
                    let now = self.shared.parts.clock.monotonic();
                    let trust = self.shared.trust(&name);
                    let documents = self.shared.documents();
                    documents.exists(self.objects(), &name, trust, now)
                }
            },
        }
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>> {
        let name = match self.place(path) {
            Place::Name(name) => name,
            _ => return self.local().lock(path, holder),
        };
        self.shared.lock(&name, holder)
    }

    fn look_again(&self, dir: &Path) {
        if let Place::Name(name) = self.place(dir)
            && let Some(table) = name.strip_prefix("tables/")
        {
            self.shared.look_again(table);
        }
    }

    fn is_object_storage(&self) -> bool {
        true
    }
}

fn is_unfinished(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.starts_with('.') && file.ends_with(".new")
}

/// Returns the table whose version, load or backup becomes complete with this document.
fn committed_by(name: &str) -> Option<&str> {
    match name.split('/').collect::<Vec<_>>()[..] {
        ["tables", table, "versions", file] if file.ends_with(".manifest") => Some(table),
        ["tables", table, "backups", file] if file.ends_with(".backup") => Some(table),
        ["tables", table, file] if file.ends_with(".staged") => Some(table),
        _ => None,
    }
}

/// Returns the table whose directory of runs this is.
fn runs_of(name: &str) -> Option<&str> {
    let table = name.strip_prefix("tables/")?.strip_suffix("/runs")?;
    (!table.contains('/')).then_some(table)
}

/// Returns the table whose notes of uploads are in this directory.
fn uploads_of(name: &str) -> Option<&str> {
    let table = name.strip_prefix("tables/")?.strip_suffix("/uploads")?;
    (!table.contains('/')).then_some(table)
}

fn unsupported(what: &str) -> io::Error {
    let text = format!("{what} has no place in object storage: use a store in a directory");
    io::Error::new(io::ErrorKind::Unsupported, text)
}

fn no_push() -> io::Error {
    io::Error::other("no push is under way")
}
