//! Stale reads: the age of a replica's data, by its last confirmed read.
//!
//! A permit that a majority confirmed proves that the replica's data was current when the permit
//! was requested, by this host's clock. Until the bound has passed since, a read needs no request.
//! The time counts from the request, because an answer or a heartbeat may be delayed for any time.
//! The clock may be slow by a tenth, as for leases, so the last tenth of the bound is not used.

use std::time::Duration;

/// The last time at which the replica's data was known to be current.
#[derive(Debug, Clone, Copy, Default)]
pub struct Freshness {
    asked: Option<Duration>,
}

impl Freshness {
    /// Records a request that was confirmed and whose entries are applied.
    pub fn confirm(&mut self, asked: Duration) {
        self.asked = self.asked.max(Some(asked));
    }

    /// Returns the time until which an answer of this replica is within the bound, or `None` if
    /// nothing was confirmed. Callers check it before the read and after it: a process may be
    /// paused in between.
    pub fn until(&self, bound: Duration) -> Option<Duration> {
        self.asked.map(|asked| asked + bound - bound / 10)
    }

    /// Returns whether half of the bound has passed. A caller that refreshes now does not wait
    /// later.
    pub fn ages(&self, now: Duration, bound: Duration) -> bool {
        self.asked.is_none_or(|asked| now >= asked + bound / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_bound_counts_from_the_request() {
        let mut fresh = Freshness::default();
        assert_eq!(fresh.until(SECOND * 60), None, "nothing was confirmed");
        assert!(fresh.ages(SECOND, SECOND * 60));
        // The answer may have arrived at 14 s.
        fresh.confirm(SECOND * 10);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 19));
        // The answer to an older request arrives later.
        fresh.confirm(SECOND * 9);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 19));
        assert!(!fresh.ages(SECOND * 14, SECOND * 10));
        assert!(fresh.ages(SECOND * 15, SECOND * 10));
        fresh.confirm(SECOND * 12);
        assert_eq!(fresh.until(SECOND * 10), Some(SECOND * 21));
    }
}
