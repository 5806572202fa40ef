//! Collects the records of one thread: an arena of bytes and a 16-byte entry for each record.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forebay_run::Order;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::Operation;

use super::arena::{Arena, Entry, SortedRecords};
use super::arrange::{Arrangement, DrawnKeys};
use super::order::{head_of, settle_duplicates, sort_entries};
use super::plan::WORK_BYTES;
use super::spill::Spill;
use super::{SPILL_PREFIX, SortError, SortPlan, Tally, collect_operation};

const LEAST_SHARE_BYTES: usize = 1 << 20;
/// The most copies of a record that reading and encoding hold besides the arena.
const COPIES: usize = 5;

/// The records that a thread has collected: spilled runs, oldest first, then the rest in memory.
#[derive(Debug)]
pub struct CollectedRecords {
    pub spills: Vec<Spill>,
    pub rest: Arc<SortedRecords>,
    pub seen: Tally,
    pub dropped: Tally,
    /// The drawn keys of records that are not in key order.
    pub drawn: Option<DrawnKeys>,
}

impl CollectedRecords {
    /// Returns the length of the longest key.
    pub fn longest_key(&self) -> usize {
        let spilled = self.spills.iter().map(|spill| spill.run.longest_key());
        spilled.fold(self.rest.longest_key, usize::max)
    }
}

/// A collector of the records of one thread.
#[derive(Debug)]
pub struct Collector {
    plan: SortPlan,
    hasher: KeyHasher,
    share_bytes: usize,
    /// The part of the share that the arena may fill. Copies of the largest record must also fit.
    room_bytes: usize,
    largest_record: usize,
    arena: Arena,
    entries: Vec<Entry>,
    units: Vec<(u64, u32)>,
    payload_bytes: u64,
    longest_key: usize,
    spills: Vec<Spill>,
    seen: Tally,
    dropped: Tally,
    /// The current record, with its operation.
    collected: Vec<u8>,
    /// The number of records of the current unit before it.
    index: u64,
    /// The sort key, if it is not the record's key.
    arranged: Vec<u8>,
    drawn: Option<DrawnKeys>,
}

impl Collector {
    pub fn new(plan: &SortPlan) -> Self {
        let share_bytes = (plan.memory_bytes / plan.threads.max(1)).max(LEAST_SHARE_BYTES);
        Self {
            plan: plan.clone(),
            hasher: plan.hasher(),
            share_bytes,
            room_bytes: share_bytes,
            largest_record: 0,
            arena: Arena::new(share_bytes),
            entries: Vec::new(),
            units: Vec::new(),
            payload_bytes: 0,
            longest_key: 0,
            spills: Vec::new(),
            seen: Tally::default(),
            dropped: Tally::default(),
            collected: Vec::new(),
            index: 0,
            arranged: Vec::new(),
            drawn: (plan.arrangement != Arrangement::ByKey).then(DrawnKeys::default),
        }
    }

    /// Starts input unit `unit`, which the following records come from. REQUIRES rising units.
    pub fn start_unit(&mut self, unit: u32) {
        let place = self.entries.last().map_or(0, |last| last.place + 1);
        self.units.push((place, unit));
        self.index = 0;
    }

    /// Returns the tally of the records received so far.
    pub fn seen(&self) -> Tally {
        self.seen
    }

