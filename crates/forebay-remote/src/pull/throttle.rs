//! Spreading bytes over time, for all pulls of a node together, at a rate that may change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_io::Clock;
use parking_lot::Mutex;

/// No pull is made slower than this, unless it was asked for.
pub const FLOOR_BYTES: u64 = 4 << 20;

/// How fast to pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRate {
    /// At most so many bytes a second.
    pub ceiling_bytes: Option<u64>,
    /// Slower than that when serving suffers.
    pub adaptive: bool,
}

impl Default for PullRate {
    fn default() -> Self {
        Self {
            ceiling_bytes: None,
            adaptive: true,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct Throttle {
    rate: PullRate,
    clock: Arc<dyn Clock>,
    /// Bytes a second now; `u64::MAX`: no limit.
    limit_bytes: AtomicU64,
    /// When what was taken so far is paid for.
    free_at: Mutex<Duration>,
    taken_bytes: AtomicU64,
    slowed: AtomicU64,
    /// Pulls under way.
    active: AtomicU64,
}

/// A pull under way.
#[derive(Debug)]
pub struct Active<'a>(&'a Throttle);

impl Throttle {
    pub fn new(rate: PullRate, clock: Arc<dyn Clock>) -> Self {
        Self {
            rate,
            clock,
            limit_bytes: AtomicU64::new(rate.ceiling_bytes.unwrap_or(u64::MAX).max(1)),
            free_at: Mutex::default(),
            taken_bytes: AtomicU64::new(0),
            slowed: AtomicU64::new(0),
            active: AtomicU64::new(0),
        }
    }

    pub fn ceiling_bytes(&self) -> u64 {
        self.rate.ceiling_bytes.unwrap_or(u64::MAX).max(1)
    }

    /// The least that the rate is lowered to.
    pub fn floor_bytes(&self) -> u64 {
        FLOOR_BYTES.min(self.ceiling_bytes())
    }

    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    pub fn set_limit(&self, bytes: u64) {
        let next = bytes.clamp(self.floor_bytes(), self.ceiling_bytes());
        if next < self.limit_bytes.swap(next, Ordering::Relaxed) {
            self.slowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn slowed(&self) -> u64 {
        self.slowed.load(Ordering::Relaxed)
    }

    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Until the result is dropped, a pull is under way.
    pub fn begin(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(self)
    }

    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Waits until so many bytes may be brought.
    pub async fn take(&self, bytes: u64) {
        tokio::time::sleep(self.wait_for(bytes)).await;
    }

    /// The same for bytes that are read here. Only serving's having become slow holds that up: the ceiling
    /// is for what comes by the network.
    pub fn take_here(&self, bytes: u64) {
        if self.limit_bytes() < self.ceiling_bytes() {
            self.clock.sleep(self.wait_for(bytes));
        } else {
            self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn wait_for(&self, bytes: u64) -> Duration {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.limit_bytes();
        if limit == u64::MAX {
            return Duration::ZERO;
        }
        let now = self.clock.monotonic();
        let mut free_at = self.free_at.lock();
        let start = (*free_at).max(now);
        *free_at = start + Duration::from_secs_f64(bytes as f64 / limit as f64);
        start - now
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}
