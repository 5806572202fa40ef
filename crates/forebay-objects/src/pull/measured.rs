//! The recent rate of a node's fetches, from which plans estimate durations.

use std::time::Duration;

/// The time of pulls that counts: earlier time weighs less and less.
const WINDOW_S: f64 = 60.0;
/// With less time the rate is unknown.
const LEAST_S: f64 = 0.5;

/// Bytes, and the time in which some pull was running.
#[derive(Debug, Default)]
pub struct MeasuredPulls {
    bytes: f64,
    seconds: f64,
    under_way: usize,
    /// The time until which the duration is counted, while a pull is running.
    counted_to: Duration,
}

impl MeasuredPulls {
    pub fn begin(&mut self, now: Duration) {
        self.pass(now);
        self.under_way += 1;
    }

    pub fn end(&mut self, now: Duration) {
        self.pass(now);
        self.under_way = self.under_way.saturating_sub(1);
    }

    pub fn fetched(&mut self, bytes: u64) {
        self.bytes += bytes as f64;
    }

    /// Returns the bytes a second; `None`: next to nothing was fetched yet.
    pub fn bytes_per_s(&mut self, now: Duration) -> Option<u64> {
        self.pass(now);
        let is_known = self.seconds >= LEAST_S && self.bytes > 0.0;
        is_known.then(|| (self.bytes / self.seconds).max(1.0) as u64)
    }

    fn pass(&mut self, now: Duration) {
        if self.under_way > 0 {
            self.seconds += now.saturating_sub(self.counted_to).as_secs_f64();
        }
        self.counted_to = now;
        if self.seconds > WINDOW_S {
            let part = WINDOW_S / self.seconds;
            (self.bytes, self.seconds) = (self.bytes * part, WINDOW_S);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_the_time_of_pulls_counts() {
        let mut pulls = MeasuredPulls::default();
        assert_eq!(pulls.bytes_per_s(at(1)), None);
        pulls.begin(at(10));
        pulls.begin(at(11));
        pulls.fetched(3000);
        pulls.end(at(12));
        pulls.end(at(13));
        assert_eq!(pulls.bytes_per_s(at(1000)), Some(1000));
        pulls.begin(at(2000));
        pulls.fetched(2000);
        assert_eq!(pulls.bytes_per_s(at(2002)), Some(1000));
        assert_eq!(pulls.bytes_per_s(at(2007)), Some(500), "the pull continues");
    }

    #[test]
    fn older_measurements_weigh_less() {
        let mut pulls = MeasuredPulls::default();
        pulls.begin(at(0));
        for second in 1..=600 {
            pulls.fetched(10_000);
            pulls.bytes_per_s(at(second));
        }
        for second in 601..=800 {
            pulls.fetched(1000);
            pulls.bytes_per_s(at(second));
        }
        let now = pulls.bytes_per_s(at(800)).unwrap();
        assert!((1000..1500).contains(&now), "{now}");
    }
}
