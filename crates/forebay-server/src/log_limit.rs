//! Limits the rate of log lines that many clients could cause.
//!
//! At most one line of a kind is written each second, with the number of those left out.

use std::sync::atomic::{AtomicU64, Ordering};

/// The time between two lines of a kind.
const PAUSE_MS: u64 = 1000;

/// The time of the last line of a kind. Times are milliseconds from 1 on.
#[derive(Debug, Default)]
pub struct Seldom {
    last_ms: AtomicU64,
    left_out: AtomicU64,
}

impl Seldom {
    /// Returns how many lines were left out since the last one, if another line is due. Otherwise
    /// this line is left out, too.
    pub fn due(&self, now_ms: u64) -> Option<u64> {
        let last = self.last_ms.load(Ordering::Relaxed);
        let waits = last > 0 && now_ms < last + PAUSE_MS;
        let (set, seen) = (Ordering::Relaxed, Ordering::Relaxed);
        if waits
            || self
                .last_ms
                .compare_exchange(last, now_ms.max(1), set, seen)
                .is_err()
        {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_tells_of_the_others() {
        let seldom = Seldom::default();
        assert_eq!(seldom.due(1), Some(0));
        assert_eq!((seldom.due(1), seldom.due(1000)), (None, None));
        assert_eq!(seldom.due(1001), Some(2));
        assert_eq!(seldom.due(9000), Some(0));
    }
}
