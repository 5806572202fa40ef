//! What other processes ask of a live table that is open here: a thread of the table's does it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::start_thread;

/// Between two looks for something to do.
const LOOK: Duration = Duration::from_millis(50);

/// The thread, while there is one.
#[derive(Debug, Default)]
pub struct RowTaker {
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Arc<AtomicBool>,
}

impl RowTaker {
    /// Calls `take` now and then, until it says false or [`RowTaker::stop`] is called.
    pub fn start(&self, mut take: impl FnMut() -> bool + Send + 'static) -> std::io::Result<()> {
        let stopped = Arc::clone(&self.stopped);
        let take = move || {
            loop {
                std::thread::park_timeout(LOOK);
                if stopped.load(Relaxed) || !take() {
                    return;
                }
            }
        };
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(start_thread("forebay-loads", take)?);
        Ok(())
    }

    /// Returns when nothing is being done, and nothing will be.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Some(thread) = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            thread.thread().unpark();
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}
