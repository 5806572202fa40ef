//! The shared rate of all pulls of a node, which may change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_io::{Clock, Throttle};
use parking_lot::Mutex;

use super::measured::MeasuredPulls;

/// No pull is made slower than this, unless an option asks for it.
pub const FLOOR_BYTES: u64 = 4 << 20;

/// The rate of pulls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullRate {
    /// The most bytes a second.
    pub ceiling_bytes: Option<u64>,
    /// Whether the rate falls below that when serving suffers.
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

/// The rate limit of all pulls of a node.
#[derive(Debug)]
pub struct PullThrottle {
    rate: PullRate,
    throttle: Throttle,
    clock: Arc<dyn Clock>,
    taken_bytes: AtomicU64,
    slowed: AtomicU64,
    /// The running pulls.
    active: AtomicU64,
    measured: Mutex<MeasuredPulls>,
}

/// A running pull.
#[derive(Debug)]
pub struct PullActive(Arc<PullThrottle>);

impl PullThrottle {
    pub fn new(rate: PullRate, clock: Arc<dyn Clock>) -> Self {
        Self {
            rate,
            throttle: Throttle::new(rate.ceiling_bytes, Arc::clone(&clock)),
            clock,
            taken_bytes: AtomicU64::new(0),
            slowed: AtomicU64::new(0),
            active: AtomicU64::new(0),
            measured: Mutex::default(),
        }
    }

    pub fn is_adaptive(&self) -> bool {
        self.rate.adaptive
    }

    pub fn ceiling_bytes(&self) -> u64 {
        self.rate.ceiling_bytes.unwrap_or(u64::MAX).max(1)
    }

    /// Returns the least rate that slow serving leads to.
    pub fn floor_bytes(&self) -> u64 {
        FLOOR_BYTES.min(self.ceiling_bytes())
    }

    pub fn limit_bytes(&self) -> u64 {
        self.throttle.rate_bytes().unwrap_or(u64::MAX)
    }

    pub fn set_limit(&self, bytes: u64) {
        self.exchange_limit(bytes);
    }

    /// Sets the rate because serving has become slow.
    pub fn slow_to(&self, bytes: u64) {
        let (before, next) = self.exchange_limit(bytes);
        if next < before {
            self.slowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the limit. Returns the previous and the new one.
    fn exchange_limit(&self, bytes: u64) -> (u64, u64) {
        let next = bytes.clamp(self.floor_bytes(), self.ceiling_bytes());
        let before = self.throttle.set_rate((next < u64::MAX).then_some(next));
        (before.unwrap_or(u64::MAX), next)
    }

    pub fn slowed(&self) -> u64 {
        self.slowed.load(Ordering::Relaxed)
    }

    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes.load(Ordering::Relaxed)
    }

    /// Marks a pull as running until the result is dropped.
    pub fn begin(self: &Arc<Self>) -> PullActive {
        self.enter();
        PullActive(Arc::clone(self))
    }

    /// Marks a pull as running until as many calls of [`PullThrottle::leave`].
    pub fn enter(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.measured.lock().begin(self.clock.monotonic());
    }

    pub fn leave(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.measured.lock().end(self.clock.monotonic());
    }

    /// Returns the recent rate of fetches, in bytes a second, while something was fetched.
    pub fn measured_bytes_per_s(&self) -> Option<u64> {
        self.measured.lock().bytes_per_s(self.clock.monotonic())
    }

    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Waits until this many bytes may be fetched.
    pub async fn take(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.measured.lock().fetched(bytes);
        self.throttle.wait(bytes).await;
    }

    /// Waits for bytes that are read locally. Only slow serving delays these: the ceiling is for
    /// bytes from the network.
    pub fn take_here(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.limit_bytes() < self.ceiling_bytes() {
            self.throttle.take(bytes);
        }
    }
}

impl Drop for PullActive {
    fn drop(&mut self) {
        self.0.leave();
    }
}
