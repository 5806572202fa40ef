//! Pauses the writes to some partitions until all earlier writes are in runs.
//!
//! Changes of a whole partition, such as added runs, a split or its release, use this. It gives
//! them a place in the order of writes: earlier writes are older, later writes are newer. The log
//! then has no record of the partition that recovery would apply to the changed one. Memory is
//! flushed first, while writes continue. If more was written meanwhile, memory of the paused
//! partitions is flushed once more. Writes to other partitions do not wait.

use std::time::Duration;

use crate::live::basics::error::LiveError;
use crate::live::partition::part::Access;
use crate::live::partition::shared::{GATE_ENDED, LiveShared};

/// How long a wait lasts before its reason is checked again.
const LOOK: Duration = Duration::from_millis(20);

/// A pause of the writes to some partitions, for as long as this lives. REQUIRES: one at a time, by
/// the lock `ingesting`.
pub(crate) struct Pause<'a> {
    shared: &'a LiveShared,
    places: Vec<usize>,
}

impl<'a> Pause<'a> {
    /// Begins a pause. When this returns, all earlier writes are in the log and in memory.
    pub fn new(shared: &'a LiveShared, places: Vec<usize>) -> Self {
        debug_assert!(
            shared.ingesting.is_locked(),
            "writes are paused without the lock for partition changes"
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

    /// Flushes the partitions' writes from before the pause to runs.
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
    /// Waits until writes to a partition are no longer paused. Returns an error if none passes any
    /// more.
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
