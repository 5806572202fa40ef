//! Moves a partition, with all its data, to the log of another group.

use crate::keys::partition::PartitionId;
use crate::live::LiveTable;
use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::error::LiveError;
use crate::live::partition::part::AppliedPosition;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;

impl LiveTable {
    /// Sets the place of a replicated partition, with all its data, to this place of a group's log.
    /// Memory is flushed to runs first, then one replacement of the manifest moves it. After a
    /// crash, the partition is at the new place or at the old one.
    ///
    /// REQUIRES: nothing of the partition's log is applied meanwhile, and no entry in part.
    pub fn place_copy(&self, id: PartitionId, place: AppliedPlace) -> Result<(), LiveError> {
        self.shared().place_copy(id, place)
    }
}

impl LiveShared {
    fn place_copy(&self, id: PartitionId, place: AppliedPlace) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        let slot = self.slot_of(id)?;
        self.flush_of(&[slot])?;
        let _no_merges = self.hold_merges();
        let paused = Pause::new(self, vec![slot]);
        paused.flush()?;
        self.closing(self.put_place(slot, id, place))
    }

    fn put_place(
        &self,
        slot: usize,
        id: PartitionId,
        place: AppliedPlace,
    ) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let mut partitions = next.partitions.iter_mut();
        let partition = partitions.find(|partition| partition.id == id);
        let partition = partition.ok_or_else(|| self.no_partition(id))?;
        let before = partition.applied.as_ref().map_or(0, |place| place.loaded);
        // A load is not added again in another log.
        let place = AppliedPlace {
            loaded: place.loaded.max(before),
            ..place
        };
        // Otherwise a generation that waits to be flushed would move the place back.
        debug_assert!(
            partition
                .applied
                .as_ref()
                .is_some_and(|now| now.position() <= place.position()),
            "partition {id} continues at {place:?}, but its runs are at {:?}",
            partition.applied
        );
        partition.applied = Some(place.clone());
        self.replace_manifest(&next)?;
        self.parts.at(slot).lock().applied = Some(Box::new(AppliedPosition {
            place,
            unwritten: 0,
        }));
        self.changed_partitions(&mut manifest, next);
        Ok(())
    }
}
