//! A push: from source files to a version that serves.
//!
//! 1. The sources are opened and cut into units; the key template and the value are checked against
//!    their columns before anything is written.
//! 2. The engine's push lock is taken; debris of pushes that died goes.
//! 3. `read`: threads read units, encode rows and collect them in the external sort (`crate::sort`); anew where
//!    the types of text files turn out to be others than their first rows show (`looking`).
//! 4. The sort writes a run a partition and reads it back from the device.
//! 5. Count and content checksum of the rows that were accepted must equal those read back.
//! 6. The version is compared with the serving one (`crate::gate`), committed, and, unless a limit
//!    was passed, swapped in. Old versions beyond the number to keep are removed.
//!
//! A dry run ([`dry_run()`]) takes the same way as far as nothing is written.
//!
//! A push onto another version ([`PushRequest::onto`], `layer`) begins with the lock, takes the columns from
//! that version, and names its runs before the ones that it writes.
//!
//! Until the commit of step 6 nothing is visible; a push that fails or dies leaves at most debris.

mod boundaries;
pub(crate) mod build;
mod dry_run;
mod error;
pub(crate) mod layer;
pub(crate) mod looking;
pub(crate) mod partitions;
mod publish;
pub(crate) mod read;
pub(crate) mod rejects;
mod report;
mod request;
pub(crate) mod rows;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_engine::{Manifest, Push, PushOptions, Store};
use forebay_io::Disk;
use forebay_run::RunOptions;

use crate::convert::Lossy;
use crate::encode::RowEncoder;
use crate::progress::Progress;
use crate::sort::{AsTheyAre, Cuts, Duplicates, Finish, SortPlan};

pub use boundaries::{Boundaries, BoundariesError};
use build::{BuildJob, Outputs, settle_pages, tallies};
pub use dry_run::{Extent, Forecast, Ground, Outlook, Room, dry_run};
pub use error::PushError;
use forebay_io::Throttle;
use layer::Layer;
use looking::{Looking, Opened, of_table};
use publish::publish;
use read::Read;
use rejects::without_empty_file;
pub use rejects::{BadRows, NotedRow};
pub use report::{Applied, PushReport};
pub use request::{Onto, PushRequest};
use rows::{Counted, PushRows};

/// Rows of either version that the gate looks at.
const GATE_SAMPLE_ROWS: u64 = 20_000;

/// Carries a push out. Blocks until it is done.
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
    let opened = rows.open(request)?;
    let given = request.boundaries.as_ref();
    let given = given.map(|given| given.cuts(request.order)).transpose()?;
    let push = store.begin_push(&request.table, options(request))?;
    let plan = sort_plan(request, store.disk(), push.scratch_dir()?, None);
    let work = Work {
        request,
        store,
        throttle: Throttle::new(request.rate_bytes, Arc::clone(store.clock())),
        progress,
    };
    let (encoder, read) = work.read(&plan, opened, |request| rows.open(request))?;
    let cuts = given.unwrap_or_else(|| {
        partitions::cuts(request, &read.collected, tallies(&read.collected).0.bytes)
    });
    let finish = AsTheyAre { filters: false };
    let built = work.build(&push, plan, &read, &cuts, &finish)?;
    let counted = Counted {
        runs: built.runs,
        records: built.kept.records,
        nulls: &read.nulls,
    };
    let source = request.sources.to_string();
    let draft = rows.draft(&encoder, request.order, &cuts, counted, source);
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
    onto: Onto,
    store: &Store,
    started: Duration,
    progress: &dyn Progress,
) -> Result<PushReport, PushError> {
    // A table that is not there is not made.
    store.table(&request.table)?;
    let push = store.begin_push(&request.table, options(request))?;
    let layer = Layer::new(request, onto, push.table(), push.created_unix_ms())?;
    let opened = layer.open(request)?;
    let plan = sort_plan(request, store.disk(), push.scratch_dir()?, Some(&layer));
    let work = Work {
        request,
        store,
        throttle: Throttle::new(request.rate_bytes, Arc::clone(store.clock())),
        progress,
    };
    let read = work.read(&plan, opened, |request| layer.open(request));
    let (_, read) = read.map_err(of_table)?;
    let built = work.build(&push, plan, &read, &layer.cuts(), &layer)?;
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

fn options(request: &PushRequest) -> PushOptions {
    PushOptions {
        version: request.version,
        ..PushOptions::default()
    }
}

/// What both kinds of push do alike.
struct Work<'a> {
    request: &'a PushRequest,
    store: &'a Store,
    throttle: Throttle,
    progress: &'a dyn Progress,
}

