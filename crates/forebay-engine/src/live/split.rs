//! Cutting a partition in two.
//!
//! 1. Memory is flushed, then once more with the partition's writes held up: it is in its runs, and
//!    the log has nothing of it that would be read back. Who is going to split a partition of a
//!    replicated table has the first flush done before ([`LiveTable::prepare_split`]): where
//!    little is in memory, the second one is the only one. No merge is under way then.
//! 2. One replacement of the manifest puts two partitions in its place. Both name its runs, as far
//!    as they have records for them, with their own bounds where the file has others' as well.
//! 3. With all partitions locked, keys are led to the two from then on. Who was led to the one
//!    before asks again.
//!
//! A replicated partition is cut by an entry of its group's log, on every replica at the same place
//! of its history. The left half goes on in that log behind the entry; the right half begins one of
//! its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_run::RunError;

use crate::bound::Bound;
use crate::live::LiveTable;
use crate::live::applied::{AppliedPlace, DecidedEntry};
use crate::live::error::LiveError;
use crate::live::manifest::{LiveManifest, LivePartition, LiveRunRef};
use crate::live::part::LivePart;
use crate::live::pause::Pause;
use crate::live::run::LiveRun;
use crate::live::shared::LiveShared;
use crate::name::RunId;
use crate::partition::{Bounds, PartitionId, PartitionRange};

/// What memory has at most for its first flush to be left out: the second one takes so much within
/// some milliseconds.
const SMALL_BYTES: usize = 1 << 20;
/// No merge begins for so long after somebody asked whether a partition is ready.
const PUT_OFF: Duration = Duration::from_secs(1);

/// Where an entry cuts a partition in two, and what the new one begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecidedCut {
    pub at: Bound,
    /// No partition has, or had, this id.
    pub right: PartitionId,
    /// Where the log of the right half's group begins. Its time is the partition's.
    pub right_place: AppliedPlace,
}

/// Where a partition is to be cut, and the new one's id.
struct Cut<'a> {
    id: PartitionId,
    at: &'a Bound,
    right: PartitionId,
    /// The places of both halves, where the partition is replicated.
    places: Option<[AppliedPlace; 2]>,
}

impl LiveTable {
    /// Applies an entry that cuts its partition in two: see [`LiveTable::split`]. It keeps what
    /// comes before, at the entry's place; the new one has the rest. Returns whether it did: where
    /// the cut does not lie within the partition, as another entry cut it before, the entry does
    /// nothing else than move the place.
    ///
    /// After an error nothing is cut. One that [may pass](LiveError::may_pass) may be tried again.
    pub fn split_by(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        cut: &DecidedCut,
    ) -> Result<bool, LiveError> {
        match self.cuts(id, &cut.at)? {
            true => self.shared().split_by(id, entry, cut).map(|()| true),
            false => self.pass(id, entry).map(|()| false),
        }
    }

    /// Begins to write what is in memory of a partition of a replicated table to runs, so that its
    /// split holds up writes for what comes in meanwhile alone. Waits for nothing; returns the
    /// number to ask [`LiveTable::is_ready_to_split`] for.
    pub fn prepare_split(&self, id: PartitionId) -> Result<u64, LiveError> {
        let shared = self.shared();
        let place = shared.parts.find(id);
        let place = place.ok_or_else(|| shared.no_partition(id))?;
        shared.put_off_merges(PUT_OFF);
        Ok(shared.freeze_moved(Some(&[place]), 1))
    }

    /// Whether that is written, or cannot be written now, and no merge is under way. None begins
    /// for a second.
    pub fn is_ready_to_split(&self, number: u64) -> bool {
        let shared = self.shared();
        shared.put_off_merges(PUT_OFF);
        let progress = shared.progress.lock();
        let is_written = progress.flushed >= number
            || progress.flushes.problem.is_some()
            || progress.failed.is_some()
            || progress.closing;
        drop(progress);
        is_written && !shared.compacting.is_locked()
    }

