//! How fast pulls may go: as fast as serving bears.
//!
//! While nothing is pulled, the 99th percentile of what commands take is followed. A pull beside
//! commands begins slowly, and goes half as fast again after each look, until there is no limit or
//! serving suffers: a percentile that is much above what it was halves the rate, down to a floor,
//! and one that is not lets it rise again, by an eighth. At the floor, where a pull can hardly be
//! the reason, what is seen becomes the measure after a while, so that load which has grown
//! meanwhile does not hold a pull up until it is gone.

use std::sync::Arc;
use std::time::Duration;

use super::throttle::PullThrottle;

/// Between two looks.
pub const LOOK: Duration = Duration::from_millis(500);
/// Fewer commands than this have no percentile worth looking at;
const COMMANDS: u64 = 100;
/// after this long they count as none.
const QUIET: Duration = Duration::from_secs(2);
/// Looks at the floor, one after the other, before what is seen there is the measure.
const LOOKS_AT_FLOOR: u32 = 6;
/// The share of a look in the measure.
const SHARE: f64 = 0.1;
/// Slow: so many times the measure, and so many microseconds more.
const SLOW: (f64, f64) = (2.0, 100.0);
/// Fine, in the same way; in between the rate stays.
const FINE: (f64, f64) = (1.5, 50.0);

/// What a pull beside commands begins with, in bytes a second;
const FIRST_BYTES: u64 = 16 << 20;
/// from here on a first rise ends without a limit.
const FAST_BYTES: u64 = 1 << 30;

/// Sets a throttle's rate by what commands take.
#[derive(Debug)]
pub struct Pacer {
    throttle: Arc<PullThrottle>,
    /// As of the last look that counted.
    counts: Vec<u64>,
    taken_bytes: u64,
    looked_at: Duration,
    /// The 99th percentile in microseconds without a pull.
    calm_us: Option<f64>,
    /// Bytes a second that were taken of late.
    taking: f64,
    looks_at_floor: u32,
    /// No command has been slow since the pull began.
    is_rising: bool,
}

impl Pacer {
    pub fn new(throttle: Arc<PullThrottle>) -> Self {
        Self {
            throttle,
            counts: Vec::new(),
            taken_bytes: 0,
            looked_at: Duration::ZERO,
            calm_us: None,
            taking: 0.0,
            looks_at_floor: 0,
            is_rising: false,
        }
    }

    /// A look: `counts` says how many commands took up to 1, 2, 4... microseconds so far.
    pub fn look(&mut self, now: Duration, counts: Vec<u64>) {
        let elapsed = now.saturating_sub(self.looked_at);
        self.counts.resize(counts.len(), 0);
        let seen = counts.iter().zip(&self.counts);
        let seen: Vec<u64> = seen.map(|(now, then)| now.saturating_sub(*then)).collect();
        let commands: u64 = seen.iter().sum();
        if elapsed.is_zero() || (commands < COMMANDS && elapsed < QUIET) {
            return;
        }
        let taken_bytes = self.throttle.taken_bytes();
        let taking = (taken_bytes - self.taken_bytes) as f64 / elapsed.as_secs_f64();
        self.taking = (self.taking + taking) / 2.0;
        (self.counts, self.taken_bytes, self.looked_at) = (counts, taken_bytes, now);
        let p99_us = (commands >= COMMANDS).then(|| percentile_us(&seen, 0.99));
        match (self.throttle.is_active(), p99_us) {
            (false, p99_us) => self.rest(p99_us),
            (true, None) => self.quicken(1.0),
            (true, Some(us)) => self.weigh(us),
        }
    }

    /// Nothing is pulled: a pull may begin at any time.
    fn rest(&mut self, p99_us: Option<f64>) {
        self.looks_at_floor = 0;
        self.is_rising = p99_us.is_some();
        match p99_us {
            Some(us) => {
                self.learn(us);
                self.throttle.set_limit(FIRST_BYTES);
            }
            None => self.throttle.set_limit(u64::MAX),
        }
    }

    fn weigh(&mut self, p99_us: f64) {
        let floor = self.throttle.floor_bytes();
        if self.throttle.limit_bytes() <= floor {
            self.looks_at_floor += 1;
        } else {
            self.looks_at_floor = 0;
        }
        if self.looks_at_floor >= LOOKS_AT_FLOOR || self.calm_us.is_some_and(|calm| p99_us < calm) {
            self.learn(p99_us);
        }
        let beyond = |(times, more): (f64, f64)| {
            self.calm_us.is_none_or(|calm| p99_us > times * calm + more)
        };
        if self.calm_us.is_none() {
            self.throttle.set_limit(floor);
        } else if beyond(SLOW) {
            let limit = self.throttle.limit_bytes().min(self.taking as u64);
            self.throttle.slow_to(limit / 2);
            self.is_rising = false;
        } else if !beyond(FINE) && self.is_rising {
            self.rise();
        } else if !beyond(FINE) {
            self.quicken(0.125);
        }
    }

    fn learn(&mut self, p99_us: f64) {
        let calm = self.calm_us.unwrap_or(p99_us);
        self.calm_us = Some(calm + SHARE * (p99_us - calm));
    }

    /// What was taken of late says little yet: it began a moment ago.
    fn rise(&mut self) {
        let limit = self.throttle.limit_bytes();
        let limit = limit.saturating_add(limit / 2);
        self.is_rising = limit < FAST_BYTES;
        match self.is_rising {
            true => self.throttle.set_limit(limit),
            false => self.throttle.set_limit(u64::MAX),
        }
    }

    /// Raises the limit by a share of itself; one that holds nothing up is lifted.
    fn quicken(&self, share: f64) {
        let limit = self.throttle.limit_bytes();
        if limit == u64::MAX || self.taking < limit as f64 / 2.0 {
            self.throttle.set_limit(u64::MAX);
        } else {
            self.throttle
                .set_limit(limit + (limit as f64 * share) as u64);
        }
    }
}

/// A percentile of commands counted by powers of two of a microsecond, as if those of a bucket were
/// spread evenly over it.
fn percentile_us(counts: &[u64], share: f64) -> f64 {
    let total: u64 = counts.iter().sum();
    let wanted = total as f64 * share;
    let mut below = 0.0;
    for (bucket, count) in counts.iter().enumerate() {
        let count = *count as f64;
        if below + count >= wanted && count > 0.0 {
            let (low, high) = match bucket {
                0 => (0.0, 1.0),
                bucket => (2f64.powi(bucket as i32 - 1), 2f64.powi(bucket as i32)),
            };
            return low + (high - low) * (wanted - below) / count;
        }
        below += count;
    }
    0.0
}
