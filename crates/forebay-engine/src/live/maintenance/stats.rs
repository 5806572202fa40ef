//! Statistics of a live table: sizes, counters and problems, for people and for metrics.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;

use crate::keys::partition::PartitionId;
use crate::live::LiveTable;
use crate::live::basics::manifest::{LiveManifest, LiveRunRef};
use crate::live::basics::removed::RemovedRanges;
use crate::live::basics::traffic::PartitionTraffic;
use crate::live::log::Log;
use crate::live::partition::part::LivePart;
use crate::live::partition::shared::LiveShared;

/// A disk with this much free space takes writes.
const ROOM_BYTES: u64 = 1 << 20;

/// Statistics of a live table. Counters begin when the table is opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LiveStats {
    /// Runs of each partition.
    pub runs: Vec<usize>,
    /// Records in the files of runs; duplicate keys are counted separately. If all keys of a
    /// partition were deleted at once, its earlier records are not counted.
    pub run_records: u64,
    /// The number of files of which a partition sees a part, because it was split after they were
    /// written. They are counted once, and fully, until they are merged, even the parts of released
    /// partitions.
    pub split_runs: usize,
    /// Records in memory; duplicate keys may be counted separately.
    pub memory_records: u64,
    /// The length of the runs' files.
    pub file_bytes: u64,
    /// The length of the log's files.
    pub log_bytes: u64,
    /// Memory of the generation that takes writes, with its buffers.
    pub memtable_bytes: usize,
    /// Memory of generations that wait to be flushed.
    pub frozen_bytes: usize,
    /// Memory of the runs' filters and indexes.
    pub run_memory_bytes: usize,
    /// Bytes of runs' files that flushes wrote.
    pub flushed_bytes: u64,
    /// Bytes of runs that merges wrote.
    pub merged_bytes: u64,
    /// Merges that are done.
    pub merges: u64,
    /// Whether a merge is due, or is running.
    pub is_merge_due: bool,
    /// The pauses that writers had to take.
    pub delayed: Duration,
    /// Why the last flush failed, if it did.
    pub flush_problem: Option<String>,
    /// Why the last merge failed, if it did.
    pub merge_problem: Option<String>,
    /// Why the table takes no more writes, if so.
    pub failed: Option<String>,
    /// Why writes are refused now, if they are: for the same reason, or for lack of space.
    pub refuses: Option<String>,
}

impl LiveStats {
    /// Returns an upper bound of the number of keys: deleted or overwritten ones may be counted
    /// until runs are merged.
    pub fn most_keys(&self) -> u64 {
        self.run_records + self.memory_records
    }
}

impl LiveTable {
    /// [`LiveStats::most_keys`] of one partition; 0 if the table does not hold it. Files that were
    /// split are counted fully.
    pub fn most_keys_of(&self, id: PartitionId) -> u64 {
        self.shared().most_keys_of(id).unwrap_or(0)
    }

    /// Returns the reads and writes of the partitions that the table holds, since the table was
    /// opened.
    pub fn traffic(&self) -> Vec<(PartitionId, PartitionTraffic)> {
        let parts = &self.shared().parts;
        let counted = (0..parts.places()).filter_map(|place| {
            let part = parts.at(place).lock();
            let traffic = part.is_here().then_some(part.traffic)?;
            drop(part);
            Some((parts.id_at(place), traffic))
        });
        counted.collect()
    }
}

impl LiveShared {
    fn memory_records(&self) -> u64 {
        self.parts.iter().map(memory_records_of).sum()
    }

    fn most_keys_of(&self, id: PartitionId) -> Option<u64> {
        let manifest = self.structure.lock();
        let mut partitions = manifest.partitions.iter();
        let partition = partitions.find(|partition| partition.id == id)?;
        let part = self.parts.at(self.parts.find(id)?);
        let view = Arc::clone(&part.lock().view);
        let minis = view.all_minis().map(|mini| (0, &mini.removed));
        let runs = partition.runs.iter().rev();
        let runs = runs.map(|run| (run.summary.records, &run.removed));
        let in_runs = match records_above(minis).1 {
            true => 0,
            false => records_above(runs).0,
        };
        Some(in_runs + memory_records_of(part))
    }

