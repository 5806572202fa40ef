//! Copies of a partition from one replica to another.
//!
//! Runs never change, so a copy is the manifest's content of the partition at one moment. Merges
//! keep the files of its runs until the copy is dropped. Nothing is linked or written for it. The
//! next opening removes what a crash leaves.
//!
//! On the receiving node, one replacement of the manifest replaces the old partition by the copy:
//! its runs together with its place in the log. Before that, memory is written to runs with writes
//! paused, so that none of it is applied afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::debug;

use crate::keys::partition::PartitionId;
use crate::live::LiveTable;
use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::content::PartitionContent;
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::{LiveManifest, LivePartition};
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::LivePart;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;
use crate::name::RunId;

/// A partition at one moment, whose files stay until this is dropped. The table stays open as long.
/// Made by [`LiveTable::copy_of`].
#[derive(Debug)]
pub struct PartitionCopy {
    table: LiveTable,
    content: PartitionContent,
}

impl PartitionCopy {
    /// Returns its content, and the place in its log that its runs are at.
    pub fn content(&self) -> &PartitionContent {
        &self.content
    }

    /// Returns the path of the file of one of its runs.
    pub fn run_file(&self, id: &RunId) -> PathBuf {
        self.table.shared().files.run(id)
    }

    /// Returns the path of the run's file of long values. Not every run has one.
    pub fn long_values_file(&self, id: &RunId) -> PathBuf {
        self.table.shared().files.extent(id)
    }

    /// Reads one of its runs back, which a node that fetched it could not read. Damage is then
    /// reported by [`LiveTable::damaged`].
    pub fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        self.table.check_run(id)
    }
}

impl Drop for PartitionCopy {
    fn drop(&mut self) {
        let ids = self.content.runs.iter().map(|run| &run.id);
        self.table.shared().let_go(ids);
    }
}

impl LiveTable {
    /// Returns a copy of a partition as it is now, or a little later. Memory is written to runs
    /// first. A partition that was split from a larger one first gets runs of its own, as files are
    /// fetched whole.
    pub fn copy_of(&self, id: PartitionId) -> Result<PartitionCopy, LiveError> {
        let content = self.shared().copy_of(id)?;
        let table = self.unbound();
        Ok(PartitionCopy { table, content })
    }

    /// Replaces the partition of the copy's id by the copy, or adopts the copy if there is none.
    /// The table must be replicated. The copy's runs are finished, synced files with ids of this
    /// table: see [`LiveTable::new_run`]. Readers see all of the old partition or all of the new
    /// one. So does a process that opens the table after a crash. Writes to the partition wait
    /// while memory is flushed.
    ///
    /// A copy of a later epoch may have narrower bounds: its partition was split, and this table
    /// drops the rest. A copy is refused if it has other bounds, an earlier epoch, or an earlier
    /// place in the log than this table's partition.
    ///
    /// After an error nothing was replaced. The runs' files are removed then, except after an error
    /// that [may pass](LiveError::may_pass). In that case the caller may install the same copy
    /// again, or discard it by [`LiveTable::discard_runs`].
    pub fn install(&self, copy: PartitionContent) -> Result<(), LiveError> {
        self.shared().install(copy)
    }

    /// Returns the partitions whose runs are damaged, each once, with the problem. Reads, merges,
    /// flushes and checks find damage; it counts since the table was opened. A partition that a
    /// copy has replaced is not damaged any more.
    pub fn damaged(&self) -> Vec<(PartitionId, String)> {
        let shared = self.shared();
        match shared.shape.damage.all().is_empty() {
            true => Vec::new(),
            false => shared.damaged_of(&shared.structure.lock()),
        }
    }

    /// Reads a finished run among the table's files back from the device, all of it.
    pub fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        self.shared().check_run(id)
    }

    /// Removes the files of fetched runs that were not installed. Runs that the table names stay.
    pub fn discard_runs<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        self.shared().remove_unnamed(ids);
    }
}

impl LiveShared {
    fn copy_of(&self, id: PartitionId) -> Result<PartitionContent, LiveError> {
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        self.flush_of(&[place])?;
        if let Err(error) = self.part_from_others(id) {
            debug!(table = %self.shape.table, %id, %error, "a copy has files of which others have a part");
        }
        // Only a thread that has replaced a manifest removes runs that the old one named.
        let manifest = self.structure.lock();
        let mut partitions = manifest.partitions.iter();
        let found = partitions.find(|partition| partition.id == id);
        let content = PartitionContent::from(found.ok_or_else(|| self.no_partition(id))?);
        self.hold_runs(content.runs.iter().map(|run| &run.id));
        Ok(content)
    }

