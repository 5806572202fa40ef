//! The interface to the component that pulls versions into the server's store.
//!
//! The server only reports its state.

use std::fmt::Debug;

use forebay_engine::TableName;
use serde::Serialize;

/// A component that pulls versions into the served store.
pub trait Pulls: Debug + Send + Sync {
    fn pulled(&self) -> PullsStatus;

    /// Makes it look at the source now, unless its knowledge has this stamp already.
    fn notify(&self, stamp: u64);
}

/// The progress of all tables.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct PullsStatus {
    /// Sorted by name.
    pub tables: Vec<TablePulled>,
    /// Whether the source was reached since the start.
    pub reached: bool,
    /// Why the source cannot be reached now.
    pub problem: Option<String>,
    /// The current limit in bytes a second; `None`: no limit.
    pub rate_bytes: Option<u64>,
    /// How often the rate was lowered because serving had become slow.
    pub slowed: u64,
    pub received_bytes: u64,
    pub requests: u64,
}

/// The progress of one table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TablePulled {
    pub table: TableName,
    /// The version that serves at the source.
    pub wanted: Option<u64>,
    /// The current step.
    pub doing: Option<&'static str>,
    pub total_bytes: u64,
    pub done_bytes: u64,
    pub pulled: u64,
    pub repaired: u64,
    pub problem: Option<String>,
}
