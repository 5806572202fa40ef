//! One partition of a live table: the sources of its records, newest to oldest.
//!
//! ```text
//! active    the buffer that takes writes                                   under the partition's lock
//! minis     sorted runs in memory, of the generation that takes writes    \
//! frozen    the same, of generations that wait to be written to the disk   > a view: immutable, shared
//! runs      files                                                         /
//! ```
//!
//! Every change of a list creates a new view. Readers of the old view continue to read it. This is
//! how snapshots work: no record has a sequence number.

use std::sync::Arc;

use forebay_run::RunError;
use forebay_run::merge::{Merge, Resolve};
use forebay_run::operation::{CowOperation, Operation};
use forebay_run::scan::{Cursor, Direction, ScanRange};

use crate::live::basics::applied::AppliedPlace;
use crate::live::basics::error::LiveError;
use crate::live::basics::expiry::{Stored, earliest};
use crate::live::basics::levels::{MergeTask, due_at};
use crate::live::basics::removed::{KeyRange, RemovedRanges, cursors_of};
use crate::live::basics::shape::{KeyPlace, PartTime, Shape};
use crate::live::basics::traffic::PartitionTraffic;
use crate::live::basics::watch::Watchers;
use crate::live::memory::cursor::{MiniCursor, Purpose, RunCursor, SourceCursor};
use crate::live::memory::memtable::Memtable;
use crate::live::memory::mini::MiniRun;
use crate::live::memory::run::LiveRun;
use crate::live::partition::budget::{Budget, Member};

/// How many sorted buffers are merged into one run in memory, by the writer that filled the last
/// one: this takes some milliseconds.
const BUFFERS: usize = 16;
/// How many runs in memory of a higher level are merged into one, in the background. A generation
/// of some 80 MiB has fewer.
const MINIS: usize = 32;

/// Sorted runs in memory, oldest first.
pub(crate) type Minis = Arc<[Arc<MiniRun>]>;

/// The sources of a partition below its buffer. Each list is oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct PartView {
    pub runs: Arc<[Arc<LiveRun>]>,
    pub frozen: Arc<[Minis]>,
    pub minis: Minis,
}

/// A partition at one moment, without its buffer.
#[derive(Debug, Clone)]
pub(crate) struct SnapshotPart {
    pub view: Arc<PartView>,
    pub time: PartTime,
}

/// The state that the partition's lock guards.
#[derive(Debug, Default)]
pub(crate) struct LivePart {
    pub memtable: Memtable,
    /// The memory of the buffer that the budget has counted.
    pub counted_bytes: usize,
    pub view: Arc<PartView>,
    /// Whether keys were repeated recently: see [`Memtable::is_repetitive`].
    pub is_repetitive: bool,
    /// A buffer for the record that goes to the log.
    pub scratch: Vec<u8>,
    pub watchers: Watchers,
    pub access: Access,
    pub traffic: PartitionTraffic,
    /// Set for a replicated partition. Boxed, as others have none.
    pub applied: Option<Box<AppliedPosition>>,
}

/// The position up to which a replicated partition has applied its log.
#[derive(Debug, Clone)]
pub(crate) struct AppliedPosition {
    /// The place of the state, with memory included.
    pub place: AppliedPlace,
    /// By how many proposals, or entries without any, the place has moved without a write since the
    /// last freeze.
    pub unwritten: u64,
}

/// The access to a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Access {
    #[default]
    Open,
    /// Readers only; writers wait for a moment: see `pause`.
    Paused,
    /// None: the partition has left its place.
    Released,
}

/// The outcome of a look-up that may not wait for the device.
pub(crate) enum PartFound {
    Value(Option<Vec<u8>>),
    /// Not known without waiting.
    Waits,
}

