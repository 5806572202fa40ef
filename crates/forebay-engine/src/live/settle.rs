//! What expiry asks of writes: operations get times, and inserts are settled.
//!
//! An insert takes whatever it meets for alive, so that in tables whose records expire inserts are
//! settled when they are written, by reading.

use std::collections::HashMap;

use forebay_run::operation::Operation;
use forebay_run::times::Times;

use crate::live::batch::Batch;
use crate::live::expiry::{Expiry, earliest};
use crate::live::shape::PartTime;
use crate::live::shared::LiveShared;

impl LiveShared {
    /// Whether operations are given times as they are written: of those that bring the moment at
    /// which they expire only deltas need another.
    #[inline]
    fn stamps(&self) -> bool {
        match self.options.expiry {
            Expiry::Never => false,
            Expiry::PerRecord => self.shape.delta.is_some(),
            Expiry::AfterMs(_) => true,
        }
    }

    /// Whether an operation cannot be kept as it comes.
    #[inline]
    pub fn changes(&self, operation: &Operation<'_>) -> bool {
        self.options.expiry != Expiry::Never && (self.stamps() || is_insert(operation))
    }

    /// The operation as it is kept.
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

    /// What expired by then may be left out of a run with nothing older below it: now, but not
    /// after the earliest delta elsewhere was written. A delta that was written while a value
    /// lasted may still wait to be merged with it; those to come are written later than now.
    /// REQUIRES: `now_ms` was read before `newer` was seen, under the partition's lock, which tells
    /// of all that is not in that run.
    pub fn droppable_ms(&self, now_ms: u64, newer: impl Iterator<Item = Option<u64>>) -> u64 {
        match self.options.expiry {
            Expiry::Never => 0,
            _ => earliest(newer.chain([Some(now_ms)])).unwrap_or(0),
        }
    }

    /// A batch as it is kept, written at that time; `None` when that is as it is.
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

    /// Whether inserts are settled when they are written.
    #[inline]
    pub fn settles(&self) -> bool {
        self.options.expiry != Expiry::Never
    }

    /// Whether a batch has inserts that must be settled by reading.
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

/// The batch without inserts, given which keys are there before it.
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
