//! A limit for how fast records move, so that a push leaves the machine to those who serve from it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_io::Clock;

/// At most so much work is saved up while nobody takes any.
const BURST: Duration = Duration::from_millis(100);

/// Shared by the threads of a push.
#[derive(Debug)]
pub struct Throttle {
    rate_bytes: Option<u64>,
    clock: Arc<dyn Clock>,
    /// When the work taken so far is paid for.
    paid_until: Mutex<Duration>,
}

impl Throttle {
    /// `rate_bytes`: bytes a second; none is no limit.
    pub fn new(rate_bytes: Option<u64>, clock: Arc<dyn Clock>) -> Self {
        Self {
            rate_bytes,
            clock,
            paid_until: Mutex::new(Duration::ZERO),
        }
    }

    /// Waits until `bytes` more may pass.
    pub fn take(&self, bytes: u64) {
        let Some(rate) = self.rate_bytes else { return };
        let now = self.clock.monotonic();
        let until = {
            let mut paid = self
                .paid_until
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let from = (*paid).max(now.saturating_sub(BURST));
            *paid = from + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
            *paid
        };
        if until > now {
            self.clock.sleep(until - now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that only sleeping moves.
    #[derive(Debug, Default)]
    struct Still(Mutex<Duration>);

    impl Clock for Still {
        fn unix_ms(&self) -> u64 {
            0
        }
        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
        fn sleep(&self, time: Duration) {
            *self.0.lock().unwrap() += time;
        }
    }

    #[test]
    fn a_rate_is_kept() {
        let clock = Arc::new(Still::default());
        let throttle = Throttle::new(Some(1000), clock.clone());
        (0..50).for_each(|_| throttle.take(100));
        let took = clock.monotonic();
        assert!(
            took >= Duration::from_millis(4800) && took <= Duration::from_secs(5),
            "{took:?}"
        );
        let unlimited = Throttle::new(None, clock.clone());
        unlimited.take(u64::MAX);
        assert_eq!(clock.monotonic(), took);
    }
}
