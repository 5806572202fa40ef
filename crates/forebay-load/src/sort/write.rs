//! Merges the collected records into the runs of the partitions.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use forebay_engine::{Counting, OperationCounts};
use forebay_io::pool;
use forebay_run::merge::{DroppedRecords, Merge};
use forebay_run::operation::Operation;
use forebay_run::scan::{Cursor, Direction};
use forebay_run::verify::read_back;
use forebay_run::{RunOptions, RunSummary, RunWriter};

use super::boundaries::Boundaries;
use super::walk::{advance, cursors, resolve};
use super::{CollectedRecords, SortError, SortPlan, Tally};
use crate::progress::Progress;

/// The number of records between two progress reports.
const STEP: u64 = 8192;

/// A partition's finished run.
#[derive(Debug, Clone)]
pub struct SortedPartition {
    pub partition: usize,
    pub path: PathBuf,
    /// The summary as read back from the device.
    pub summary: RunSummary,
    /// The records left out because of another record of the same key; of composed ones only the
    /// number.
    pub dropped: Tally,
    /// The number of records left out because there is nothing for them to change.
    pub idle: u64,
    pub operations: Option<OperationCounts>,
}

/// A final step for a key's operation before it is written; `None` drops the operation.
pub trait Finish: Sync {
    fn finish<'a>(
        &self,
        partition: usize,
        key: &[u8],
        operation: Operation<'a>,
    ) -> Result<Option<Operation<'a>>, SortError>;

    /// Returns whether the partition's run will be looked up together with others.
    fn wants_filter(&self, partition: usize) -> bool;
}

/// A final step that keeps operations as they are.
#[derive(Debug)]
pub struct AsTheyAre {
    /// Whether the runs will be looked up together with others.
    pub filters: bool,
}

impl Finish for AsTheyAre {
    fn finish<'a>(
        &self,
        _partition: usize,
        _key: &[u8],
        operation: Operation<'a>,
    ) -> Result<Option<Operation<'a>>, SortError> {
        Ok(Some(operation))
    }

    fn wants_filter(&self, _partition: usize) -> bool {
        self.filters
    }
}

/// Writes and verifies one run a partition, each at the path that `path_of` gives; empty partitions
/// get none. `pace` receives the number of bytes written, and may delay the writer. Stops at the
/// first error of any thread.
pub fn write_partitions(
    plan: &SortPlan,
    boundaries: &Boundaries,
    collected: &[CollectedRecords],
    finish: &dyn Finish,
    path_of: &(dyn Fn(usize) -> PathBuf + Sync),
    pace: &(dyn Fn(u64) + Sync),
    progress: &dyn Progress,
) -> Result<Vec<SortedPartition>, SortError> {
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::new());
    let work = || {
        while !failed.load(Relaxed) {
            let partition = next.fetch_add(1, Relaxed);
            if partition >= boundaries.len() {
                break;
            }
            let job = PartitionJob {
                plan,
                boundaries,
                collected,
                finish,
                partition,
                failed: &failed,
                pace,
                progress,
            };
            let built = job.run(&path_of(partition));
            failed.fetch_or(built.is_err(), Relaxed);
            results
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(built);
        }
    };
    pool(plan.threads, work);
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let stopped = |result: &Result<_, SortError>| matches!(result, Err(SortError::Stopped));
    let (stopped, results): (Vec<_>, Vec<_>) = results.into_iter().partition(stopped);
    let mut built: Vec<SortedPartition> = results
        .into_iter()
        .chain(stopped)
        .collect::<Result<Vec<Option<SortedPartition>>, _>>()?
        .into_iter()
        .flatten()
        .collect();
    built.sort_unstable_by_key(|built| built.partition);
    Ok(built)
}

struct PartitionJob<'a> {
    plan: &'a SortPlan,
    boundaries: &'a Boundaries,
    collected: &'a [CollectedRecords],
    finish: &'a dyn Finish,
    partition: usize,
    failed: &'a AtomicBool,
    pace: &'a (dyn Fn(u64) + Sync),
    progress: &'a dyn Progress,
}

impl PartitionJob<'_> {
    fn run(&self, path: &std::path::Path) -> Result<Option<SortedPartition>, SortError> {
        let cursors = cursors(self.plan, self.boundaries, self.collected, self.partition);
        let resolve = resolve(self.plan.duplicates);
        let mut merge = Merge::new(cursors, resolve, Direction::Forward);
        let mut built = SortedPartition {
            partition: self.partition,
            path: path.to_path_buf(),
            summary: RunSummary::default(),
            dropped: Tally::default(),
            idle: 0,
            operations: None,
        };
        let mut more = advance(&mut merge)?;
        if !more {
            return Ok(None);
        }
        let disk = &self.plan.disk;
        let mut writer = RunWriter::create(disk, path, self.options())?;
        let (mut paced_bytes, mut counting) = (0, Counting::default());
        while more {
            match self
                .finish
                .finish(self.partition, merge.key(), merge.operation())?
            {
                None => built.idle += 1,
                Some(operation) => {
                    counting.add(operation);
                    writer.push(merge.hash(), merge.key(), operation)?;
                }
            }
            if (writer.records() + built.idle).is_multiple_of(STEP) {
                self.progress.advance(STEP);
                (self.pace)(writer.len_bytes() - paced_bytes);
                paced_bytes = writer.len_bytes();
                if self.failed.load(Relaxed) || self.progress.is_cancelled() {
                    return Err(SortError::Stopped);
                }
            }
            more = advance(&mut merge)?;
        }
        built.dropped = tally_of(&merge.dropped);
        let rest = (writer.records() + built.idle) % STEP;
        self.progress.advance(rest + built.dropped.records);
        built.operations = counting.finish();
        writer.finish()?;
        let run = read_back(&**disk, path, self.plan.order(), &mut |_| ())?;
        built.summary = *run.summary();
        Ok(Some(built))
    }

    fn options(&self) -> RunOptions {
        let filter_records = self.finish.wants_filter(self.partition).then(|| {
            let records = self.collected.iter().map(|part| {
                let order = self.plan.order();
                let entries = self.boundaries.entries(self.partition, &part.rest, order);
                let spilled = part.spills.iter().map(|spill| spill.run.summary().records);
                entries.len() as u64 + spilled.sum::<u64>()
            });
            records.sum()
        });
        let longest_keys = self.collected.iter().map(CollectedRecords::longest_key);
        RunOptions {
            filter_records,
            ..self.plan.run.clone()
        }
        .for_keys_of(longest_keys.max().unwrap_or(0))
    }
}

fn tally_of(dropped: &DroppedRecords) -> Tally {
    Tally {
        records: dropped.records,
        bytes: dropped.key_bytes + dropped.value_bytes,
        content: dropped.content,
    }
}
