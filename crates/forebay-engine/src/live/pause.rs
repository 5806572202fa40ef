//! Holding up the writes to some partitions, until all that was written to them is in runs.
//!
//! What becomes of a partition as a whole, runs that are added to it, its cut or its end, takes its
//! place in history so: what was written before is older, what is written after is newer, and the
//! log has no record of the partition that would be read back into what it has become. Memory is
//! flushed before, with writes going on, and once more for the partitions that are held up, if
//! anything was written to them meanwhile. Writes to other partitions do not wait.

use std::time::Duration;

use crate::live::error::LiveError;
use crate::live::part::Access;
use crate::live::shared::{GATE_ENDED, LiveShared};

/// How long a wait lasts before its reason is looked at again.
const LOOK: Duration = Duration::from_millis(20);

/// No write to some partitions passes while this lives. REQUIRES: one at a time, by the lock
/// `ingesting`.
pub(crate) struct Pause<'a> {
    shared: &'a LiveShared,
    places: Vec<usize>,
}

impl<'a> Pause<'a> {
    /// When this returns, whatever had passed before is in the log and in memory.
    pub fn new(shared: &'a LiveShared, places: Vec<usize>) -> Self {
        debug_assert!(
            shared.ingesting.is_locked(),
            "writes are held up without the lock of whoever changes partitions"
        );
        for place in &places {
            let mut part = shared.parts.at(*place).lock();
            debug_assert!(
                part.is_here(),
                "writes are held up of the partition at {place}, which is not here"
            );
            if part.access == Access::Open {
                part.access = Access::Paused;
            }
        }
        Self { shared, places }
    }

    /// Writes to runs what was written to the partitions before they were held up.
    pub fn flush(&self) -> Result<(), LiveError> {
        let parts = &self.shared.parts;
        match self
            .places
            .iter()
            .any(|place| parts.at(*place).lock().has_memory())
        {
            true => self.shared.flush_of(&self.places),
            false => Ok(()),
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        for place in &self.places {
            let mut part = self.shared.parts.at(*place).lock();
            if part.access == Access::Paused {
                part.access = Access::Open;
            }
        }
        self.shared.notify(|_| ());
    }
}

impl LiveShared {
    /// Waits until writes to a partition are held up no longer, or says that none passes any more.
    #[cold]
    pub fn wait_while_paused(&self, place: usize) -> Result<(), LiveError> {
        loop {
            let seen = self.progress.lock().events;
            if self.parts.at(place).lock().access != Access::Paused {
                return Ok(());
            }
            let mut progress = self.progress.lock();
            if self.gate.reasons() & GATE_ENDED != 0 {
                drop(progress);
                return Err(self.ended());
            }
            if progress.events == seen {
                self.changed.wait_for(&mut progress, LOOK);
            }
        }
    }
}
