//! The data that all groups of a host share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_io::Clock;
use forebay_replica::{Now, RequestId};

use crate::environment::StandingWatch;
use crate::log_reader::LogReader;
use crate::outbox::Outbox;
use crate::pool::WorkerPool;

/// Counts of the copies and log entries that let peers catch up, since the host started.
#[derive(Debug, Default)]
pub struct HostCounts {
    /// The copies that were installed on this host.
    pub copies: AtomicU64,
    /// The bytes of entries that this host read from logs for lagging peers.
    pub tail_bytes: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct HostCore {
    pub clock: Arc<dyn Clock>,
    pub outbox: Outbox,
    pub pool: Arc<WorkerPool>,
    pub reader: Arc<LogReader>,
    pub watch: Arc<dyn StandingWatch>,
    pub counts: HostCounts,
    pub requests: AtomicU64,
}

impl HostCore {
    pub fn next_request(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    pub fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: self.clock.monotonic(),
            unix_ms: self.clock.unix_ms(),
        }
    }
}
