//! A version that was just made, by a push that still has its locks: what is done with it next is
//! done under the same ones.

use std::fmt::Debug;

use forebay_io::Lock;

use crate::error::StoreError;
use crate::history::{HistoryAction, HistoryNote};
use crate::pointers::SwapReport;
use crate::table::Table;

/// A committed version. Dropping it gives the locks back.
#[derive(Debug)]
pub struct Committed {
    table: Table,
    version: u64,
    locks: Option<HeldLocks>,
}

/// That of the pointer goes first: the end of a push may want it.
#[derive(Debug)]
struct HeldLocks {
    _pointer: Box<dyn Lock>,
    _push: Box<dyn Debug + Send + Sync>,
}

impl Committed {
    /// `push`: what ends the push when it is dropped.
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

    /// Lets the version serve, as [`Table::swap`] does; what [`Committed::retain`] is to remove is
    /// taken out of the history by the same write. In a cluster the locks are given back first: its
    /// nodes take their time.
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

    /// Adds to the history what became of the version.
    pub fn note(&self, action: HistoryAction, note: impl Into<HistoryNote>) {
        self.table.store().note(self.table.name(), action, note);
    }

    /// Lets the version serve in the place of `from`, if that serves still; returns whether. The
    /// versions to roll back to stay what they were.
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
