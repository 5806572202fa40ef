//! Pushes: a new version of a batch table.

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

/// A push, until [`PushBuilder::run`] carries it out: it builds a version from rows, reads it back,
/// compares it with the one that serves, and lets it serve. A push that fails leaves nothing that
/// readers see.
///
/// The options are those of `forebay push`, with its defaults; [`PushBuilder::option`] has those
/// that have no method.
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

    /// Takes the rows of a reader of Arrow's record batches; `name` is what messages call it.
    pub fn batches(mut self, name: &str, reader: impl RecordBatchReader + Send + 'static) -> Self {
        self.job.batches = Some(Batches::new(name, None, reader));
        self
    }

    /// Takes records, each a key and a value: rows of two columns, `key` and `value`. They may come
    /// in any order, and need not fit in memory.
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

    /// The key, as a template over columns: `{carrier}/{flight:05}`.
    pub fn key(mut self, template: &str) -> Self {
        self.job.option("key", template);
        self
    }

    /// What is stored for a key: one column as it is, in place of the whole row.
    pub fn value(mut self, column: &str) -> Self {
        self.job.option("value", column);
        self
    }

    /// [`Order::Ordered`] for ranges, too; hashed by default.
    pub fn order(mut self, order: Order) -> Self {
        self.job.option("order", ORDERS.name_of(order));
        self
    }

    /// What deltas of later pushes do; the values are numbers then, but for
    /// [`DeltaKind::Append`].
    pub fn delta(mut self, kind: DeltaKind) -> Self {
        self.job.option("delta", DELTAS.name_of(kind));
        self
    }

    /// Rows expire so long after the push.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.job.option("ttl", format!("{}ms", ttl.as_millis()));
        self
    }

    /// The rows are changes of the version that serves; `operation` is the column that says what a
    /// row does (insert, update, delete, delta), without which all update.
    pub fn onto_current(mut self, operation: Option<&str>) -> Self {
        self.job.option("onto", "current");
        if let Some(column) = operation {
            self.job.option("op", column);
        }
        self
    }

    /// The number of partitions; by size unless given.
    pub fn partitions(mut self, partitions: u32) -> Self {
        self.job.option("partitions", partitions);
        self
    }

    /// The compression of the pages; none by default.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.job
            .option("compression", COMPRESSIONS.name_of(compression));
        self
    }

    /// The memory for sorting, in bytes; what does not fit is spilled to the store. By default a
    /// quarter of the machine's.
    pub fn memory_bytes(mut self, bytes: u64) -> Self {
        self.job.option("memory", bytes);
        self
    }

    /// The threads that read, sort and write; by default one a core.
    pub fn threads(mut self, threads: usize) -> Self {
        self.job.option("threads", threads);
        self
    }

    /// Adds a limit for the change against the version that serves, as in `rows>-20%`.
    pub fn gate(mut self, limit: &str) -> Self {
        self.job.option("gate", limit);
        self
    }

    /// Lets the version serve even where a limit is passed.
    pub fn force(mut self) -> Self {
        self.job.flag("force");
        self
    }

    /// Keeps the version, and leaves the one in place that serves.
    pub fn no_swap(mut self) -> Self {
        self.job.flag("no-swap");
        self
    }

    /// Any other option of `forebay push` that takes a value, by its name: `option("csv-null",
    /// "NA")`.
    pub fn option(mut self, name: &str, value: &str) -> Self {
        self.job.option(name, value);
        self
    }

    /// Any other option of `forebay push` that takes none: `flag("csv-no-header")`.
    pub fn flag(mut self, name: &str) -> Self {
        self.job.flag(name);
        self
    }

    /// Who hears how far it is, and may have it stop.
    pub fn progress(mut self, progress: impl Progress + Send + 'static) -> Self {
        self.job.listener(progress);
        self
    }

    /// Carries the push out, and returns when the version serves, or is held by the gate
    /// ([`PushReport::held`]). Takes as long as it takes: from asynchronous code, on a thread that
    /// may wait.
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
