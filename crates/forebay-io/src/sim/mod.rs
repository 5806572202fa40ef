//! Simulated parts for tests: a disk that fails, a clock, random numbers and a network.
//!
//! The disk is in memory. It fails, fills up, dies and loses power on request. A test advances the
//! clock, a seed repeats the random numbers, and connections of the network break and stall on
//! request.
//!
//! Every call that a real disk could fail is counted. [`SimDisk::plan`] names the call that fails
//! and how. [`SimDisk::after_power_cut`] returns the disk as a power cut may leave it. Synced names
//! and bytes remain, and a seeded part of the rest does. Each directory keeps a prefix of its
//! unsynced changes; the module `inode` describes what a file keeps.

mod clock;
mod files;
mod idle_clock;
mod inode;
mod line;
mod net;
mod rest;
mod seeds;
mod test_over;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::files::{SimLogFile, SimReadFile, SimWriteFile};
use self::inode::Inode;
use crate::{Disk, Lock, LogFile, ReadFile, WriteFile};
pub use clock::HandClock;
pub use idle_clock::IdleClock;
pub use line::SimClient;
pub use net::{SimNet, Wire};
pub use seeds::{Rng, SeedCounts, SeededRandom, all_hold};
pub use test_over::{OverAtEnd, TestOver};

/// The fault at the planned call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This call fails with an I/O error, later ones work. A part of a failing write is done. A
    /// failing sync leaves its changes to chance, and later syncs of the file do not try again.
    Error,
    /// This call and every later one that needs space fails for lack of it, until
    /// [`SimDisk::make_room`]. A part of the first write is done. Syncs work, and so do writes to
    /// blocks that a file has, and changes of existing names.
    Full,
    /// This call, and those of the next [`NO_FILES_CALLS`] that open a file or a directory, fail
    /// because too many are open; or until [`SimDisk::make_room`].
    NoFiles,
    /// The process dies at this call. It and all later ones fail, and written data stays.
    Dead,
}

/// How many calls fail to open a file until one succeeds.
pub const NO_FILES_CALLS: u32 = 12;

#[derive(Debug, Clone)]
enum NameChange {
    Add(PathBuf, usize),
    Remove(PathBuf),
    Rename(PathBuf, PathBuf),
    /// A directory with its content.
    RemoveTree(PathBuf),
    MoveTree(PathBuf, PathBuf),
}

#[derive(Debug, Default)]
struct DiskState {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    unsynced: BTreeMap<PathBuf, Vec<NameChange>>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeMap<PathBuf, String>,
    /// The files of all locks that were ever taken; they are not among `names`.
    lock_files: BTreeSet<PathBuf>,
    calls: u64,
    plan: Option<(u64, Fault)>,
    stopped: Option<Fault>,
    /// How many more calls [`Fault::NoFiles`] refuses.
    refusals_left: u32,
}

/// A simulated disk. Clones share the disk.
#[derive(Debug, Default, Clone)]
pub struct SimDisk {
    state: Arc<Mutex<DiskState>>,
}

impl SimDisk {
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the `nth` call from now (0 = the next) fail.
    pub fn plan(&self, nth: u64, fault: Fault) {
        let mut state = self.state();
        state.plan = Some((state.calls + nth, fault));
    }

    /// Returns how many calls that can fail were made so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Returns the disk after its process died: locks are gone, bytes are as written.
    pub fn after_kill(&self) -> SimDisk {
        let state = self.state();
        let reopened = DiskState {
            inodes: state.inodes.clone(),
            names: state.names.clone(),
            durable_names: state.durable_names.clone(),
            unsynced: state.unsynced.clone(),
            dirs: state.dirs.clone(),
            lock_files: state.lock_files.clone(),
            ..DiskState::default()
        };
        SimDisk {
            state: Arc::new(Mutex::new(reopened)),
        }
    }

    /// Returns the disk as a power cut may leave it; one seed gives one outcome.
    pub fn after_power_cut(&self, seed: u64) -> SimDisk {
        let state = self.state();
        let mut random = Rng(seed);
        let mut names = state.durable_names.clone();
        let mut dirs = state.dirs.clone();
        for changes in state.unsynced.values() {
            let kept = random.below(changes.len() as u64 + 1) as usize;
            for change in &changes[..kept] {
                change.apply(&mut names);
            }
            for change in &changes[kept..] {
                if let NameChange::MoveTree(_, to) = change {
                    dirs.retain(|dir| !dir.starts_with(to));
                }
            }
        }
        let inodes: Vec<Inode> = state
            .inodes
            .iter()
            .map(|inode| inode.after_power_cut(&mut random))
            .collect();
        // A removed directory is back if something in it is.
        dirs.extend(
            names
                .keys()
                .flat_map(|name| name.ancestors().skip(1))
                .map(PathBuf::from),
        );
        let reopened = DiskState {
            inodes,
            durable_names: names.clone(),
            names,
            dirs,
            lock_files: state.lock_files.clone(),
            ..DiskState::default()
        };
        SimDisk {
            state: Arc::new(Mutex::new(reopened)),
        }
    }

