//! Splitting a partition: it keeps what lies before the first split point, and each child takes
//! what lies between its own and the next one.
//!
//! 1. Memory is flushed, then once more with the partition's writes held up: it is in its runs, and
//!    the log has nothing of it that would be read back. Who is going to split a partition of a
//!    replicated table has the first flush done before ([`LiveTable::prepare_split`]): where
//!    little is in memory, the second one is the only one. No merge is under way then.
//! 2. One replacement of the manifest puts all parts in its place. Each names its runs, as far as
//!    they have records for it, with bounds of its own where the file has others' as well.
//! 3. With all partitions locked, keys are led to the parts from then on. Who was led to the one
//!    before asks again.
//!
//! A replicated partition is split by an entry of its group's log, on every replica at the same
//! place of its history. What it keeps goes on in that log behind the entry; each child begins a
//! log of its own.

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

/// A partition that a split makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitChild {
    /// The split point: where it begins. It ends where the next child does begin, the last one
    /// where the whole ended.
    pub from: Bound,
    /// No partition has, or had, this id.
    pub id: PartitionId,
    /// Where the log of its group begins; `None`: the table is not replicated. Its time is the
    /// partition's.
    pub place: Option<AppliedPlace>,
}

/// What a partition is to be split into.
struct Split<'a> {
    id: PartitionId,
    /// Rising by their split points.
    children: &'a [SplitChild],
    /// The place of what the partition keeps, where it is replicated.
    place: Option<AppliedPlace>,
}

impl LiveTable {
    /// Applies an entry that splits its partition: see [`LiveTable::split`]. It keeps what comes
    /// before the first child, at the entry's place. Returns whether it did: where not all split
    /// points lie within the partition, as another entry split it before, the entry does nothing
    /// else than move the place.
    ///
    /// After an error nothing is split. One that [may pass](LiveError::may_pass) may be tried
    /// again.
    pub fn split_by(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        children: &[SplitChild],
    ) -> Result<bool, LiveError> {
        match self.can_split(id, children.iter().map(|child| &child.from))? {
            true => self.shared().split_by(id, entry, children).map(|()| true),
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

    /// Whether these split points, which rise, lie within a partition.
    pub fn can_split<'a>(
        &self,
        id: PartitionId,
        mut points: impl Iterator<Item = &'a Bound>,
    ) -> Result<bool, LiveError> {
        let ranges = self.partitions();
        let range = ranges.iter().find(|range| range.id == id);
        let range = range.ok_or_else(|| self.shared().no_partition(id))?;
        Ok(points.all(|at| lies_within(at, &range.bounds)))
    }
}

impl LiveShared {
    /// See [`LiveTable::split`](crate::live::LiveTable::split).
    pub fn split(&self, id: PartitionId, at: &Bound, right: PartitionId) -> Result<(), LiveError> {
        self.refuse_replicated("a split of a partition")?;
        let child = SplitChild {
            from: at.clone(),
            id: right,
            place: None,
        };
        self.split_into(&Split {
            id,
            children: &[child],
            place: None,
        })
    }

    fn split_by(
        &self,
        id: PartitionId,
        entry: &DecidedEntry,
        children: &[SplitChild],
    ) -> Result<(), LiveError> {
        // Whoever applies the partition's entries is here: nothing moves its place meanwhile.
        let kept = self.place_behind(id, entry)?;
        let mut children = children.to_vec();
        for place in children.iter_mut().filter_map(|child| child.place.as_mut()) {
            place.stamp_ms = place.stamp_ms.max(kept.stamp_ms);
            // Of loads that are in the partition, all have their part.
            place.loaded = kept.loaded;
        }
        self.split_into(&Split {
            id,
            children: &children,
            place: Some(kept),
        })
    }

    fn split_into(&self, split: &Split<'_>) -> Result<(), LiveError> {
        let id = split.id;
        let _one_at_a_time = self.ingesting.lock();
        self.parts
            .check_room(split.children.len() + 1)
            .map_err(|why| self.unsplit(id, &why))?;
        // Before anything is written for it.
        self.ranges_of(&self.structure.lock(), split)?;
        let place = self.parts.find(id).ok_or_else(|| self.no_partition(id))?;
        let is_replicated = self.options.replication.is_some();
        let memory_bytes = || self.parts.at(place).lock().memory_bytes();
        if !is_replicated || memory_bytes() > SMALL_BYTES {
            self.flush_of(&[place])?;
        }
        let _no_merges = self.hold_merges();
        let paused = Pause::new(self, vec![place]);
        paused.flush()?;
        self.closing(self.replace_by_parts(split, place))
    }

