//! Pushes a new version of a batch table.

use std::time::Duration;

use arrow_array::RecordBatchReader;
use forebay_engine::Store;
use forebay_load::progress::Progress;
use forebay_load::push::{PushReport, push};
use forebay_load::sources::{Batches, Input};
use forebay_run::operation::DeltaKind;
use forebay_run::{Compression, Order};

use super::error::Error;
use super::job::Job;
use super::problem::Problem;
use super::record_value::{RecordValue, batches_of};
use crate::choices::{COMPRESSIONS, DELTAS, ORDERS};
use crate::cli::Command;

/// A push, which [`PushBuilder::run`] carries out. It builds a version from rows, reads it back,
/// compares it with the serving version, and lets it serve. A push that fails leaves nothing that
/// readers see.
///
/// The options are those of `forebay push`, with its defaults. [`PushBuilder::option`] sets options
/// without a method.
///
/// ```
/// # fn main() -> Result<(), forebay::Error> {
/// # let dir = tempfile::tempdir().expect("a directory");
/// # let file = dir.path().join("people.csv");
/// # std::fs::write(&file, "id,name\n1,Ada\n2,Bob\n").expect("a file");
/// # let file = file.to_str().expect("UTF-8");
/// # let store = forebay::open_or_create(dir.path().join("store"))?;
/// let report = store.push("people").source(file).key("{id}").run()?;
/// assert_eq!((report.version, report.swapped), (1, true));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a push is carried out by run"]
pub struct PushBuilder {
    job: Job,
}

impl PushBuilder {
    pub(super) fn new(store: Store, table: &str) -> Self {
        let job = Job::new("push", store, table);
        Self { job }
    }

    /// Adds a file, a directory, a glob such as `days/*.parquet`, or an `s3://`, `gs://`, `az://`,
    /// `http://` or `https://` URL.
    pub fn source(mut self, source: impl Into<String>) -> Self {
        self.job.source(source.into());
        self
    }

    /// Adds the rows of a reader of Arrow record batches. `name` is its name in messages.
    pub fn batches(mut self, name: &str, reader: impl RecordBatchReader + Send + 'static) -> Self {
        self.job.batches = Some(Batches::new(name, None, reader));
        self
    }

    /// Adds records, each a key and a value: rows of two columns, `key` and `value`. They may be in
    /// any order, and need not fit in memory.
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

    /// Sets the key, as a template over columns: `{carrier}/{flight:05}`.
    pub fn key(mut self, template: &str) -> Self {
        self.job.option("key", template);
        self
    }

    /// Makes one column the value of a key, in place of the whole row.
    pub fn value(mut self, column: &str) -> Self {
        self.job.option("value", column);
        self
    }

    /// Sets the order. [`Order::Ordered`] supports ranges; the default is hashed.
    pub fn order(mut self, order: Order) -> Self {
        self.job.option("order", ORDERS.name_of(order));
        self
    }

    /// Sets what deltas of later pushes do. The values must then be numbers, except for
    /// [`DeltaKind::Append`].
    pub fn delta(mut self, kind: DeltaKind) -> Self {
        self.job.option("delta", DELTAS.name_of(kind));
        self
    }

    /// Makes rows expire this long after the push.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.job.option("ttl", format!("{}ms", ttl.as_millis()));
        self
    }

    /// Makes the rows changes of the serving version. `operation` is the column with the operation
    /// of a row (insert, update, delete, delta). Without it, all rows update.
    pub fn onto_current(mut self, operation: Option<&str>) -> Self {
        self.job.option("onto", "current");
        if let Some(column) = operation {
            self.job.option("op", column);
        }
        self
    }

    /// Sets the number of partitions. The default depends on the size.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.job.option("partitions", partitions);
        self
    }

    /// Sets the compression of the pages; the default is none.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.job
            .option("compression", COMPRESSIONS.name_of(compression));
        self
    }

    /// Sets the memory for sorting, in bytes. What does not fit is spilled to the store. The
    /// default is a quarter of the machine's memory.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.job.option("memory", bytes);
        self
    }

    /// Sets the number of threads that read, sort and write. The default is one per core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.job.option("threads", threads);
        self
    }

    /// Adds a limit for the change against the serving version, as in `rows>-20%`.
    pub fn gate(mut self, limit: &str) -> Self {
        self.job.option("gate", limit);
        self
    }

    /// Lets the version serve even if a limit is exceeded.
    pub fn force(mut self) -> Self {
        self.job.flag("force");
        self
    }

    /// Keeps the version, but leaves the serving one in place.
    pub fn no_swap(mut self) -> Self {
        self.job.flag("no-swap");
        self
    }

    /// Sets any other option of `forebay push` that has a value, by its name: `option("csv-null",
    /// "NA")`.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.job.option(name, value);
        self
    }

    /// Sets any other option of `forebay push` that has no value: `flag("csv-no-header")`.
    pub fn flag(mut self, name: &str) -> Self {
        self.job.flag(name);
        self
    }

    /// Sets the listener to the push's progress, which may also cancel it.
    pub fn progress(mut self, progress: impl Progress + Send + 'static) -> Self {
        self.job.listener(progress);
        self
    }

    /// Carries out the push, and returns when the version serves, or when the gate holds it
    /// ([`PushReport::held`]). It blocks until then: from asynchronous code, call it on a thread
    /// that may block.
    pub fn run(self) -> Result<PushReport, Error> {
        let (command, context) = self.job.parse()?;
        let Command::Push(args) = command else {
            return Err(Problem::Words("this is no push".to_owned()).into());
        };
        if args.dry_run.is_some() {
            let what = "a dry run gives no report of a push: run forebay push --dry-run".to_owned();
            return Err(Problem::Words(what).into());
        }
        let mut request = args.request(&context).map_err(Error::of_anyhow)?;
        if let Some(batches) = &self.job.batches {
            request.sources = Input::Batches(batches.clone());
        }
        Ok(push(&request, &self.job.store, &self.job.progress())?)
    }
}
