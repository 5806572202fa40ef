//! The counts of INFO and LATENCY HISTOGRAM, since the start or since CONFIG RESETSTAT.
//!
//! RESETSTAT does not reset the counts of /metrics.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::metrics::{HistogramSum, Metrics, WorkerMetrics};

/// The sums of a server's counts.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub accepted: u64,
    pub refused: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// Latencies of all tables, by command.
    pub latencies: BTreeMap<&'static str, HistogramSum>,
}

impl Totals {
    /// Returns the counts since the start.
    pub fn of(metrics: &Metrics) -> Self {
        let sum = |of: fn(&WorkerMetrics) -> u64| -> u64 { metrics.workers().iter().map(of).sum() };
        let mut latencies: BTreeMap<_, HistogramSum> = BTreeMap::new();
        for ((_, command), more) in metrics.latencies() {
            latencies.entry(command).or_default().merge(&more);
        }
        Self {
            accepted: metrics.accepted.load(Ordering::Relaxed),
            refused: metrics.refused.load(Ordering::Relaxed),
            input_bytes: sum(|worker| worker.input_bytes.load(Ordering::Relaxed)),
            output_bytes: sum(|worker| worker.output_bytes.load(Ordering::Relaxed)),
            latencies,
        }
    }

    /// Returns the difference from `base`, which was taken before.
    #[must_use]
    pub fn since(mut self, base: &Totals) -> Self {
        for (command, sum) in &base.latencies {
            if let Some(later) = self.latencies.get_mut(command) {
                later.subtract(sum);
            }
        }
        self.latencies.retain(|_, sum| sum.count() > 0);
        let subtract = |later: &mut u64, before: u64| *later = later.saturating_sub(before);
        subtract(&mut self.accepted, base.accepted);
        subtract(&mut self.refused, base.refused);
        subtract(&mut self.input_bytes, base.input_bytes);
        subtract(&mut self.output_bytes, base.output_bytes);
        self
    }

    pub fn commands(&self) -> u64 {
        self.latencies.values().map(HistogramSum::count).sum()
    }

    pub fn errors(&self) -> u64 {
        self.latencies.values().map(|sum| sum.errors).sum()
    }
}
