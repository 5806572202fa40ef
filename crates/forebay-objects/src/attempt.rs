//! One push to a store in object storage, on the machine that makes it.
//!
//! Its runs are built in a directory of this machine, the work directory, and sent from there. Runs
//! get random names. A push that continues where a killed one stopped must choose the same names,
//! or nothing of what was sent would be of use. So the random numbers of a push come from a seed
//! that stays in the work directory until the push is committed.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forebay_io::{Clock, Disk, Lock, Random, is_bad_device, replace_file};
use parking_lot::Mutex;
use tracing::warn;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::journal::Journal;
use crate::objects::Objects;
use crate::upload::{Uploaded, Uploads};

/// A push to a table, with its work directory.
#[derive(Debug)]
pub struct Attempt {
    /// The table's name.
    pub table: String,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    journal: Journal,
    pub uploads: Uploads,
    /// Runs that an earlier push sent and this one may still use.
    kept: HashSet<String>,
    state: Mutex<AttemptState>,
    _lock: Box<dyn Lock>,
}

#[derive(Debug)]
struct AttemptState {
    seed: u64,
    drawn: u64,
    committed: bool,
    /// The names that the store was found to have. Removing one of them removes it from the store.
    listed: HashSet<String>,
}

impl Attempt {
    /// Begins or continues a push. `Err` in `Ok`: the text of another process that pushes from this
    /// machine.
    pub fn begin(
        objects: &Objects,
        disk: &Arc<dyn Disk>,
        clock: &Arc<dyn Clock>,
        dir: &Path,
        table: &str,
        holder: &str,
        random: &dyn Random,
    ) -> io::Result<Result<Self, String>> {
        let uploads_dir = dir.join("uploads");
        let failed = |error| of_work_dir(dir, error);
        disk.create_dir_all(&uploads_dir).map_err(failed)?;
        let lock = match disk.lock(&dir.join("lock"), holder).map_err(failed)? {
            Ok(lock) => lock,
            Err(holder) => return Ok(Err(holder)),
        };
        // Runs that a killed push built are built again, because the sources may have changed.
        let runs = dir.join("runs");
        if disk.exists(&runs)? {
            disk.remove_dir_all(&runs)?;
        }
        let journal = Journal::new(Arc::clone(disk), uploads_dir);
        let kept = journal.files()?.into_iter().collect();
        let uploads = Uploads::new(
            objects.clone(),
            (Arc::clone(disk), Arc::clone(clock)),
            journal.clone(),
            dir.join("runs"),
            format!("tables/{table}"),
        );
        Ok(Ok(Self {
            table: table.to_owned(),
            dir: dir.to_path_buf(),
            disk: Arc::clone(disk),
            journal,
            uploads,
            kept,
            state: Mutex::new(AttemptState {
                seed: seed(&**disk, dir, random)?,
                drawn: 0,
                committed: false,
                listed: HashSet::new(),
            }),
            _lock: lock,
        }))
    }

    /// Returns the error of a file of this machine, which is not an error of the store.
    pub fn failed(&self, error: io::Error) -> io::Error {
        of_work_dir(&self.dir, error)
    }

    /// Returns the push's next random number.
    pub fn draw(&self) -> u64 {
        let mut state = self.state.lock();
        state.drawn += 1;
        xxh3_64_with_seed(&state.drawn.to_le_bytes(), state.seed)
    }

    /// Returns the path of a file of the table on this machine.
    pub fn run(&self, file: &str) -> PathBuf {
        self.dir.join("runs").join(file)
    }

    /// Removes from a list of runs what the push still needs: nothing, once it is committed.
    pub fn without_kept(&self, names: Vec<String>) -> Vec<String> {
        let mut state = self.state.lock();
        let names: Vec<String> = names
            .into_iter()
            .filter(|name| state.committed || !self.kept.contains(name))
            .collect();
        state.listed.extend(names.iter().cloned());
        names
    }

    /// Returns whether removing this file removes it from the store. A push that fails leaves what
    /// it sent to the next one.
    pub fn removes_there(&self, file: &str) -> bool {
        let state = self.state.lock();
        state.committed || state.listed.contains(file)
    }

    /// Returns the name of this work directory in leases.
    pub fn owner(&self, disk: &dyn Disk, random: &dyn Random) -> io::Result<String> {
        let path = self.dir.join("owner");
        match disk.read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).trim().to_owned();
                if !text.is_empty() {
                    return Ok(text);
                }
            }
        }
        let owner = format!("{:016x}", random.next_u64());
        replace_file(disk, &path, owner.as_bytes())?;
        Ok(owner)
    }

    pub fn wait(&self, report: &dyn Fn(Uploaded)) -> io::Result<()> {
        self.uploads.wait(report)
    }

    /// Records that the version is complete: nothing must be kept for another push.
    pub fn committed(&self) {
        self.state.lock().committed = true;
        if let Err(error) = self.clear() {
            warn!(table = self.table, %error, "files of an ended push stay in its place of work");
        }
    }

    /// Waits for running uploads, and gives up the incomplete ones. Files that are complete in the
    /// store stay.
    pub fn leave(&self) -> io::Result<()> {
        let sent = self.wait(&|_| ());
        self.clear().and(sent)
    }

    fn clear(&self) -> io::Result<()> {
        for file in self.journal.files()? {
            self.uploads.forget(&file)?;
        }
        for dir in [self.dir.join("runs"), self.journal.dir().to_path_buf()] {
            if self.disk.exists(&dir)? {
                self.disk.remove_dir_all(&dir)?;
            }
        }
        match self.disk.remove(&self.dir.join("seed")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn of_work_dir(dir: &Path, error: io::Error) -> io::Error {
    // A device's error is found by its number.
    if is_bad_device(&error) {
        return error;
    }
    let dir = dir.display();
    let words = format!("{error}, in the work directory {dir}: --work-dir names another one");
    io::Error::new(error.kind(), words)
}

/// Returns the seed of the push that did not finish, or a new one.
fn seed(disk: &dyn Disk, dir: &Path, random: &dyn Random) -> io::Result<u64> {
    let path = dir.join("seed");
    match disk.read(&path) {
        Ok(bytes) => {
            let known = std::str::from_utf8(&bytes).ok();
            if let Some(seed) = known.and_then(|text| text.trim().parse().ok()) {
                return Ok(seed);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let seed = random.next_u64();
    replace_file(disk, &path, format!("{seed}\n").as_bytes())?;
    Ok(seed)
}
