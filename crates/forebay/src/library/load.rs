//! Loads many rows into a live table at one moment.

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

/// A load, which [`LoadBuilder::run`] carries out. Its rows are sorted and written as runs beside
/// the live table, which adds them at one moment. If a server or another process has the table
/// open, that process adds them.
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
    /// [`PushBuilder::source`](crate::PushBuilder::source) does.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.job.source(source.into());
        self
    }

    /// Adds the rows of a reader of Arrow record batches. `name` is its name in messages.
    pub fn batches(mut self, name: &str, reader: impl RecordBatchReader + Send + 'static) -> Self {
        self.job.batches = Some(Batches::new(name, None, reader));
        self
    }

    /// Adds records, each a key and a value, in any order.
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

    /// Sets the key, as a template over columns.
    pub fn key(mut self, template: &str) -> Self {
        self.job.option("key", template);
        self
    }

    /// Sets the column of the values, in a table whose values are not rows.
    pub fn value(mut self, column: &str) -> Self {
        self.job.option("value", column);
        self
    }

    /// Sets what rows do: `update`, `insert` or `delta`. The default is update.
    pub fn verb(mut self, verb: &str) -> Self {
        self.job.option("as", verb);
        self
    }

    /// Makes the rows expire this long after the load. The default is the table's TTL.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.job.option("ttl", format!("{}ms", ttl.as_millis()));
        self
    }

    /// Sets any other option of `forebay load` that has a value, by its name.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.job.option(name, value);
        self
    }

    /// Sets any other option of `forebay load` that has no value.
    pub fn flag(mut self, name: &str) -> Self {
        self.job.flag(name);
        self
    }

    /// Sets the listener to the load's progress, which may also cancel it.
    pub fn progress(mut self, progress: impl Progress + Send + 'static) -> Self {
        self.job.listener(progress);
        self
    }

    /// Carries out the load, and returns when its rows are in the table.
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
