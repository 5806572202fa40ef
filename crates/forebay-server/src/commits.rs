//! Writes that are done and not durable yet: whoever made them is answered when they are.
//!
//! One wait covers all writes to a table before it, so that the writes of a pipeline, and those of
//! all connections meanwhile, share one sync of the log.

use std::time::Duration;

use forebay_engine::live::{Commit, LiveError, LiveTable, LogTicket};
use tokio::sync::oneshot;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Commits {
    /// The last commit of each table.
    waits: Vec<(LiveTable, LogTicket)>,
    /// Something was added since this was asked last.
    added: bool,
    /// How long the writer should pause so that flushes and merges keep up.
    delay: Duration,
}

impl Commits {
    pub fn add(&mut self, table: &LiveTable, commit: &Commit<'_>) {
        // One pause a turn; what else is owed is the next one's.
        if self.delay.is_zero() {
            self.delay = commit.delay();
        }
        if commit.is_durable() {
            return;
        }
        self.added = true;
        self.wait_for(table.clone(), commit.ticket());
    }

    pub fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }

    /// Whether a write was added that is not durable yet, since the last time that this was asked.
    pub fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Adds what was written elsewhere for the same connection.
    pub fn merge(&mut self, other: Self) {
        self.added |= other.added;
        self.delay = self.delay.max(other.delay);
        other
            .waits
            .into_iter()
            .for_each(|(table, ticket)| self.wait_for(table, ticket));
    }

    fn wait_for(&mut self, table: LiveTable, ticket: LogTicket) {
        let known = self
            .waits
            .iter_mut()
            .find(|(known, _)| known.name() == table.name());
        match known {
            Some((_, last)) => *last = ticket.max(*last),
            None => self.waits.push((table, ticket)),
        }
    }

    /// Whether a pause is due that is long enough for a timer.
    pub fn is_pause_due(&self) -> bool {
        self.delay >= Duration::from_millis(1)
    }

    pub fn take_delay(&mut self) -> Duration {
        std::mem::take(&mut self.delay)
    }

    /// Takes what has to be waited for.
    pub fn take(&mut self) -> Self {
        let waits = std::mem::take(&mut self.waits);
        Self {
            waits,
            ..Self::default()
        }
    }

    /// Returns when all of it is durable, or an error when some of it will not be known to be.
    pub async fn durable(self) -> Result<(), LiveError> {
        for (table, ticket) in self.waits {
            if table.commit(ticket).is_durable() {
                continue;
            }
            let (reported, waiting) = oneshot::channel();
            table.commit(ticket).on_durable(|outcome| {
                // Whoever waited may have gone.
                let _ = reported.send(outcome);
            });
            let name = table.name().clone();
            waiting
                .await
                .unwrap_or(Err(LiveError::Closed { table: name }))?;
        }
        Ok(())
    }
}