    /// Whether a place lies within a partition, so that it can be cut there.
    pub fn cuts(&self, id: PartitionId, at: &Bound) -> Result<bool, LiveError> {
        let ranges = self.partitions();
        let range = ranges.iter().find(|range| range.id == id);
        let range = range.ok_or_else(|| self.shared().no_partition(id))?;
        Ok(lies_within(at, &range.bounds))
    }
}

impl LiveShared {
    /// See [`LiveTable::split`](crate::live::LiveTable::split).
    pub fn split(&self, id: PartitionId, at: &Bound, right: PartitionId) -> Result<(), LiveError> {
        self.refuse_replicated("a cut of a partition")?;
        self.split_at(&Cut {
            id,
            at,
            right,
            places: None,
        })
    }

    fn split_by(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        cut: &DecidedCut,
    ) -> Result<(), LiveError> {
        // Whoever applies the partition's entries is here: nothing moves its place meanwhile.
        let left = self.place_behind(id, entry)?;
        let right = AppliedPlace {
            stamp_ms: left.stamp_ms.max(cut.right_place.stamp_ms),
            // Of loads that are in the partition, both halves have their part.
            loaded: left.loaded,
            ..cut.right_place.clone()
        };
        self.split_at(&Cut {
            id,
            at: &cut.at,
            right: cut.right,
            places: Some([left, right]),
        })
    }

    fn split_at(&self, cut: &Cut<'_>) -> Result<(), LiveError> {
        let id = cut.id;
        let _one_at_a_time = self.ingesting.lock();
        self.parts
            .check_room()
            .map_err(|why| self.uncut(id, &why))?;
        // Before anything is written for it.
        self.halves_of(&self.structure.lock(), cut)?;
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        let is_replicated = self.options.replication.is_some();
        let memory_bytes = || self.parts.at(place).lock().memory_bytes();
        if !is_replicated || memory_bytes() > SMALL_BYTES {
            self.flush_of(&[place])?;
        }
        let _no_merges = self.hold_merges();
        let paused = Pause::new(self, vec![place]);
        paused.flush()?;
        self.closing(self.cut(cut, place))
    }

    fn cut(&self, cut: &Cut<'_>, place: usize) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let halves = self.halves_of(&manifest, cut)?;
        let runs = Arc::clone(&self.parts.at(place).lock().view.runs);
        let of_halves = self.runs_of_halves(&manifest, &runs, cut.id, &halves);
        let of_halves = of_halves.map_err(|source| self.shape.run_error(source))?;
        let mut next = manifest.clone();
        let places = places_of(cut);
        replace(&mut next, cut.id, &halves, &of_halves, &places);
        let checked = next.check_partitions();
        checked.map_err(|why| self.uncut(cut.id, &why))?;
        self.replace_manifest(&next)?;
        debug_assert!(
            halves[0].bounds.upper.as_ref() == Some(&halves[1].bounds.lower),
            "{halves:?} do not lie side by side"
        );
        let partitions = self.parts.places() + 1;
        let [left_runs, right_runs] = of_halves;
        let part = |runs: Vec<_>, at| {
            let part = LivePart::new(runs.into(), partitions, self.budget());
            part.at_place(at)
        };
        let ([left, right], [left_at, right_at]) = (halves, places);
        let halves = vec![
            (left, part(left_runs, left_at)),
            (right, part(right_runs, right_at)),
        ];
        self.parts.exchange(&self.shape, place, halves);
        // Runs of which neither has a record are nobody's.
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        self.remove_unnamed(runs.iter().map(|run| &run.reference.id));
        Ok(())
    }