impl LivePart {
    /// Creates a partition with these runs, of a table with this many partitions.
    pub fn new(runs: Arc<[Arc<LiveRun>]>, partitions: usize, budget: &Budget) -> Self {
        let view = PartView {
            runs,
            ..PartView::default()
        };
        Self {
            memtable: Memtable::within(budget.memtable_share() / (4 * partitions.max(1))),
            view: Arc::new(view),
            ..Self::default()
        }
    }

    /// Sets the place that its runs are at, if it is replicated.
    pub fn at_place(mut self, place: Option<AppliedPlace>) -> Self {
        self.applied = place.map(|place| {
            Box::new(AppliedPosition {
                place,
                unwritten: 0,
            })
        });
        self
    }

    /// Returns the source of its time.
    #[inline]
    pub fn time(&self) -> PartTime {
        match &self.applied {
            None => PartTime::CLOCK,
            Some(applied) => PartTime::stamp(applied.place.stamp_ms),
        }
    }

    /// Returns the partition as it is now. REQUIRES: the buffer is sorted.
    pub fn moment(&self) -> SnapshotPart {
        debug_assert!(
            self.memtable.is_empty(),
            "a moment is taken without {} records of the buffer",
            self.memtable.records()
        );
        SnapshotPart {
            view: Arc::clone(&self.view),
            time: self.time(),
        }
    }

    /// Creates a released partition.
    pub fn released() -> Self {
        Self {
            access: Access::Released,
            ..Self::default()
        }
    }

    pub fn is_here(&self) -> bool {
        self.access != Access::Released
    }

    /// Returns whether some of it is not in runs yet.
    pub fn has_memory(&self) -> bool {
        let view = &self.view;
        !self.memtable.is_empty() || view.all_minis().next().is_some()
    }

    /// Returns the bytes that are not in runs yet.
    pub fn memory_bytes(&self) -> usize {
        let minis = self.view.all_minis().map(|mini| mini.memory_bytes());
        self.memtable.memory_bytes() + minis.sum::<usize>()
    }

    /// Checks that all of it is in runs, and that the budget counts nothing for it, so that another
    /// may replace it.
    pub fn check_in_runs(&self) {
        debug_assert!(
            !self.has_memory(),
            "a partition goes, and {} records of its buffer and {} runs in memory with it",
            self.memtable.records(),
            self.view.all_minis().count()
        );
        debug_assert_eq!(
            self.counted_bytes, 0,
            "a partition goes whose buffer the budget counts"
        );
    }

    /// Reports the buffer's memory to the budget, if it has changed. Then returns whether the
    /// generation is to be frozen.
    #[inline]
    pub fn count_buffer(&mut self, memory: &Member) -> Option<bool> {
        let bytes = self.memtable.memory_bytes();
        if bytes == self.counted_bytes {
            return None;
        }
        memory.regrow(self.counted_bytes, bytes);
        self.counted_bytes = bytes;
        Some(memory.grow(0))
    }

    /// Sorts the active buffer into a run of the view. Returns whether the generation is to be
    /// frozen.
    pub fn seal(&mut self, memory: &Member) -> bool {
        if self.memtable.is_empty() {
            return false;
        }
        self.is_repetitive = self.memtable.is_repetitive();
        let mini = self.memtable.seal();
        let bytes = mini.memory_bytes();
        let minis = self
            .view
            .minis
            .iter()
            .cloned()
            .chain([Arc::new(mini)])
            .collect();
        self.view = Arc::new(PartView {
            minis,
            ..(*self.view).clone()
        });
        let freeze = memory.grow(bytes);
        self.count_buffer(memory).unwrap_or(false) | freeze
    }

    /// Deletes a range of keys, which is not empty. Returns whether the generation is to be frozen.
    /// REQUIRES: the buffer is sealed.
    pub fn remove(&mut self, range: KeyRange, memory: &Member) -> bool {
        debug_assert!(
            self.memtable.is_empty(),
            "{} records of the buffer would come after the deletion of {range:?}",
            self.memtable.records()
        );
        let mut mini = MiniRun::removing(RemovedRanges::of(range));
        let mut minis = self.view.minis.to_vec();
        // If nothing was written since the last range, both are joined.
        if let Some(last) = minis.pop_if(|last| last.records() == 0) {
            mini.removed.join(&last.removed);
            memory.regrow(last.memory_bytes(), 0);
        }
        let bytes = mini.memory_bytes();
        minis.push(Arc::new(mini));
        self.view = Arc::new(PartView {
            minis: minis.into(),
            ..(*self.view).clone()
        });
        memory.grow(bytes)
    }

