//! Detects whether a cluster has a coordinator, by the renewals of the coordinator lease.

use std::time::Duration;

use bytes::Bytes;

use crate::catalog::Catalog;
use crate::lease::COORDINATOR_LEASE;
use crate::time::Timing;

/// A watch that reads the coordinator lease at intervals.
#[derive(Debug)]
pub struct LeaseWatch {
    seen: Option<Bytes>,
    looked: Duration,
    renewed: Duration,
}

impl LeaseWatch {
    pub fn since(now: Duration) -> Self {
        Self {
            seen: None,
            looked: now,
            renewed: now,
        }
    }

    /// Returns how long nobody has renewed the lease. If the catalog does not answer, the time
    /// starts at zero again.
    pub fn look(&mut self, catalog: &dyn Catalog, timing: Timing, now: Duration) -> Duration {
        if now.saturating_sub(self.looked) >= timing.lease_renewal() {
            self.looked = now;
            let found = catalog
                .get(COORDINATOR_LEASE)
                .map(|found| found.map(|(bytes, _)| bytes));
            match found {
                Ok(bytes) if bytes == self.seen => {}
                Ok(bytes) => (self.seen, self.renewed) = (bytes, now),
                Err(_) => self.renewed = now,
            }
        }
        now.saturating_sub(self.renewed)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use parking_lot::Mutex;

    use super::*;
    use crate::catalog::{SeenTag, WriteOutcome};

    /// A catalog that contains only a coordinator lease. With `None` it does not answer.
    #[derive(Debug, Default)]
    struct LeaseOnlyCatalog(Mutex<Option<&'static [u8]>>);

    impl Catalog for LeaseOnlyCatalog {
        fn get(&self, name: &str) -> io::Result<Option<(Bytes, SeenTag)>> {
            assert_eq!(name, COORDINATOR_LEASE);
            let held = self.0.lock().ok_or(io::ErrorKind::TimedOut)?;
            let tag = SeenTag(String::new());
            Ok(Some((Bytes::from_static(held), tag)))
        }

        fn put_if(&self, _: &str, _: Bytes, _: Option<&SeenTag>) -> io::Result<WriteOutcome> {
            Ok(WriteOutcome::Changed)
        }

        fn list(&self, _: &str) -> io::Result<Vec<String>> {
            Ok(Vec::new())
        }

        fn remove(&self, _: &str) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_unchanged_lease_shows_that_the_coordinator_is_absent() {
        let lease = LeaseOnlyCatalog::default();
        let seconds = Duration::from_secs;
        let mut absence = LeaseWatch::since(seconds(0));
        let mut look = |content, now| {
            *lease.0.lock() = content;
            absence
                .look(&lease, Timing::default(), seconds(now))
                .as_secs()
        };
        assert_eq!(look(Some(b"1"), 5), 0);
        assert_eq!(look(Some(b"1"), 12), 7);
        assert_eq!(look(Some(b"2"), 17), 0, "renewed");
        assert_eq!(look(Some(b"2"), 60), 43);
        assert_eq!(look(None, 65), 0, "the catalog did not answer");
        assert_eq!(look(Some(b"2"), 100), 35);
        assert_eq!(look(Some(b"3"), 101), 36, "the last look was a second ago");
        assert_eq!(look(Some(b"3"), 105), 0);
    }
}
