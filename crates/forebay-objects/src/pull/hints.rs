//! Hints that the store has changed, from commands and other nodes.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The pending hint.
#[derive(Debug, Default)]
pub struct Hints {
    /// The stamp of the present document, if the hint has one; 0: it has none.
    stamp: Mutex<Option<u64>>,
    came: Condvar,
}

impl Hints {
    pub fn give(&self, stamp: u64) {
        *self.stamp.lock() = Some(stamp);
        self.came.notify_all();
    }

    /// Waits for a hint, at most for `limit`.
    pub fn wait(&self, limit: Duration) -> Option<u64> {
        let mut stamp = self.stamp.lock();
        if stamp.is_none() {
            self.came.wait_for(&mut stamp, limit);
        }
        stamp.take()
    }
}
