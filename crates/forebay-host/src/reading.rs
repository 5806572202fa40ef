//! Reading what may be old by a bound.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::group::{HostedGroup, ReadCallback, ReadPermit};

impl HostedGroup {
    /// Without asking, where what is here was the newest within the bound. A new question follows
    /// behind it once half of that has passed, so that those who read all the time do not wait.
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
