//! Defines how a long operation reports progress. Libraries call the trait; the binary draws it.

use std::sync::Arc;

/// The unit that a stage counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Rows of the sources.
    Rows,
    /// Bytes of files.
    Bytes,
    /// Pages of runs.
    Pages,
    /// Partitions of a table.
    Partitions,
}

/// A receiver of the progress of one operation, from any of its threads.
pub trait Progress: Sync {
    /// Begins a new stage, which ends the previous one. `name` is a present participle ("reading");
    /// `total` is the amount of work, if known.
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit);
    /// Reports `n` more units of the current stage as done. It is cheap: call it once a batch of
    /// rows or pages.
    fn advance(&self, n: u64);
    /// Shows a one-sentence message to the user immediately.
    fn message(&self, text: &str);
    /// Returns whether the user cancelled. Reading and writing then stop soon, with an error.
    fn is_cancelled(&self) -> bool {
        false
    }
}

impl<P: Progress + Send + ?Sized> Progress for Arc<P> {
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit) {
        (**self).stage(name, total, unit);
    }
    fn advance(&self, n: u64) {
        (**self).advance(n);
    }
    fn message(&self, text: &str) {
        (**self).message(text);
    }
    fn is_cancelled(&self) -> bool {
        (**self).is_cancelled()
    }
}

/// A receiver that ignores all progress.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: Option<u64>, _unit: Unit) {}
    fn advance(&self, _n: u64) {}
    fn message(&self, _text: &str) {}
}
