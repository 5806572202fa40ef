//! The state that all clients of one insert share.
//!
//! It has the routes, the number of written rows, and whether a client has failed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_engine::TableName;
use forebay_io::{Clock, Throttle};
use forebay_load::progress::Progress;
use serde::Serialize;

use super::batch::{BatchRow, RowVerb};
use super::error::Inserted;
use super::routes::SharedRoutes;

/// The time before the first message that rows wait, and between two messages.
const TELL: Duration = Duration::from_secs(5);

/// The shared state of one insert.
pub struct Insertion<'a> {
    pub table: TableName,
    pub routes: SharedRoutes,
    pub clock: Arc<dyn Clock>,
    pub progress: &'a dyn Progress,
    pub throttle: Throttle,
    /// How long no row may be written before the insert fails.
    pub patience: Duration,
    pub all_rows: u64,
    pub has_deltas: bool,
    has_failed: AtomicBool,
    counts: InsertCounts,
    /// When the last message about waiting rows was printed.
    reported: Mutex<Option<Duration>>,
}

#[derive(Debug, Default)]
struct InsertCounts {
    bytes: AtomicU64,
    updates: AtomicU64,
    inserts: AtomicU64,
    deletes: AtomicU64,
    deltas: AtomicU64,
    requests: AtomicU64,
    sent_again: AtomicU64,
}

/// The totals of what was written.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InsertTotals {
    #[serde(skip)]
    pub bytes: u64,
    #[serde(skip)]
    pub updates: u64,
    #[serde(skip)]
    pub inserts: u64,
    #[serde(skip)]
    pub deletes: u64,
    #[serde(skip)]
    pub deltas: u64,
    /// Requests to several nodes at once count for each.
    pub requests: u64,
    /// Rows that were sent more than once: every time but the first.
    pub sent_again: u64,
}

impl InsertTotals {
    pub fn rows(&self) -> u64 {
        self.updates + self.inserts + self.deletes + self.deltas
    }
}

impl<'a> Insertion<'a> {
    pub fn new(
        table: &TableName,
        routes: SharedRoutes,
        (clock, progress): (Arc<dyn Clock>, &'a dyn Progress),
        (rate_bytes, patience): (Option<u64>, Duration),
        (all_rows, has_deltas): (u64, bool),
    ) -> Self {
        Self {
            table: table.clone(),
            routes,
            throttle: Throttle::new(rate_bytes, Arc::clone(&clock)),
            clock,
            progress,
            patience,
            all_rows,
            has_deltas,
            has_failed: AtomicBool::new(false),
            counts: InsertCounts::default(),
            reported: Mutex::new(None),
        }
    }

    pub fn fail(&self) {
        self.has_failed.store(true, Relaxed);
    }

    /// Returns whether a client has failed, or the user has cancelled.
    pub fn is_over(&self) -> bool {
        self.has_failed.load(Relaxed) || self.progress.is_cancelled()
    }

    /// Counts a written row.
    pub fn count(&self, row: &BatchRow) {
        let counter = match row.verb {
            RowVerb::Update => &self.counts.updates,
            RowVerb::Insert => &self.counts.inserts,
            RowVerb::Delete => &self.counts.deletes,
            RowVerb::Delta => &self.counts.deltas,
        };
        counter.fetch_add(1, Relaxed);
        self.counts.bytes.fetch_add(row.bytes, Relaxed);
    }

    pub fn count_requests(&self, requests: usize, sent_again: usize) {
        let counts = &self.counts;
        counts.requests.fetch_add(requests as u64, Relaxed);
        counts.sent_again.fetch_add(sent_again as u64, Relaxed);
    }

    pub fn totals(&self) -> InsertTotals {
        let counts = &self.counts;
        InsertTotals {
            bytes: counts.bytes.load(Relaxed),
            updates: counts.updates.load(Relaxed),
            inserts: counts.inserts.load(Relaxed),
            deletes: counts.deletes.load(Relaxed),
            deltas: counts.deltas.load(Relaxed),
            requests: counts.requests.load(Relaxed),
            sent_again: counts.sent_again.load(Relaxed),
        }
    }

    pub fn inserted(&self) -> Inserted {
        Inserted {
            table: self.table.clone(),
            done: self.totals().rows(),
            all: self.all_rows,
            has_deltas: self.has_deltas,
        }
    }

    /// Reports at intervals that rows wait, and for how long.
    pub fn announce_waiting(&self, waited: Duration, why: &str) {
        let now = self.clock.monotonic();
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = reported.is_none_or(|reported| now.saturating_sub(reported) >= TELL);
        if waited >= TELL && is_due {
            *reported = Some(now);
            let seconds = waited.as_secs();
            let text = format!("rows wait for {seconds} s by now, and are sent again: {why}");
            self.progress.message(&text);
        }
    }
}
