//! The time and limits for decided commands, the same on all replicas.

use std::time::Duration;

use forebay_io::{Clock, Waiting};

use crate::shared::Shared;

/// The largest reply to a decided command: the same on all machines.
const DECIDED_REPLY_BYTES: usize = 64 << 20;

/// The fixed time of a decided command.
#[derive(Debug, Clone, Copy)]
pub struct DecisionClock {
    pub stamp_ms: u64,
}

impl Clock for DecisionClock {
    fn unix_ms(&self) -> u64 {
        self.stamp_ms
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}

    fn wait(&self, _time: Duration) -> Waiting {
        Box::pin(async {})
    }
}

/// Returns the most bytes of a reply.
#[inline]
pub fn reply_limit(shared: &Shared, decided: Option<&DecisionClock>) -> usize {
    match decided {
        Some(_) => DECIDED_REPLY_BYTES,
        None => shared.config.limits.reply_bytes,
    }
}
