//! Time: the machine's own, and one that a test moves by hand.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Wall-clock and monotonic time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Milliseconds since 1970-01-01 UTC.
    fn unix_ms(&self) -> u64;
    /// Time since some fixed moment; never goes back.
    fn monotonic(&self) -> Duration;
    fn sleep(&self, time: Duration);
}

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |time| time.as_millis() as u64)
    }

    fn monotonic(&self) -> Duration {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// Time that passes only while somebody sleeps, or when it is told to.
#[derive(Debug, Default)]
pub struct HandClock {
    start_ms: u64,
    passed_ns: AtomicU64,
}

impl HandClock {
    /// A clock that shows `start_ms` after 1970-01-01 UTC.
    pub fn at(start_ms: u64) -> Self {
        Self {
            start_ms,
            passed_ns: AtomicU64::new(0),
        }
    }

    pub fn advance(&self, time: Duration) {
        self.passed_ns.fetch_add(time.as_nanos() as u64, SeqCst);
    }
}

impl Clock for HandClock {
    fn unix_ms(&self) -> u64 {
        self.start_ms + self.monotonic().as_millis() as u64
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(self.passed_ns.load(SeqCst))
    }

    fn sleep(&self, time: Duration) {
        self.advance(time);
    }
}
