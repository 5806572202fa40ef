//! A thread that handles the requests of other processes to a live table that is open in this one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use forebay_io::start_thread;

/// The time between two checks for requests.
const LOOK: Duration = Duration::from_millis(50);

/// The thread, while there is one.
#[derive(Debug, Default)]
pub struct RowTaker {
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: Arc<AtomicBool>,
}

impl RowTaker {
    /// Calls `take` at intervals, until it returns false or [`RowTaker::stop`] is called.
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

    /// Stops the thread, and returns when it has ended.
    pub fn stop(&self) {
        self.stopped.store(true, Relaxed);
        if let Some(thread) = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            thread.thread().unpark();
            // The thread reported its own panic.
            let _ = thread.join();
        }
    }
}