    /// Adds an update. REQUIRES a key of a valid length, and that the plan is one without
    /// operations.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), SortError> {
        if self.is_full(key.len() + value.len()) {
            self.spill()?;
        }
        self.seen.add(key, value);
        self.arrange(key, value)
    }

    /// Adds a record with an operation. REQUIRES a key of a valid length, and that the plan is one
    /// for operations.
    #[inline]
    pub fn push_operation(
        &mut self,
        key: &[u8],
        operation: Operation<'_>,
    ) -> Result<(), SortError> {
        let mut collected = std::mem::take(&mut self.collected);
        collect_operation(operation, &mut collected);
        if self.is_full(key.len() + collected.len()) {
            self.spill()?;
        }
        self.seen.add(key, self.plan.payload(&collected));
        let arranged = self.arrange(key, &collected);
        self.collected = collected;
        arranged
    }

    #[inline]
    fn arrange(&mut self, key: &[u8], value: &[u8]) -> Result<(), SortError> {
        let Some(drawn) = &mut self.drawn else {
            self.collect(key, value);
            return Ok(());
        };
        drawn.see(key, (key.len() + value.len()) as u64);
        let unit = self.units.last().map_or(0, |(_, unit)| *unit);
        let mut arranged = std::mem::take(&mut self.arranged);
        let arrangement = self.plan.arrangement;
        arrangement.arrange(key, (unit, self.index), &mut arranged)?;
        self.index += 1;
        self.collect(&arranged, value);
        self.arranged = arranged;
        Ok(())
    }

    #[inline]
    fn collect(&mut self, key: &[u8], value: &[u8]) {
        let place = self.arena.push(key, value);
        let head = match self.plan.order() {
            Order::Hashed => self.hasher.hash64(key),
            Order::Ordered => head_of(key, 0),
        };
        self.entries.push(Entry { head, place });
        self.payload_bytes += (key.len() + value.len()) as u64;
        self.longest_key = self.longest_key.max(key.len());
    }

    /// Returns whether a record of `more` bytes would exceed the collector's share. The table of
    /// entries doubles when it grows, and the old and the new table exist together meanwhile.
    #[inline]
    fn is_full(&mut self, more: usize) -> bool {
        if more > self.largest_record {
            self.largest_record = more;
            let copies = (COPIES * more).saturating_sub(WORK_BYTES as usize);
            let room = self.share_bytes.saturating_sub(copies);
            self.room_bytes = room.max(self.share_bytes / 4);
        }
        let entry_bytes = size_of::<Entry>();
        let mut table = self.entries.capacity() * entry_bytes;
        if self.entries.len() == self.entries.capacity() {
            table *= 3;
        }
        self.arena.bytes_with(more) + table > self.room_bytes && !self.entries.is_empty()
    }

    fn sort(&mut self) -> Result<SortedRecords, SortError> {
        let mut sorted = SortedRecords {
            arena: std::mem::replace(&mut self.arena, Arena::new(self.share_bytes)),
            entries: std::mem::take(&mut self.entries),
            units: std::mem::take(&mut self.units),
            payload_bytes: std::mem::take(&mut self.payload_bytes),
            longest_key: std::mem::take(&mut self.longest_key),
        };
        let order = self.plan.order();
        let equal_heads = sort_entries(&mut sorted.entries, &sorted.arena, order);
        let SortedRecords { arena, entries, .. } = &mut sorted;
        settle_duplicates(entries, arena, &equal_heads, &self.plan, &mut self.dropped)?;
        Ok(sorted)
    }

    /// Sorts the records in memory and writes them as one run in the scratch directory.
    fn spill(&mut self) -> Result<(), SortError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let unit = self.units.last().copied();
        let sorted = self.sort()?;
        let name = format!("{SPILL_PREFIX}{}.run", NUMBER.fetch_add(1, Relaxed));
        let path: PathBuf = self.plan.scratch.join(name);
        self.spills.push(Spill::write(&self.plan, &path, sorted)?);
        self.units.extend(unit.map(|(_, unit)| (0, unit)));
        Ok(())
    }

    /// Sorts the remaining records. If runs were spilled, the rest still stays in memory.
    pub fn finish(mut self) -> Result<CollectedRecords, SortError> {
        let rest = Arc::new(self.sort()?);
        let Self {
            spills,
            seen,
            dropped,
            drawn,
            ..
        } = self;
        Ok(CollectedRecords {
            spills,
            rest,
            seen,
            dropped,
            drawn,
        })
    }
}
