//! Counts commands and connections, at a few nanoseconds a command.
//!
//! Each worker thread counts in memory of its own; a scrape adds up. A command's latency runs from
//! its start to the moment when its reply is ready to send. So pipelined GETs that are looked up
//! together share one clock reading. Buckets are powers of two of a microsecond.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;

use crate::command::COMMANDS;

/// The number of latency buckets: up to 1, 2, 4, ... 2^23 microseconds (8.4 s), and beyond.
pub const BUCKETS: usize = 25;

/// All counts of a server.
#[derive(Debug)]
pub struct Metrics {
    workers: Box<[WorkerMetrics]>,
    pub accepted: AtomicU64,
    /// Connections that were refused because there were too many.
    pub refused: AtomicU64,
    pub connected: AtomicI64,
    /// HTTP connections, including those without a slot.
    pub http_connected: AtomicUsize,
    pub auth_failures: AtomicU64,
    /// Connections ended by the server, by reason.
    pub dropped: [AtomicU64; Drop::ALL.len()],
}

/// The reason why the server ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drop {
    Protocol,
    SlowReader,
    /// All connections held too much memory, and it the most.
    ReplyMemory,
    Idle,
    AuthDeadline,
    Killed,
    /// Its node was removed from the cluster.
    Removed,
    Shutdown,
}

impl Drop {
    pub const ALL: [Drop; 8] = [
        Drop::Protocol,
        Drop::SlowReader,
        Drop::ReplyMemory,
        Drop::Idle,
        Drop::AuthDeadline,
        Drop::Killed,
        Drop::Removed,
        Drop::Shutdown,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Drop::Protocol => "protocol",
            Drop::SlowReader => "slow_reader",
            Drop::ReplyMemory => "reply_memory",
            Drop::Idle => "idle",
            Drop::AuthDeadline => "auth_deadline",
            Drop::Killed => "killed",
            Drop::Removed => "removed",
            Drop::Shutdown => "shutdown",
        }
    }
}

/// One worker's counts.
#[derive(Debug, Default)]
pub struct WorkerMetrics {
    pub input_bytes: AtomicU64,
    pub output_bytes: AtomicU64,
    /// When its thread last swept, on the server's clock; 0: not yet.
    pub seen_ms: AtomicU64,
    /// Why its thread has ended.
    pub ended: OnceLock<String>,
    /// By table; commands that name none are under the empty name.
    tables: Mutex<BTreeMap<Box<str>, Arc<TableMetrics>>>,
}

/// One worker's counts for one table.
#[derive(Debug)]
pub struct TableMetrics {
    /// By a command's place in the command table; created on first use.
    latencies: Box<[OnceLock<Box<Histogram>>]>,
    errors: Box<[AtomicU64]>,
    /// Commands that found a page not in memory and were moved to a thread that may wait.
    pub page_misses: AtomicU64,
}

/// Latencies of one command.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// A sum of latencies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistogramSum {
    pub buckets: [u64; BUCKETS],
    pub sum_ns: u64,
    pub errors: u64,
}

