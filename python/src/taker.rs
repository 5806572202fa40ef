//! Loads from anywhere into a live table that is open here: a thread of the table's takes them.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::store::Live;

/// Between two looks for a load to take.
const LOOK: Duration = Duration::from_millis(50);

/// The thread, while there is one.
#[derive(Debug, Default)]
pub struct Taker {
    thread: Mutex<Option<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl Taker {
    /// Begins to take loads. The thread keeps no table open: it ends with the last other handle.
    pub fn start(&self, live: Weak<Live>) -> std::io::Result<()> {
        let take = move || {
            loop {
                std::thread::park_timeout(LOOK);
                let Some(live) = live.upgrade() else { return };
                if live.taker.stopped.load(Relaxed) {
                    return;
                }
                // A load that is not taken is told so by its own waiting.
                _ = live.table().map(|table| table.take_load());
            }
        };
        let thread = std::thread::Builder::new().name("forebay-loads".to_owned());
        *self.thread.lock() = Some(thread.spawn(take)?);
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
