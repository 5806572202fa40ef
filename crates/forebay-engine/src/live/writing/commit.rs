//! The result of a write, by which a caller learns when it is durable.

use std::time::Duration;

use crate::live::basics::error::LiveError;
use crate::live::log::Lsn;
use crate::live::partition::shared::LiveShared;

/// A number that names a [`Commit`], for callers that cannot hold the table's borrow; see
/// [`LiveTable::commit`](crate::live::LiveTable::commit). Of two tickets of a table, the greater is
/// the later and covers the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket(Option<Lsn>);

/// A write that readers already see. It is acknowledged once [`Commit::wait`] returned without an
/// error, or [`Commit::on_durable`] called back without one.
#[derive(Debug, Clone, Copy)]
#[must_use = "a write is acknowledged when its commit was waited for"]
pub struct Commit<'a> {
    table: &'a LiveShared,
    lsn: Option<Lsn>,
}

impl<'a> Commit<'a> {
    pub(crate) fn new(table: &'a LiveShared, lsn: Option<Lsn>) -> Self {
        Self { table, lsn }
    }

    /// Returns a commit that has nothing to wait for.
    pub(crate) fn nothing(table: &'a LiveShared) -> Self {
        Self::new(table, None)
    }

    /// Returns the commit of a ticket. REQUIRES: the ticket is of a commit of this table.
    pub(crate) fn again(table: &'a LiveShared, ticket: LogTicket) -> Self {
        Self::new(table, ticket.0)
    }

    pub fn ticket(&self) -> LogTicket {
        LogTicket(self.lsn)
    }

    /// Returns how long the writer should pause before its next write, so that flushes and merges
    /// keep up: mostly zero, at most 20 ms. The caller must take the pause: no other writer is
    /// asked for it. [`Commit::wait`] takes it.
    pub fn delay(&self) -> Duration {
        self.table.take_pause()
    }

    /// Returns whether there is nothing to wait for.
    pub fn is_durable(&self) -> bool {
        match (&self.table.log, self.lsn) {
            (Some(log), Some(lsn)) => log.durable(lsn),
            _ => true,
        }
    }

    /// Waits until the write is as durable as its table promises.
    #[inline]
    pub fn wait(self) -> Result<(), LiveError> {
        let delay = self.delay();
        if delay > Duration::ZERO {
            self.table.clock().sleep(delay);
        }
        match (&self.table.log, self.lsn) {
            (Some(log), Some(lsn)) => log
                .wait_durable(lsn)
                .map_err(|source| self.table.log_error(source)),
            _ => Ok(()),
        }
    }

    /// Calls `done` once the write is as durable as its table promises, or has failed to become so.
    /// If that is known already, this thread calls it. Otherwise the thread that synced the log
    /// does, and `done` must not block.
    pub fn on_durable(self, done: impl FnOnce(Result<(), LiveError>) + Send + 'static) {
        match (&self.table.log, self.lsn) {
            (Some(log), Some(lsn)) => {
                let reported = move |result: Result<(), _>| done(result.map_err(LiveError::Log));
                log.on_durable(lsn, Box::new(reported));
            }
            _ => done(Ok(())),
        }
    }
}
