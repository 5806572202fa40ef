//! Reads that may be old by a bound.
//!
//! Leave that a majority confirmed says that what is here was the newest when it was asked for, by
//! the clock of this host. Until the bound has passed since, a read needs to ask nobody. Counted
//! from the question: an answer, or a heartbeat, may have lain anywhere for any time. The clock may
//! go slow by a tenth, as with leases, so the last tenth of the bound is not used.

use std::time::Duration;

/// When what is here was the newest.
#[derive(Debug, Clone, Copy, Default)]
pub struct Freshness {
    asked: Option<Duration>,
}

impl Freshness {
    /// What was confirmed is applied here; it was asked for then.
    pub fn confirm(&mut self, asked: Duration) {
        self.asked = self.asked.max(Some(asked));
    }

    /// Until when an answer that is read here is within the bound; `None`: nothing was confirmed.
    /// To be looked at before the read and after it: a process may stand still in between.
    pub fn until(&self, bound: Duration) -> Option<Duration> {
        self.asked.map(|asked| asked + bound - bound / 10)
    }

    /// Half of the bound has passed: who asks now does not wait for it later.
    pub fn ages(&self, now: Duration, bound: Duration) -> bool {
        self.asked.is_none_or(|asked| now >= asked + bound / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_bound_counts_from_the_question() {
        let mut fresh = Freshness::default();
        assert_eq!(fresh.until(SECOND * 60), None, "nothing was confirmed");
        assert!(fresh.ages(SECOND, SECOND * 60));
        // The answer may have come at 14 s.
        fresh.confirm(SECOND * 10);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 19));
        // That of an older question comes later.
        fresh.confirm(SECOND * 9);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 19));
        assert!(!fresh.ages(SECOND * 14, SECOND * 10));
        assert!(fresh.ages(SECOND * 15, SECOND * 10));
        fresh.confirm(SECOND * 12);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 21));
    }
}
