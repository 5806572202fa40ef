//! What a write returns: when it is durable, as its table promises it.

use std::time::Duration;

use crate::live::error::LiveError;
use crate::live::log::Lsn;
use crate::live::shared::LiveShared;

/// Names a [`Commit`], for those who cannot hold on to the table's borrow; see
/// [`LiveTable::commit`](crate::live::LiveTable::commit). Of two of a table the greater is the
/// later, and covers the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogTicket(Option<Lsn>);

/// A write that readers see already. It counts as acknowledged once [`Commit::wait`] returned
/// without an error, or [`Commit::on_durable`] called back without one.
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

    /// Of no write at all.
    pub(crate) fn nothing(table: &'a LiveShared) -> Self {
        Self::new(table, None)
    }

    /// REQUIRES: the ticket is of a commit of this table.
    pub(crate) fn again(table: &'a LiveShared, ticket: LogTicket) -> Self {
        Self::new(table, ticket.0)
    }

    pub fn ticket(&self) -> LogTicket {
        LogTicket(self.lsn)
    }

    /// How long the writer should pause before its next write, so that flushes and merges keep up:
    /// mostly nothing, at most 20 ms. Whoever asks takes it on; it is not told to others again.
    /// [`Commit::wait`] does pause.
    pub fn delay(&self) -> Duration {
        self.table.take_pause()
    }

    /// Whether there is nothing to wait for.
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

    /// Calls `done` once the write is as durable as its table promises, or is known not to be: from
    /// this thread if that is so already, else from the one that synced the log, where it must not
    /// block.
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
