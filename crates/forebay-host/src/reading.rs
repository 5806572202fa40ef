//! Reading what may be old by a bound.

use std::sync::Arc;
use std::time::Duration;

use crate::group::{HostedGroup, ReadDone, ReadLeave};

impl HostedGroup {
    /// Without asking, where what is here was the newest within the bound. A new question follows
    /// behind it once half of that has passed, so that those who read all the time do not wait.
    pub(crate) fn read_within(self: &Arc<Self>, bound: Duration, done: ReadDone) {
        let now = self.core.now().monotonic;
        let age = self.fresh.age(now, bound).filter(|_| !self.is_halted());
        let Some(age) = age else {
            return self.read(done);
        };
        done(Ok(ReadLeave::within_bound(self)));
        if age >= bound / 2 && self.fresh.begin_asking() {
            let group = Arc::clone(self);
            let asked = move |_| group.fresh.end_asking();
            self.read(Box::new(asked));
        }
    }
}
