//! What the server tells of versions that are brought into its store from elsewhere. Who brings
//! them is not its affair.

use std::fmt::Debug;

use forebay_engine::TableName;
use serde::Serialize;

/// Whoever brings versions into the store that is served.
pub trait Pulls: Debug + Send + Sync {
    fn pulled(&self) -> PullsStatus;

    /// Has it look at the source now, unless what it knows is of this stamp.
    fn notify(&self, stamp: u64);
}

/// How far all tables are.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct PullsStatus {
    /// Sorted by name.
    pub tables: Vec<TablePulled>,
    /// Whether the source was reached since the start.
    pub reached: bool,
    /// Why the source cannot be reached now.
    pub problem: Option<String>,
    /// At most so many bytes a second now; `None`: no limit.
    pub rate_bytes: Option<u64>,
    /// How often the rate was lowered because serving had become slow.
    pub slowed: u64,
    pub received_bytes: u64,
    pub requests: u64,
}

/// How far one table is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TablePulled {
    pub table: TableName,
    /// The version that serves at the source.
    pub wanted: Option<u64>,
    /// What is being done now.
    pub doing: Option<&'static str>,
    pub total_bytes: u64,
    pub done_bytes: u64,
    pub pulled: u64,
    pub repaired: u64,
    pub problem: Option<String>,
}
