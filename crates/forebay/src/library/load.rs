//! Loads: many rows into a live table, at one moment.

use std::time::Duration;

use arrow_array::RecordBatchReader;
use forebay_engine::Store;
use forebay_load::load::{LoadReport, load};
use forebay_load::progress::Progress;
use forebay_load::sources::{Batches, Input};

use super::error::Error;
use super::job::Job;
use super::problem::Problem;
use super::record_value::{RecordValue, batches_of};
use crate::cli::Command;

/// A load, until [`LoadBuilder::run`] carries it out: its rows are sorted and written as runs
/// beside the live table, which takes them in at one moment. A server, or another process, that has
/// the table open takes them as well.
///
/// The options are those of `forebay load`, with its defaults.
#[derive(Debug)]
#[must_use = "a load is carried out by run"]
pub struct LoadBuilder {
    job: Job,
}

impl LoadBuilder {
    pub(super) fn new(store: Store, table: &str) -> Self {
        let job = Job::new("load", store, table);
        Self { job }
    }

    /// Adds a file, a directory, a glob or a URL, as
    /// [`PushBuilder::source`](crate::PushBuilder::source).
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.job.source(source.into());
        self
    }

    /// Takes the rows of a reader of Arrow's record batches; `name` is what messages call it.
    pub fn batches(mut self, name: &str, reader: impl RecordBatchReader + Send + 'static) -> Self {
        self.job.batches = Some(Batches::new(name, None, reader));
        self
    }

    /// Takes records, each a key and a value, in any order.
    pub fn records<K, V, I>(mut self, records: I) -> Self
    where
        I: IntoIterator<Item = (K, V)>,
        I::IntoIter: Send + 'static,
        K: AsRef<[u8]>,
        V: RecordValue,
    {
        self.job.records(batches_of(records));
        self
    }

    /// The key, as a template over columns.
    pub fn key(mut self, template: &str) -> Self {
        self.job.option("key", template);
        self
    }

    /// The column of the values, in a table that is not one of rows.
    pub fn value(mut self, column: &str) -> Self {
        self.job.option("value", column);
        self
    }

    /// What rows do: `update`, `insert` or `delta`. By default they update.
    pub fn verb(mut self, verb: &str) -> Self {
        self.job.option("as", verb);
        self
    }

    /// The rows expire so long after the load; by default as the table says.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.job.option("ttl", format!("{}ms", ttl.as_millis()));
        self
    }

    /// Any other option of `forebay load` that takes a value, by its name.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.job.option(name, value);
        self
    }

    /// Any other option of `forebay load` that takes none.
    pub fn flag(mut self, name: &str) -> Self {
        self.job.flag(name);
        self
    }

    /// Who hears how far it is, and may have it stop.
    pub fn progress(mut self, progress: impl Progress + Send + 'static) -> Self {
        self.job.listener(progress);
        self
    }

    /// Carries the load out, and returns when its rows are in the table.
    pub fn run(self) -> Result<LoadReport, Error> {
        let (command, context) = self.job.parse()?;
        let Command::Load(args) = command else {
            return Err(Problem::Words("this is no load".to_owned()).into());
        };
        let mut request = args.request(&context).map_err(Error::of_anyhow)?;
        if let Some(batches) = &self.job.batches {
            request.sources = Input::Batches(batches.clone());
        }
        Ok(load(&request, &self.job.store, &self.job.progress())?)
    }
}
