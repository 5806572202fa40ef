//! A partition copied from one replica to another.
//!
//! Runs never change, so a copy is what the manifest says of the partition at one moment. Merges
//! leave the files of its runs where they are until the copy is dropped; nothing is linked or
//! written for it, and what a crash leaves is removed by the next opening.
//!
//! Where it is brought to, one replacement of the manifest puts it in the place of the partition
//! that was there, runs and place in the log at once. Before, what was in memory is written to
//! runs, with writes held up, so that none of it comes afterwards.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::debug;

use crate::live::LiveTable;
use crate::live::applied::AppliedPlace;
use crate::live::content::PartitionContent;
use crate::live::error::LiveError;
use crate::live::manifest::{LiveManifest, LivePartition};
use crate::live::part::LivePart;
use crate::live::pause::Pause;
use crate::live::run::LiveRun;
use crate::live::shared::LiveShared;
use crate::name::RunId;
use crate::partition::PartitionId;

/// A partition at one moment, whose files stay until this is dropped. The table stays open for as
/// long. Made by [`LiveTable::copy_of`].
#[derive(Debug)]
pub struct PartitionCopy {
    table: LiveTable,
    content: PartitionContent,
}

impl PartitionCopy {
    /// What it consists of, and the place in its log that its runs are at.
    pub fn content(&self) -> &PartitionContent {
        &self.content
    }

    /// Where the file of one of its runs lies.
    pub fn run_file(&self, id: &RunId) -> PathBuf {
        self.table.shared().files.run(id)
    }

    /// Where the run's file of long values lies: not every run has one.
    pub fn long_values_file(&self, id: &RunId) -> PathBuf {
        self.table.shared().files.extent(id)
    }

    /// Reads one of its runs back, which somebody could not read who brought it from here:
    /// [`LiveTable::damaged`] knows afterwards.
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
    /// A copy of a partition as it is now, or a little later. What is in memory is written to runs
    /// first. A partition that was cut off a larger one gets runs of its own then, as files are
    /// brought whole.
    pub fn copy_of(&self, id: PartitionId) -> Result<PartitionCopy, LiveError> {
        let content = self.shared().copy_of(id)?;
        let table = self.unbound();
        Ok(PartitionCopy { table, content })
    }

    /// Puts a copied partition in the place of the one of its id, or takes it in where there is
    /// none; of a replicated table. Its runs are finished, synced files with ids of here: see
    /// [`LiveTable::new_run`]. Readers see all of the old one or all of the new one, and so does
    /// whoever opens the table after a crash. Writes to the partition wait while memory is flushed.
    ///
    /// A copy of a later epoch may have narrower bounds: its partition was cut, and what is here of
    /// the rest goes. Refused are a copy with other bounds, of an earlier epoch, or of an earlier
    /// place in the log than what is here.
    /// After an error nothing was replaced. The runs' files are removed
    /// then, but for one that [may pass](LiveError::may_pass): the same copy may be installed
    /// again, or given up by [`LiveTable::discard_runs`].
    pub fn install(&self, copy: PartitionContent) -> Result<(), LiveError> {
        self.shared().install(copy)
    }

    /// The partitions with damage in their runs that a read, a merge, a flush or a check has met
    /// since the table was opened, each once, and what was met. One that a copy took the place of
    /// is none of them any more.
    pub fn damaged(&self) -> Vec<(PartitionId, String)> {
        let shared = self.shared();
        match shared.shape.damage.all().is_empty() {
            true => Vec::new(),
            false => shared.damaged_of(&shared.structure.lock()),
        }
    }

    /// Reads a finished run that is among the table's files back from the device, all of it.
    pub fn check_run(&self, id: &RunId) -> Result<(), LiveError> {
        self.shared().check_run(id)
    }

    /// Removes the files of runs that were brought and came to nothing; those that the table names
    /// stay.
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
        // A run is removed by who has replaced a manifest that named it.
        let manifest = self.structure.lock();
        let mut partitions = manifest.partitions.iter();
        let found = partitions.find(|partition| partition.id == id);
        let content = PartitionContent::from(found.ok_or_else(|| self.no_partition(id))?);
        self.hold_runs(content.runs.iter().map(|run| &run.id));
        Ok(content)
    }

    /// Keeps the files of these runs until they are let go. REQUIRES: the structure's lock, and a
    /// manifest that names them.
    pub fn hold_runs<'a>(&self, ids: impl Iterator<Item = &'a RunId>) {
        let mut copied = self.copied.lock();
        for id in ids {
            *copied.entry(id.clone()).or_default() += 1;
        }
    }

    /// A copy of these runs is no longer wanted.
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

    /// Refuses a copy that would take the partition back.
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

    /// The copy's place, at a time that is not before the partition's.
    fn not_before(&self, place: usize, copy: Option<AppliedPlace>) -> Option<AppliedPlace> {
        let part = self.parts.at(place).lock();
        let here_ms = part.applied.as_ref().map(|applied| applied.place.stamp_ms);
        copy.map(|copy| AppliedPlace {
            stamp_ms: copy.stamp_ms.max(here_ms.unwrap_or(0)),
            ..copy
        })
    }
}

/// Puts a partition where that of its id is, which it returns, if it is there.
fn replace_in(manifest: &mut LiveManifest, new: LivePartition) -> Option<LivePartition> {
    let mut partitions = manifest.partitions.iter_mut();
    let here = partitions.find(|partition| partition.id == new.id)?;
    Some(std::mem::replace(here, new))
}
