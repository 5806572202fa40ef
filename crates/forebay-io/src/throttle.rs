//! Limits the rate of bytes over time; the rate may change.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Clock, Waiting};

/// The most time that is saved up while no bytes are taken.
const BURST: Duration = Duration::from_millis(100);
const NO_LIMIT: u64 = u64::MAX;

/// A limit of bytes a second, shared by all threads that move bytes.
#[derive(Debug)]
pub struct Throttle {
    clock: Arc<dyn Clock>,
    /// Bytes a second.
    rate_bytes: AtomicU64,
    /// The time until which the bytes taken so far are paid for.
    paid_until: Mutex<Duration>,
}

impl Throttle {
    /// Creates a throttle. `rate_bytes`: bytes a second; `None` is no limit.
    pub fn new(rate_bytes: Option<u64>, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            rate_bytes: AtomicU64::new(rate_bytes.unwrap_or(NO_LIMIT).max(1)),
            paid_until: Mutex::new(Duration::ZERO),
        }
    }

    /// Returns the bytes a second; `None` is no limit.
    pub fn rate_bytes(&self) -> Option<u64> {
        let rate = self.rate_bytes.load(Relaxed);
        (rate != NO_LIMIT).then_some(rate)
    }

    /// Sets the rate, and returns the previous one.
    pub fn set_rate(&self, rate_bytes: Option<u64>) -> Option<u64> {
        let rate = rate_bytes.unwrap_or(NO_LIMIT).max(1);
        let before = self.rate_bytes.swap(rate, Relaxed);
        (before != NO_LIMIT).then_some(before)
    }

    /// Waits until `bytes` more may pass.
    pub fn take(&self, bytes: u64) {
        let wait = self.wait_for(bytes);
        if !wait.is_zero() {
            self.clock.sleep(wait);
        }
    }

    /// Waits as [`Throttle::take`] does, for a task.
    pub fn wait(&self, bytes: u64) -> Waiting {
        self.clock.wait(self.wait_for(bytes))
    }

    /// Takes `bytes`, and returns how long to wait before they may pass.
    pub fn wait_for(&self, bytes: u64) -> Duration {
        let Some(rate) = self.rate_bytes() else {
            return Duration::ZERO;
        };
        let now = self.clock.monotonic();
        let paid = self.paid_until.lock();
        let mut paid = paid.unwrap_or_else(PoisonError::into_inner);
        let from = (*paid).max(now.saturating_sub(BURST));
        *paid = from + Duration::from_secs_f64(bytes as f64 / rate as f64);
        paid.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::HandClock;

    #[test]
    fn a_rate_is_kept() {
        let clock = Arc::new(HandClock::default());
        let throttle = Throttle::new(Some(1000), clock.clone());
        (0..50).for_each(|_| throttle.take(100));
        let took = clock.monotonic();
        assert!(
            took >= Duration::from_millis(4800) && took <= Duration::from_secs(5),
            "{took:?}"
        );
        assert_eq!(throttle.set_rate(None), Some(1000));
        throttle.take(u64::MAX);
        assert_eq!(clock.monotonic(), took);
    }
}
