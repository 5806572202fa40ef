//! Wall-clock and monotonic time.

use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

/// A wait that blocks no thread.
pub type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of wall-clock and monotonic time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns milliseconds since 1970-01-01 UTC.
    fn unix_ms(&self) -> u64;
    /// Returns the time since some fixed moment; it never goes back. Leases and promises are
    /// measured by it. On Linux the machine's own clock therefore advances while the machine is
    /// suspended.
    fn monotonic(&self) -> Duration;
    fn sleep(&self, time: Duration);
    /// Waits as [`Clock::sleep`] does, for a task. REQUIRES: its runtime has tokio's timer.
    fn wait(&self, time: Duration) -> Waiting;
    /// Waits until this thread is unparked, at most for `limit`. It may return early for no reason.
    fn park(&self, limit: Duration) {
        std::thread::park_timeout(limit);
    }
}

/// Returns the result of `work`, unless it takes longer than `limit`.
pub async fn within<F: Future>(clock: &dyn Clock, limit: Duration, work: F) -> Option<F::Output> {
    let (mut work, mut limit) = (pin!(work), clock.wait(limit));
    let first = poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(given) => Poll::Ready(Some(given)),
        Poll::Pending => limit.as_mut().poll(context).map(|()| None),
    });
    first.await
}

/// The machine's own clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_ms(&self) -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |time| time.as_millis() as u64)
    }

    #[cfg(target_os = "linux")]
    fn monotonic(&self) -> Duration {
        use rustix::time::{ClockId, clock_gettime};
        let since_boot = clock_gettime(ClockId::Boottime);
        Duration::new(since_boot.tv_sec as u64, since_boot.tv_nsec as u32)
    }

    #[cfg(not(target_os = "linux"))]
    fn monotonic(&self) -> Duration {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn wait(&self, time: Duration) -> Waiting {
        Box::pin(async move { tokio::time::sleep(time).await })
    }
}
