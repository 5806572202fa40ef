//! The time as machines are told it, and the times that the protocol is made of.

use std::time::Duration;

/// A moment: by the clock that never goes back, and by the one that people read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    pub monotonic: Duration,
    pub unix_ms: u64,
}

/// Between a node's heartbeats while there are no news.
pub const BEAT: Duration = Duration::from_secs(1);
/// A heartbeat that is not answered within this time is lost.
pub const BEAT_LOST: Duration = Duration::from_secs(3);
/// A node that was not heard of for so long is down.
pub const NODE_LEASE: Duration = Duration::from_secs(10);
/// How much longer a commit waits before it leaves out a node that is down.
pub const LEFT_OUT_AFTER: Duration = Duration::from_secs(10);
/// A coordinator that did not renew its seat for so long has lost it to whoever asks.
pub const SEAT_LEASE: Duration = Duration::from_secs(10);
/// Between two renewals.
pub const SEAT_RENEWAL: Duration = Duration::from_secs(5);
/// After a commit every participant has to serve the new versions within this time.
pub const CONFIRM: Duration = Duration::from_secs(10);
/// Between two looks of a node at the head, when the coordinator tells it of news anyway, and when
/// it does not hear of it.
pub const LOOK: Duration = Duration::from_secs(10);
pub const LOOK_ALONE: Duration = Duration::from_secs(2);

/// How long an operator may have something waited for: the pause of a node, the deadline of a
/// rollout.
pub const MOST_WAIT: Duration = Duration::from_secs(30 * 86_400);

impl Now {
    /// How long ago an earlier moment was.
    pub fn since(&self, earlier: Duration) -> Duration {
        self.monotonic.saturating_sub(earlier)
    }
}
