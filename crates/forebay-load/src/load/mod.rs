//! A bulk load of a live table: from source files to runs that are added to it at one moment.
//!
//! Reading, encoding, sorting, building and reading back are those of a push (`crate::push`). What
//! differs: the table is there, with its columns, partitions, kind of deltas and expiry, so the
//! sources are fitted to it (`fit`); its rows are operations on what it holds; and instead of a
//! manifest and a swap there is the engine's load (`forebay_engine::live::Load`), which adds the
//! runs to the table wherever it is open. There is no gate: nothing is replaced whole, and nothing
//! can be rolled back.

pub(crate) mod fit;
mod here;
mod rows;
mod sample;

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::live::{self, Budget, IngestRun, LiveError, LiveOptions, Load};
use forebay_engine::{PartitionId, PartitionRange, RunRef, Store, StoreError, TableName, Ttl};
use forebay_run::filter::BITS_PER_KEY;
use forebay_run::operation::DeltaKind;
use serde::Serialize;

use crate::convert::Lossy;
use crate::encode::Verb;
use crate::key::KeyTemplate;
use crate::progress::{Progress, Unit};
use crate::push::build::tallies;
use crate::push::rejects::without_empty_file;
use crate::push::report::rounded;
use crate::push::work::Work;
use crate::push::{BadRows, ComposedRows, PushError};
use crate::sort::{CollectedRecords, Duplicates, SortError, SortPlan, SortSpace};
use crate::sources::{Input, SourceOptions};
use fit::TableFit;
use here::LoadRanges;

pub use rows::{RowPieces, StagedRows, stage_rows};
pub use sample::{LoadSample, Sampler, sample};

/// What to load, and how.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    pub table: TableName,
    pub sources: Input,
    pub source_options: SourceOptions,
    pub key: KeyTemplate,
    /// The column of the values, in a table whose values are not rows; by default the one that is
    /// left over.
    pub value_column: Option<String>,
    /// Columns that a table of rows does not have are left out: it is an index of another one.
    pub leaves_out: bool,
    /// What rows do where no column says so.
    pub verb: Verb,
    /// The column that says what a row does.
    pub operation_column: Option<String>,
    /// When rows expire, where the table's own expiry is not to hold.
    pub ttl: Option<Ttl>,
    /// Of updates of one key; other operations are composed.
    pub duplicates: Duplicates,
    pub bad_rows: BadRows,
    /// The memory that the load may use for records.
    pub memory_bytes: u64,
    pub threads: usize,
    /// At most so many bytes of records a second, in reading and in writing each.
    pub rate_bytes: Option<u64>,
}

/// What a load did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// The live table.
    pub table: TableName,
    /// Keys that were loaded.
    pub rows: u64,
    /// Of keys and values.
    pub bytes: u64,
    /// What the operations on those keys were.
    #[serde(flatten)]
    pub applied: ComposedRows,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Values that conversions changed, as was asked for.
    pub lossy: Vec<Lossy>,
    /// Rows left out because of another of the same key, or composed with one.
    pub duplicates: u64,
    /// How long it took.
    pub seconds: f64,
}

/// Why a load did not come to its end. Nothing of it is in the table, unless the text says that
/// this is not known.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Rows(#[from] PushError),
    #[error("table {table}: {problem}")]
    Fit { table: TableName, problem: String },
    #[error(transparent)]
    Engine(#[from] live::LoadError),
}

impl LoadError {
    fn of_build(error: PushError, table: &TableName) -> Self {
        match error {
            PushError::Sort(SortError::NotHere { key }) => {
                let table = table.clone();
                Self::Engine(LiveError::NotHere { table, key }.into())
            }
            error => error.into(),
        }
    }
}

impl From<StoreError> for LoadError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