    /// Makes the disk full, as after [`Fault::Full`]. Another fault may be planned besides.
    pub fn fill_up(&self) {
        self.state().stopped = Some(Fault::Full);
    }

    /// Ends [`Fault::Full`] or [`Fault::NoFiles`], or a plan of it.
    pub fn make_room(&self) {
        let mut state = self.state();
        let passes = |fault| matches!(fault, Fault::Full | Fault::NoFiles);
        if state.stopped.is_some_and(passes) {
            state.stopped = None;
        }
        if state.plan.is_some_and(|(_, fault)| passes(fault)) {
            state.plan = None;
        }
    }

    /// Changes a file's bytes without a write.
    pub fn tamper(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.state();
        if let Some(&inode) = state.names.get(path) {
            state.inodes[inode].tamper(change);
        }
    }

    /// Returns every file's path, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Add(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            NameChange::RemoveTree(dir) => names.retain(|name, _| !name.starts_with(dir)),
            NameChange::MoveTree(from, to) => {
                let all = std::mem::take(names).into_iter();
                names.extend(all.map(|(name, inode)| (moved(&name, from, to), inode)));
            }
        }
    }
}

/// Returns the path after directory `from` was moved to `to`.
fn moved(path: &Path, from: &Path, to: &Path) -> PathBuf {
    match path.strip_prefix(from) {
        Ok(rest) if rest.as_os_str().is_empty() => to.to_path_buf(),
        Ok(rest) => to.join(rest),
        Err(_) => path.to_path_buf(),
    }
}

/// The resources that a call needs and may lack.
#[derive(Debug, Clone, Copy)]
struct Needs {
    space: bool,
    file: bool,
}

const NOTHING: Needs = Needs {
    space: false,
    file: false,
};
const FILE: Needs = Needs {
    space: false,
    file: true,
};

fn space_if(space: bool) -> Needs {
    Needs { space, file: false }
}

impl DiskState {
    /// Counts a call that can fail, and fails it if that is planned.
    fn call(&mut self, needs: Needs) -> io::Result<()> {
        let number = self.calls;
        self.calls += 1;
        if let Some((at, fault)) = self.plan
            && number == at
        {
            self.plan = None;
            if fault != Fault::Error {
                self.stopped = Some(fault);
                self.refusals_left = NO_FILES_CALLS;
            }
            if fault == Fault::Error {
                return Err(io::Error::other("simulated input/output error"));
            }
        }
        match self.stopped {
            Some(Fault::Dead) => Err(io::Error::other("simulated death of the process")),
            Some(Fault::Full) if needs.space => Err(io::Error::from(io::ErrorKind::StorageFull)),
            Some(Fault::NoFiles) if needs.file => {
                self.refusals_left -= 1;
                if self.refusals_left == 0 {
                    self.stopped = None;
                }
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            }
            _ => Ok(()),
        }
    }

    fn change_name(&mut self, dir: &Path, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced
            .entry(dir.to_path_buf())
            .or_default()
            .push(change);
    }

    fn inode(&self, path: &Path) -> io::Result<usize> {
        self.names
            .get(path)
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn create(&mut self, path: &Path) -> io::Result<usize> {
        self.call(Needs {
            space: true,
            file: true,
        })?;
        self.require_dir(parent(path))?;
        if self.names.contains_key(path) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let inode = self.inodes.len();
        self.inodes.push(Inode::default());
        self.change_name(parent(path), NameChange::Add(path.to_path_buf(), inode));
        Ok(inode)
    }

    fn require_dir(&self, dir: &Path) -> io::Result<()> {
        if self.dirs.contains(dir) {
            Ok(())
        } else {
            Err(io::ErrorKind::NotFound.into())
        }
    }
}

/// Returns the path without its "..", of which there are few. It has no links.
fn without_dots(path: &Path) -> PathBuf {
    let mut short = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(short.pop()),
            part => short.push(part),
        }
    }
    short
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new(""))
}

