//! The state that the handles of an open live table share.

use std::sync::Arc;

use forebay_engine::live::LiveTable;
use forebay_engine::{Source, StoreError};
use forebay_io::Clock;

use super::error::Error;
use super::shape::Shape;
use crate::row_taker::RowTaker;

/// An open live table with the thread that answers other processes.
#[derive(Debug)]
pub struct OpenTable {
    pub table: LiveTable,
    pub shape: Arc<Shape>,
    clock: Arc<dyn Clock>,
    taker: RowTaker,
}

/// Stops the thread, which has a handle of the table, so that the table is closed.
impl Drop for OpenTable {
    fn drop(&mut self) {
        self.taker.stop();
    }
}

impl OpenTable {
    /// Starts the thread that answers other processes: their loads and checkpoints.
    pub fn start(table: LiveTable, clock: &Arc<dyn Clock>) -> Result<Self, Error> {
        let open = Self {
            shape: Shape::of(Source::Live(&table)),
            taker: RowTaker::default(),
            clock: Arc::clone(clock),
            table,
        };
        let table = open.table.clone();
        let started = open.taker.start(move || {
            // A process whose request is not answered learns so from its own timeout.
            _ = table.take_all();
            true
        });
        started.map_err(StoreError::Thread)?;
        Ok(open)
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.unix_ms()
    }
}
