//! Keeping writers at the pace of flushes and merges.
//!
//! Writers are slowed down little by little, long before anything is full: what they owe for a byte
//! grows with the pressure, and they pay it in pauses of some milliseconds, each the writer that
//! comes next. Only when memory is wholly taken do they wait, and that is for the flush that is
//! under way.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::live::error::LiveError;
use crate::live::shared::{GATE_ENDED, GATE_FULL, LiveShared};

/// The share of the memory for writes at which they begin to be slowed down.
const FREE_SHARE: f64 = 0.75;
/// What is owed for a byte at full pressure: about 8 MB/s pass.
const OWED_NS_PER_BYTE: f64 = 125.0;
/// Near the limit of memory so many times that, so that it is hardly ever reached.
const STEEPEST: f64 = 50.0;
/// The most that is owed at a time: what was written is in memory, which has a limit of its own.
const MOST_OWED: Duration = Duration::from_secs(1);
/// The longest pause that one writer is asked for.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);
/// How long a wait lasts before its reason is looked at again: another table may have given memory
/// back.
const LOOK: Duration = Duration::from_millis(20);

impl LiveShared {
    /// Of memory: from 0, all is well, to 1, there is none.
    fn memory_pressure(&self) -> f64 {
        (self.budget().write_pressure() - FREE_SHARE) / (1.0 - FREE_SHARE)
    }

    /// Takes note of what writers owe for so many bytes: nothing while there is room, then rising
    /// smoothly with what flushes and merges are behind, whichever asks for more.
    pub fn owe(&self, bytes: usize) {
        let memory = self.memory_pressure().clamp(0.0, 1.0);
        let steepness = (1.0 / (1.0 - memory).max(1.0 / STEEPEST)).min(STEEPEST);
        let runs = self.run_pressure().max(0.0);
        let owed = (memory * memory * steepness).max(runs * runs);
        if owed > 0.0 {
            let owed_ns = (bytes as f64 * OWED_NS_PER_BYTE * owed) as u64;
            let most_ns = MOST_OWED.as_nanos() as u64;
            let add = |before: u64| Some(before.saturating_add(owed_ns).min(most_ns));
            // It always changes.
            let _ = self.counts.owed_ns.fetch_update(Relaxed, Relaxed, add);
        }
    }

    /// The pause that is the caller's to take.
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

    /// Whether writers are slowed down by what merges have not done yet.
    pub fn is_behind_with_merges(&self) -> bool {
        self.run_pressure() > 0.0
    }

    /// Merges keep less than `factor` runs a level. They are behind when a partition has several
    /// times as many as four levels have.
    fn run_pressure(&self) -> f64 {
        let free = 4.0 * f64::from(self.options.factor);
        let runs = self.counts.most_runs.load(Relaxed) as f64;
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
                    && (progress.flushes.failures > failures
                        || progress.refused_after == progress.flushes.failures)
                {
                    let error = self.full(why);
                    progress.refused_after = progress.flushes.failures;
                    return Err(error);
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
            if self.budget().is_by_hand() {
                MutexGuard::unlocked(&mut progress, || self.flush_for_room())?;
                continue;
            }
            self.changed.wait_for(&mut progress, LOOK);
        }
    }

    /// Does what a writer waits for, where no thread does. What goes wrong is told at the gate.
    fn flush_for_room(&self) -> Result<(), LiveError> {
        match self.step_flush() {
            Ok(false) => Err(self.full("another table has the memory, and is to be stepped")),
            Ok(true) | Err(_) => Ok(()),
        }
    }
}
