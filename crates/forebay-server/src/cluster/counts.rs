//! Counts of commands for keys of other nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::{Histogram, HistogramSum};

/// The outcome of a command whose keys this node lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutedCounts {
    /// Another node answered.
    Answered,
    /// The client was redirected.
    Redirected,
    /// The command or another node failed with an error.
    Failed,
    /// No node answered, or nodes disagreed.
    Unanswered,
}

/// The outcome of a command that writes to replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposed {
    /// A majority has the write.
    Answered,
    /// Nothing was written.
    Refused,
    /// It is unknown whether the write happened.
    Uncertain,
}

impl Proposed {
    pub const ALL: [Proposed; 3] = [Proposed::Answered, Proposed::Refused, Proposed::Uncertain];

    pub fn label(self) -> &'static str {
        match self {
            Proposed::Answered => "answered",
            Proposed::Refused => "refused",
            Proposed::Uncertain => "uncertain",
        }
    }
}

/// A node's counts of forwarded and redirected commands and of writes to replicas.
#[derive(Debug, Default)]
pub struct ClusterCounts {
    led: [AtomicU64; RoutedCounts::ALL.len()],
    proposed: [AtomicU64; Proposed::ALL.len()],
    times: Histogram,
    suspected: AtomicU64,
}

impl RoutedCounts {
    pub const ALL: [RoutedCounts; 4] = [
        RoutedCounts::Answered,
        RoutedCounts::Redirected,
        RoutedCounts::Failed,
        RoutedCounts::Unanswered,
    ];

    pub fn label(self) -> &'static str {
        match self {
            RoutedCounts::Answered => "answered",
            RoutedCounts::Redirected => "redirected",
            RoutedCounts::Failed => "failed",
            RoutedCounts::Unanswered => "unanswered",
        }
    }

    /// Returns the outcome that a reply means.
    pub fn of(reply: &[u8]) -> Self {
        let is = |word: &[u8]| reply.starts_with(word);
        match reply {
            _ if !is(b"-") => RoutedCounts::Answered,
            _ if is(b"-MOVED ") => RoutedCounts::Redirected,
            _ if is(b"-TRYAGAIN ") || is(b"-CLUSTERDOWN ") => RoutedCounts::Unanswered,
            _ => RoutedCounts::Failed,
        }
    }
}

impl ClusterCounts {
    pub fn led(&self, led: RoutedCounts) {
        self.led[led as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn proposed(&self, proposed: Proposed) {
        self.proposed[proposed as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn all_proposed(&self) -> impl Iterator<Item = (Proposed, u64)> {
        Proposed::ALL
            .into_iter()
            .map(|of| (of, self.proposed[of as usize].load(Ordering::Relaxed)))
    }

    /// Adds `count` commands that were answered together after this time.
    pub fn took(&self, time: Duration, count: usize) {
        self.times.record(time, count as u64);
    }

    pub fn all_led(&self) -> impl Iterator<Item = (RoutedCounts, u64)> {
        RoutedCounts::ALL
            .into_iter()
            .map(|led| (led, self.led[led as usize].load(Ordering::Relaxed)))
    }

    pub fn times(&self) -> HistogramSum {
        self.times.sum()
    }

    pub fn suspected(&self) {
        self.suspected.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns how often a node refused a connection or did not answer in time.
    pub fn suspicions(&self) -> u64 {
        self.suspected.load(Ordering::Relaxed)
    }
}
