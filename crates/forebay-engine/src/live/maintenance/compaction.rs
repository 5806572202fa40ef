//! Merges runs, in the background and on demand.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use forebay_io::give_way;
use forebay_run::scan::{Direction, ScanRange};
use parking_lot::MutexGuard;

use crate::keys::partition::PartitionId;
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::earliest;
use crate::live::basics::levels::{MergeTask, due};
use crate::live::basics::manifest::{LiveManifest, LivePartition};
use crate::live::basics::removed::RemovedRanges;
use crate::live::basics::shape::PartTime;
use crate::live::maintenance::flush::Output;
use crate::live::maintenance::room::MERGE_LOOK_BYTES;
use crate::live::memory::cursor::Purpose;
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::{PartView, run_cursors};
use crate::live::partition::shared::LiveShared;
use crate::name::RunId;

impl LiveShared {
    /// Returns whether runs are to be merged.
    pub fn is_merge_due(&self) -> bool {
        !self.are_merges_put_off() && self.next_merge(&self.structure.lock()).is_some()
    }

    /// Keeps merges from starting in the background for this long. A merge that is running no
    /// longer gives way to other work.
    pub fn put_off_merges(&self, within: Duration) {
        let until = self.clock().monotonic() + within;
        let until_us = until.as_micros() as u64;
        (self.counts.merges_put_off_until_us).fetch_max(until_us, Ordering::Relaxed);
    }

    fn are_merges_put_off(&self) -> bool {
        let until_us = self.counts.merges_put_off_until_us.load(Ordering::Relaxed);
        until_us > 0 && self.clock().monotonic() < Duration::from_micros(until_us)
    }

    /// Returns the cheapest merge that is due, and its partition.
    fn next_merge(&self, manifest: &LiveManifest) -> Option<(PartitionId, MergeTask)> {
        let factor = self.options.factor as usize;
        let dues = manifest.partitions.iter().filter_map(|partition| {
            let levels: Vec<u32> = partition.runs.iter().map(|run| run.level).collect();
            let is_wasteful =
                self.is_half_removed(partition) || self.is_half_of_others(manifest, partition);
            let due = match is_wasteful {
                true => levels.iter().max().map(|&level| MergeTask {
                    runs: 0..levels.len(),
                    level,
                }),
                false => due(&levels, factor),
            };
            due.map(|due| (partition.id, due))
        });
        dues.min_by_key(|(_, due)| due.level)
    }

    /// Returns whether half of a partition's space is deleted records, so that merging all of it
    /// pays.
    fn is_half_removed(&self, partition: &LivePartition) -> bool {
        if partition.runs.iter().all(|run| run.removed.is_empty()) {
            return false;
        }
        let place = self.parts.find(partition.id);
        place.is_some_and(|place| {
            let view = Arc::clone(&self.parts.at(place).lock().view);
            view.is_half_removed(false)
        })
    }

    /// Returns whether half of the files that only this partition keeps on the disk is outside its
    /// bounds, so that merging all of it pays.
    fn is_half_of_others(&self, manifest: &LiveManifest, partition: &LivePartition) -> bool {
        if partition.runs.iter().all(|run| run.range.is_none()) {
            return false;
        }
        let others = manifest
            .partitions
            .iter()
            .filter(|other| other.id != partition.id);
        let others = others.flat_map(|other| &other.runs).map(|run| &run.id);
        let others: HashSet<&RunId> = others.collect();
        let Some(place) = self.parts.find(partition.id) else {
            return false;
        };
        let view = Arc::clone(&self.parts.at(place).lock().view);
        let own = view
            .runs
            .iter()
            .filter(|run| !others.contains(&run.reference.id));
        let (seen, pages) = own.fold((0, 0), |(seen, pages), run| {
            (seen + run.pages_seen(), pages + run.run.summary().pages)
        });
        seen < pages && seen * 2 <= pages
    }

