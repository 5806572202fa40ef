//! Turns of files: one thread at a time fetches a file.
//!
//! Versions share runs, and a repair need not wait for a version that takes an hour to fetch.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub struct FileTurns {
    taken: Mutex<BTreeSet<PathBuf>>,
    given_back: Condvar,
}

/// A file that no other thread fetches; dropping it releases the file.
#[derive(Debug)]
pub struct FileTurn<'a> {
    turns: &'a FileTurns,
    path: &'a Path,
}

impl FileTurns {
    /// Waits until no other thread fetches the file.
    pub fn wait<'a>(&'a self, path: &'a Path) -> FileTurn<'a> {
        let mut taken = self.taken.lock();
        while !taken.insert(path.to_path_buf()) {
            self.given_back.wait(&mut taken);
        }
        FileTurn { turns: self, path }
    }
}

impl Drop for FileTurn<'_> {
    fn drop(&mut self) {
        self.turns.taken.lock().remove(self.path);
        self.turns.given_back.notify_all();
    }
}
