//! Hints that the store has changed, from commands and other nodes.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What has been hinted at.
#[derive(Debug, Default)]
pub struct Hints {
    /// The stamp of the document that is there now, where the hint says so; 0: it does not.
    stamp: Mutex<Option<u64>>,
    came: Condvar,
}

impl Hints {
    pub fn give(&self, stamp: u64) {
        *self.stamp.lock() = Some(stamp);
        self.came.notify_all();
    }

    /// Waits for a hint, for so long.
    pub fn wait(&self, limit: Duration) -> Option<u64> {
        let mut stamp = self.stamp.lock();
        if stamp.is_none() {
            self.came.wait_for(&mut stamp, limit);
        }
        stamp.take()
    }
}
