//! Counts ticks that a replica need not handle one by one.
//!
//! In an idle group most ticks only pass the time. A node with a thousand idle groups need not
//! visit each of them ten times a second.

use std::sync::atomic::{AtomicU32, Ordering};

use raft::StateRole;

use crate::replica::Replica;
use crate::time::IDLE_HEARTBEAT_TICKS;

/// A count of a replica's ticks. Before an event, its caller passes the counted ticks to the
/// replica ([`Replica::pass_ticks`]). Afterwards it records how many more may pass.
#[derive(Debug, Default)]
pub struct QuietTicks {
    passed: AtomicU32,
    may_pass: AtomicU32,
}

impl QuietTicks {
    /// Counts a tick. Returns whether the replica has to handle it, and those before.
    pub fn tick(&self) -> bool {
        let may_pass = self.may_pass.load(Ordering::Relaxed);
        let is_due = self.passed.load(Ordering::Relaxed) >= may_pass;
        if !is_due {
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
        is_due
    }

    /// Returns the number of ticks that the replica has not handled.
    pub fn take_passed(&self) -> u32 {
        self.passed.swap(0, Ordering::Relaxed)
    }

    pub fn set_may_pass(&self, ticks: u32) {
        self.may_pass.store(ticks, Ordering::Relaxed);
    }
}

impl Replica {
    /// Passes ticks that needed no action: see [`Replica::quiet_ticks`].
    pub fn pass_ticks(&mut self, ticks: u32) {
        self.ticks += u64::from(ticks);
        (0..ticks).for_each(|_| {
            self.raw.tick();
        });
    }

    /// Returns the number of ticks that need no action, unless there is another event meanwhile.
    pub fn quiet_ticks(&self) -> u32 {
        let raft = &self.raw.raft;
        let ticks = match raft.state {
            _ if self.waits_for_something() => 0,
            StateRole::Leader if self.is_idle() => {
                IDLE_HEARTBEAT_TICKS - 1 - self.ticks % IDLE_HEARTBEAT_TICKS
            }
            StateRole::Follower if raft.leader_id != 0 => {
                let next = raft.election_elapsed as u64 + 1;
                self.election_ticks.saturating_sub(next)
            }
            _ => 0,
        };
        u32::try_from(ticks).unwrap_or(u32::MAX)
    }

    fn waits_for_something(&self) -> bool {
        let is_fetched = self.fetching.is_some() || self.came.is_some();
        let is_given = self.is_reading_log || !self.copying.is_empty();
        let is_asked = self.reads.are_asked() || !self.gathered.is_empty();
        is_fetched || is_given || is_asked || self.writing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_due_after_the_ticks_that_may_be_skipped() {
        let quiet = QuietTicks::default();
        assert!(quiet.tick());
        quiet.set_may_pass(2);
        let due: Vec<bool> = (0..4).map(|_| quiet.tick()).collect();
        assert_eq!(due, [false, false, true, true]);
        assert_eq!(quiet.take_passed(), 2);
        assert!(!quiet.tick());
    }
}
