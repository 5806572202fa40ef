//! One at a time brings a file: versions share runs, and a repair need not wait for a version that
//! takes an hour to come.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
pub struct FileTurns {
    taken: Mutex<BTreeSet<PathBuf>>,
    given_back: Condvar,
}

/// A file that nobody else brings; dropping it gives it back.
#[derive(Debug)]
pub struct FileTurn<'a> {
    turns: &'a FileTurns,
    path: &'a Path,
}

impl FileTurns {
    /// Waits until nobody else brings the file.
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
