//! Applies a load that is a decided entry: its runs join a partition in the order of writes.
//!
//! Only the thread that applies the partition's entries writes to it, so nothing is written in
//! between. Earlier entries are first written to runs. Then one replacement of the manifest names
//! the new runs and the place after the entry. After a crash either the manifest has both, or the
//! entry is applied again.

use std::sync::Arc;

use crate::keys::partition::PartitionId;
use crate::live::basics::applied::DecidedEntry;
use crate::live::basics::error::LiveError;
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::PartView;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::ingest::IngestRun;
use crate::live::{AppliedPlace, LiveTable};
use crate::name::RunId;

impl LiveTable {
    /// Applies a proposal that adds the runs of a load to its partition. The runs have ids of this
    /// table ([`LiveTable::new_run`]). Everything applied before is older. `load` is the load's
    /// number: a load that was added already, or an older one, adds nothing, and its files are
    /// removed. Proposals must be applied in order, as with [`LiveTable::entry`].
    ///
    /// After an error the proposal is not applied. The runs' files are removed then, except after
    /// an error that [may pass](LiveError::may_pass): the caller may try the same again.
    pub fn apply_load(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        number: u32,
        load: u64,
        runs: &[RunId],
    ) -> Result<(), LiveError> {
        let handle = self.entry(id, entry, number)?;
        if self.applied(id)?.loaded >= load {
            handle.finish()?;
            self.discard_runs(runs.iter());
            return Ok(());
        }
        let added = self.shared().add_load(id, entry, number, load, runs);
        if added.as_ref().is_err_and(|error| !error.may_pass()) {
            self.shared().remove_runs_unless_named(runs.iter());
        }
        added
    }
}

impl LiveShared {
    fn add_load(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        number: u32,
        load: u64,
        runs: &[RunId],
    ) -> Result<(), LiveError> {
        let _one_at_a_time = self.ingesting.lock();
        self.check_new(runs.iter())?;
        let slot = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        let runs = runs.iter().map(|run| IngestRun {
            partition: id,
            id: run.clone(),
        });
        let opened = self.open_ingested(&runs.collect::<Vec<_>>())?;
        let opened: Vec<Arc<LiveRun>> = opened.into_iter().map(|(_, run)| run).collect();
        if self.parts.at(slot).lock().has_memory() {
            self.flush_of(&[slot])?;
        }
        let place = {
            let part = self.parts.at(slot).lock();
            let applied = part.applied.as_ref().map(|applied| AppliedPlace {
                loaded: load,
                ..entry.place_after(number, &applied.place)
            });
            applied.ok_or_else(|| self.no_partition(id))?
        };
        self.closing(self.name_load(id, slot, &place, opened))
    }

    fn name_load(
        &self,
        id: PartitionId,
        slot: usize,
        place: &AppliedPlace,
        new: Vec<Arc<LiveRun>>,
    ) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let mut next = manifest.clone();
        let runs = next.runs_of(id).ok_or_else(|| self.no_partition(id))?;
        runs.extend(new.iter().map(|run| run.reference.clone()));
        next.raise(id, place);
        self.replace_manifest(&next)?;
        *manifest = next;
        let mut part = self.parts.at(slot).lock();
        debug_assert!(
            !part.has_memory(),
            "memory of partition {id} would come after the load, but is older"
        );
        let before = part.applied.as_ref().map(|applied| &applied.place);
        debug_assert!(
            before.is_some_and(|before| before.position() < place.position()
                && before.loaded < place.loaded
                && before.stamp_ms <= place.stamp_ms),
            "a load has partition {id} go from {before:?} to {place:?}"
        );
        part.view = Arc::new(PartView {
            runs: part.view.runs.iter().cloned().chain(new).collect(),
            ..(*part.view).clone()
        });
        if let Some(applied) = &mut part.applied {
            applied.place = place.clone();
        }
        part.watchers.all_written();
        drop(part);
        self.check_views(&manifest);
        self.count_runs(&manifest);
        drop(manifest);
        self.notify(|_| ());
        Ok(())
    }
}
