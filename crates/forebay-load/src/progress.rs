//! What a long operation says while it runs. Libraries call it; the binary draws it.

use std::sync::Arc;

/// What a stage counts.
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

/// Receives the progress of one operation, from any of its threads.
pub trait Progress: Sync {
    /// A new stage begins, and with it the one before ends. `name` is a present participle
    /// ("reading"); `total` is how much there is to do, where that is known.
    fn stage(&self, name: &str, total: Option<u64>, unit: Unit);
    /// `n` more units of the present stage are done. Cheap: call it once a batch of rows or pages.
    fn advance(&self, n: u64);
    /// Something that the person should know now, one sentence.
    fn message(&self, text: &str);
    /// Whether the person wants no more of it. Reading and writing stop then, soon, with an error.
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

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {
    fn stage(&self, _name: &str, _total: Option<u64>, _unit: Unit) {}
    fn advance(&self, _n: u64) {}
    fn message(&self, _text: &str) {}
}
