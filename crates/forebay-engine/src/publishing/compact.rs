//! Merges the runs of a partition, so that look-ups read fewer of them.
//!
//! A push onto another version adds a run to each partition that it touches. If a partition would
//! have more than [`MAX_RUNS`], the push merges some of them. It merges all but the oldest, or all
//! if the newer ones have a good part of the oldest one's bytes. So the bytes that a push writes
//! stay in proportion to its input, and a large oldest run is rewritten seldom. [`Table::compact`]
//! merges all runs into a new version with the same rows.

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

use crate::documents::manifest::{Manifest, ManifestDraft, OperationCounts, RunRef};
use crate::error::{PushError, ReadError};
use crate::keys::partition::OpenPartitions;
use crate::publishing::push::{Push, PushOptions};
use crate::tables::table::Table;
use crate::tables::version::open_run;

/// The most runs that a push leaves in a partition.
pub const MAX_RUNS: usize = 8;
/// The newer runs are merged into the oldest once they hold one part in this many of its bytes.
const SHARE: u64 = 3;
/// The time for [`SettledCursor`] that keeps expired records.
pub(crate) const NOTHING_EXPIRED: u64 = 0;
/// The number of records between progress reports.
const STEP: u64 = 8192;

/// The result of a merge of a version's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactReport {
    /// The version that was merged, and the new version. They are the same if there was nothing to
    /// merge.
    pub from: u64,
    pub to: u64,
    /// The number of runs that were merged, and of partitions that have one run each now.
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

    /// Returns the counts for [`RunRef::operations`].
    pub fn finish(self) -> Option<OperationCounts> {
        (self.0 != OperationCounts::default()).then_some(self.0)
    }
}

/// Returns the runs that a push has to merge when it adds the newest of them; usually none.
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

/// Returns the combined rows of runs, which start at the oldest run of their partition.
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
    // A table without a delta kind has no deltas, so any kind will do.
    let kind = delta.unwrap_or(DeltaKind::Append);
    let scans = runs.iter().map(scan).collect();
    Merge::new(scans, Resolve::Compose(kind), Direction::Forward)
}

impl Push {
    /// Merges neighbouring runs of a partition into one and returns the partition's new runs. If
    /// the oldest is among them, deletes and expired records are removed.
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
            // Later pushes are written after this one, and no other push runs now.
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
    /// Does [`Push::merge_runs`] for several partitions, each with its runs to merge, on several
    /// threads. Returns the manifest with the new runs. Stops at the first error.
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

/// Returns `None` if no record was left to write.
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
    /// Merges the runs of a version into one per partition, as a new version. The rows are the
    /// same, except for expired ones. If the old version serves, the new one replaces it. A
    /// rollback from the new version goes to the same version as one from the old. `advance`
    /// receives the number of records written.
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
