//! A push: from source files to a version that serves.
//!
//! 1. The sources are opened and cut into units; the key template and the value are checked against
//!    their columns before anything is written.
//! 2. The engine's push lock is taken; debris of pushes that died goes.
//! 3. `read`: threads read units, encode rows and collect them in the external sort (`crate::sort`).
//! 4. The sort writes a run a partition and reads it back from the device.
//! 5. Count and content checksum of the rows that were accepted must equal those read back.
//! 6. The version is compared with the serving one (`crate::gate`), committed, and, unless a limit
//!    was passed, swapped in. Old versions beyond the number to keep are removed.
//!
//! Until the commit of step 6 nothing is visible; a push that fails or dies leaves at most debris.

mod partitions;
mod read;
mod rejects;
mod throttle;

use std::path::PathBuf;
use std::sync::Arc;

use forebay_engine::{
    ColumnStats, Manifest, ManifestDraft, NewRun, Partition, Push, PushOptions, RunRef, Store,
    StoreError, Table, TableName, ValueKind, Version, compare_sampled,
};
use forebay_run::{Compression, Order, RunOptions};
use serde::Serialize;

use crate::encode::{EncodeError, Encoded, RowEncoder, ValueChoice};
use crate::gate::{self, Finding, Limit};
use crate::key::KeyTemplate;
use crate::progress::{Progress, Unit};
use crate::sort::{Built, Collected, Duplicates, SortError, SortPlan, Tally, write_partitions};
use crate::sources::{SourceError, SourceOptions, SourceSet};

pub use rejects::BadRows;
use throttle::Throttle;

/// Rows of either version that the gate looks at.
const GATE_SAMPLE_ROWS: u64 = 20_000;

/// What to push, and how.
#[derive(Debug, Clone)]
pub struct PushRequest {
    pub table: TableName,
    /// Paths, directories, globs.
    pub sources: Vec<String>,
    pub source_options: SourceOptions,
    pub key: KeyTemplate,
    pub value: ValueChoice,
    pub order: Order,
    /// By default by size: [`partitions::by_size`].
    pub partitions: Option<u32>,
    pub compression: Compression,
    /// By default as [`RunOptions::for_records_of`] chooses.
    pub page_bytes: Option<u32>,
    pub duplicates: Duplicates,
    pub bad_rows: BadRows,
    /// The memory that the push may use for records.
    pub memory_bytes: u64,
    pub threads: usize,
    /// At most so many bytes of records a second, in reading and in writing each.
    pub rate_bytes: Option<u64>,
    /// The version's number; by default one more than the greatest.
    pub version: Option<u64>,
    /// Limits beside the defaults.
    pub limits: Vec<Limit>,
    /// Swap even when a limit is passed.
    pub force: bool,
    /// Whether to swap at all.
    pub swap: bool,
    /// How many versions to keep.
    pub keep: usize,
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PushReport {
    pub table: TableName,
    pub version: u64,
    pub rows: u64,
    /// Of keys and values.
    pub bytes: u64,
    /// Rows left out because they could not be stored.
    pub rejected: u64,
    /// Rows left out because of another of the same key.
    pub duplicates: u64,
    pub seconds: f64,
    pub swapped: bool,
    /// What the gate saw; empty when there was no version to compare with.
    pub gate: Vec<Finding>,
    /// Versions removed because there are newer ones enough.
    pub removed: Vec<u64>,
}

impl PushReport {
    /// Whether the gate kept the version from being swapped in.
    pub fn held(&self) -> bool {
        !self.swapped && self.gate.iter().any(|finding| !finding.passed)
    }
}

/// Why a push did not come to its end. Nothing of it is visible.
#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error(transparent)]
    Sort(#[from] SortError),
    #[error(transparent)]
    Engine(#[from] forebay_engine::PushError),
    #[error(
        "{file}: {place}: {reason}; leave such rows out by --bad-rows skip, or have them written \
         to a file by --bad-rows FILE"
    )]
    BadRow {
        file: String,
        place: String,
        reason: String,
    },
    #[error("cannot write the bad rows to {}: {error}", path.display())]
    Rejects {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error(
        "what was read back is not what came in: {read_back:?} against {source_tally:?}; nothing \
         was published. Check the machine's memory and disk, then push again"
    )]
    Mismatch {
        source_tally: Tally,
        read_back: Tally,
    },
    #[error("every row of the sources was rejected; nothing was published")]
    NothingLeft,
}

