//! The progress of pulls, for people and metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_engine::TableName;
use parking_lot::Mutex;

/// The pull of one table.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct TablePull {
    /// The version that serves in the object store.
    pub wanted: Option<u64>,
    /// What is being done: pulling, verifying, checking, repairing; `None`: nothing.
    pub doing: Option<&'static str>,
    /// The bytes of the pulled version's missing files, and how many were fetched.
    pub total_bytes: u64,
    pub done_bytes: u64,
    /// Damaged files that were fetched again since the start.
    pub repaired: u64,
    /// Versions that were fetched since the start.
    pub pulled: u64,
    pub problem: Option<String>,
}

impl TablePull {
    pub fn begin(&mut self, doing: &'static str, total_bytes: u64) {
        self.doing = Some(doing);
        (self.total_bytes, self.done_bytes) = (total_bytes, 0);
    }
}

/// All pulls of a node.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PullState {
    pub tables: BTreeMap<TableName, TablePull>,
    /// Whether the object store was reached since the start.
    pub looked: bool,
    /// Why the object store cannot be polled.
    pub problem: Option<String>,
    /// When it began to answer, or ceased to, by the monotonic clock.
    pub changed: Duration,
    /// The present limit of bytes a second; `None`: no limit.
    pub rate_bytes: Option<u64>,
    /// How often the rate was lowered because serving had become slow.
    pub slowed: u64,
    /// The bytes received since the start.
    pub received_bytes: u64,
    pub requests: u64,
}

#[derive(Debug, Default)]
pub struct SharedState(Mutex<PullState>);

impl SharedState {
    pub fn get(&self) -> PullState {
        self.0.lock().clone()
    }

    pub fn table(&self, table: &TableName, change: impl FnOnce(&mut TablePull)) {
        change(self.0.lock().tables.entry(table.clone()).or_default());
    }

    pub fn forget(&self, table: &TableName) {
        self.0.lock().tables.remove(table);
    }

    pub fn received(&self, table: &TableName, bytes: u64) {
        let mut state = self.0.lock();
        state.received_bytes += bytes;
        state.tables.entry(table.clone()).or_default().done_bytes += bytes;
    }

    /// Records whether the store answers. If that has changed, returns how long the previous state
    /// lasted.
    pub fn store(&self, problem: Option<String>, now: Duration) -> Option<Duration> {
        let mut state = self.0.lock();
        state.looked |= problem.is_none();
        let is_news = state.problem.is_some() != problem.is_some();
        state.problem = problem;
        is_news.then(|| now.saturating_sub(std::mem::replace(&mut state.changed, now)))
    }
}