    /// Ends the generation: its memory now waits to be flushed, and the buffer frees its memory.
    /// Returns how many bytes wait. REQUIRES: the buffer is sealed.
    pub fn freeze(&mut self, memory: &Member) -> usize {
        debug_assert!(
            self.memtable.is_empty(),
            "{} records of the buffer would be lost with their generation",
            self.memtable.records()
        );
        self.memtable = self.memtable.renewed();
        memory.regrow(std::mem::take(&mut self.counted_bytes), 0);
        let minis = self.view.minis.iter();
        let bytes = minis.map(|mini| mini.memory_bytes()).sum();
        let frozen = self
            .view
            .frozen
            .iter()
            .cloned()
            .chain([Arc::clone(&self.view.minis)]);
        self.view = Arc::new(PartView {
            frozen: frozen.collect(),
            minis: Minis::default(),
            runs: Arc::clone(&self.view.runs),
        });
        bytes
    }

    /// Counts a generation that others end. This partition has nothing in it, and keeps its memory.
    pub fn sit_out(&mut self) {
        let frozen = self.view.frozen.iter().cloned().chain([Minis::default()]);
        self.view = Arc::new(PartView {
            frozen: frozen.collect(),
            ..(*self.view).clone()
        });
    }

    /// Counts this many generations, in which it had nothing, as waiting to be flushed. REQUIRES:
    /// it has no memory yet.
    pub fn wait_along(&mut self, generations: usize) {
        debug_assert!(
            !self.has_memory(),
            "what a partition has in memory would be lost"
        );
        self.view = Arc::new(PartView {
            frozen: (0..generations).map(|_| Minis::default()).collect(),
            ..(*self.view).clone()
        });
    }

    /// Replaces the runs in memory that `merged` was made of, if all of them still exist. Returns
    /// whether it did.
    pub fn replace_minis(&mut self, old: &[Arc<MiniRun>], merged: Arc<MiniRun>) -> bool {
        let minis = &self.view.minis;
        let same = |window: &[Arc<MiniRun>]| window.iter().zip(old).all(|(a, b)| Arc::ptr_eq(a, b));
        let Some(first) = minis.windows(old.len()).position(same) else {
            return false;
        };
        let (before, after) = (&minis[..first], &minis[first + old.len()..]);
        let minis = before
            .iter()
            .cloned()
            .chain([merged])
            .chain(after.iter().cloned())
            .collect();
        self.view = Arc::new(PartView {
            minis,
            ..(*self.view).clone()
        });
        true
    }
}

impl PartView {
    /// Returns the sorted buffers that are to be merged now, and the level of the result.
    pub fn due_buffers(&self) -> Option<(&[Arc<MiniRun>], u32)> {
        self.due_minis(|levels| due_at(levels, 0, BUFFERS))
    }

    /// Returns the larger runs in memory that are to be merged, and the level of the result.
    pub fn due_large_minis(&self) -> Option<(&[Arc<MiniRun>], u32)> {
        self.due_minis(|levels| {
            let greatest = levels.iter().copied().max().unwrap_or(0);
            (1..=greatest).find_map(|level| due_at(levels, level, MINIS))
        })
    }

    fn due_minis(
        &self,
        due: impl Fn(&[u32]) -> Option<MergeTask>,
    ) -> Option<(&[Arc<MiniRun>], u32)> {
        let levels: Vec<u32> = self.minis.iter().map(|mini| mini.level).collect();
        due(&levels).map(|due| (&self.minis[due.runs], due.level))
    }

