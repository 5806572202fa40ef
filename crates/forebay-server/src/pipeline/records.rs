//! Records answered commands in metrics, in the slow log and in samples.

use std::ops::Range;
use std::time::Duration;

use forebay_engine::{Source, TableName};

use super::Pipeline;
use crate::command::{COMMANDS, KeyNames, find, split};
use crate::gets::GET;
use crate::metrics::TableMetrics;
use crate::port::Port;
use crate::resp::{Args, OwnedArgs, Parser};
use crate::samples::{SampledKey, Samples};
use crate::shared::Shared;
use crate::slow_log::{self, SlowEntry};
use crate::table_view::TableView;
use crate::users::User;

/// The inputs for sampling clients' commands.
struct Sampling<'a> {
    shared: &'a Shared,
    tables: &'a TableView,
    user: &'a User,
}

impl Pipeline {
    pub(super) fn note_command(&mut self, place: usize) {
        if self.last_command != place {
            self.last_command = place;
            self.session.client.details.lock().last_command = COMMANDS[place].name;
        }
    }

    /// Records the commands in this part of the input, the first of which is at place `first` in
    /// the command table. Slow ones are added to the slow log (of GETs that were looked up
    /// together, the first), and all to active samples.
    #[inline]
    pub(super) fn note_answered(
        &self,
        first: usize,
        commands: Range<usize>,
        (count, time): (usize, Duration),
    ) {
        if self.shared.slow_log.is_slow(time) {
            self.note_in_slow_log(commands.clone(), time);
        }
        if self.shared.sampler.is_watched() && self.session.client.port != Port::Peer {
            self.sample(first, commands, count);
        }
    }

    /// Samples commands of clients. Commands forwarded by other nodes are sampled on those nodes.
    #[cold]
    fn sample(&self, first: usize, commands: Range<usize>, count: usize) {
        let Some(user) = &self.session.user else {
            return;
        };
        let (tables, input) = (self.shared.tables(), &self.input[commands]);
        let sampling = Sampling {
            shared: &self.shared,
            tables: &tables,
            user,
        };
        let limits = self.session.limits(&self.shared);
        self.shared.sampler.each(self.worker, |samples| {
            if first == GET && samples.skip_if_unsampled(count as u64) {
                return;
            }
            let (mut parser, mut at) = (Parser::default(), 0);
            while let Ok(Some(len)) = parser.advance(&input[at..], &limits) {
                sampling.sample(parser.args(&input[at..at + len]), samples);
                at += len;
            }
        });
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

impl Sampling<'_> {
    fn sample(&self, args: Args<'_>, samples: &mut Samples) {
        let Some(place) = (!args.is_empty()).then(|| find(args.get(0))).flatten() else {
            return;
        };
        let command = &COMMANDS[place];
        let names = KeyNames::of(self.shared, self.tables, self.user);
        let completed = names.and_then(|names| names.complete(command, &args));
        let args = completed.as_ref().map_or(args, OwnedArgs::borrow);
        let places = || command.key_places(args.len());
        let key = |at: u64| self.key(args.get(places().nth(at as usize)?));
        let random = self.shared.store.random();
        let by = (self.user.name(), command.writes());
        samples.note(&**random, by, places().count() as u64, key);
    }

    /// Returns a wire key of an existing table.
    fn key(&self, wire: &[u8]) -> Option<SampledKey> {
        let (table, key) = split(wire).ok()?;
        let source = self.tables.get(table);
        let partition = match source {
            Some(Source::Batch(version)) => version.partition_of(key).map(|at| at as u32),
            Some(Source::Live(live)) => live.partition_of(key).map(|id| id.0),
            None => None,
        };
        let name = match source {
            Some(source) => source.table().clone(),
            None => TableName::new(std::str::from_utf8(table).ok()?).ok()?,
        };
        let Some(cluster) = &self.shared.cluster else {
            return source.map(|_| SampledKey::new(name, partition, key));
        };
        let live = cluster.member().live();
        let place = live.table(table);
        let is_known = source.is_some() || place.is_some() || cluster.map().table(&name).is_some();
        let route = || Some(place?.route(key)?.partition.0);
        is_known.then(|| SampledKey::new(name, partition.or_else(route), key))
    }
}
