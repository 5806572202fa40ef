//! Read and write rates of partitions, per minute: now, over an hour, and over a day.
//!
//! A rate is a mean that weighs older traffic less: half as much after a third of the window. So
//! seven eighths of the weight are within the window. While a replica is younger than the window,
//! the rate is the mean since it was opened. Rates are kept in memory: after a restart the mean
//! starts over and covers the time since the restart.

use std::time::Duration;

use forebay_engine::live::PartitionTraffic;
use serde::{Deserialize, Serialize};

/// Traffic per minute.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficRate {
    /// Keys looked up.
    pub reads: u64,
    /// Operations written; for a follower, the operations that it applies.
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// The traffic of a replica per minute, over several windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaTraffic {
    pub minute: TrafficRate,
    pub hour: TrafficRate,
    pub day: TrafficRate,
}

/// The windows over which a rate is a mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrafficWindow {
    Minute,
    Hour,
    Day,
}

const WINDOWS: [Duration; 3] = [
    Duration::from_secs(60),
    Duration::from_secs(60 * 60),
    Duration::from_secs(24 * 60 * 60),
];

impl TrafficRate {
    /// Returns the number of keys in clients' commands.
    pub fn requests(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl ReplicaTraffic {
    pub fn over(&self, window: TrafficWindow) -> &TrafficRate {
        match window {
            TrafficWindow::Minute => &self.minute,
            TrafficWindow::Hour => &self.hour,
            TrafficWindow::Day => &self.day,
        }
    }

    /// Returns the requests per minute, rounded to steps of a quarter. Below one request a second,
    /// changes are not news.
    pub fn requests_roughly(self) -> u32 {
        let minute = self.minute.requests();
        (3.0 * (minute.saturating_add(60) as f64).log2()) as u32
    }

    /// Returns whether there was no traffic for so long that none is reported.
    pub fn is_none(&self) -> bool {
        self.minute.is_none() && self.hour.is_none() && self.day.is_none()
    }
}

/// The moving means of one replica.
#[derive(Debug, Clone, Default)]
pub struct TrafficMeter {
    last: Option<(Duration, PartitionTraffic)>,
    sums: [DecayedSums; 3],
}

#[derive(Debug, Clone, Copy, Default)]
struct DecayedSums {
    /// Reads, writes, bytes read, bytes written.
    counted: [f64; 4],
    seconds: f64,
}

impl TrafficMeter {
    /// Records the counts up to now.
    pub fn see(&mut self, now: Duration, counted: PartitionTraffic) {
        let counts = |of: &PartitionTraffic| [of.reads, of.writes, of.read_bytes, of.written_bytes];
        if let Some((at, before)) = &self.last {
            let (old, new) = (counts(before), counts(&counted));
            // The table was reopened.
            let is_reset = old.iter().zip(&new).any(|(old, new)| new < old);
            let more = |at: usize| match is_reset {
                true => new[at] as f64,
                false => (new[at] - old[at]) as f64,
            };
            let seconds = now.saturating_sub(*at).as_secs_f64();
            for (sums, window) in self.sums.iter_mut().zip(WINDOWS) {
                sums.pass(seconds, window);
                for (at, sum) in sums.counted.iter_mut().enumerate() {
                    *sum += more(at);
                }
            }
        }
        self.last = Some((now, counted));
    }

    pub fn rates(&self) -> ReplicaTraffic {
        let [minute, hour, day] = self.sums.map(|sums| sums.rate());
        ReplicaTraffic { minute, hour, day }
    }
}

impl DecayedSums {
    fn pass(&mut self, seconds: f64, window: Duration) {
        let left = 0.5_f64.powf(3.0 * seconds / window.as_secs_f64());
        self.counted.iter_mut().for_each(|sum| *sum *= left);
        self.seconds = self.seconds * left + seconds;
    }

    fn rate(self) -> TrafficRate {
        let rate = |sum: f64| match self.seconds > 0.0 {
            true => (60.0 * sum / self.seconds).round() as u64,
            false => 0,
        };
        let [reads, writes, read_bytes, written_bytes] = self.counted.map(rate);
        TrafficRate {
            reads,
            writes,
            read_bytes,
            written_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn counted(reads: u64) -> PartitionTraffic {
        PartitionTraffic {
            reads,
            writes: reads / 10,
            read_bytes: reads * 100,
            written_bytes: reads,
        }
    }

    #[test]
    fn a_steady_rate_is_the_same_over_all_windows() {
        let mut meter = TrafficMeter::default();
        for tick in 0..100 {
            meter.see(seconds(10 * tick), counted(500 * tick));
        }
        let rates = meter.rates();
        for window in [
            TrafficWindow::Minute,
            TrafficWindow::Hour,
            TrafficWindow::Day,
        ] {
            let rate = rates.over(window);
            assert!(rate.reads.abs_diff(3000) <= 1, "{rate:?}");
            assert!(rate.writes.abs_diff(300) <= 1, "{rate:?}");
            assert!(rate.read_bytes.abs_diff(300_000) <= 10, "{rate:?}");
        }
    }

    #[test]
    fn traffic_before_the_window_weighs_an_eighth() {
        let mut meter = TrafficMeter::default();
        for tick in 0..=100 {
            meter.see(seconds(10 * tick), counted(100_000 * tick));
        }
        // Then no traffic for a minute.
        for tick in 101..=106 {
            meter.see(seconds(10 * tick), counted(10_000_000));
        }
        let rates = meter.rates();
        assert!(
            rates.minute.reads.abs_diff(600_000 / 8) < 10_000,
            "{rates:?}"
        );
        assert!(rates.hour.reads > 500_000, "{rates:?}");
        for tick in 107..=400 {
            meter.see(seconds(10 * tick), counted(10_000_000));
        }
        assert_eq!(meter.rates().minute.reads, 0);
        assert!(!meter.rates().is_none());
    }

    #[test]
    fn a_reopened_table_continues_its_rates() {
        let mut meter = TrafficMeter::default();
        meter.see(seconds(0), counted(5000));
        meter.see(seconds(10), counted(6000));
        meter.see(seconds(20), counted(1000));
        assert_eq!(meter.rates().minute.reads, 6000);
        assert!(TrafficMeter::default().rates().is_none());
    }
}