/// Carries a load out. Blocks until it is done.
pub fn load(
    request: &LoadRequest,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LoadReport, LoadError> {
    without_empty_file(&request.bad_rows, &**store.disk(), || {
        carry_out(request, store, progress)
    })
}

fn carry_out(
    request: &LoadRequest,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LoadReport, LoadError> {
    let started = store.clock().monotonic();
    let load = store.begin_load(&request.table)?;
    let built: Result<BuiltLoad, LoadError> = build(request, store, load, progress, |_| Ok(None));
    let built = built?;
    let runs = built.runs.iter().map(|(partition, run)| IngestRun {
        partition: *partition,
        id: run.id.clone(),
    });
    let runs: Vec<IngestRun> = runs.collect();
    progress.stage("adding", None, Unit::Rows);
    let budget = Budget::new(usize::try_from(request.memory_bytes).unwrap_or(usize::MAX));
    built.load.add(&runs, &budget)?;
    progress.advance(built.report.rows);
    let mut report = built.report;
    report.took(store.clock().monotonic() - started);
    Ok(report)
}

/// The runs of a load, before they are added.
#[derive(Debug)]
pub struct BuiltLoad {
    pub load: Load,
    /// By the partitions that got rows.
    pub runs: Vec<(PartitionId, RunRef)>,
    /// What the load does once they are added; it says nothing of the time.
    pub report: LoadReport,
}

/// The same as [`load`] without adding what is built: for a table of a cluster, whose nodes add it.
/// `repartition` is asked once all rows are read and sorted: it may say that the table has other
/// partitions by now.
pub fn build_load<E: From<LoadError>>(
    request: &LoadRequest,
    store: &Store,
    load: Load,
    progress: &dyn Progress,
    repartition: impl FnOnce(LoadSample) -> Result<Option<Vec<PartitionRange>>, E>,
) -> Result<BuiltLoad, E> {
    without_empty_file(&request.bad_rows, &**store.disk(), || {
        build(request, store, load, progress, repartition)
    })
}

fn build<E: From<LoadError>>(
    request: &LoadRequest,
    store: &Store,
    mut load: Load,
    progress: &dyn Progress,
    repartition: impl FnOnce(LoadSample) -> Result<Option<Vec<PartitionRange>>, E>,
) -> Result<BuiltLoad, E> {
    let now_ms = store.clock().unix_ms();
    let fit = TableFit::new(request, load.options(), now_ms);
    let options = &request.source_options;
    let opened = fit.open(options)?;
    let plan = sort_plan(request, store, &load).map_err(LoadError::from)?;
    let work = Work::new(plan, &request.bad_rows, request.rate_bytes, store, progress);
    let work = work.with_table_types();
    let (_, read) = work.read(options, opened, |options| fit.open(options))?;
    if let Some(partitions) = repartition(LoadSample::of(&read))? {
        load.repartition(partitions);
    }
    let here = LoadRanges::of(&load);
    let here = here.with_filters(wants_filters(&read.collected, request.memory_bytes));
    // No run of a gap is ever finished.
    let new_run = |at: usize| load.new_run(here.partition(at).unwrap_or(PartitionId(0)));
    let built = work.build(&read, &here.boundaries, &here, &new_run);
    let built = built.map_err(|error| LoadError::of_build(error, &request.table))?;
    let report = LoadReport {
        table: request.table.clone(),
        rows: built.kept.records,
        bytes: built.kept.bytes,
        applied: built.applied(),
        rejected: read.rejected,
        lossy: read.lossy,
        duplicates: built.duplicates,
        seconds: 0.0,
    };
    let runs = built.runs.into_iter().enumerate();
    let runs = runs.filter_map(|(at, run)| Some((here.partition(at)?, run?)));
    // What was collected goes with the end of this, and its memory may serve to open the table.
    Ok(BuiltLoad {
        runs: runs.collect(),
        load,
        report,
    })
}

impl LoadReport {
    /// Says how long it took.
    pub fn took(&mut self, time: Duration) {
        self.seconds = rounded(time.as_secs_f64());
    }
}

fn sort_plan(request: &LoadRequest, store: &Store, load: &Load) -> Result<SortPlan, StoreError> {
    let space = SortSpace {
        disk: Arc::clone(store.disk()),
        scratch: load.scratch_dir()?,
        memory_bytes: request.memory_bytes,
        threads: request.threads,
    };
    let (duplicates, with_operations) = composition(request, load.options());
    let run = load.run_options();
    Ok(SortPlan::new(space, run, None, duplicates, with_operations))
}

/// What becomes of records of one key, and whether they carry operations.
pub(crate) fn composition(request: &LoadRequest, options: &LiveOptions) -> (Duplicates, bool) {
    let only_updates = request.operation_column.is_none() && request.verb == Verb::Update;
    let kind = options.delta.unwrap_or(DeltaKind::Append);
    let expires = options.expiry != live::Expiry::Never;
    let duplicates = match only_updates {
        true => request.duplicates,
        false if commutes(request, kind) => Duplicates::ComposeInAnyOrder(kind),
        false => Duplicates::Compose(kind),
    };
    (duplicates, expires || !only_updates)
}

/// Whether the rows come to the same in whatever order: deltas that commute exactly, which floats
/// do not, and that all expire at one moment.
fn commutes(request: &LoadRequest, kind: DeltaKind) -> bool {
    let kind_commutes = matches!(kind, DeltaKind::AddI64 | DeltaKind::Min | DeltaKind::Max);
    let only_deltas = request.operation_column.is_none() && request.verb == Verb::Delta;
    kind_commutes && only_deltas && !matches!(request.ttl, Some(Ttl::Column(_)))
}

/// Whether the runs get filters: one is kept in memory while its run is written.
pub(crate) fn wants_filters(collected: &[CollectedRecords], memory_bytes: u64) -> bool {
    let (source, dropped) = tallies(collected);
    let records = source.records - dropped.records;
    records.saturating_mul(BITS_PER_KEY) / 8 <= memory_bytes / 4
}

#[cfg(test)]
mod tests;
