//! Releases and adopts partitions of a table.
//!
//! The log never has records of a partition that the table does not hold, so reading it back never
//! meets one. Before a release, the partition's writes are paused and all of them are flushed to
//! runs. The first segment of the log that is still needed is then a later one.

use std::sync::Arc;

use crate::keys::partition::{PartitionId, PartitionRange};
use crate::keys::route::Router;
use crate::live::basics::content::{PartitionContent, PartitionRun};
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::{LiveManifest, LivePartition};
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::LivePart;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;
use crate::name::RunId;

impl LiveShared {
    /// See [`LiveTable::release`](crate::live::LiveTable::release).
    pub fn release(&self, id: PartitionId) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        self.flush_of(&[place])?;
        let _no_merges = self.hold_merges();
        let paused = Pause::new(self, vec![place]);
        paused.flush()?;
        self.closing(self.give_up(id, place))
    }

    fn give_up(&self, id: PartitionId, place: usize) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let gone = next.give_up(id).ok_or_else(|| self.no_partition(id))?;
        self.replace_manifest(&next)?;
        self.parts.release(&self.shape, place);
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        self.remove_unnamed(gone.runs.iter().map(|run| &run.id));
        Ok(())
    }

    /// See [`LiveTable::content`](crate::live::LiveTable::content).
    pub fn content(&self, id: PartitionId) -> Option<PartitionContent> {
        let manifest = self.structure.lock();
        let mut partitions = manifest.partitions.iter();
        let found = partitions.find(|partition| partition.id == id);
        found.map(PartitionContent::from)
    }

    /// See [`LiveTable::adopt`](crate::live::LiveTable::adopt).
    pub fn adopt(&self, partition: PartitionContent) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        let ids: Vec<RunId> = partition.runs.iter().map(|run| run.id.clone()).collect();
        self.check_new(ids.iter())?;
        let taken_in = self.take_in(partition);
        if taken_in.is_err() {
            self.remove_runs_unless_named(ids.iter());
        }
        taken_in
    }

    /// Adopts a partition. REQUIRES: the lock `ingesting`, and that its runs are new.
    pub fn take_in(&self, partition: PartitionContent) -> Result<(), LiveError> {
        debug_assert!(
            self.ingesting.is_locked(),
            "partition {} is adopted without the lock for partition changes",
            partition.range.id
        );
        let range = partition.range;
        let refused = |problem: String| self.not_taken_in(range.id, &problem);
        self.parts.check_room(1).map_err(refused)?;
        let runs = self.open_adopted(&range, &partition.runs)?;
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let taken_in = next.take_in(LivePartition {
            id: range.id,
            bounds: range.bounds.clone(),
            epoch: partition.epoch,
            applied: partition.applied.clone(),
            runs: runs.iter().map(|run| run.reference.clone()).collect(),
        });
        taken_in.map_err(refused)?;
        self.closing(self.replace_manifest(&next))?;
        let part = LivePart::new(runs.into(), self.parts.places() + 1, self.budget());
        let part = part.at_place(partition.applied);
        self.parts.adopt(&self.shape, range, part);
        self.changed_partitions(&mut manifest, next);
        Ok(())
    }

    pub fn open_adopted(
        &self,
        range: &PartitionRange,
        runs: &[PartitionRun],
    ) -> Result<Vec<Arc<LiveRun>>, LiveError> {
        let only = std::iter::once((0, &range.bounds));
        let router = Router::new(&self.shape.table, self.shape.order, only);
        let open = |new: &PartitionRun| {
            let run = self.open_new(new)?;
            match &new.range {
                None => self.check_bounds(&router, 0, &run.run)?,
                Some(seen) if seen.covers(&range.bounds) => {}
                Some(seen) => {
                    let problem = format!("of run {} it sees only the range {seen}", new.id);
                    return Err(self.not_taken_in(range.id, &problem));
                }
            }
            let within = run.within(&range.bounds, false);
            within.map_err(|source| self.shape.run_error(source))
        };
        runs.iter().map(open).collect()
    }

    pub fn not_taken_in(&self, id: PartitionId, problem: &str) -> LiveError {
        LiveError::Partition {
            table: self.shape.table.clone(),
            problem: format!("partition {id} cannot be taken in: {problem}"),
        }
    }

    pub fn changed_partitions(&self, manifest: &mut LiveManifest, next: LiveManifest) {
        *manifest = next;
        self.check_views(manifest);
        self.count_runs(manifest);
        self.resume_merges(manifest);
    }
}