    fn replace_by_parts(&self, split: &Split<'_>, place: usize) -> Result<(), LiveError> {
        let mut manifest = self.structure.lock();
        let ranges = self.ranges_of(&manifest, split)?;
        let runs = Arc::clone(&self.parts.at(place).lock().view.runs);
        let of_parts = self.runs_of_parts(&manifest, &runs, split.id, &ranges);
        let of_parts = of_parts.map_err(|source| self.shape.run_error(source))?;
        let places: Vec<Option<AppliedPlace>> = std::iter::once(&split.place)
            .chain(split.children.iter().map(|child| &child.place))
            .cloned()
            .collect();
        let mut next = manifest.clone();
        replace(&mut next, split.id, &ranges, &of_parts, &places);
        let checked = next.check_partitions();
        checked.map_err(|why| self.unsplit(split.id, &why))?;
        self.replace_manifest(&next)?;
        let partitions = self.parts.places() + split.children.len();
        let part = |runs: Vec<_>, at| {
            let part = LivePart::new(runs.into(), partitions, self.budget());
            part.at_place(at)
        };
        let parts = ranges.into_iter().zip(of_parts).zip(places);
        let parts = parts.map(|((range, runs), at)| (range, part(runs, at)));
        self.parts.exchange(&self.shape, place, parts.collect());
        // Runs of which no part has a record are nobody's.
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        self.remove_unnamed(runs.iter().map(|run| &run.reference.id));
        Ok(())
    }

    /// What the partition keeps, and the children, side by side.
    fn ranges_of(
        &self,
        manifest: &LiveManifest,
        split: &Split<'_>,
    ) -> Result<Vec<PartitionRange>, LiveError> {
        let (id, children) = (split.id, split.children);
        let mut partitions = manifest.partitions.iter();
        let whole = partitions.find(|partition| partition.id == id);
        let whole = whole.ok_or_else(|| self.no_partition(id))?;
        let bounds = &whole.bounds;
        if let Some(outside) = children
            .iter()
            .find(|child| !lies_within(&child.from, bounds))
        {
            let at = &outside.from;
            return Err(self.unsplit(
                id,
                &format!("{at} does not lie within it: it goes {bounds}"),
            ));
        }
        let known = manifest.partitions.iter().map(|partition| partition.id);
        let known: HashSet<PartitionId> = known
            .chain(manifest.gone.iter().map(|gone| gone.id))
            .collect();
        if let Some(child) = children.iter().find(|child| known.contains(&child.id)) {
            let why = format!("another partition is, or was, {}: give a new id", child.id);
            return Err(self.unsplit(id, &why));
        }
        let points = || children.iter().map(|child| child.from.clone());
        let ids = std::iter::once(id).chain(children.iter().map(|child| child.id));
        let lowers = std::iter::once(bounds.lower.clone()).chain(points());
        let uppers = points().map(Some).chain([bounds.upper.clone()]);
        let ranges = ids.zip(lowers.zip(uppers));
        let ranges: Vec<PartitionRange> = ranges
            .map(|(id, (lower, upper))| PartitionRange {
                id,
                bounds: Bounds { lower, upper },
            })
            .collect();
        debug_assert!(
            ranges.is_sorted_by(|one, next| one.bounds.lower < next.bounds.lower),
            "{ranges:?} do not lie side by side"
        );
        Ok(ranges)
    }

    /// The runs of each part. One that several parts, or another partition, have is bounded in
    /// each.
    fn runs_of_parts(
        &self,
        manifest: &LiveManifest,
        runs: &[Arc<LiveRun>],
        id: PartitionId,
        ranges: &[PartitionRange],
    ) -> Result<Vec<Vec<Arc<LiveRun>>>, RunError> {
        let others = manifest.partitions.iter().filter(|other| other.id != id);
        let others: HashSet<&RunId> = others
            .flat_map(|other| &other.runs)
            .map(|run| &run.id)
            .collect();
        let mut of_parts = vec![Vec::new(); ranges.len()];
        for run in runs {
            let mut counting = Vec::new();
            for (part, range) in ranges.iter().enumerate() {
                if run.counts_within(&range.bounds)? {
                    counting.push(part);
                }
            }
            let is_shared = counting.len() > 1 || others.contains(&run.reference.id);
            for part in counting {
                of_parts[part].push(run.within(&ranges[part].bounds, is_shared)?);
            }
        }
        Ok(of_parts)
    }

    fn unsplit(&self, id: PartitionId, why: &str) -> LiveError {
        LiveError::Partition {
            table: self.shape.table.clone(),
            problem: format!("partition {id} cannot be split: {why}"),
        }
    }
}

fn lies_within(at: &Bound, bounds: &Bounds) -> bool {
    let is_of_order = std::mem::discriminant(at) == std::mem::discriminant(&bounds.lower);
    is_of_order && bounds.holds(at) && *at != bounds.lower
}

/// Puts its parts in the place of a partition. REQUIRES: it is there.
fn replace(
    manifest: &mut LiveManifest,
    id: PartitionId,
    ranges: &[PartitionRange],
    runs: &[Vec<Arc<LiveRun>>],
    places: &[Option<AppliedPlace>],
) {
    let found = manifest.partitions.iter().position(|part| part.id == id);
    debug_assert!(found.is_some(), "partition {id} is split and not here");
    let Some(place) = found else { return };
    let whole = &manifest.partitions[place];
    let references = |runs: &Vec<Arc<LiveRun>>| -> Vec<LiveRunRef> {
        runs.iter().map(|run| run.reference.clone()).collect()
    };
    let parts: Vec<LivePartition> = ranges
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
