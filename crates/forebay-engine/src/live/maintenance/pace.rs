//! Slows writers down to the pace of flushes and merges.
//!
//! Writers are slowed down gradually, long before anything is full. The cost of a byte grows with
//! the pressure. It is paid in pauses of some milliseconds, each by the next writer. Writers wait
//! only when memory is fully used, until the current flush ends.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::live::basics::error::LiveError;
use crate::live::partition::shared::{GATE_ENDED, GATE_FULL, LiveShared};

/// The used share of the memory for writes at which writers are slowed down.
const FREE_SHARE: f64 = 0.75;
/// The cost of a byte at full pressure: about 8 MB/s pass.
const OWED_NS_PER_BYTE: f64 = 125.0;
/// The factor of that cost near the limit of memory, so that the limit is hardly ever reached.
const STEEPEST: f64 = 50.0;
/// The greatest debt: written bytes are in memory, which has a limit of its own.
const MOST_OWED: Duration = Duration::from_secs(1);
/// The longest pause of one writer.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How long a wait lasts before its reason is checked again: another table may have freed memory.
const LOOK: Duration = Duration::from_millis(20);

impl LiveShared {
    /// Returns the pressure of memory: from 0, no pressure, to 1, no memory left.
    fn memory_pressure(&self) -> f64 {
        (self.budget().write_pressure() - FREE_SHARE) / (1.0 - FREE_SHARE)
    }

    /// Adds the debt for the given bytes: zero while there is room, then rising smoothly with the
    /// backlog of flushes or merges, whichever is greater.
    pub fn owe(&self, bytes: usize) {
        let memory = self.memory_pressure().clamp(0.0, 1.0);
        let steepness = (1.0 / (1.0 - memory).max(1.0 / STEEPEST)).min(STEEPEST);
        let runs = self.run_pressure().max(0.0);
        let owed = (memory * memory * steepness).max(runs * runs);
        if owed > 0.0 {
            let owed_ns = (bytes as f64 * OWED_NS_PER_BYTE * owed) as u64;
            let most_ns = MOST_OWED.as_nanos() as u64;
            let add = |before: u64| Some(before.saturating_add(owed_ns).min(most_ns));
            // The function always returns a value.
            let _ = self.counts.owed_ns.fetch_update(Relaxed, Relaxed, add);
        }
    }

    /// Returns the pause that the caller must take.
    #[inline]
    pub fn take_pause(&self) -> Duration {
        match self.counts.owed_ns.load(Relaxed) {
            0 => Duration::ZERO,
            _ => self.take_owed(),
        }
    }

    #[cold]
    fn take_owed(&self) -> Duration {
        let longest_ns = LONGEST_PAUSE.as_nanos() as u64;
        let pay = |owed: u64| Some(owed.saturating_sub(longest_ns));
        let owed = self.counts.owed_ns.fetch_update(Relaxed, Relaxed, pay);
        let pause = Duration::from_nanos(owed.unwrap_or(0).min(longest_ns));
        let pause_us = pause.as_micros() as u64;
        self.counts.delayed_us.fetch_add(pause_us, Relaxed);
        pause
    }

    /// Returns whether writers are slowed down by the backlog of merges.
    pub fn is_behind_with_merges(&self) -> bool {
        self.run_pressure() > 0.0
    }

    /// Returns the pressure of merges. They keep fewer than `factor` runs a level. There is a
    /// backlog when a partition has several times as many as four levels have.
    fn run_pressure(&self) -> f64 {
        let free = 4.0 * f64::from(self.options.factor);
        let runs = self.counts.most_runs.load(Relaxed) as f64;
        (runs - free) / (2.0 * free)
    }

    /// Returns the error for writes that have no memory until the disk has free space.
    pub fn full(&self, why: &str) -> LiveError {
        LiveError::Full {
            table: self.shape.table.clone(),
            why: why.to_owned(),
        }
    }

    /// Waits until writes may pass, or returns why they may not.
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
                    && (progress.flushes.failures > failures
                        || progress.refused_after == progress.flushes.failures)
                {
                    let error = self.full(why);
                    progress.refused_after = progress.flushes.failures;
                    return Err(error);
                }
                // The missing memory may be another table's, and may not be freed.
                if progress.flushes.problem.is_none() {
                    let room = MutexGuard::unlocked(&mut progress, || self.budget().make_room());
                    room.map_err(|why| self.full(&why))?;
                }
            }
            if reasons == 0 {
                return Ok(());
            }
            if self.budget().is_by_hand() {
                MutexGuard::unlocked(&mut progress, || self.flush_for_room())?;
                continue;
            }
            self.changed.wait_for(&mut progress, LOOK);
        }
    }

    /// Flushes on the writer's thread, if there are no threads. The gate reports errors.
    fn flush_for_room(&self) -> Result<(), LiveError> {
        match self.step_flush() {
            Ok(false) => Err(self.full("another table has the memory, and is to be stepped")),
            Ok(true) | Err(_) => Ok(()),
        }
    }
}
