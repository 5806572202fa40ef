//! Merging the runs of a partition, so that look-ups ask fewer of them.
//!
//! A push onto another version adds a run to each partition that it touches. When that would make
//! more than [`MAX_RUNS`], the push itself merges some of them: all but the oldest, or all, once
//! the newer ones amount to a good part of the oldest. So the bytes that a push writes stay in
//! proportion to those that it brings, and a large oldest run is rewritten seldom.
//! [`Table::compact`] merges all there are, into a version of its own that holds the same rows.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use forebay_io::{Disk, pool};
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::scan::{Cursor, Direction, ScanRange};
use forebay_run::settle::SettledCursor;
use forebay_run::verify::read_back;
use forebay_run::{Run, RunError, RunOptions, RunScan, RunSummary, RunWriter};
use parking_lot::Mutex;

use crate::error::{PushError, ReadError};
use crate::manifest::{Manifest, ManifestDraft, OperationCounts, RunRef};
use crate::partition::OpenPartitions;
use crate::push::{Push, PushOptions};
use crate::table::Table;
use crate::version::open_run;

/// The most runs that a push leaves in a partition.
pub const MAX_RUNS: usize = 8;
/// The newer runs are merged into the oldest once they hold one part in this many of its bytes.
const SHARE: u64 = 3;
/// As [`SettledCursor`] wants it where the expired are to be kept.
pub(crate) const NOTHING_EXPIRED: u64 = 0;
/// Progress is told of after so many records.
const STEP: u64 = 8192;

/// What became of a version's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// The version that was merged, and that which it was merged into: the same when there was
    /// nothing to merge.
    pub from: u64,
    pub to: u64,
    /// How many runs became one of each of how many partitions.
    pub runs: usize,
    pub partitions: usize,
    pub rows: u64,
    /// Whether the new version serves in the place of the old one.
    pub serves: bool,
}

/// Counts the operations of records as they are written.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counting(OperationCounts);

impl Counting {
    #[inline]
    pub fn add(&mut self, operation: Operation<'_>) {
        match operation.plain() {
            Operation::Insert(_) => self.0.inserts += 1,
            Operation::Delete => self.0.deletes += 1,
            Operation::Delta(_) | Operation::InsertDelta { .. } => self.0.deltas += 1,
            Operation::Update(_) | Operation::Timed(_) => {}
        }
    }

    /// For [`RunRef::operations`].
    pub fn finish(self) -> Option<OperationCounts> {
        (self.0 != OperationCounts::default()).then_some(self.0)
    }
}

/// Which runs of a partition a push is to merge, as it adds the newest of them; none, mostly.
pub fn due(runs: &[RunRef]) -> Option<Range<usize>> {
    let (oldest, newer) = runs.split_first()?;
    if runs.len() <= MAX_RUNS {
        return None;
    }
    let bytes = |run: &RunRef| {
        run.summary
            .key_bytes
            .saturating_add(run.summary.value_bytes)
    };
    let newer_bytes = newer.iter().map(bytes).fold(0, u64::saturating_add);
    let all = newer_bytes.saturating_mul(SHARE) >= bytes(oldest);
    Some(usize::from(!all)..runs.len())
}

/// The rows that runs, from the oldest of their partition on, make together.
pub(crate) fn merged(
    manifest: &Manifest,
    runs: &[Arc<Run>],
    expired_ms: u64,
) -> SettledCursor<Merge<RunScan>> {
    SettledCursor::new(merge(manifest.delta, runs), expired_ms)
}

fn merge(delta: Option<DeltaKind>, runs: &[Arc<Run>]) -> Merge<RunScan> {
    let scan = |run: &Arc<Run>| {
        let scan = run.scan(ScanRange::all(), Direction::Forward);
        scan.releasing().comparing()
    };
    // A table without a kind of deltas has none, so that any kind will do.
    let kind = delta.unwrap_or(DeltaKind::Append);
    let scans = runs.iter().map(scan).collect();
    Merge::new(scans, Resolve::Compose(kind), Direction::Forward)
}

