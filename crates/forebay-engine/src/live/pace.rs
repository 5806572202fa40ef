//! Keeping writers at the pace of flushes and merges.
//!
//! Writers are slowed down little by little, long before anything is full: the delay grows with the
//! square of the pressure. Only when memory is wholly taken do they wait, and that is for the flush
//! that is under way.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::live::error::LiveError;
use crate::live::shared::{GATE_ENDED, GATE_FULL, LiveShared};

/// The share of the memory for writes at which they begin to be slowed down.
const FREE_SHARE: f64 = 0.75;
/// How long a wait lasts before its reason is looked at again: another table may have given memory
/// back.
const LOOK: Duration = Duration::from_millis(20);

impl LiveShared {
    /// From 0, all is well, to 1 and above. Of memory and of runs, what presses more.
    pub fn pressure(&self) -> f64 {
        let memory = (self.budget().write_pressure() - FREE_SHARE) / (1.0 - FREE_SHARE);
        memory.max(self.run_pressure())
    }

    /// Merges keep less than `factor` runs a level. They are behind when a partition has several
    /// times as many as four levels have.
    fn run_pressure(&self) -> f64 {
        let free = 4.0 * f64::from(self.options.factor);
        let runs = self.counts.most_runs.load(Ordering::Relaxed) as f64;
        (runs - free) / (2.0 * free)
    }

    /// Why there is no memory for writes, when only free space helps.
    pub fn full(&self, why: &str) -> LiveError {
        LiveError::Full {
            table: self.shape.table.clone(),
            why: why.to_owned(),
        }
    }

    /// Waits until writes may pass, or says why they may not.
    #[cold]
    pub fn wait_at_gate(&self) -> Result<(), LiveError> {
        let mut progress = self.progress.lock();
        let failures = progress.flushes.failures;
        loop {
            let reasons = self.gate.reasons();
            if reasons & GATE_ENDED != 0 {
                drop(progress);
                return Err(self.ended());
            }
            if reasons & GATE_FULL != 0 {
                if self.budget().write_pressure() < 1.0 {
                    self.gate.open(GATE_FULL);
                    continue;
                }
                if let Some(why) = &progress.flushes.problem
                    && progress.flushes.failures > failures
                {
                    return Err(self.full(why));
                }
                // Another table's memory may be what is missing, and may not come back.
                if progress.flushes.problem.is_none() {
                    let room = MutexGuard::unlocked(&mut progress, || self.budget().make_room());
                    room.map_err(|why| self.full(&why))?;
                }
            }
            if reasons == 0 {
                return Ok(());
            }
            self.changed.wait_for(&mut progress, LOOK);
        }
    }
}