impl Disk for SimDisk {
    /// 0 while the disk is full, otherwise unknown.
    fn free_bytes(&self, _path: &Path) -> io::Result<Option<u64>> {
        Ok((self.state().stopped == Some(Fault::Full)).then_some(0))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadFile>> {
        let mut state = self.state();
        state.call(FILE)?;
        let content = state.inodes[state.inode(path)?].content().to_vec();
        Ok(Arc::new(SimReadFile {
            content,
            disk: self.clone(),
        }))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn WriteFile>> {
        let inode = self.state().create(path)?;
        Ok(Box::new(SimWriteFile(SimLogFile::new(self, inode, 0))))
    }

    fn create_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let inode = self.state().create(path)?;
        Ok(Arc::new(SimLogFile::new(self, inode, 0)))
    }

    fn open_log(&self, path: &Path) -> io::Result<Arc<dyn LogFile>> {
        let mut state = self.state();
        state.call(FILE)?;
        let inode = state.inode(path)?;
        let end = state.inodes[inode].content().len();
        Ok(Arc::new(SimLogFile::new(self, inode, end)))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.state();
        state.call(FILE)?;
        Ok(state.inodes[state.inode(path)?].content().to_vec())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(NOTHING)?;
        state.inode(from)?;
        let change = NameChange::Rename(from.to_path_buf(), to.to_path_buf());
        state.change_name(parent(to), change);
        Ok(())
    }

    fn move_dir(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(NOTHING)?;
        if !state.dirs.contains(from) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.names.keys().any(|name| name.starts_with(to)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        let moved = |path: &PathBuf| moved(path, from, to);
        state.dirs = state.dirs.iter().map(moved).collect();
        state.lock_files = state.lock_files.iter().map(moved).collect();
        let change = NameChange::MoveTree(from.to_path_buf(), to.to_path_buf());
        state.change_name(parent(to), change);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(NOTHING)?;
        let inode = state.inode(from)?;
        if state.names.contains_key(to) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.change_name(parent(to), NameChange::Add(to.to_path_buf(), inode));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(NOTHING)?;
        state.inode(path)?;
        state.change_name(parent(path), NameChange::Remove(path.to_path_buf()));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let makes = !state.dirs.contains(path);
        state.call(space_if(makes))?;
        for dir in path.ancestors() {
            state.dirs.insert(dir.to_path_buf());
        }
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(NOTHING)?;
        state.require_dir(path)?;
        let inside = (state.names.keys())
            .chain(&state.dirs)
            .chain(&state.lock_files);
        if inside.into_iter().any(|entry| parent(entry) == path) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.dirs.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(FILE)?;
        state.require_dir(path)?;
        let gone: Vec<PathBuf> = state
            .names
            .keys()
            .filter(|name| name.starts_with(path))
            .cloned()
            .collect();
        for name in gone {
            state.change_name(parent(&name), NameChange::Remove(name.clone()));
        }
        state.dirs.retain(|dir| !dir.starts_with(path));
        state.lock_files.retain(|file| !file.starts_with(path));
        state.change_name(parent(path), NameChange::RemoveTree(path.to_path_buf()));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut state = self.state();
        state.call(FILE)?;
        state.require_dir(path)?;
        let entries = state.names.keys().chain(state.dirs.iter());
        let inside = entries.filter(|entry| entry.parent() == Some(path));
        let names = inside.filter_map(|entry| entry.file_name());
        let sorted: BTreeSet<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        Ok(sorted.into_iter().collect())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.call(FILE)?;
        let changes = state.unsynced.remove(path).unwrap_or_default();
        for change in changes {
            change.apply(&mut state.durable_names);
        }
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.call(NOTHING)?;
        let path = without_dots(path);
        Ok(state.names.contains_key(&path) || state.dirs.contains(&path))
    }

    fn is_locked(&self, path: &Path) -> io::Result<bool> {
        let mut state = self.state();
        state.call(FILE)?;
        Ok(state.locks.contains_key(path))
    }

    fn lock(&self, path: &Path, holder: &str) -> io::Result<Result<Box<dyn Lock>, String>> {
        let mut state = self.state();
        let makes = !state.lock_files.contains(path);
        state.call(Needs {
            space: makes,
            file: true,
        })?;
        state.require_dir(parent(path))?;
        state.lock_files.insert(path.to_path_buf());
        if let Some(present) = state.locks.get(path) {
            return Ok(Err(present.clone()));
        }
        state.locks.insert(path.to_path_buf(), holder.to_owned());
        Ok(Ok(Box::new(SimLock {
            path: path.to_path_buf(),
            disk: self.clone(),
        })))
    }
}

#[derive(Debug)]
struct SimLock {
    path: PathBuf,
    disk: SimDisk,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.path);
    }
}