impl From<StoreError> for PushError {
    fn from(error: StoreError) -> Self {
        Self::Engine(error.into())
    }
}

impl From<forebay_engine::ReadError> for PushError {
    fn from(error: forebay_engine::ReadError) -> Self {
        Self::Engine(error.into())
    }
}

/// Carries a push out. Blocks until it is done.
pub fn push(
    request: &PushRequest,
    store: &Store,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    let started = store.clock().monotonic();
    let mut sources = SourceSet::open(&request.sources, &request.source_options)?;
    let mut encoder = RowEncoder::new(&sources.schema, &request.key, &request.value)?;
    if let ValueChoice::Column(column) = &request.value {
        let mut needed: Vec<&str> = request.key.columns().collect();
        needed.push(column);
        sources.keep_columns(&needed);
        encoder = RowEncoder::new(&sources.schema, &request.key, &request.value)?;
    }
    let options = PushOptions {
        version: request.version,
    };
    let push = store.begin_push(&request.table, options)?;
    let throttle = Throttle::new(request.rate_bytes, Arc::clone(store.clock()));
    let plan = sort_plan(request, store, &push)?;
    let read = read::read(
        request, &plan, &sources, &encoder, &throttle, store, progress,
    )?;
    let (partitions, kept, duplicates) =
        build(request, &plan, &push, &read.collected, &throttle, progress)?;
    if kept.records == 0 && read.rejected > 0 {
        return Err(PushError::NothingLeft);
    }
    let manifest = push.manifest(ManifestDraft {
        order: request.order,
        value: value_kind(&encoder),
        schema: encoder.schema().clone(),
        key: request.key.to_string(),
        partitions,
        stats: column_stats(&encoder, &read.nulls, kept.records),
        source: request.sources.join(" "),
    })?;
    let outcome = publish(request, store, push, manifest, progress)?;
    let seconds = (store.clock().monotonic() - started).as_secs_f64();
    Ok(PushReport {
        table: request.table.clone(),
        version: outcome.version,
        rows: kept.records,
        bytes: kept.bytes,
        rejected: read.rejected,
        duplicates,
        seconds: (seconds * 1000.0).round() / 1000.0,
        swapped: outcome.swapped,
        gate: outcome.gate,
        removed: outcome.removed,
    })
}

fn sort_plan(request: &PushRequest, store: &Store, push: &Push) -> Result<SortPlan, PushError> {
    let prefix = format!("{}:", request.table);
    let mut run = RunOptions::new(request.order, request.compression, prefix.as_bytes());
    run.page_bytes = request.page_bytes.unwrap_or(run.page_bytes);
    Ok(SortPlan {
        disk: Arc::clone(store.disk()),
        scratch: push.scratch_dir()?,
        run,
        duplicates: request.duplicates,
        memory_bytes: read::record_memory(request.memory_bytes, request.threads),
        threads: request.threads.max(1),
    })
}