    /// The two that a partition becomes.
    fn halves_of(
        &self,
        manifest: &LiveManifest,
        cut: &Cut<'_>,
    ) -> Result<[PartitionRange; 2], LiveError> {
        let (id, at) = (cut.id, cut.at);
        let mut partitions = manifest.partitions.iter();
        let whole = partitions.find(|partition| partition.id == id);
        let whole = whole.ok_or_else(|| self.no_partition(id))?;
        let bounds = &whole.bounds;
        if !lies_within(at, bounds) {
            return Err(self.uncut(
                id,
                &format!("{at} does not lie within it: it goes {bounds}"),
            ));
        }
        let is_known = |known: PartitionId| known == cut.right;
        let mut known = manifest.partitions.iter().map(|partition| partition.id);
        if known.any(is_known) || manifest.gone.iter().any(|gone| is_known(gone.id)) {
            let why = format!("another partition is, or was, {}: give a new id", cut.right);
            return Err(self.uncut(id, &why));
        }
        let (lower, upper) = (bounds.lower.clone(), bounds.upper.clone());
        let half = |id: PartitionId, lower: Bound, upper: Option<Bound>| PartitionRange {
            id,
            bounds: Bounds { lower, upper },
        };
        let left = half(id, lower, Some(at.clone()));
        Ok([left, half(cut.right, at.clone(), upper)])
    }

    /// The runs of both halves. What both have, or another partition has, is cut in each.
    fn runs_of_halves(
        &self,
        manifest: &LiveManifest,
        runs: &[Arc<LiveRun>],
        id: PartitionId,
        [left, right]: &[PartitionRange; 2],
    ) -> Result<[Vec<Arc<LiveRun>>; 2], RunError> {
        let others = manifest.partitions.iter().filter(|other| other.id != id);
        let others: HashSet<&RunId> = others
            .flat_map(|other| &other.runs)
            .map(|run| &run.id)
            .collect();
        let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
        for run in runs {
            let counts_left = run.counts_within(&left.bounds)?;
            let counts_right = run.counts_within(&right.bounds)?;
            let is_shared = counts_left && counts_right || others.contains(&run.reference.id);
            if counts_left {
                of_left.push(run.within(&left.bounds, is_shared)?);
            }
            if counts_right {
                of_right.push(run.within(&right.bounds, is_shared)?);
            }
        }
        Ok([of_left, of_right])
    }

    fn uncut(&self, id: PartitionId, why: &str) -> LiveError {
        LiveError::Partition {
            table: self.shape.table.clone(),
            problem: format!("partition {id} cannot be cut in two: {why}"),
        }
    }
}

fn lies_within(at: &Bound, bounds: &Bounds) -> bool {
    let is_of_order = std::mem::discriminant(at) == std::mem::discriminant(&bounds.lower);
    is_of_order && bounds.holds(at) && *at != bounds.lower
}

fn places_of(cut: &Cut<'_>) -> [Option<AppliedPlace>; 2] {
    match cut.places.clone() {
        Some(places) => places.map(Some),
        None => [None, None],
    }
}

/// Puts two partitions in the place of one. REQUIRES: it is there.
fn replace(
    manifest: &mut LiveManifest,
    id: PartitionId,
    halves: &[PartitionRange; 2],
    runs: &[Vec<Arc<LiveRun>>; 2],
    places: &[Option<AppliedPlace>; 2],
) {
    let found = manifest.partitions.iter().position(|part| part.id == id);
    debug_assert!(found.is_some(), "partition {id} is cut and not here");
    let Some(place) = found else { return };
    let whole = &manifest.partitions[place];
    let references = |runs: &Vec<Arc<LiveRun>>| -> Vec<LiveRunRef> {
        runs.iter().map(|run| run.reference.clone()).collect()
    };
    let parts: Vec<LivePartition> = halves
        .iter()
        .zip(runs)
        .zip(places)
        .map(|((range, runs), applied)| LivePartition {
            id: range.id,
            bounds: range.bounds.clone(),
            epoch: whole.epoch + 1,
            applied: applied.clone(),
            runs: references(runs),
        })
        .collect();
    manifest.partitions.splice(place..=place, parts);
}
