//! Writes that are done but not durable yet. Their clients get replies when they are durable.
//!
//! One wait covers all earlier writes to a table. So the writes of a pipeline, and those of all
//! connections in the same time, share one sync of the log.

use std::time::Duration;

use forebay_engine::live::{Commit, LiveError, LiveTable, LogTicket};
use tokio::sync::oneshot;

/// The writes of a connection that are not durable yet.
#[derive(Debug, Default)]
pub struct Commits {
    /// The last commit of each table.
    waits: Vec<(LiveTable, LogTicket)>,
    /// Whether a write was added since the last call of [`Self::take_added`].
    added: bool,
    /// How long the writer should pause so that flushes and merges keep up.
    delay: Duration,
}

impl Commits {
    pub fn add(&mut self, table: &LiveTable, commit: &Commit<'_>) {
        // One pause per round: later rounds pause for the rest.
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

    /// Returns whether a write that is not durable yet was added since the last call.
    pub fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Adds writes that another thread made for the same connection.
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

    /// Returns whether a pause is due that is long enough for a timer.
    pub fn is_pause_due(&self) -> bool {
        self.delay >= Duration::from_millis(1)
    }

    pub fn take_delay(&mut self) -> Duration {
        std::mem::take(&mut self.delay)
    }

    /// Takes the writes to wait for.
    pub fn take(&mut self) -> Self {
        let waits = std::mem::take(&mut self.waits);
        Self {
            waits,
            ..Self::default()
        }
    }

    /// Waits until all writes are durable. Returns an error if the durability of some remains
    /// unknown.
    pub async fn durable(self) -> Result<(), LiveError> {
        for (table, ticket) in self.waits {
            if table.commit(ticket).is_durable() {
                continue;
            }
            let (reported, waiting) = oneshot::channel();
            table.commit(ticket).on_durable(|outcome| {
                // The connection that waits may be gone.
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