/// Writes the partitions and holds what was read back of them against what came in. Returns them
/// with the tally of what they hold and the number of duplicates left out.
fn build(
    request: &PushRequest,
    plan: &SortPlan,
    push: &Push,
    collected: &[Collected],
    throttle: &Throttle,
    progress: &dyn Progress,
) -> Result<(Vec<Partition>, Tally, u64), PushError> {
    let mut source = Tally::default();
    collected.iter().for_each(|part| source.merge(&part.seen));
    let mut dropped = Tally::default();
    collected
        .iter()
        .for_each(|part| dropped.merge(&part.dropped));
    let cuts = partitions::cuts(request, collected, source.bytes);
    let mut plan = plan.clone();
    if request.page_bytes.is_none() {
        plan.run = plan
            .run
            .for_records_of(source.bytes / source.records.max(1));
    }
    let runs: Vec<NewRun> = (0..cuts.len())
        .map(|partition| push.new_run(partition))
        .collect();
    progress.stage(
        "building",
        Some(source.records - dropped.records),
        Unit::Rows,
    );
    let path_of = |partition: usize| runs[partition].path.clone();
    let built = write_partitions(
        &plan,
        &cuts,
        collected,
        &path_of,
        &|bytes| throttle.take(bytes),
        progress,
    )?;
    let mut read_back = Tally::default();
    for part in &built {
        dropped.merge(&part.dropped);
        read_back.merge(&Tally {
            records: part.summary.records,
            bytes: part.summary.key_bytes + part.summary.value_bytes,
            content: part.summary.content,
        });
    }
    let source_tally = source.without(&dropped);
    if source_tally != read_back {
        return Err(PushError::Mismatch {
            source_tally,
            read_back,
        });
    }
    let mut built: Vec<Option<Built>> = partitions::in_places(built, cuts.len());
    let partitions = (0..cuts.len()).map(|partition| {
        let run = built[partition].take().map(|built| RunRef {
            id: runs[partition].id.clone(),
            summary: built.summary,
        });
        Partition::of_run(partitions::bound(cuts.lower(partition)), run)
    });
    Ok((partitions.collect(), read_back, dropped.records))
}

fn value_kind(encoder: &RowEncoder) -> ValueKind {
    match encoder.encoded().clone() {
        Encoded::Row => ValueKind::Row,
        Encoded::Bytes { column } => ValueKind::Bytes { column },
        Encoded::List { column, item } => ValueKind::List { column, item },
    }
}

/// Nulls as counted over the rows read, of which some may have been left out.
fn column_stats(encoder: &RowEncoder, nulls: &[u64], rows: u64) -> Vec<ColumnStats> {
    let columns = encoder.schema().columns().iter().zip(nulls);
    let stats = columns.map(|(column, nulls)| ColumnStats {
        column: column.name.clone(),
        nulls: (*nulls).min(rows),
    });
    stats.collect()
}

struct Outcome {
    version: u64,
    swapped: bool,
    gate: Vec<Finding>,
    removed: Vec<u64>,
}

fn publish(
    request: &PushRequest,
    store: &Store,
    push: Push,
    manifest: Manifest,
    progress: &dyn Progress,
) -> Result<Outcome, PushError> {
    let table = push.table().clone();
    let version = push.open(&manifest)?;
    let gate = compare_with_serving(request, store, &table, &version, progress)?;
    drop(version);
    let version = push.commit(manifest)?;
    let passed = gate.iter().all(|finding| finding.passed);
    let swapped = request.swap && (passed || request.force);
    if swapped {
        table.swap(version)?;
    }
    // The version is out; that an old one could not be removed does not undo it.
    let removed = table.retain(request.keep).unwrap_or_else(|error| {
        progress.message(&format!("old versions were not removed: {error}"));
        Vec::new()
    });
    Ok(Outcome {
        version,
        swapped,
        gate,
        removed,
    })
}

fn compare_with_serving(
    request: &PushRequest,
    store: &Store,
    table: &Table,
    new: &Arc<Version>,
    progress: &dyn Progress,
) -> Result<Vec<Finding>, PushError> {
    let Some(serving) = table.pointer()?.serving else {
        return Ok(Vec::new());
    };
    progress.stage("comparing", None, Unit::Rows);
    let serving = match table.open_version(serving) {
        Ok(serving) => serving,
        // A damaged version must not keep its replacement out.
        Err(error) => {
            progress.message(&format!("no comparison with version {serving}: {error}"));
            return Ok(Vec::new());
        }
    };
    let seen = compare_sampled(&serving, new, GATE_SAMPLE_ROWS, &**store.random());
    match seen {
        Ok(seen) => Ok(gate::check(&gate::limits(&request.limits), &seen)),
        Err(error) => {
            progress.message(&format!("no comparison with the serving version: {error}"));
            Ok(Vec::new())
        }
    }
}

#[cfg(test)]
mod tests;