impl Push {
    /// Merges some runs of a partition, neighbours, into one and returns what the partition's runs
    /// are then. When the oldest is among them, deletes and what has expired go.
    pub fn merge_runs(
        &self,
        manifest: &Manifest,
        partition: usize,
        range: Range<usize>,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<RunRef>, PushError> {
        let runs = &manifest.partitions[partition].runs;
        let router = manifest.router(&OpenPartitions::All);
        let (disk, files) = (self.table().disk(), &self.table().files);
        let open = |run| open_run(disk, files, manifest, run, &router, false).map(Arc::new);
        let inputs: Vec<Arc<Run>> = runs[range.clone()]
            .iter()
            .map(open)
            .collect::<Result<_, _>>()?;
        let new = self.new_run(partition);
        let written = if range.start == 0 {
            // Pushes to come are written later than this one, and none is under way beside it.
            let cursor = merged(manifest, &inputs, self.created_unix_ms());
            write_merged(disk, &new.path, &inputs, cursor, false, advance)
        } else {
            let cursor = merge(manifest.delta, &inputs);
            write_merged(disk, &new.path, &inputs, cursor, true, advance)
        };
        let written = written.map_err(|source| ReadError::Run {
            table: manifest.table.clone(),
            version: manifest.version,
            source,
        })?;
        let merged = written.map(|(summary, operations)| RunRef {
            id: new.id,
            summary,
            operations,
        });
        let mut all = runs.clone();
        all.splice(range, merged);
        Ok(all)
    }
}

impl Push {
    /// [`Push::merge_runs`] of several partitions, each named with its runs to merge, by several
    /// threads; returns the manifest with what came of them. Stops at the first error.
    pub fn merge_many(
        &self,
        manifest: &Manifest,
        which: &[(usize, Range<usize>)],
        threads: usize,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<Manifest, PushError> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let work = || {
            while let Some((partition, range)) = which.get(next.fetch_add(1, Relaxed)) {
                let merged = self.merge_runs(manifest, *partition, range.clone(), advance);
                if merged.is_err() {
                    next.store(which.len(), Relaxed);
                }
                results.lock().push(merged.map(|runs| (*partition, runs)));
            }
        };
        pool(threads.min(which.len()), work);
        let mut manifest = manifest.clone();
        for merged in results.into_inner() {
            let (partition, runs) = merged?;
            manifest = manifest.with_runs(partition, runs);
        }
        Ok(manifest)
    }
}

/// `None`: nothing was left to write.
fn write_merged(
    disk: &Arc<dyn Disk>,
    path: &Path,
    inputs: &[Arc<Run>],
    mut cursor: impl Cursor,
    with_filter: bool,
    advance: &(dyn Fn(u64) + Sync),
) -> Result<Option<(RunSummary, Option<OperationCounts>)>, RunError> {
    if !cursor.advance()? {
        return Ok(None);
    }
    let oldest = &inputs[0];
    let prefix = oldest.hasher().prefix();
    let records = inputs.iter().map(|run| run.summary().records).sum();
    let longest_keys = inputs.iter().map(|run| run.longest_key());
    let options = RunOptions {
        page_bytes: oldest.page_bytes(),
        filter_records: with_filter.then_some(records),
        ..RunOptions::new(oldest.order(), oldest.compression(), prefix)
    }
    .for_keys_of(longest_keys.max().unwrap_or(0));
    let mut writer = RunWriter::create(disk, path, options)?;
    let mut counting = Counting::default();
    loop {
        let operation = cursor.operation();
        counting.add(operation);
        writer.push(cursor.hash(), cursor.key(), operation)?;
        if writer.records().is_multiple_of(STEP) {
            advance(STEP);
        }
        if !cursor.advance()? {
            break;
        }
    }
    advance(writer.records() % STEP);
    writer.finish()?;
    let run = read_back(&**disk, path, oldest.order(), &mut |_| ())?;
    Ok(Some((*run.summary(), counting.finish())))
}

impl Table {
    /// Merges the runs of a version into one a partition, as a version of its own: the rows are the
    /// same but for those that had expired. If that version serves, the new one does in its place:
    /// a rollback from it goes to where one from the old version would have gone. `advance` is told
    /// of records written.
    pub fn compact(
        &self,
        version: u64,
        threads: usize,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<CompactReport, PushError> {
        let push = Push::begin(self.clone(), PushOptions::default())?;
        let base = self.manifest(version)?;
        let deep: Vec<usize> = (0..base.partitions.len())
            .filter(|partition| base.partitions[*partition].runs.len() > 1)
            .collect();
        let runs = deep.iter().map(|part| base.partitions[*part].runs.len());
        let mut compacted = CompactReport {
            from: version,
            to: version,
            runs: runs.sum(),
            partitions: deep.len(),
            rows: base.rows(),
            serves: self.pointer()?.serving == Some(version),
        };
        if deep.is_empty() {
            return Ok(compacted);
        }
        let all: Vec<(usize, Range<usize>)> = deep
            .iter()
            .map(|partition| (*partition, 0..base.partitions[*partition].runs.len()))
            .collect();
        let merged = push.merge_many(&base, &all, threads, advance)?;
        let source = format!("version {version}, merged");
        let draft = ManifestDraft::like(&base, merged.partitions, source);
        let manifest = push.manifest(draft)?;
        compacted.rows = manifest.rows();
        let committed = push.commit_held(manifest)?;
        compacted.to = committed.version();
        compacted.serves = committed.replace_serving(version)?;
        Ok(compacted)
    }
}