    /// Merges all runs of a partition if most of their files belongs to other partitions.
    pub fn part_from_others(&self, id: PartitionId) -> Result<(), LiveError> {
        let compacting = self.hold_merges();
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        let view = Arc::clone(&self.parts.at(place).lock().view);
        let runs = view.runs.iter();
        let (seen, pages) = runs.fold((0, 0), |(seen, pages), run| {
            (seen + run.pages_seen(), pages + run.run.summary().pages)
        });
        let levels = view.runs.iter().map(|run| run.reference.level);
        match levels.max() {
            Some(level) if seen * 2 <= pages => {
                let runs = 0..view.runs.len();
                drop(view);
                self.merge_runs(&compacting, id, MergeTask { runs, level })
            }
            _ => Ok(()),
        }
    }

    /// Does one merge, if one is due.
    pub fn compact_once(&self) -> Result<(), LiveError> {
        let compacting = self.compacting.lock();
        let next = self.next_merge(&self.structure.lock());
        match next {
            Some((partition, due)) => self.merge_runs(&compacting, partition, due),
            None => Ok(()),
        }
    }

    /// Merges everything written until now into one run for each partition.
    pub fn compact(&self) -> Result<(), LiveError> {
        self.flush()?;
        self.merge_all()
    }

    /// Like `compact`, for what is in runs already.
    pub fn merge_all(&self) -> Result<(), LiveError> {
        let compacting = self.hold_merges();
        let partitions = self.structure.lock().partitions.clone();
        for LivePartition { id, runs, .. } in partitions {
            let level = runs.iter().map(|run| run.level).max().unwrap_or(0);
            // A single run may still hold records that only a merge with the oldest run drops, if
            // it was added from outside. So may a run of which the partition sees a part.
            if runs.len() > 1 || runs.iter().any(|run| run.range.is_some()) {
                let due = MergeTask {
                    runs: 0..runs.len(),
                    level,
                };
                self.closing(self.merge_runs(&compacting, id, due))?;
            }
        }
        Ok(())
    }

    /// Merges neighbouring runs of a partition. Afterwards it finds them by the first one's id:
    /// runs may have been added after them meanwhile. Only a holder of the lock on compacting
    /// removes runs.
    fn merge_runs(
        &self,
        _compacting: &MutexGuard<'_, ()>,
        id: PartitionId,
        due: MergeTask,
    ) -> Result<(), LiveError> {
        let now_ms = self.shape.now_ms(self.time_of_runs(id));
        let partition = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        let (view, buffered) = {
            let part = self.parts.at(partition).lock();
            (Arc::clone(&part.view), part.memtable.deltas_since_ms())
        };
        debug_assert!(
            !due.runs.is_empty() && due.runs.end <= view.runs.len(),
            "runs {:?} of partition {id} are to be merged, which has {}",
            due.runs,
            view.runs.len()
        );
        let inputs: Vec<Arc<LiveRun>> = view.runs[due.runs.clone()].to_vec();
        debug_assert!(
            inputs.iter().all(|run| run.reference.level <= due.level),
            "a merge to level {} takes a run of a higher level",
            due.level
        );
        let since = |run: &Arc<LiveRun>| run.reference.deltas_since_ms;
        let newer_runs = view.runs[due.runs.end..].iter().map(since);
        let newer_minis = view.all_minis().map(|mini| mini.deltas_since_ms);
        let newer = newer_runs.chain(newer_minis).chain([buffered]);
        let settled_ms = self.droppable_ms(now_ms, newer);
        let mut removed = RemovedRanges::default();
        for run in &view.runs[due.runs.end..] {
            removed.join(&run.reference.removed);
        }
        let way = (&ScanRange::all(), Direction::Forward);
        let cursors = run_cursors(inputs.iter().rev(), &mut removed, way, Purpose::Merging);
        let sum = |of: fn(&LiveRun) -> u64| inputs.iter().map(|run| of(run)).sum::<u64>();
        let longest_keys = inputs.iter().map(|run| run.run.longest_key());
        let output = Output {
            level: due.level,
            records: sum(|run| run.reference.summary.records),
            bytes: sum(|run| run.reference.summary.key_bytes + run.reference.summary.value_bytes),
            longest_key: longest_keys.max().unwrap_or(0),
            settled_ms: (due.runs.start == 0).then_some(settled_ms),
            deltas_since_ms: earliest(inputs.iter().map(since)),
            removed,
        };
        drop(view);
        let (mut written, mut looked) = (0, None);
        let merged = self.write_run(cursors, output, &mut |bytes| {
            if looked.is_none_or(|looked| bytes >= looked + MERGE_LOOK_BYTES) {
                looked = Some(bytes);
                self.check_merge_room()?;
            }
            let more = bytes - std::mem::replace(&mut written, bytes);
            self.pace_merge(more)
        })?;
        let installed = self.install_merge(partition, &inputs, merged.as_ref());
        if installed.is_err() {
            self.remove_runs_unless_named(merged.iter().map(|run| &run.reference.id));
            return installed;
        }
        let bytes = merged.map_or(0, |run| run.reference.files_bytes());
        self.counts.merged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counts.merges.fetch_add(1, Ordering::Relaxed);
        self.remove_unnamed(inputs.iter().map(|run| &run.reference.id));
        Ok(())
    }

