//! Which partitions of its table are here: giving one up, and taking one in.
//!
//! The log never has records of a partition that is not here, so that reading it back never meets
//! one: a partition is given up when all that was written is in runs, with writes held up, and the
//! first segment of the log that is still needed is a later one.

use std::sync::Arc;

use crate::live::error::LiveError;
use crate::live::ingest::Pause;
use crate::live::manifest::{LiveManifest, LivePartition};
use crate::live::part::{LivePart, LiveRun};
use crate::live::shared::LiveShared;
use crate::name::RunId;
use crate::partition::{PartitionId, PartitionRange};
use crate::route::Router;

impl LiveShared {
    /// See [`LiveTable::release`](crate::live::LiveTable::release).
    pub fn release(&self, id: PartitionId) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        self.flush()?;
        let _no_merges = self.compacting.lock();
        let _paused = Pause::new(self);
        self.flush()?;
        self.closing(self.give_up(id, place))
    }

    fn give_up(&self, id: PartitionId, place: usize) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let gone = next.partitions.iter().position(|part| part.id == id);
        let gone = next
            .partitions
            .remove(gone.ok_or_else(|| self.no_partition(id))?);
        self.replace_manifest(&next)?;
        self.parts.release(&self.shape, place);
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        gone.runs.iter().for_each(|run| self.remove_run(&run.id));
        Ok(())
    }

    /// See [`LiveTable::adopt`](crate::live::LiveTable::adopt).
    pub fn adopt(&self, range: PartitionRange, runs: &[RunId]) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        self.check_new(runs.iter())?;
        let taken_in = self.take_in(range, runs);
        if taken_in.is_err() {
            self.remove_runs_unless_named(runs.iter());
        }
        taken_in
    }

    fn take_in(&self, range: PartitionRange, runs: &[RunId]) -> Result<(), LiveError> {
        let runs: Vec<Arc<LiveRun>> = self.open_adopted(&range, runs)?;
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        next.partitions.push(LivePartition {
            id: range.id,
            bounds: range.bounds.clone(),
            runs: runs.iter().map(|run| run.reference.clone()).collect(),
        });
        let lower = |partition: &LivePartition| partition.bounds.lower.clone();
        next.partitions.sort_by_key(lower);
        let checked = next.check_partitions();
        checked.map_err(|problem| LiveError::Partition {
            table: self.shape.table.clone(),
            problem: format!("partition {} cannot be taken in: {problem}", range.id),
        })?;
        self.closing(self.replace_manifest(&next))?;
        let part = LivePart::new(runs.into(), self.parts.places() + 1, self.budget());
        self.parts.adopt(&self.shape, range, part);
        self.changed_partitions(&mut manifest, next);
        Ok(())
    }

    fn open_adopted(
        &self,
        range: &PartitionRange,
        runs: &[RunId],
    ) -> Result<Vec<Arc<LiveRun>>, LiveError> {
        let only = std::iter::once((0, &range.bounds));
        let router = Router::new(&self.shape.table, self.shape.order, only);
        let open = |id: &RunId| {
            let run = self.open_new(id)?;
            self.check_bounds(&router, 0, &run.run)?;
            Ok(run)
        };
        runs.iter().map(open).collect()
    }

    fn changed_partitions(&self, manifest: &mut LiveManifest, next: LiveManifest) {
        *manifest = next;
        self.count_runs(manifest);
        self.tell(|_| ());
    }
}
