//! Stale reads: reads of data whose age is bounded.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::group::{HostedGroup, ReadCallback, ReadPermit};

impl HostedGroup {
    /// Answers at once if this replica's data was current within the bound. Once half of the bound
    /// has passed, it asks for a new read index in the background. So a steady stream of reads
    /// never waits.
    pub(crate) fn read_within(self: &Arc<Self>, bound: Duration, done: ReadCallback) {
        let now = self.core.now().monotonic;
        let fresh = *self.fresh.lock();
        let end = fresh.until(bound).filter(|end| now < *end);
        let Some(end) = end.filter(|_| !self.is_halted()) else {
            return self.read(done);
        };
        done(Ok(ReadPermit::until(self, end)));
        if fresh.ages(now, bound) && !self.is_asking.swap(true, Ordering::AcqRel) {
            let group = Arc::clone(self);
            let asked = move |_| group.is_asking.store(false, Ordering::Release);
            self.read(Box::new(asked));
        }
    }
}
