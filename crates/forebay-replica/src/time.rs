//! The time as a replica is told it, its intervals, and the time of a partition.

use std::time::Duration;

/// A moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// By a clock that never goes back and goes on while the machine is suspended (Linux:
    /// CLOCK_BOOTTIME). Leases are measured by it.
    pub monotonic: Duration,
    /// The time of day, which may be wrong and jump.
    pub unix_ms: u64,
}

/// Between two [`Event::Tick`](crate::Event::Tick)s. Later ones do no harm, more of them neither.
pub const TICK: Duration = Duration::from_millis(100);
/// Ticks between two heartbeats of a leader; and of one that nobody asked anything for so many
/// ticks. Its lease is held without a gap all the same, and a node with a thousand idle groups
/// spends half as much on them.
pub const HEARTBEAT_TICKS: u64 = 2;
pub const IDLE_HEARTBEAT_TICKS: u64 = 4;
pub const IDLE_AFTER_TICKS: u64 = 50;
/// A replica stands for election after so many ticks without a leader, drawn anew each time.
pub const ELECTION_TICKS: std::ops::Range<u64> = 10..30;
/// A peer that was heard of within so many ticks answers.
pub const ACTIVE_TICKS: u64 = 20;
/// The same of the first of a group's founders, as long as it has never heard of a leader, and for
/// so many ticks: the others begin when it does, or a moment later.
pub const FIRST_ELECTION_TICKS: u64 = 1;
pub const FIRST_TRIES_TICKS: u64 = 20;
/// Who is asked to lead stands within so many ticks, or not at all.
pub const STAND_TICKS: u32 = 1;
/// A leader that hands over takes the lead back after so many ticks, in which it logs nothing; and
/// hands over again after so many. Whoever stood later than that would lack what was logged since:
/// it would end the leader's term, and not be elected.
pub const HAND_OVER_TICKS: u64 = 3;
pub const HAND_OVER_AGAIN_TICKS: u64 = 20;
/// A replica that heard of a leader, or has just started, helps no other to lead for so long.
pub const PROMISE: Duration = Duration::from_secs(1);
/// A leader whom a majority answered answers reads for so long, counted from its question. Clocks
/// may go apart by a tenth before that is longer than the promise.
pub const LEASE: Duration = Duration::from_millis(900);
/// A read that is not confirmed for so long is refused.
pub const READ_PATIENCE: Duration = Duration::from_secs(2);
/// A leader that has announced a copy to a peer, and has not heard that it is there, looks again
/// what the peer has: it may not need one, and what it said of that be lost.
pub const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// A copy that has not come after so long is asked for again.
pub const SNAPSHOT_PATIENCE: Duration = Duration::from_secs(10);

/// The time of a partition: never falling, the same on every replica, in each entry.
#[derive(Debug, Clone, Copy, Default)]
pub struct PartitionClock {
    last_ms: u64,
}

impl PartitionClock {
    /// Takes notice of a stamp in the log, whether it is committed or not.
    pub fn observe(&mut self, stamp_ms: u64) {
        self.last_ms = self.last_ms.max(stamp_ms);
    }

    /// The stamp of a new entry: the leader's clock, but never less than an earlier stamp.
    pub fn stamp(&mut self, now: Now) -> u64 {
        self.observe(now.unix_ms);
        self.last_ms
    }
}
