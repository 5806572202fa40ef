//! Prepares writes for expiry: operations get times, and inserts are settled.
//!
//! An insert treats whatever it meets as alive. In tables whose records expire, an insert is
//! therefore settled when it is written, by a read.

use std::collections::HashMap;

use forebay_run::operation::Operation;
use forebay_run::times::Times;

use crate::live::basics::batch::Batch;
use crate::live::basics::expiry::{Expiry, earliest};
use crate::live::basics::shape::PartTime;
use crate::live::partition::shared::LiveShared;

impl LiveShared {
    /// Returns whether operations get times as they are written. Of operations with a moment of
    /// expiry, only deltas need another time.
    #[inline]
    fn stamps(&self) -> bool {
        match self.options.expiry {
            Expiry::Never => false,
            Expiry::PerRecord => self.shape.delta.is_some(),
            Expiry::AfterMs(_) => true,
        }
    }

    /// Returns whether an operation must be changed before it is stored.
    #[inline]
    pub fn changes(&self, operation: &Operation<'_>) -> bool {
        self.options.expiry != Expiry::Never && (self.stamps() || is_insert(operation))
    }

    /// Returns the operation in its stored form.
    fn stamped<'a>(&self, operation: Operation<'a>, time: PartTime) -> Operation<'a> {
        let written_ms = self.shape.now_ms(time);
        let expires_ms = match (operation.times().expires_ms, self.options.expiry) {
            (u64::MAX, Expiry::AfterMs(ms)) => written_ms.saturating_add(ms),
            (expires_ms, _) => expires_ms,
        };
        operation.with_times(Times {
            written_ms,
            expires_ms,
        })
    }

    /// Returns the moment up to which expired records may be left out of a run with nothing older
    /// below it. It is now, but not after the earliest delta elsewhere was written. A delta that
    /// was written while a value was alive may still wait to be merged with it. Later deltas are
    /// written after now. REQUIRES: `now_ms` was read before `newer` was seen, under the
    /// partition's lock, and `newer` covers all sources that are not in that run.
    pub fn droppable_ms(&self, now_ms: u64, newer: impl Iterator<Item = Option<u64>>) -> u64 {
        match self.options.expiry {
            Expiry::Never => 0,
            _ => earliest(newer.chain([Some(now_ms)])).unwrap_or(0),
        }
    }

    /// Returns a batch in its stored form, written at that time; `None` if it needs no change.
    pub fn stamped_batch(&self, batch: &Batch, time: PartTime) -> Option<Batch> {
        if !self.stamps() {
            return None;
        }
        let mut stamped = Batch::new();
        for (key, operation) in batch.records() {
            stamped.push(key, self.stamped(operation, time));
        }
        Some(stamped)
    }

    /// Returns whether inserts are settled when they are written.
    #[inline]
    pub fn settles(&self) -> bool {
        self.options.expiry != Expiry::Never
    }

    /// Returns whether a batch has inserts that must be settled by a read.
    pub fn must_settle(&self, batch: &Batch) -> bool {
        self.settles() && batch.records().any(|(_, operation)| is_insert(&operation))
    }
}

fn is_insert(operation: &Operation<'_>) -> bool {
    matches!(
        operation.plain(),
        Operation::Insert(_) | Operation::InsertDelta { .. }
    )
}

/// Returns the batch without inserts, given which keys exist before it.
pub(crate) fn settle<'a>(
    batch: &'a Batch,
    present: &mut HashMap<&'a [u8], bool>,
    now_ms: u64,
) -> Batch {
    let mut settled = Batch::new();
    for (key, operation) in batch.records() {
        let is_there = present.get(key).copied().unwrap_or(false);
        let times = operation.times();
        let operation = match operation.plain() {
            Operation::Insert(_) if is_there => continue,
            Operation::Insert(value) => Operation::Update(value).with_times(times),
            Operation::InsertDelta { delta, .. } if is_there => {
                Operation::Delta(delta).with_times(times)
            }
            Operation::InsertDelta { value, .. } => Operation::Update(value).with_times(times),
            _ => operation,
        };
        let stays = operation != Operation::Delete && now_ms < operation.times().expires_ms;
        present.insert(key, stays);
        settled.push(key, operation);
    }
    settled
}