    /// Returns the time that decides which records of a partition's runs have expired. In a
    /// replicated table this is the time of the runs, not that of memory. Later entries are applied
    /// again after a crash, and must find the same state.
    fn time_of_runs(&self, id: PartitionId) -> PartTime {
        let manifest = self.structure.lock();
        let applied = manifest.applied(id);
        applied.map_or(PartTime::CLOCK, |at| PartTime::stamp(at.stamp_ms))
    }

    fn install_merge(
        &self,
        partition: usize,
        inputs: &[Arc<LiveRun>],
        merged: Option<&Arc<LiveRun>>,
    ) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let id = self.parts.id_at(partition);
        let runs = next.runs_of(id).ok_or_else(|| self.no_partition(id))?;
        let first = runs.iter().position(|run| run.id == inputs[0].reference.id);
        let range = first.map_or(0..0, |first| first..first + inputs.len());
        debug_assert!(
            (runs
                .iter()
                .map(|run| &run.id)
                .skip(range.start)
                .take(range.len()))
            .eq(inputs.iter().map(|run| &run.reference.id)),
            "the runs that were merged are not those of partition {id} at {range:?}"
        );
        runs.splice(range.clone(), merged.map(|run| run.reference.clone()));
        self.replace_manifest(&next)?;
        *manifest = next;
        let mut part = self.parts.at(partition).lock();
        let mut runs = part.view.runs.to_vec();
        runs.splice(range, merged.cloned());
        part.view = Arc::new(PartView {
            runs: runs.into(),
            ..(*part.view).clone()
        });
        drop(part);
        self.check_views(&manifest);
        self.count_runs(&manifest);
        Ok(())
    }

    /// Waits for the running merge to end, and keeps others from starting. The merge does not give
    /// way to other work meanwhile.
    pub fn hold_merges(&self) -> MutexGuard<'_, ()> {
        self.counts.merges_awaited.fetch_add(1, Ordering::Relaxed);
        let held = self.compacting.lock();
        self.counts.merges_awaited.fetch_sub(1, Ordering::Relaxed);
        held
    }

    fn merges_hurry(&self) -> bool {
        let is_awaited = self.counts.merges_awaited.load(Ordering::Relaxed) > 0;
        is_awaited
            || self.are_merges_put_off()
            || self.budget().merge_turns().are_awaited()
            || self.is_behind_with_merges()
    }

    /// Limits a merge to its bandwidth and to background priority. Ends it when the table is being
    /// closed.
    fn pace_merge(&self, bytes: u64) -> Result<(), LiveError> {
        if !self.merges_hurry() {
            give_way();
        }
        let mut wait = self.merge_throttle.wait_for(bytes);
        loop {
            if self.progress.lock().closing {
                return Err(self.ended());
            }
            if wait.is_zero() {
                return Ok(());
            }
            // In short sleeps, so that closing does not wait for long.
            let sleep = wait.min(Duration::from_millis(100));
            self.clock().sleep(sleep);
            wait -= sleep;
        }
    }
}
