//! Splits a partition: it keeps the keys before the first split point.
//!
//! Each child gets the keys between its own split point and the next one.
//!
//! 1. Memory is flushed, then once more with the partition's writes paused. All its data is in runs
//!    then, and recovery would apply nothing of the log to it. For a partition of a replicated
//!    table, the caller requests the first flush in advance ([`LiveTable::prepare_split`]). If
//!    memory is small, there is only the second flush. No merge is running then.
//! 2. One replacement of the manifest puts all parts in its place. Each part names the runs that
//!    have records for it, with its own bounds if the file has records of others as well.
//! 3. With all partitions locked, the router is replaced: keys are now routed to the parts. A
//!    thread that was routed to the old partition asks again.
//!
//! A replicated partition is split by an entry of its group's log, at the same position on every
//! replica. It continues in that log after the entry. Each child begins a log of its own.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use forebay_run::RunError;

use crate::keys::bound::Bound;
use crate::keys::partition::{Bounds, PartitionId, PartitionRange};
use crate::live::LiveTable;
use crate::live::basics::applied::{AppliedPlace, DecidedEntry};
use crate::live::basics::error::LiveError;
use crate::live::basics::manifest::{LiveManifest, LivePartition, LiveRunRef};
use crate::live::memory::run::LiveRun;
use crate::live::partition::part::LivePart;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;
use crate::name::RunId;

/// If memory is smaller than this, the first flush is left out: the second one takes only some
/// milliseconds for it.
const SMALL_BYTES: usize = 1 << 20;
/// No merge begins for this long after a caller has asked whether a partition is ready.
const PUT_OFF: Duration = Duration::from_secs(1);

/// A new partition of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitChild {
    /// The split point, where it begins. It ends at the next child's split point; the last one ends
    /// where the whole partition ended.
    pub from: Bound,
    /// An id that no partition has or had.
    pub id: PartitionId,
    /// The start of its group's log; `None` if the table is not replicated. Its time is the
    /// partition's.
    pub place: Option<AppliedPlace>,
}

/// The description of a split.
struct Split<'a> {
    id: PartitionId,
    /// Rising by their split points.
    children: &'a [SplitChild],
    /// The new place of the partition that is split, if it is replicated.
    place: Option<AppliedPlace>,
}

impl LiveTable {
    /// Applies an entry that splits its partition: see [`LiveTable::split`]. The partition keeps
    /// the keys before the first child, at the entry's place. Returns whether it was split. If a
    /// split point is outside the partition, because another entry split it before, the entry only
    /// moves the place.
    ///
    /// After an error nothing is split. After one that [may pass](LiveError::may_pass) the caller
    /// may try again.
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

    /// Starts to flush the memory of a partition of a replicated table, so that its split only
    /// pauses writes to flush what was written meanwhile. Does not wait. Returns the number for
    /// [`LiveTable::is_ready_to_split`].
    pub fn prepare_split(&self, id: PartitionId) -> Result<u64, LiveError> {
        let shared = self.shared();
        let place = shared.parts.find(id);
        let place = place.ok_or_else(|| shared.no_partition(id))?;
        shared.put_off_merges(PUT_OFF);
        Ok(shared.freeze_moved(Some(&[place]), 1))
    }

    /// Returns whether that flush is done, or cannot be done now, and no merge is running. No merge
    /// begins for a second.
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

    /// Returns whether these split points, which rise, are within a partition.
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
        // This thread applies the partition's entries, so nothing else moves its place.
        let kept = self.place_behind(id, entry)?;
        let mut children = children.to_vec();
        for place in children.iter_mut().filter_map(|child| child.place.as_mut()) {
            place.stamp_ms = place.stamp_ms.max(kept.stamp_ms);
            // Loads that the partition has are in all its parts.
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
        // Checked before anything is written for it.
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
        // Runs without a record of any part are removed.
        self.changed_partitions(&mut manifest, next);
        drop(manifest);
        self.remove_unnamed(runs.iter().map(|run| &run.reference.id));
        Ok(())
    }

    /// Returns the ranges of what the partition keeps, and of the children, in order.
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

    /// Returns the runs of each part. A run that several parts, or another partition, share gets
    /// bounds in each.
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

/// Replaces a partition by its parts. REQUIRES: the table holds it.
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
