//! How much of the processors is left to work that nobody waits for, where the process has a quota
//! of them: merges, what is brought from elsewhere, and its verification.

use std::time::Duration;

use forebay_io::{avoid_large_pages, limit_behind, processor_quota};

use crate::shared::Shared;

/// Between two looks at what is answered, and at the quota, which may change.
const LOOK: Duration = Duration::from_secs(1);
/// With fewer commands a second nobody is held up.
const COMMANDS_PER_S: u64 = 10;
/// What each thread behind may use of the quota while commands are answered.
const PART: f64 = 0.125;

/// See the module's text.
#[derive(Debug, Default)]
pub struct BackgroundShare {
    looked_at: Duration,
    commands: u64,
    has_small_pages: bool,
}

impl BackgroundShare {
    /// Does something each second.
    pub fn look(&mut self, shared: &Shared) {
        let now = shared.store.clock().monotonic();
        let elapsed = now.saturating_sub(self.looked_at);
        if elapsed < LOOK {
            return;
        }
        let commands = shared.metrics.latency_counts().iter().sum();
        let seen = commands - std::mem::replace(&mut self.commands, commands).min(commands);
        self.looked_at = now;
        let share = share(seen, elapsed, processor_quota);
        if share.is_some_and(|share| share < PART) && !self.has_small_pages {
            avoid_large_pages();
            self.has_small_pages = true;
        }
        limit_behind(share);
    }
}

/// What each thread behind may use while so many commands are answered in such a time.
fn share(commands: u64, elapsed: Duration, quota: impl Fn() -> Option<f64>) -> Option<f64> {
    let is_asked = commands as f64 >= COMMANDS_PER_S as f64 * elapsed.as_secs_f64();
    let quota = is_asked.then(quota).flatten();
    quota.map(|processors| processors * PART)
}

impl Drop for BackgroundShare {
    fn drop(&mut self) {
        limit_behind(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_asked_and_has_a_quota_is_limited() {
        let two = Duration::from_secs(2);
        assert_eq!(share(19, two, || Some(2.0)), None);
        assert_eq!(share(20, two, || Some(2.0)), Some(0.25));
        assert_eq!(share(1 << 40, two, || None), None);
    }
}