impl Metrics {
    pub fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| WorkerMetrics::default()).collect(),
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            connected: AtomicI64::new(0),
            http_connected: AtomicUsize::new(0),
            auth_failures: AtomicU64::new(0),
            dropped: Default::default(),
        }
    }

    /// Returns a worker's counts. REQUIRES: `index` is below the number of workers.
    pub fn worker(&self, index: usize) -> &WorkerMetrics {
        &self.workers[index]
    }

    pub fn workers(&self) -> &[WorkerMetrics] {
        &self.workers
    }

    pub fn count_drop(&self, reason: Drop) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the latencies of all workers by table and command, without unused ones.
    pub fn latencies(&self) -> BTreeMap<(Box<str>, &'static str), HistogramSum> {
        let mut sums: BTreeMap<_, HistogramSum> = BTreeMap::new();
        for worker in &self.workers {
            for (table, metrics) in worker.tables.lock().iter() {
                for (index, histogram) in metrics.latencies.iter().enumerate() {
                    let Some(histogram) = histogram.get() else {
                        continue;
                    };
                    let sum = sums
                        .entry((table.clone(), COMMANDS[index].name))
                        .or_default();
                    sum.add(histogram, metrics.errors[index].load(Ordering::Relaxed));
                }
            }
        }
        sums
    }

    /// Returns the number of commands by latency so far, of all tables and workers: see
    /// [`bucket_bound_us`].
    pub fn latency_counts(&self) -> [u64; BUCKETS] {
        let mut sum = HistogramSum::default();
        for worker in &self.workers {
            for metrics in worker.tables.lock().values() {
                let used = metrics.latencies.iter().filter_map(OnceLock::get);
                used.for_each(|histogram| sum.add(histogram, 0));
            }
        }
        sum.buckets
    }

    /// Returns page misses by table.
    pub fn page_misses(&self) -> BTreeMap<Box<str>, u64> {
        let mut sums = BTreeMap::new();
        for worker in &self.workers {
            for (table, metrics) in worker.tables.lock().iter() {
                *sums.entry(table.clone()).or_default() +=
                    metrics.page_misses.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

impl WorkerMetrics {
    /// Returns the counts for a table that exists. Callers keep the result.
    pub fn table(&self, name: &str) -> Arc<TableMetrics> {
        let mut tables = self.tables.lock();
        match tables.get(name) {
            Some(found) => Arc::clone(found),
            None => Arc::clone(tables.entry(name.into()).or_default()),
        }
    }
}

impl Default for TableMetrics {
    fn default() -> Self {
        Self {
            latencies: COMMANDS.iter().map(|_| OnceLock::new()).collect(),
            errors: COMMANDS.iter().map(|_| AtomicU64::new(0)).collect(),
            page_misses: AtomicU64::new(0),
        }
    }
}

impl TableMetrics {
    /// Records that the command at place `command` was answered `count` times, each after `time`.
    #[inline]
    pub fn record(&self, command: usize, time: Duration, count: u64) {
        self.latencies[command]
            .get_or_init(Box::default)
            .record(time, count);
    }

    pub fn count_error(&self, command: usize) {
        self.errors[command].fetch_add(1, Ordering::Relaxed);
    }
}

impl Histogram {
    pub fn sum(&self) -> HistogramSum {
        let mut sum = HistogramSum::default();
        sum.add(self, 0);
        sum
    }

    #[inline]
    pub fn record(&self, time: Duration, count: u64) {
        let ns = time.as_nanos() as u64;
        self.buckets[bucket_of(ns)].fetch_add(count, Ordering::Relaxed);
        self.sum_ns
            .fetch_add(ns.saturating_mul(count), Ordering::Relaxed);
    }
}

impl HistogramSum {
    fn add(&mut self, histogram: &Histogram, errors: u64) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&histogram.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.sum_ns += histogram.sum_ns.load(Ordering::Relaxed);
        self.errors += errors;
    }

    pub fn merge(&mut self, other: &Self) {
        self.change(other, |sum, more| *sum += more);
    }

    /// Subtracts earlier counts.
    pub fn subtract(&mut self, before: &Self) {
        self.change(before, |sum, less| *sum = sum.saturating_sub(less));
    }

    fn change(&mut self, other: &Self, change: impl Fn(&mut u64, u64)) {
        let buckets = self.buckets.iter_mut().zip(other.buckets);
        buckets.for_each(|(sum, by)| change(sum, by));
        change(&mut self.sum_ns, other.sum_ns);
        change(&mut self.errors, other.errors);
    }

    /// Returns how many commands were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Returns the first bucket whose bound is at least `ns`.
#[inline]
fn bucket_of(ns: u64) -> usize {
    let us = ns.div_ceil(1000).max(1);
    (us.next_power_of_two().trailing_zeros() as usize).min(BUCKETS - 1)
}

/// Returns the upper bound of a bucket in microseconds; the last one has none.
pub fn bucket_bound_us(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1 << bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_count_values_within_their_bounds() {
        for (ns, bucket) in [
            (0, 0),
            (1000, 0),
            (1001, 1),
            (2000, 1),
            (2001, 2),
            (4000, 2),
        ] {
            assert_eq!(bucket_of(ns), bucket, "{ns}");
        }
        assert_eq!(bucket_of(1_000_000_000_000), BUCKETS - 1);
        assert_eq!(bucket_bound_us(3), Some(8));
        assert_eq!(bucket_bound_us(BUCKETS - 1), None);
    }

    #[test]
    fn workers_add_up() {
        let metrics = Metrics::new(2);
        for worker in metrics.workers() {
            let table = worker.table("t");
            table.record(0, Duration::from_micros(3), 2);
            table.count_error(0);
            table.page_misses.fetch_add(1, Ordering::Relaxed);
            worker.table("").record(1, Duration::ZERO, 1);
        }
        let sums = metrics.latencies();
        assert_eq!(sums.len(), 2);
        let sum = &sums[&("t".into(), COMMANDS[0].name)];
        assert_eq!((sum.buckets[2], sum.sum_ns, sum.errors), (4, 12_000, 2));
        assert_eq!(metrics.page_misses()["t"], 2);
        assert_eq!(sums.values().map(HistogramSum::count).sum::<u64>(), 6);
        assert_eq!(metrics.latency_counts()[..3], [2, 0, 4]);
    }
}
