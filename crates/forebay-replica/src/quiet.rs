//! Ticks that a replica need not be told of one by one: in an idle group most do nothing but pass,
//! and a node with a thousand of them spares looking at each ten times a second.

use std::sync::atomic::{AtomicU32, Ordering};

use raft::StateRole;

use crate::replica::Replica;
use crate::time::IDLE_HEARTBEAT_TICKS;

/// Counts the ticks of a replica. Whoever handles an event tells the replica first what passed
/// ([`Replica::pass_ticks`]), and notes afterwards how many more may pass.
#[derive(Debug, Default)]
pub struct QuietTicks {
    passed: AtomicU32,
    may_pass: AtomicU32,
}

impl QuietTicks {
    /// A tick. Whether the replica is to be told of it: of those before, and of this one.
    pub fn tick(&self) -> bool {
        let may_pass = self.may_pass.load(Ordering::Relaxed);
        let is_due = self.passed.load(Ordering::Relaxed) >= may_pass;
        if !is_due {
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
        is_due
    }

    /// Those that the replica was not told of.
    pub fn take_passed(&self) -> u32 {
        self.passed.swap(0, Ordering::Relaxed)
    }

    pub fn set_may_pass(&self, ticks: u32) {
        self.may_pass.store(ticks, Ordering::Relaxed);
    }
}

impl Replica {
    /// Ticks after which nothing was to be done: see [`Replica::quiet_ticks`].
    pub fn pass_ticks(&mut self, ticks: u32) {
        self.ticks += u64::from(ticks);
        (0..ticks).for_each(|_| {
            self.raw.tick();
        });
    }

    /// After so many ticks nothing is to be done, unless something else happens meanwhile.
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
    fn a_tick_is_due_once_those_that_may_pass_have() {
        let quiet = QuietTicks::default();
        assert!(quiet.tick());
        quiet.set_may_pass(2);
        let due: Vec<bool> = (0..4).map(|_| quiet.tick()).collect();
        assert_eq!(due, [false, false, true, true]);
        assert_eq!(quiet.take_passed(), 2);
        assert!(!quiet.tick());
    }
}