    /// Returns every run in memory, oldest first.
    pub fn all_minis(&self) -> impl DoubleEndedIterator<Item = &Arc<MiniRun>> {
        self.frozen
            .iter()
            .flat_map(|minis| minis.iter())
            .chain(self.minis.iter())
    }

    /// Returns the result of the operations on a key at that time; see [`PartView::resolve`].
    pub fn get(
        &self,
        (shape, time): (&Shape, PartTime),
        place: KeyPlace,
        key: &[u8],
        newest: Option<CowOperation<'_>>,
        wait: bool,
    ) -> Result<PartFound, LiveError> {
        let Some(operation) = self.resolve(shape, place, key, newest, wait)? else {
            return Ok(PartFound::Waits);
        };
        let value = operation.and_then(|operation| operation.into_value(|| shape.now_ms(time)));
        Ok(PartFound::Value(value.map(|value| value.into_owned())))
    }

    /// Like [`PartView::get`], with the moment of expiry; `None` if it would have to wait.
    pub fn stored(
        &self,
        (shape, time): (&Shape, PartTime),
        place: KeyPlace,
        key: &[u8],
        newest: Option<CowOperation<'_>>,
        wait: bool,
    ) -> Result<Option<Option<Stored>>, LiveError> {
        let resolved = self.resolve(shape, place, key, newest, wait)?;
        let stored = |operation: CowOperation<'_>| {
            let expires_ms = operation.borrow().times().expires_ms;
            let value = operation.into_value(|| shape.now_ms(time))?.into_owned();
            Some(Stored { value, expires_ms })
        };
        Ok(resolved.map(|operation| operation.and_then(stored)))
    }

    /// Combines the operations on a key. `newest` is the newest of them, if there is one that this
    /// view does not have. Without `wait` only memory is searched, and the answer may be `None`:
    /// not known without waiting.
    pub fn resolve<'a>(
        &self,
        shape: &'a Shape,
        place: KeyPlace,
        key: &'a [u8],
        newest: Option<CowOperation<'a>>,
        wait: bool,
    ) -> Result<Option<Option<CowOperation<'a>>>, LiveError> {
        let mut settled = KeyComposer {
            shape,
            key,
            composed: newest,
        };
        for mini in self.all_minis().rev() {
            if settled.is_final() {
                break;
            }
            if let Some(operation) = mini.get(shape, place, key) {
                settled.add_older(&operation)?;
            }
            if mini.removed.covers(key) {
                settled.add_older(&Operation::Delete)?;
            }
        }
        for run in self.runs.iter().rev() {
            if settled.is_final() {
                break;
            }
            if run.run.may_hold(place.spread) {
                let found = if wait {
                    run.run.get(place.hash, key)
                } else {
                    match run.run.try_get(place.hash, key) {
                        Ok(forebay_run::Lookup::NotResident) => return Ok(None),
                        found => found.map(forebay_run::Lookup::found),
                    }
                };
                if let Some(operation) = found.map_err(|source| shape.run_error(source))? {
                    settled.add_older(&operation.into_operation().borrow())?;
                }
            }
            if run.reference.removed.covers(key) {
                settled.add_older(&Operation::Delete)?;
            }
        }
        Ok(Some(settled.composed))
    }

    /// Returns cursors over all sources, oldest first.
    pub fn cursors(
        &self,
        shape: &Arc<Shape>,
        range: &ScanRange,
        direction: Direction,
    ) -> Vec<SourceCursor> {
        let mut removed = RemovedRanges::default();
        let (minis, way) = (self.all_minis().rev(), (range, direction));
        let minis = mini_cursors(shape, minis, &mut removed, way);
        let runs = self.runs.iter().rev();
        let mut cursors = run_cursors(runs, &mut removed, way, Purpose::Reading);
        cursors.extend(minis.into_iter().map(SourceCursor::Mini));
        cursors
    }

    /// Returns whether ranges have deleted half of the records on the disk: by the ranges on the
    /// disk, and with `with_memory` also by those in memory.
    pub fn is_half_removed(&self, with_memory: bool) -> bool {
        let mut removed = RemovedRanges::default();
        for mini in self.all_minis().filter(|_| with_memory) {
            removed.join(&mini.removed);
        }
        let (mut dead_pages, mut pages) = (0, 0);
        for run in self.runs.iter().rev() {
            let seen = run.pages_seen();
            pages += seen;
            dead_pages += removed.pages_of(&run.run).min(seen);
            removed.join(&run.reference.removed);
        }
        dead_pages > 0 && dead_pages * 2 >= pages
    }

    /// Returns the number of deleted ranges of the runs in memory and on the disk, each counted
    /// separately.
    pub fn removed_ranges(&self) -> usize {
        let minis = self.all_minis().map(|mini| mini.removed.len());
        let runs = self.runs.iter().map(|run| run.reference.removed.len());
        minis.chain(runs).sum()
    }
}

