//! Tables whose records expire.
//!
//! An operation carries the moment at which what it leaves expires: its own, or in a table that has a
//! lifetime, that long after it was written (`forebay_run::times`). An insert takes whatever it meets for
//! alive, so that in these tables inserts are settled when they are written, by reading.

use std::collections::HashMap;

use forebay_run::operation::Operation;
use forebay_run::times::Times;
use serde::{Deserialize, Serialize};

use crate::live::batch::Batch;
use crate::live::commit::Commit;
use crate::live::error::LiveError;
use crate::live::shared::Shared;
use crate::live::write::Wait;

/// Whether the records of a table can expire.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expiry {
    /// They last until they are deleted.
    #[default]
    Never,
    /// Those that are written with a moment at which they expire.
    PerRecord,
    /// So many milliseconds after they were last written, unless written with another moment.
    AfterMs(u64),
}

impl Shared {
    /// The operation as it is kept.
    #[inline]
    pub fn stamped<'a>(&self, operation: Operation<'a>) -> Operation<'a> {
        if self.options.expiry == Expiry::Never {
            return operation;
        }
        let written_ms = self.shape.now_ms();
        let expires_ms = match (operation.times().expires_ms, self.options.expiry) {
            (u64::MAX, Expiry::AfterMs(ms)) => written_ms.saturating_add(ms),
            (expires_ms, _) => expires_ms,
        };
        operation.with_times(Times {
            written_ms,
            expires_ms,
        })
    }

    /// What expired by then may be left out of a run with nothing older below it. Where there are deltas
    /// that is nothing: one that was written while a value lasted may still wait to be merged with it.
    pub fn droppable_ms(&self) -> u64 {
        match (self.options.expiry, self.shape.delta) {
            (Expiry::Never, _) | (_, Some(_)) => 0,
            (_, None) => self.shape.now_ms(),
        }
    }

    /// A batch as it is kept; `None` when that is as it is.
    pub fn stamped_batch(&self, batch: &Batch) -> Option<Batch> {
        if self.options.expiry == Expiry::Never {
            return None;
        }
        let mut stamped = Batch::new();
        for (key, operation) in batch.records() {
            stamped.push(key, self.stamped(operation));
        }
        Some(stamped)
    }

    /// Whether a batch has inserts that must be settled by reading.
    pub fn must_settle(&self, batch: &Batch) -> bool {
        let inserts = |operation: Operation<'_>| {
            matches!(
                operation.plain(),
                Operation::Insert(_) | Operation::InsertDelta { .. }
            )
        };
        self.options.expiry != Expiry::Never
            && batch.records().any(|(_, operation)| inserts(operation))
    }

    /// Writes a batch with its inserts settled. REQUIRES: all its keys are of one partition.
    pub fn write_settled(
        &self,
        batch: &Batch,
        wait: Wait,
    ) -> Result<Option<Commit<'_>>, LiveError> {
        let keys: Vec<&[u8]> = batch.records().map(|(key, _)| key).collect();
        let written = self.transact(&keys, wait, |values| {
            let values = values.iter().map(Option::is_some);
            let mut present: HashMap<&[u8], bool> = keys.iter().copied().zip(values).collect();
            (settle(batch, &mut present), ())
        })?;
        Ok(written.map(|(commit, ())| commit))
    }
}

/// The batch without inserts, given which keys are there before it.
fn settle<'a>(batch: &'a Batch, present: &mut HashMap<&'a [u8], bool>) -> Batch {
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
        present.insert(key, operation != Operation::Delete);
        settled.push(key, operation);
    }
    settled
}
