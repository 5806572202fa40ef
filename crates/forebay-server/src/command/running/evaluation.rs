//! Evaluates commands that write on the leader of a partition: their effects are a batch, which is
//! proposed to the replicas.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use forebay_engine::live::{Batch, LiveTable, Stored};
use forebay_io::{Clock, Waiting};
use forebay_replica::{Pending, PendingValue};

use crate::command::CommandError;

/// An evaluation in progress.
#[derive(Debug)]
pub struct Evaluation<'a> {
    clock: FixedClock,
    table: &'a LiveTable,
    pending: &'a Pending<Stored>,
    may_wait: bool,
    /// A key's value depends on proposals that are not applied yet.
    is_unknown: Cell<bool>,
    batch: RefCell<Batch>,
}

/// A clock that stands still.
#[derive(Debug, Clone, Copy)]
struct FixedClock {
    unix_ms: u64,
}

impl Clock for FixedClock {
    fn unix_ms(&self) -> u64 {
        self.unix_ms
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, _time: Duration) {}

    fn wait(&self, _time: Duration) -> Waiting {
        Box::pin(async {})
    }
}

impl<'a> Evaluation<'a> {
    /// Prepares an evaluation on a partition's newest state: the pending effects, and for other
    /// keys the applied state. With `may_wait`, it waits for the device.
    pub fn new(
        table: &'a LiveTable,
        unix_ms: u64,
        pending: &'a Pending<Stored>,
        may_wait: bool,
    ) -> Self {
        Self {
            clock: FixedClock { unix_ms },
            table,
            pending,
            may_wait,
            is_unknown: Cell::new(false),
            batch: RefCell::default(),
        }
    }

    pub fn table(&self) -> &'a LiveTable {
        self.table
    }

    pub fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    /// Returns whether the evaluation has to be repeated once what is pending is applied.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown.get()
    }

    /// Returns the effects of the commands.
    pub fn into_batch(self) -> Batch {
        self.batch.into_inner()
    }

    /// Returns the newest value of a key.
    pub fn stored(&self, key: &[u8]) -> Result<Option<Stored>, CommandError> {
        let stored = match self.pending.get(key) {
            Some(PendingValue::Present(stored)) => Some(stored.clone()),
            Some(PendingValue::Absent) => None,
            Some(PendingValue::Unknown) => {
                self.is_unknown.set(true);
                return Err(CommandError::NotResident);
            }
            None => {
                let stored = self.table.stored(key, self.may_wait)?;
                stored.ok_or(CommandError::NotResident)?
            }
        };
        Ok(stored.filter(|stored| self.clock.unix_ms < stored.expires_ms))
    }

    /// Sets the effects of the commands.
    pub fn set_batch(&self, batch: Batch) {
        *self.batch.borrow_mut() = batch;
    }
}