/// See [`cursors_of`].
pub(crate) fn mini_cursors<'a>(
    shape: &Arc<Shape>,
    newest_first: impl Iterator<Item = &'a Arc<MiniRun>>,
    removed: &mut RemovedRanges,
    way: (&ScanRange, Direction),
) -> Vec<MiniCursor> {
    let sources = newest_first.map(|mini| (mini, &mini.removed));
    cursors_of(sources, removed, way, |mini, ranges| {
        MiniCursor::over(mini, shape, ranges, way.1)
    })
}

/// See [`cursors_of`].
pub(crate) fn run_cursors<'a>(
    newest_first: impl Iterator<Item = &'a Arc<LiveRun>>,
    removed: &mut RemovedRanges,
    way: (&ScanRange, Direction),
    purpose: Purpose,
) -> Vec<SourceCursor> {
    let sources = newest_first.map(|run| (run, &run.reference.removed));
    cursors_of(sources, removed, way, |run, ranges| {
        RunCursor::over(&run.run, run.seen(ranges), way.1, purpose).map(SourceCursor::Run)
    })
}

/// Combines operations on one key, added newest first.
struct KeyComposer<'a> {
    shape: &'a Shape,
    key: &'a [u8],
    composed: Option<CowOperation<'a>>,
}

impl KeyComposer<'_> {
    fn is_final(&self) -> bool {
        self.composed
            .as_ref()
            .is_some_and(|operation| operation.borrow().is_final())
    }

    fn add_older(&mut self, older: &Operation<'_>) -> Result<(), LiveError> {
        self.composed = Some(match &self.composed {
            None => older.to_owned(),
            Some(newer) => self.shape.compose(self.key, older, &newer.borrow())?,
        });
        Ok(())
    }
}

/// Merges sorted runs in memory into one of that level.
pub(crate) fn merge_minis(
    shape: &Arc<Shape>,
    minis: &[Arc<MiniRun>],
    level: u32,
) -> Result<MiniRun, RunError> {
    let bytes = minis.iter().map(|mini| mini.end()).sum();
    let records = minis.iter().map(|mini| mini.records()).sum();
    let mut removed = RemovedRanges::default();
    let way = (&ScanRange::all(), Direction::Forward);
    let cursors = mini_cursors(shape, minis.iter().rev(), &mut removed, way);
    let resolve = Resolve::Compose(shape.kind());
    let mut merge = Merge::new(cursors, resolve, Direction::Forward);
    let mut merged = MiniRun::with_capacity(bytes, records);
    merged.level = level;
    merged.removed = removed;
    while merge.advance()? {
        let (tag, payload) = merge.encoded();
        merged.push(merge.head(), merge.key(), tag, &payload);
    }
    debug_assert!(
        merged.records() <= records,
        "{records} records in memory became {}",
        merged.records()
    );
    merged.shrink();
    merged.deltas_since_ms = earliest(minis.iter().map(|mini| mini.deltas_since_ms));
    Ok(merged)
}
