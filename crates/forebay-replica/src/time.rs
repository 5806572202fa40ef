//! The time as a replica sees it, its intervals, and the time of a partition.

use std::time::Duration;

/// A moment, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// A clock that never goes back and does not stop while the machine is suspended (Linux:
    /// CLOCK_BOOTTIME). Leases use it.
    pub monotonic: Duration,
    /// The time of day, which may be wrong and jump.
    pub unix_ms: u64,
}

/// The interval between two [`Event::Tick`](crate::Event::Tick)s. Late ticks and extra ticks are
/// harmless.
pub const TICK: Duration = Duration::from_millis(100);
/// The ticks between two heartbeats of a leader, and of one that has been idle for that many ticks.
/// The lease still has no gap, and a node with a thousand idle groups spends half as much on them.
pub const HEARTBEAT_TICKS: u64 = 2;
pub const IDLE_HEARTBEAT_TICKS: u64 = 4;
pub const IDLE_AFTER_TICKS: u64 = 50;
/// The ticks without a leader until a replica stands for election, drawn again each time.
pub const ELECTION_TICKS: std::ops::Range<u64> = 10..30;
/// A peer that was heard from within this many ticks is active.
pub const ACTIVE_TICKS: u64 = 20;
/// The election timeout of the first of a group's founders, and the number of ticks for which it
/// applies. Both hold as long as the founder has never heard from a leader. The others start when
/// it does, or a moment later.
pub const FIRST_ELECTION_TICKS: u64 = 1;
pub const FIRST_TRIES_TICKS: u64 = 20;
/// A replica that is asked to lead stands within this many ticks, or not at all.
pub const STAND_TICKS: u32 = 1;
/// A leader that hands over logs nothing for this many ticks, then takes the lead back. It hands
/// over again after the second number. A replica that stood later would lack what was logged since:
/// it would end the leader's term, and not be elected.
pub const HAND_OVER_TICKS: u64 = 3;
pub const HAND_OVER_AGAIN_TICKS: u64 = 20;
/// The time for which a replica that heard from a leader, or has just started, helps no other to
/// lead.
pub const PROMISE: Duration = Duration::from_secs(1);
/// The time for which a leader answers reads after a majority answered it, counted from its
/// question. Clocks may differ by a tenth before this is longer than the promise.
pub const LEASE: Duration = Duration::from_millis(900);
/// A read that is not confirmed within this time is refused.
pub const READ_PATIENCE: Duration = Duration::from_secs(2);
/// The time after which a leader that has announced a copy, and has no answer, checks again what
/// the peer has. The peer may not need a copy, and its report of that may be lost.
pub const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// A copy that has not arrived after this time is requested again.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// The time of a partition: it never falls, is the same on every replica, and is in each entry.
#[derive(Debug, Clone, Copy, Default)]
pub struct PartitionClock {
    last_ms: u64,
}

impl PartitionClock {
    /// Records a stamp in the log, whether it is committed or not.
    pub fn observe(&mut self, stamp_ms: u64) {
        self.last_ms = self.last_ms.max(stamp_ms);
    }

    /// Returns the stamp of a new entry: the leader's clock, but never less than an earlier stamp.
    pub fn stamp(&mut self, now: Now) -> u64 {
        self.observe(now.unix_ms);
        self.last_ms
    }
}
