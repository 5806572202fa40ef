//! What a push did.

use std::fmt;

use forebay_engine::{ColumnStats, RunRef, TableName};
use serde::Serialize;

use crate::convert::Lossy;
use crate::gate::Finding;

/// What the keys of a push onto another version came to, once those of one key were composed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ComposedRows {
    /// Keys whose value was set.
    pub updates: u64,
    /// Keys whose value was set where they are absent.
    pub inserts: u64,
    /// Keys that were removed.
    pub deletes: u64,
    /// Keys whose value was added to.
    pub deltas: u64,
}

impl ComposedRows {
    /// What the records of runs do.
    pub(crate) fn of<'a>(runs: impl Iterator<Item = &'a RunRef>) -> Self {
        let mut applied = Self::default();
        for run in runs {
            let [updates, inserts, deletes, deltas] = run.counts();
            applied.updates += updates;
            applied.inserts += inserts;
            applied.deletes += deletes;
            applied.deltas += deltas;
        }
        applied
    }
}

impl fmt::Display for ComposedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            updates,
            inserts,
            deletes,
            deltas,
        } = self;
        write!(
            f,
            "{updates} updates, {inserts} inserts, {deletes} deletes, {deltas} deltas"
        )
    }
}

/// What a push did, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PushReport {
    /// The batch table.
    pub table: TableName,
    /// The number of the version that was built.
    pub version: u64,
    /// The rows of the version: the least and the greatest number of them, where newer runs may
    /// hide or remove rows of older ones.
    pub rows_between: (u64, u64),
    /// The version whose runs it goes on with.
    pub onto: Option<u64>,
    /// What its rows came to, in a push onto another version.
    pub applied: Option<ComposedRows>,
    /// Of keys and values that were pushed.
    pub bytes: u64,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Values that conversions changed, as was asked for.
    pub lossy: Vec<Lossy>,
    /// Rows left out because of another of the same key, or composed with one.
    pub duplicates: u64,
    /// What was counted of each column; nothing in a push onto another version.
    pub stats: Vec<ColumnStats>,
    /// How long it took.
    pub seconds: f64,
    /// Whether the version serves.
    pub swapped: bool,
    /// The version that the gate compared it with.
    pub compared_with: Option<u64>,
    /// What the gate saw; empty when there was no version to compare with.
    pub gate: Vec<Finding>,
    /// Why a cluster did not let it serve.
    pub undone: Option<UnservedVersion>,
    /// Versions removed because there are newer ones enough.
    pub removed: Vec<u64>,
    /// What may not have been meant.
    pub warnings: Vec<String>,
}

/// What a cluster says of a version that it did not let serve, or took back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedVersion {
    pub problem: String,
    /// An operator's rollback went first.
    pub gave_way: bool,
}

impl PushReport {
    /// Whether the gate kept the version from being swapped in.
    pub fn held(&self) -> bool {
        !self.swapped && self.undone.is_none() && self.gate.iter().any(|finding| !finding.passed)
    }
}

/// Seconds to the millisecond, as reports have them.
pub(crate) fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
