//! What metrics and the slow log keep of commands that were answered.

use std::ops::Range;
use std::time::Duration;

use forebay_engine::TableName;

use super::Pipeline;
use crate::command::COMMANDS;
use crate::metrics::TableMetrics;
use crate::resp::Parser;
use crate::slow_log::{self, SlowEntry};

impl Pipeline {
    pub(super) fn note_command(&mut self, place: usize) {
        if self.last_command != place {
            self.last_command = place;
            self.session.client.details.lock().last_command = COMMANDS[place].name;
        }
    }

    /// Notes the command that lies there in the input, if it took long; of GETs that were looked up
    /// together the first.
    #[inline]
    pub(super) fn note_slow(&self, commands: Range<usize>, time: Duration) {
        if self.shared.slow_log.is_slow(time) {
            self.note_in_slow_log(commands, time);
        }
    }

    #[cold]
    fn note_in_slow_log(&self, commands: Range<usize>, time: Duration) {
        let (mut parser, commands) = (Parser::default(), &self.input[commands]);
        let limits = self.session.limits(&self.shared);
        let Ok(Some(len)) = parser.advance(commands, &limits) else {
            return;
        };
        let client = &self.session.client;
        let details = client.details.lock().clone();
        self.shared.slow_log.note(SlowEntry {
            id: 0,
            unix_s: self.shared.store.clock().unix_ms() / 1000,
            time,
            args: slow_log::kept(&parser.args(&commands[..len])),
            address: client.address,
            client_name: details.name,
            user: details.user,
        });
    }

    /// Counts commands of one kind that were answered, some of them with an error, each after
    /// `time`.
    #[inline]
    pub(super) fn record(
        &mut self,
        place: usize,
        table: Option<&TableName>,
        time: Duration,
        (answered, failed): (usize, usize),
    ) {
        let metrics = self.metrics_of(table);
        metrics.record(place, time, answered as u64);
        (0..failed).for_each(|_| metrics.count_error(place));
    }

    #[inline]
    pub(super) fn metrics_of(&mut self, table: Option<&TableName>) -> &TableMetrics {
        let Some(table) = table else {
            return &self.no_table;
        };
        if self.table.as_ref().is_none_or(|(name, _)| name != table) {
            let metrics = self
                .shared
                .metrics
                .worker(self.worker)
                .table(table.as_str());
            self.table = Some((table.clone(), metrics));
        }
        self.table
            .as_ref()
            .map_or(&self.no_table, |(_, metrics)| metrics)
    }
}
