//! A version that a push has just committed, while the push still holds its locks.
//!
//! The operations that follow the commit run under the same locks.

use std::fmt::Debug;

use forebay_io::Lock;

use crate::documents::pointers::SwapReport;
use crate::error::StoreError;
use crate::tables::history::{HistoryAction, HistoryNote};
use crate::tables::table::Table;

/// A committed version. Dropping it releases the locks.
#[derive(Debug)]
pub struct Committed {
    table: Table,
    version: u64,
    locks: Option<HeldLocks>,
}

/// The pointer lock is released first, because the end of a push may need it.
#[derive(Debug)]
struct HeldLocks {
    _pointer: Box<dyn Lock>,
    _push: Box<dyn Debug + Send + Sync>,
}

impl Committed {
    /// `push` ends the push when it is dropped.
    pub(crate) fn new(
        table: Table,
        version: u64,
        push: Box<dyn Debug + Send + Sync>,
        pointer: Box<dyn Lock>,
    ) -> Self {
        Self {
            table,
            version,
            locks: Some(HeldLocks {
                _pointer: pointer,
                _push: push,
            }),
        }
    }

    pub fn version(&self) -> u64 {
        self.version
    }

    /// Makes the version the serving one, as [`Table::swap`] does. The same write removes from the
    /// history the versions that [`Committed::retain`] will remove. In a cluster the locks are
    /// released first, because its nodes may take long.
    pub fn swap(&mut self, keep: usize) -> Result<SwapReport, StoreError> {
        if self.table.store().pointers().is_some() {
            self.locks = None;
        }
        let swapped = match self.locks {
            Some(_) => self.table.swap_locked(self.version, keep),
            None => self.table.swap_unnoted(self.version),
        }?;
        self.note(HistoryAction::Push, swapped);
        Ok(swapped)
    }

    /// Adds an entry about the version to the history.
    pub fn note(&self, action: HistoryAction, note: impl Into<HistoryNote>) {
        self.table.store().note(self.table.name(), action, note);
    }

    /// Makes the version the serving one in the place of `from`, if `from` still serves; returns
    /// whether it did. The versions to roll back to stay the same.
    pub(crate) fn replace_serving(mut self, from: u64) -> Result<bool, StoreError> {
        let serves = match self.table.store().pointers().is_some() {
            true => {
                self.locks = None;
                self.table.replace_in_catalog(from, self.version)
            }
            false => self.table.replace_locked(from, self.version),
        }?;
        if serves {
            let (from, to) = (Some(from), self.version);
            self.note(HistoryAction::Compact, SwapReport { from, to });
        }
        Ok(serves)
    }

    /// [`Table::retain`].
    pub fn retain(self, keep: usize) -> Result<Vec<u64>, StoreError> {
        match self.locks {
            Some(_) => self.table.retain_locked(keep),
            None => self.table.retain(keep),
        }
    }
}
