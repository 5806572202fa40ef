//! Defines the report of a push.

use std::fmt;

use forebay_engine::{ColumnStats, RunRef, TableName};
use serde::Serialize;

use crate::convert::Lossy;
use crate::gate::Finding;

/// The number of keys by operation in a push onto another version, after composing the operations
/// of each key.
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
    /// Counts the operations of the records of runs.
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

/// The report of a push, for people and programs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PushReport {
    /// The batch table.
    pub table: TableName,
    /// The number of the version that was built.
    pub version: u64,
    /// The number of rows of the version, as a minimum and a maximum. They differ if newer runs may
    /// hide or remove rows of older ones.
    pub rows_between: (u64, u64),
    /// The version whose runs it keeps.
    pub onto: Option<u64>,
    /// In a push onto another version, its keys by operation.
    pub applied: Option<ComposedRows>,
    /// The bytes of the pushed keys and values.
    pub bytes: u64,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Values that conversions changed, as the rules allow.
    pub lossy: Vec<Lossy>,
    /// Rows left out because of another row of the same key, or composed with one.
    pub duplicates: u64,
    /// The counts of each column; empty in a push onto another version.
    pub stats: Vec<ColumnStats>,
    /// The duration of the push.
    pub seconds: f64,
    /// Whether the version serves.
    pub swapped: bool,
    /// The version with which the gate compared it.
    pub compared_with: Option<u64>,
    /// The gate's findings; empty if there was no version to compare with.
    pub gate: Vec<Finding>,
    /// The reason for which a cluster did not let it serve.
    pub undone: Option<UnservedVersion>,
    /// Versions removed because enough newer ones exist.
    pub removed: Vec<u64>,
    /// Conditions that the user may not have intended.
    pub warnings: Vec<String>,
}

/// A cluster's account of a version that it did not let serve, or rolled back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnservedVersion {
    pub problem: String,
    /// An operator's rollback had precedence.
    pub gave_way: bool,
}

impl PushReport {
    /// Returns whether the gate kept the version from being swapped in.
    pub fn held(&self) -> bool {
        !self.swapped && self.undone.is_none() && self.gate.iter().any(|finding| !finding.passed)
    }
}

/// Rounds seconds to the millisecond, as reports show them.
pub(crate) fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
