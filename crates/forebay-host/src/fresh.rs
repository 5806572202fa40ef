//! Reads that may be old by a bound.
//!
//! Leave that a majority confirmed says that what is here was the newest when it was asked for, by
//! the clock of this host. Until the bound has passed since, a read needs to ask nobody. Counted
//! from the question: an answer, or a heartbeat, may have lain anywhere for any time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// When what is here was the newest.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    asked: Mutex<Option<Duration>>,
    /// It is being asked anew.
    is_asking: AtomicBool,
}

impl Freshness {
    /// What was confirmed is applied here; it was asked for then.
    pub fn confirm(&self, asked: Duration) {
        let mut last = self.asked.lock();
        *last = last.max(Some(asked));
    }

    /// Before how long what is here was the newest; `None`: longer than the bound, or never.
    pub fn age(&self, now: Duration, bound: Duration) -> Option<Duration> {
        let asked = (*self.asked.lock())?;
        Some(now.saturating_sub(asked)).filter(|age| *age < bound)
    }

    /// `false`: it is being asked anew already.
    pub fn begin_asking(&self) -> bool {
        !self.is_asking.swap(true, Ordering::AcqRel)
    }

    pub fn end_asking(&self) {
        self.is_asking.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_bound_counts_from_the_question() {
        let fresh = Freshness::default();
        assert_eq!(
            fresh.age(SECOND, SECOND * 60),
            None,
            "nothing was confirmed"
        );
        // The answer came at 14 s.
        fresh.confirm(SECOND * 10);
        assert_eq!(fresh.age(SECOND * 14, SECOND * 5), Some(SECOND * 4));
        assert_eq!(fresh.age(SECOND * 15, SECOND * 5), None);
        // That of an older question comes later.
        fresh.confirm(SECOND * 9);
        assert_eq!(fresh.age(SECOND * 14, SECOND * 5), Some(SECOND * 4));
        fresh.confirm(SECOND * 12);
        assert_eq!(fresh.age(SECOND * 16, SECOND * 5), Some(SECOND * 4));
    }
}
