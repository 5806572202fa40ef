//! The rate of all pulls of a node together, which may change meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_io::{Clock, Throttle};
use parking_lot::Mutex;

use super::measured::MeasuredPulls;

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
pub struct PullThrottle {
    rate: PullRate,
    throttle: Throttle,
    clock: Arc<dyn Clock>,
    taken_bytes: AtomicU64,
    slowed: AtomicU64,
    /// Pulls under way.
    active: AtomicU64,
    measured: Mutex<MeasuredPulls>,
}

/// A pull under way.
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

    /// The least that the rate is lowered to.
    pub fn floor_bytes(&self) -> u64 {
        FLOOR_BYTES.min(self.ceiling_bytes())
    }

    pub fn limit_bytes(&self) -> u64 {
        self.throttle.rate_bytes().unwrap_or(u64::MAX)
    }

    pub fn set_limit(&self, bytes: u64) {
        self.exchange_limit(bytes);
    }

    /// The same because serving has become slow.
    pub fn slow_to(&self, bytes: u64) {
        let (before, next) = self.exchange_limit(bytes);
        if next < before {
            self.slowed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The limits before and from now on.
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

    /// Until the result is dropped, a pull is under way.
    pub fn begin(self: &Arc<Self>) -> PullActive {
        self.enter();
        PullActive(Arc::clone(self))
    }

    /// The same until as many calls of [`PullThrottle::leave`].
    pub fn enter(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.measured.lock().begin(self.clock.monotonic());
    }

    pub fn leave(&self) {
        self.active.fetch_sub(1, Ordering::Relaxed);
        self.measured.lock().end(self.clock.monotonic());
    }

    /// How much came in a second lately, while something was brought.
    pub fn measured_bytes_per_s(&self) -> Option<u64> {
        self.measured.lock().bytes_per_s(self.clock.monotonic())
    }

    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Waits until so many bytes may be brought.
    pub async fn take(&self, bytes: u64) {
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.measured.lock().fetched(bytes);
        self.throttle.wait(bytes).await;
    }

    /// The same for bytes that are read here. Only serving's having become slow holds that up: the
    /// ceiling is for what comes by the network.
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
