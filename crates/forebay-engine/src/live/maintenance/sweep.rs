//! Tracks the pages of runs: those that the system has dropped, and those that count as memory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::live::memory::run::LiveRun;
use crate::live::partition::shared::LiveShared;

const SYSTEM_PAGE_BYTES: usize = 4096;

impl LiveShared {
    /// Records pages that are no longer in memory, so that threads that must not wait do not touch
    /// them. Gives mapped pages back when there are more than the budget allows; they stay in the
    /// system's cache. Takes about a millisecond a gigabyte.
    pub fn sweep_pages(&self) {
        self.counts.sweeps.fetch_add(1, Ordering::Relaxed);
        let too_many = self.maps_too_much();
        for part in self.parts.iter() {
            let runs: Arc<[Arc<LiveRun>]> = Arc::clone(&part.lock().view.runs);
            for run in runs.iter() {
                run.run.forget_evicted();
                if too_many {
                    run.run.release_mapped();
                }
            }
        }
    }

    fn maps_too_much(&self) -> bool {
        let Some(limit_bytes) = self.budget().mapped_limit_bytes() else {
            return false;
        };
        // In pages: size, resident, and the resident pages of files.
        let counts = self.disk().read(Path::new("/proc/self/statm"));
        let counts = counts.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let mapped = counts.ok().and_then(|counts| {
            let pages: usize = counts.split_whitespace().nth(2)?.parse().ok()?;
            pages.checked_mul(SYSTEM_PAGE_BYTES)
        });
        mapped.is_some_and(|bytes| bytes > limit_bytes)
    }
}
