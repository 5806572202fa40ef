//! What a node counts of commands that are answered elsewhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::metrics::{Histogram, HistogramSum};

/// What became of commands whose keys are not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoutedCounts {
    /// Another node answered.
    Answered,
    /// The client was told where to go.
    Redirected,
    /// An error of another node, or of the command.
    Failed,
    /// No node answered, or nodes disagreed.
    Unanswered,
}

/// What became of commands that write to replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Proposed {
    /// A majority has them.
    Answered,
    /// Nothing was written.
    Refused,
    /// Nobody knows.
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

/// See the module's text.
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

    /// By a reply.
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

    /// So many commands had their replies together after that time.
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

    /// How many times a node refused a connection, or did not answer in time.
    pub fn suspicions(&self) -> u64 {
        self.suspected.load(Ordering::Relaxed)
    }
}