impl Work<'_> {
    /// Reads what was opened. `open` opens it again, for a request that says more of the types.
    fn read(
        &self,
        plan: &SortPlan,
        opened: Opened,
        open: impl Fn(&PushRequest) -> Result<Opened, PushError>,
    ) -> Result<(RowEncoder, Read), PushError> {
        let (request, throttle, progress) = (self.request, &self.throttle, self.progress);
        let looking = Looking {
            plan: Some(plan),
            threads: plan.threads,
            throttle,
            progress,
        };
        looking.read_for(request, open, opened, |sources, encoder| {
            let bad_rows = &request.bad_rows;
            read::read(
                bad_rows, plan, sources, encoder, throttle, self.store, progress,
            )
        })
    }

    fn build(
        &self,
        push: &Push,
        mut plan: SortPlan,
        read: &Read,
        cuts: &Cuts,
        finish: &dyn Finish,
    ) -> Result<Outputs, PushError> {
        let source = tallies(&read.collected).0;
        settle_pages(&mut plan, self.request.page_bytes, &source);
        let job = BuildJob {
            plan: &plan,
            finish,
            throttle: &self.throttle,
            progress: self.progress,
        };
        let new_run = |partition| push.new_run(partition);
        let built = job.build(&read.collected, cuts, &new_run);
        let built = built.map_err(|error| error.in_files(&read.files))?;
        match built.kept.records == 0 && read.rejected > 0 {
            true => Err(PushError::NothingLeft),
            false => Ok(built),
        }
    }
}

/// A version that is built, with what is to be said of it.
pub(crate) struct Ready {
    pub manifest: Manifest,
    /// The version whose runs it goes on with.
    pub base: Option<u64>,
    pub applied: Option<Applied>,
    pub bytes: u64,
    pub rejected: u64,
    pub lossy: Vec<Lossy>,
    pub duplicates: u64,
}

/// Publishes the version and gives the account of the push.
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
    // An export that failed leaves a header alone.
    let nothing = match ready.applied {
        None if rows_between.1 == 0 => Some("the version has no rows"),
        Some(applied) if applied == Applied::default() => Some("nothing is changed"),
        _ => None,
    };
    let nothing = nothing.filter(|_| ready.rejected == 0);
    let warnings = nothing.map(|what| format!("the sources have no rows: {what}"));
    let outcome = publish(request, store, push, ready.manifest, ready.base, progress)?;
    let seconds = store
        .clock()
        .monotonic()
        .saturating_sub(started)
        .as_secs_f64();
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
        seconds: (seconds * 1000.0).round() / 1000.0,
        swapped: outcome.swapped,
        compared_with: outcome.compared_with,
        gate: outcome.gate,
        removed: outcome.removed,
        warnings: warnings.into_iter().collect(),
    })
}

fn sort_plan(
    request: &PushRequest,
    disk: &Arc<dyn Disk>,
    scratch: PathBuf,
    layer: Option<&Layer>,
) -> SortPlan {
    let prefix = format!("{}:", request.table);
    let order = layer.map_or(request.order, |layer| layer.base.order());
    let mut run = RunOptions::new(order, request.compression, prefix.as_bytes());
    run.page_bytes = request.page_bytes.unwrap_or(run.page_bytes);
    let duplicates = layer.map_or(request.duplicates, |layer| {
        Duplicates::Compose(layer.kind())
    });
    SortPlan {
        disk: Arc::clone(disk),
        scratch,
        run,
        duplicates,
        with_operations: layer.is_some() || request.ttl.is_some(),
        memory_bytes: read::record_memory(request.memory_bytes, request.threads),
        threads: request.threads.max(1),
    }
}

#[cfg(test)]
mod layer_tests;
#[cfg(test)]
mod tests;
