//! Runs of a push whose lock another process holds, usually on another machine.

use std::io;
use std::sync::Arc;

use tracing::warn;

use super::{Parts, RemoteDisk, Shared};
use crate::attempt::Attempt;

/// A part in another process's push, from [`RemoteDisk::join`]. Dropping it leaves complete files
/// in the store, and nothing on this machine.
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
    /// Joins a push of the table whose lock another process holds, until the result is dropped.
    /// Runs can be written and are sent as a push sends its own. A sync of `runs/` waits for them.
    /// REQUIRES a separate work directory. `holder` is for people.
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
