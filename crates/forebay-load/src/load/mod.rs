//! Loads source files into a live table in bulk, and adds all runs to it in one step.
//!
//! Reading, encoding, sorting, building and reading back are those of a push (`crate::push`). A
//! load differs in these points. The table exists, with its columns, partitions, kind of deltas and
//! expiry, so `fit` fits the sources to it. Its rows are operations on the table's content. Instead
//! of a manifest and a swap, the engine's load (`forebay_engine::live::Load`) adds the runs to the
//! table wherever it is open. A load has no gate, because it replaces nothing as a whole, and it
//! cannot be rolled back.

pub(crate) mod fit;
mod load_ranges;
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
use load_ranges::LoadRanges;

pub use rows::{RowPieces, StagedRows, stage_rows};
pub use sample::{LoadSample, Sampler, sample};

/// The sources, the table and the options of a load.
#[derive(Debug, Clone)]
pub struct LoadRequest {
    pub table: TableName,
    pub sources: Input,
    pub source_options: SourceOptions,
    pub key: KeyTemplate,
    /// The column of the values, in a table whose values are not rows; by default the only column
    /// that remains.
    pub value_column: Option<String>,
    /// Columns that a table of rows does not have are left out, because it is an index of another
    /// one.
    pub leaves_out: bool,
    /// The operation of rows if no column says so.
    pub verb: Verb,
    /// The column that names a row's operation.
    pub operation_column: Option<String>,
    /// The expiry of rows, if the table's own expiry does not apply.
    pub ttl: Option<Ttl>,
    /// The choice among updates of one key; other operations are composed.
    pub duplicates: Duplicates,
    pub bad_rows: BadRows,
    /// The memory that the load may use for records.
    pub memory_bytes: u64,
    pub threads: usize,
    /// The most bytes of records a second, for reading and for writing each.
    pub rate_bytes: Option<u64>,
}

/// The result of a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadReport {
    /// The live table.
    pub table: TableName,
    /// The number of loaded keys.
    pub rows: u64,
    /// The bytes of keys and values.
    pub bytes: u64,
    /// The number of keys by operation.
    #[serde(flatten)]
    pub applied: ComposedRows,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Values that conversions changed, as the rules allow.
    pub lossy: Vec<Lossy>,
    /// Rows left out because of another row of the same key, or composed with one.
    pub duplicates: u64,
    /// The duration of the load.
    pub seconds: f64,
}

/// An error of a load. None of its rows are in the table, unless the text says that this is not
/// known.
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

/// Loads the request's sources. Blocks until the load is done.
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
    /// The runs, by the partitions that received rows.
    pub runs: Vec<(PartitionId, RunRef)>,
    /// The report of the load after the runs are added; its duration is not set.
    pub report: LoadReport,
}

/// Builds the runs of a load like [`load`] without adding them: for a table of a cluster, whose
/// nodes add them. After all rows are read and sorted, it calls `repartition`, which may return new
/// partitions of the table.
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
    // A gap's run is never finished.
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
    // The collected records are dropped at the end of this function, so their memory can be used to
    // open the table.
    Ok(BuiltLoad {
        runs: runs.collect(),
        load,
        report,
    })
}

impl LoadReport {
    /// Sets the duration.
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

/// Returns how records of one key are combined, and whether they carry operations.
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

/// Returns whether the result is the same in any order of rows. This needs deltas that commute
/// exactly, which floats do not, and one expiry for all.
fn commutes(request: &LoadRequest, kind: DeltaKind) -> bool {
    let kind_commutes = matches!(kind, DeltaKind::AddI64 | DeltaKind::Min | DeltaKind::Max);
    let only_deltas = request.operation_column.is_none() && request.verb == Verb::Delta;
    kind_commutes && only_deltas && !matches!(request.ttl, Some(Ttl::Column(_)))
}

/// Returns whether the runs get filters: a filter is kept in memory while its run is written.
pub(crate) fn wants_filters(collected: &[CollectedRecords], memory_bytes: u64) -> bool {
    let (source, dropped) = tallies(collected);
    let records = source.records - dropped.records;
    records.saturating_mul(BITS_PER_KEY) / 8 <= memory_bytes / 4
}

#[cfg(test)]
mod tests;
