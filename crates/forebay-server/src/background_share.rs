//! Limits the CPU share of background work where the process has a CPU quota.
//!
//! Background work is merges, fetches, and the verification of what was fetched.

use std::time::Duration;

use forebay_io::{avoid_large_pages, limit_behind, processor_quota};

use crate::shared::Shared;

/// The time between two checks of the command count and of the quota, which may change.
const LOOK: Duration = Duration::from_secs(1);
/// Below this rate of commands, background work is not limited.
const COMMANDS_PER_S: u64 = 10;
/// The part of the quota that each background thread may use while commands run.
const PART: f64 = 0.125;

/// Adjusts the CPU share of background threads to the load.
#[derive(Debug, Default)]
pub struct BackgroundShare {
    looked_at: Duration,
    commands: u64,
    has_small_pages: bool,
}

impl BackgroundShare {
    /// Updates the limit. The caller calls it each second.
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

/// Returns the CPU share of each background thread at this number of commands in this time.
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
    fn only_background_priority_with_a_quota_is_limited() {
        let two = Duration::from_secs(2);
        assert_eq!(share(19, two, || Some(2.0)), None);
        assert_eq!(share(20, two, || Some(2.0)), Some(0.25));
        assert_eq!(share(1 << 40, two, || None), None);
    }
}
