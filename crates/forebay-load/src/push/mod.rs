//! Runs a push: builds a version from source files and lets it serve.
//!
//! 1. The push opens the sources and splits them into units. It checks the key template and the
//!    value against their columns before it writes anything.
//! 2. It takes the engine's push lock, and removes the files of pushes that died.
//! 3. `read`: threads read units, encode rows and collect them in the external sort
//!    (`crate::sort`). They start over if the types of text files differ from those of the first
//!    rows (`looking`).
//! 4. The sort writes one run a partition and reads it back from the device.
//! 5. Count and content checksum of the accepted rows must equal those read back.
//! 6. The gate compares the version with the serving one (`crate::gate`). The push commits the
//!    version, and swaps it in unless a limit is broken. It removes old versions beyond the number
//!    to keep.
//!
//! A dry run ([`dry_run()`]) does the same up to the point at which a push writes.
//!
//! A push onto another version ([`PushRequest::onto`], `layer`) takes the lock first. It takes the
//! columns from that version, and lists that version's runs before its own.
//!
//! Nothing is visible before the commit of step 6. A push that fails or dies leaves at most unused
//! files.

pub(crate) mod build;
pub(crate) mod dry_run;
mod error;
pub(crate) mod fit;
mod given_boundaries;
mod layer;
pub(crate) mod partitions;
mod publish;
pub(crate) mod read;
pub(crate) mod rejects;
pub(crate) mod report;
mod request;
pub(crate) mod rows;
pub(crate) mod source_reader;
pub(crate) mod work;

use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Manifest, Push, PushOptions, Store, StoreError, Table};
use forebay_run::RunOptions;

use crate::convert::Lossy;
use crate::encode::RowEncoder;
use crate::gate::{check_columns, check_paths};
use crate::progress::Progress;
use crate::sort::{AsTheyAre, Duplicates, SortPlan, SortSpace};

use build::tallies;
pub use dry_run::{DryRunContext, ExpectedEnd, Extent, Forecast, Room, dry_run};
pub use error::PushError;
pub use given_boundaries::{BoundariesError, GivenBoundaries};
use layer::Layer;
use publish::publish;
use rejects::without_empty_file;
pub use rejects::{BadRows, NotedRow};
use report::rounded;
pub use report::{ComposedRows, PushReport};
pub use request::{BaseVersion, PushRequest};
use rows::{PushRows, RowCounts};
use work::Work;

/// The rows of each version that the gate samples.
const GATE_SAMPLE_ROWS: u64 = 20_000;

/// Runs a push. Blocks until it is done.
pub fn push(
    request: &PushRequest,
    store: &Store,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    let started = store.clock().monotonic();
    without_empty_file(&request.bad_rows, &**store.disk(), || match request.onto {
        None => push_whole(request, store, started, progress),
        Some(onto) => push_onto(request, onto, store, started, progress),
    })
}

fn push_whole(
    request: &PushRequest,
    store: &Store,
    started: Duration,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    let rows = PushRows::of(request, store.clock().unix_ms())?;
    let opened = rows.open(&request.sources, &request.source_options)?;
    let table = store.table(&request.table).ok();
    check_limits(request, &opened.1, table.as_ref())?;
    let given = request.boundaries.as_ref();
    let given = given
        .map(|given| given.of_order(request.order))
        .transpose()?;
    let push = store.begin_push(&request.table, options(request))?;
    let work = work(request, store, &push, None, progress)?;
    let (encoder, read) = work.read(&request.source_options, opened, |options| {
        rows.open(&request.sources, options)
    })?;
    let boundaries = given.unwrap_or_else(|| {
        partitions::boundaries(request, &read.collected, tallies(&read.collected).0.bytes)
    });
    let finish = AsTheyAre { filters: false };
    let built = work.build(&read, &boundaries, &finish, &|partition| {
        push.new_run(partition)
    })?;
    let counted = RowCounts {
        runs: built.runs,
        records: built.kept.records,
        profile: &read.profile,
    };
    let source = request.sources.to_string();
    let draft = rows.draft(&encoder, request.order, &boundaries, counted, source);
    let ready = Ready {
        manifest: push.manifest(draft)?,
        base: None,
        applied: None,
        bytes: built.kept.bytes,
        rejected: read.rejected,
        lossy: read.lossy,
        duplicates: built.duplicates,
    };
    conclude(request, store, push, ready, started, progress)
}

