//! Sets the rate of pulls: as fast as serving allows.
//!
//! While nothing is pulled, the 99th percentile of the latency of commands is measured. A pull
//! beside commands begins slowly. Its rate rises by half at each measurement, until there is no
//! limit or serving suffers. A percentile that is much above the earlier one halves the rate, down
//! to a floor. One that is not lets it rise again, by an eighth. At the floor a pull can hardly be
//! the cause. There the measured percentile becomes the reference after a while, so that increased
//! load does not delay a pull until it is gone.

use std::sync::Arc;
use std::time::Duration;

use super::throttle::PullThrottle;

/// The time between two measurements.
pub const LOOK: Duration = Duration::from_millis(500);
/// Fewer commands than this have no useful percentile;
const COMMANDS: u64 = 100;
/// after this long they count as none.
const QUIET: Duration = Duration::from_secs(2);
/// Consecutive measurements at the floor before they become the reference.
const LOOKS_AT_FLOOR: u32 = 6;
/// The weight of a measurement in the reference.
const SHARE: f64 = 0.1;
/// Slow: this multiple of the reference, plus this many microseconds.
const SLOW: (f64, f64) = (2.0, 100.0);
/// Fine, in the same units; in between the rate stays.
const FINE: (f64, f64) = (1.5, 50.0);

/// The first rate of a pull beside commands, in bytes a second;
const FIRST_BYTES: u64 = 16 << 20;
/// from this rate on a first rise ends without a limit.
const FAST_BYTES: u64 = 1 << 30;

/// A controller that sets a throttle's rate from the latency of commands.
#[derive(Debug)]
pub struct Pacer {
    throttle: Arc<PullThrottle>,
    /// The counts of the last measurement that counted.
    counts: Vec<u64>,
    taken_bytes: u64,
    looked_at: Duration,
    /// The 99th percentile in microseconds without a pull.
    calm_us: Option<f64>,
    /// The recent rate, in bytes a second.
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

    /// Takes a measurement: `counts` has how many commands took up to 1, 2, 4... microseconds so
    /// far.
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

    /// Updates the reference while nothing is pulled: a pull may begin at any time.
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

    /// Raises the limit. The recent rate says little yet: the pull has just begun.
    fn rise(&mut self) {
        let limit = self.throttle.limit_bytes();
        let limit = limit.saturating_add(limit / 2);
        self.is_rising = limit < FAST_BYTES;
        match self.is_rising {
            true => self.throttle.set_limit(limit),
            false => self.throttle.set_limit(u64::MAX),
        }
    }

    /// Raises the limit by a share of itself. A limit that delays nothing is removed.
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

/// Returns a percentile of commands counted by powers of two of a microsecond, as if those of a
/// bucket were spread evenly over it.
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