    /// Returns the number of records in runs that no deletion of all keys covers; records of a
    /// shared file are counted once.
    fn run_records(&self, manifest: &LiveManifest) -> u64 {
        let mut counted = HashSet::new();
        let mut all = 0;
        for partition in &manifest.partitions {
            let Some(place) = self.parts.find(partition.id) else {
                continue;
            };
            let view = Arc::clone(&self.parts.at(place).lock().view);
            let minis = view.all_minis().map(|mini| (0, &mini.removed));
            if !records_above(minis).1 {
                let runs = partition.runs.iter().rev();
                let runs = runs.map(|run| match counted.insert(&run.id) {
                    true => (run.summary.records, &run.removed),
                    false => (0, &run.removed),
                });
                all += records_above(runs).0;
            }
        }
        all
    }

    /// Returns why writes are refused now. Whether the log has room again is known only at the next
    /// write: until then it counts as full while its disk is.
    fn refuses(&self, stats: &LiveStats, no_room: Option<String>) -> Option<String> {
        let free = || self.disk().free_bytes(&self.files.dir).ok().flatten();
        let still_full = |_: &String| free().is_some_and(|bytes| bytes < ROOM_BYTES);
        let memory_full = self.budget().write_pressure() >= 1.0;
        let stuck = stats.flush_problem.clone().filter(|_| memory_full);
        let failed = stats.failed.clone();
        failed.or(no_room.filter(still_full)).or(stuck)
    }

    pub fn stats(&self) -> LiveStats {
        let manifest = self.structure.lock();
        let parts = manifest.partitions.iter();
        let mut stats = LiveStats {
            runs: parts.map(|partition| partition.runs.len()).collect(),
            run_records: self.run_records(&manifest),
            split_runs: manifest.split_runs(),
            file_bytes: manifest.files().map(LiveRunRef::files_bytes).sum(),
            ..LiveStats::default()
        };
        drop(manifest);
        stats.memory_records = self.memory_records();
        stats.log_bytes = self.log.as_ref().map_or(0, Log::size_bytes);
        stats.is_merge_due = self.is_merge_due();
        stats.memtable_bytes = self.memory.memtable_bytes();
        stats.frozen_bytes = self.memory.frozen_bytes();
        stats.run_memory_bytes = self.memory.run_bytes();
        stats.flushed_bytes = self.counts.flushed_bytes.load(Ordering::Relaxed);
        stats.merged_bytes = self.counts.merged_bytes.load(Ordering::Relaxed);
        stats.merges = self.counts.merges.load(Ordering::Relaxed);
        stats.delayed = Duration::from_micros(self.counts.delayed_us.load(Ordering::Relaxed));
        let progress = self.progress.lock();
        stats.flush_problem.clone_from(&progress.flushes.problem);
        stats.merge_problem.clone_from(&progress.merges.problem);
        stats.failed.clone_from(&progress.failed);
        let no_room = progress.no_room.clone();
        drop(progress);
        stats.refuses = self.refuses(&stats, no_room);
        stats
    }
}

fn memory_records_of(part: &Mutex<LivePart>) -> u64 {
    let part = part.lock();
    let (view, buffered) = (Arc::clone(&part.view), part.memtable.records());
    drop(part);
    let minis = view.all_minis().rev();
    buffered + records_above(minis.map(|mini| (mini.records(), &mini.removed))).0
}

/// Counts the records of sources, newest first, up to the one that deletes everything older. Also
/// returns whether there is one.
fn records_above<'a>(newest_first: impl Iterator<Item = (u64, &'a RemovedRanges)>) -> (u64, bool) {
    let mut all = 0;
    for (records, removed) in newest_first {
        all += records;
        if removed.is_all() {
            return (all, true);
        }
    }
    (all, false)
}