fn push_onto(
    request: &PushRequest,
    onto: BaseVersion,
    store: &Store,
    started: Duration,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    // A table that does not exist is not created.
    store.table(&request.table)?;
    let push = store.begin_push(&request.table, options(request))?;
    let layer = Layer::new(request, onto, push.table(), push.created_unix_ms())?;
    let opened = layer.open(request, &request.source_options)?;
    check_limits(request, &opened.1, Some(push.table()))?;
    let work = work(request, store, &push, Some(&layer), progress)?.with_table_types();
    let (_, read) = work.read(&request.source_options, opened, |options| {
        layer.open(request, options)
    })?;
    let new_run = |partition| push.new_run(partition);
    let built = work.build(&read, &layer.boundaries(), &layer, &new_run)?;
    let applied = built.applied();
    let ready = Ready {
        manifest: layer.finish(request, &push, built.runs, progress)?,
        base: Some(layer.base.version()),
        applied: Some(applied),
        bytes: built.kept.bytes,
        rejected: read.rejected,
        lossy: read.lossy,
        duplicates: built.duplicates,
    };
    drop(layer);
    conclude(request, store, push, ready, started, progress)
}

/// Checks that the limits name columns of the rows, or of the table's serving version.
pub(crate) fn check_limits(
    request: &PushRequest,
    encoder: &RowEncoder,
    table: Option<&Table>,
) -> Result<(), PushError> {
    let (limits, rows) = (&request.limits, encoder.schema());
    check_columns(limits, encoder.batch_schema(), rows.columns().len())?;
    // The gate holds a version that cannot be compared with the serving one.
    if let Ok(serving) = serving_manifest(table) {
        let serving = serving.as_ref().map(|manifest| &manifest.schema);
        check_paths(limits, rows, serving)?;
    }
    Ok(())
}

fn serving_manifest(table: Option<&Table>) -> Result<Option<Manifest>, StoreError> {
    let Some(table) = table else { return Ok(None) };
    let serving = table.pointer()?.serving;
    serving.map(|version| table.manifest(version)).transpose()
}

fn options(request: &PushRequest) -> PushOptions {
    PushOptions {
        version: request.version,
        ..PushOptions::default()
    }
}

/// A built version, with the facts to report about it.
pub(crate) struct Ready {
    pub manifest: Manifest,
    /// The version whose runs it keeps.
    pub base: Option<u64>,
    pub applied: Option<ComposedRows>,
    pub bytes: u64,
    pub rejected: u64,
    pub lossy: Vec<Lossy>,
    pub duplicates: u64,
}

/// Publishes the version and returns the report of the push.
pub(crate) fn conclude(
    request: &PushRequest,
    store: &Store,
    push: Push,
    ready: Ready,
    started: Duration,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    let rows_between = ready.manifest.rows_between();
    let onto = ready.manifest.onto;
    let stats = ready.manifest.stats.clone();
    // A failed export may leave only a header.
    let nothing = match ready.applied {
        None if rows_between.1 == 0 => Some("the version has no rows"),
        Some(applied) if applied == ComposedRows::default() => Some("nothing is changed"),
        _ => None,
    };
    let nothing = nothing.filter(|_| ready.rejected == 0);
    let warnings = nothing.map(|what| format!("the sources have no rows: {what}"));
    let outcome = publish(request, store, push, ready.manifest, ready.base, progress)?;
    let seconds = store.clock().monotonic().saturating_sub(started);
    Ok(PushReport {
        table: request.table.clone(),
        version: outcome.version,
        rows_between,
        onto,
        applied: ready.applied,
        bytes: ready.bytes,
        rejected: ready.rejected,
        lossy: ready.lossy,
        duplicates: ready.duplicates,
        stats,
        seconds: rounded(seconds.as_secs_f64()),
        swapped: outcome.swapped,
        compared_with: outcome.compared_with,
        gate: outcome.gate,
        undone: outcome.undone,
        removed: outcome.removed,
        warnings: warnings.into_iter().collect(),
    })
}

fn work<'a>(
    request: &'a PushRequest,
    store: &'a Store,
    push: &Push,
    layer: Option<&Layer>,
    progress: &'a dyn Progress,
) -> Result<Work<'a>, PushError> {
    let space = SortSpace {
        disk: Arc::clone(store.disk()),
        scratch: push.scratch_dir()?,
        memory_bytes: request.memory_bytes,
        threads: request.threads,
    };
    let plan = sort_plan(request, space, layer);
    let (bad_rows, rate_bytes) = (&request.bad_rows, request.rate_bytes);
    Ok(Work::new(plan, bad_rows, rate_bytes, store, progress))
}

/// Returns the sort plan of a whole push, or of one onto the version of `layer`.
fn sort_plan(request: &PushRequest, space: SortSpace, layer: Option<&Layer>) -> SortPlan {
    let order = layer.map_or(request.order, |layer| layer.base.order());
    let run = RunOptions::new(order, request.compression, &request.table.wire_prefix());
    let duplicates = layer.map_or(request.duplicates, |layer| {
        Duplicates::Compose(layer.kind())
    });
    let with_operations = layer.is_some() || request.ttl.is_some();
    SortPlan::new(space, run, request.page_bytes, duplicates, with_operations)
}

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod tests;
