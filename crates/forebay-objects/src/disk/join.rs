//! Runs for a push whose lock another process holds, on another machine as a rule.

use std::io;
use std::sync::Arc;

use tracing::warn;

use super::{Parts, RemoteDisk, Shared};
use crate::attempt::Attempt;

/// A part in a push; see [`RemoteDisk::join`]. Dropped, it leaves in the store what was sent whole,
/// and nothing here.
#[derive(Debug)]
pub struct Joined {
    shared: Arc<Shared>,
    attempt: Arc<Attempt>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.shared.attempts.lock().remove(&self.attempt.table);
        let left = self.attempt.leave();
        let Parts {
            local, work_dir, ..
        } = &self.shared.parts;
        for error in [left, local.remove_dir_all(work_dir)]
            .into_iter()
            .filter_map(Result::err)
        {
            warn!(table = self.attempt.table, %error, "a part in a push did not end well");
        }
    }
}

impl RemoteDisk {
    /// Takes part in a push of the table whose lock somebody else holds, until dropped: runs can be
    /// written, are sent as a push sends its own, and are waited for when `runs/` is synced.
    /// REQUIRES a place of work of its own. `holder` is for people.
    pub fn join(&self, table: &str, holder: &str) -> io::Result<Joined> {
        let shared = &self.shared;
        let Parts {
            objects,
            local,
            clock,
            random,
            ..
        } = &shared.parts;
        let dir = shared.work_dir(table);
        let attempt = Attempt::begin(objects, local, clock, &dir, table, holder, &**random)?;
        let attempt = attempt.map_err(|holder| {
            let dir = dir.display();
            io::Error::other(format!(
                "{holder} works in {dir}: give each task a directory of its own"
            ))
        })?;
        local.create_dir_all(&attempt.run(""))?;
        let attempt = Arc::new(attempt);
        let mut attempts = shared.attempts.lock();
        attempts.insert(table.to_owned(), Arc::clone(&attempt));
        Ok(Joined {
            shared: Arc::clone(shared),
            attempt,
        })
    }
}
