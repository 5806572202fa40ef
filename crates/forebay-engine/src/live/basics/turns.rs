//! Turns at work that takes memory and processor time, of all tables of a budget.
//!
//! A fixed number of tables do such work at once.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The longest wait without a check whether it still makes sense.
const LOOK: Duration = Duration::from_millis(100);

/// A counting semaphore for such work.
#[derive(Debug)]
pub(crate) struct Turns {
    free: Mutex<usize>,
    freed: Condvar,
    waiting: AtomicUsize,
}

/// A turn, which is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t>(&'t Turns);

impl Turns {
    /// Creates this many turns at once.
    pub fn new(most: usize) -> Self {
        Self {
            free: Mutex::new(most),
            freed: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// Waits for a turn; `None` once `makes_sense` is false.
    pub fn take(&self, makes_sense: impl Fn() -> bool) -> Option<Turn<'_>> {
        let mut free = self.free.lock();
        while *free == 0 {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.freed.wait_for(&mut free, LOOK);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            if !makes_sense() {
                return None;
            }
        }
        *free -= 1;
        Some(Turn(self))
    }

    /// Returns whether a thread waits for a turn.
    pub fn are_awaited(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free.lock() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use forebay_io::{Clock, SystemClock};

    use super::*;

    #[test]
    fn the_number_of_turns_is_limited() {
        let turns = Turns::new(2);
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let _turn = turns.take(|| true).unwrap();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    SystemClock.sleep(Duration::from_millis(5));
                    now.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 2);
        let _both = (turns.take(|| true), turns.take(|| true));
        assert!(turns.take(|| false).is_none());
    }
}
