//! Loads from anywhere into a live table that is open here: a thread of the table's takes them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::start_thread;
use parking_lot::Mutex;

/// Between two looks for a load to take.
const LOOK: Duration = Duration::from_millis(50);

/// The thread, while there is one.
#[derive(Debug, Default)]
pub struct Taker {
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl Taker {
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    /// Calls `take` now and then, until it says false.
    pub fn start(&self, mut take: impl FnMut() -> bool + Send + 'static) -> std::io::Result<()> {
        let take = move || {
            loop {
                std::thread::park_timeout(LOOK);
                if !take() {
                    return;
                }
            }
        };
        *self.thread.lock() = Some(start_thread("forebay-loads", take)?);
        Ok(())
    }

    /// Returns when no load is being taken, and none will be.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Some(thread) = self.thread.lock().take() {
            thread.thread().unpark();
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}