    /// Keeps the files of these runs until they are released. REQUIRES: the structure's lock, and a
    /// manifest that names them.
    pub fn hold_runs<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        let mut copied = self.copied.lock();
        for id in ids {
            *copied.entry(id.clone()).or_default() += 1;
        }
    }

    /// Releases the runs of a copy.
    pub fn let_go<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        let mut last = Vec::new();
        let mut copied = self.copied.lock();
        for id in ids {
            let copies = copied.get_mut(id);
            debug_assert!(
                copies.as_ref().is_some_and(|copies| **copies > 0),
                "run {id} of a copy is let go and was not held"
            );
            let Some(copies) = copies else {
                continue;
            };
            *copies -= 1;
            if *copies == 0 {
                copied.remove(id);
                last.push(id);
            }
        }
        drop(copied);
        self.remove_unnamed(last.into_iter());
    }

    fn install(&self, copy: PartitionContent) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        let ids: Vec<RunId> = copy.runs.iter().map(|run| run.id.clone()).collect();
        self.check_new(ids.iter())?;
        let installed = match self.parts.find(copy.range.id) {
            None => self.take_in(copy),
            Some(place) => self.replace(place, copy),
        };
        if installed.as_ref().is_err_and(|error| !error.may_pass()) {
            self.remove_runs_unless_named(ids.iter());
        }
        installed
    }

    fn replace(&self, place: usize, copy: PartitionContent) -> Result<(), LiveError> {
        let here = self.content(copy.range.id);
        let here = here.ok_or_else(|| self.no_partition(copy.range.id))?;
        self.check_later(place, &here, &copy)?;
        let room = self.parts.check_room(1);
        room.map_err(|problem| self.not_taken_in(copy.range.id, &problem))?;
        let runs = self.open_adopted(&copy.range, &copy.runs)?;
        self.flush_of(&[place])?;
        let _no_merges = self.hold_merges();
        let paused = Pause::new(self, vec![place]);
        paused.flush()?;
        // Entries may have been applied since.
        self.check_later(place, &here, &copy)?;
        self.closing(self.put_in_place(place, copy, runs))
    }

    /// Refuses a copy that would move the partition back.
    fn check_later(
        &self,
        place: usize,
        here: &PartitionContent,
        copy: &PartitionContent,
    ) -> Result<(), LiveError> {
        let id = copy.range.id;
        let refused = |problem: String| Err(self.not_taken_in(id, &problem));
        let applied = self.parts.at(place).lock().applied.clone();
        let (Some(applied), Some(fetched)) = (applied, &copy.applied) else {
            return refused("it is not replicated".to_owned());
        };
        let is_cut = copy.epoch > here.epoch && here.range.bounds.covers(&copy.range.bounds);
        if here.range != copy.range && !is_cut {
            let (here, copy) = (&here.range.bounds, &copy.range.bounds);
            return refused(format!("it goes {copy}, and what is here goes {here}"));
        }
        if copy.epoch < here.epoch {
            let (here, copy) = (here.epoch, copy.epoch);
            return refused(format!(
                "it is of epoch {copy}, what is here of epoch {here}"
            ));
        }
        if fetched.position() < applied.place.position() {
            let (here, copy) = (applied.place.index, fetched.index);
            return refused(format!(
                "it is at entry {copy}, what is here at entry {here}"
            ));
        }
        Ok(())
    }

    fn put_in_place(
        &self,
        place: usize,
        copy: PartitionContent,
        runs: Vec<Arc<LiveRun>>,
    ) -> Result<(), LiveError> {
        let id = copy.range.id;
        let applied = self.not_before(place, copy.applied);
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let range = copy.range;
        let new = LivePartition {
            id,
            bounds: range.bounds.clone(),
            epoch: copy.epoch,
            applied: applied.clone(),
            runs: runs.iter().map(|run| run.reference.clone()).collect(),
        };
        let old = replace_in(&mut next, new).ok_or_else(|| self.no_partition(id))?;
        debug_assert!(
            old.epoch <= copy.epoch && old.bounds.covers(&range.bounds),
            "partition {id} of epoch {} would go back to epoch {}, or grow",
            old.epoch,
            copy.epoch
        );
        let checked = next.check_partitions();
        checked.map_err(|problem| self.not_taken_in(id, &problem))?;
        self.replace_manifest(&next)?;
        let part = LivePart::new(runs.into(), self.parts.places(), self.budget());
        let part = part.at_place(applied);
        match range.bounds == old.bounds {
            true => self.parts.replace(place, part),
            false => self.parts.exchange(&self.shape, place, vec![(range, part)]),
        }
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        self.remove_unnamed(old.runs.iter().map(|run| &run.id));
        Ok(())
    }

    /// Returns the copy's place, with a time that is not before the partition's.
    fn not_before(&self, place: usize, copy: Option<AppliedPlace>) -> Option<AppliedPlace> {
        let part = self.parts.at(place).lock();
        let here_ms = part.applied.as_ref().map(|applied| applied.place.stamp_ms);
        copy.map(|copy| AppliedPlace {
            stamp_ms: copy.stamp_ms.max(here_ms.unwrap_or(0)),
            ..copy
        })
    }
}

/// Replaces the partition of the same id, and returns the old one, if there is one.
fn replace_in(manifest: &mut LiveManifest, new: LivePartition) -> Option<LivePartition> {
    let mut partitions = manifest.partitions.iter_mut();
    let here = partitions.find(|partition| partition.id == new.id)?;
    Some(std::mem::replace(here, new))
}
