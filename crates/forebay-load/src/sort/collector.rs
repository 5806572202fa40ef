//! One thread's records: an arena of bytes and an entry of 16 bytes for each record.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use forebay_run::Order;
use forebay_run::hash::KeyHasher;
use forebay_run::operation::Operation;

use super::order::{head_of, settle_duplicates, sort_entries};
use super::spill::Spill;
use super::{SPILL_PREFIX, SortError, SortPlan, Tally, collect_operation};

/// The arena grows by blocks of this size, or of an eighth of the collector's share when that is
/// less; a larger record gets a block of its own.
const BLOCK_BYTES: usize = 4 << 20;
const LEAST_SHARE_BYTES: usize = 1 << 20;
/// A record in the arena: lengths of key (16 bits) and value (48 bits), key, value.
const RECORD_HEAD_BYTES: usize = 8;

/// A record's place among others, and in the arena. Sorting moves these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The hash64, or eight bytes of the key.
    pub head: u64,
    /// Block number and offset in it; rises with the order of arrival.
    pub place: u64,
}

/// Records one behind the other.
#[derive(Debug)]
pub struct Arena {
    blocks: Vec<Vec<u8>>,
    bytes: usize,
    block_bytes: usize,
}

impl Arena {
    fn new(share_bytes: usize) -> Self {
        Self {
            blocks: Vec::new(),
            bytes: 0,
            block_bytes: BLOCK_BYTES.min(share_bytes / 8),
        }
    }

    fn room_bytes(&self) -> usize {
        self.blocks
            .last()
            .map_or(0, |block| block.capacity() - block.len())
    }

    pub fn push(&mut self, key: &[u8], value: &[u8]) -> u64 {
        let need = RECORD_HEAD_BYTES + key.len() + value.len();
        if self.room_bytes() < need {
            let size = self.block_bytes.max(need);
            self.blocks.push(Vec::with_capacity(size));
            self.bytes += size;
        }
        let number = self.blocks.len() as u64 - 1;
        let Some(block) = self.blocks.last_mut() else {
            return 0;
        };
        let place = number << 32 | block.len() as u64;
        let head = (key.len() as u64) << 48 | value.len() as u64;
        block.extend_from_slice(&head.to_le_bytes());
        block.extend_from_slice(key);
        block.extend_from_slice(value);
        place
    }

    /// The key and the value at `place`.
    #[inline]
    pub fn record(&self, place: u64) -> (&[u8], &[u8]) {
        let bytes = &self.blocks[(place >> 32) as usize][(place & 0xffff_ffff) as usize..];
        let (head, bytes) = bytes.split_at(RECORD_HEAD_BYTES);
        let head = head
            .first_chunk()
            .map_or(0, |head| u64::from_le_bytes(*head));
        let (key, bytes) = bytes.split_at((head >> 48) as usize);
        (key, &bytes[..(head & 0xffff_ffff_ffff) as usize])
    }

    #[inline]
    pub fn key(&self, place: u64) -> &[u8] {
        self.record(place).0
    }

    /// Starts fetching the record at `place` into the cache.
    #[inline]
    pub fn prefetch(&self, place: u64) {
        let block = &self.blocks[(place >> 32) as usize];
        let at = (place & 0xffff_ffff) as usize;
        forebay_io::raw::prefetch(block, at);
        forebay_io::raw::prefetch(block, at + 64);
    }
}

/// Sorted records in memory, with what is needed to tell their ages.
#[derive(Debug)]
pub struct Sorted {
    pub arena: Arena,
    pub entries: Vec<Entry>,
    /// The first place of each unit's records, rising.
    units: Vec<(u64, u32)>,
    /// Bytes of keys and values.
    pub payload_bytes: u64,
    /// The length of the longest key.
    pub longest_key: usize,
}

impl Sorted {
    /// The input unit of the record at `place`.
    pub fn unit(&self, place: u64) -> u32 {
        let after = self.units.partition_point(|&(first, _)| first <= place);
        self.units[after.saturating_sub(1)].1
    }
}

/// What a thread has collected: spilled runs, oldest first, then the rest in memory.
#[derive(Debug)]
pub struct Collected {
    pub spills: Vec<Spill>,
    pub rest: Arc<Sorted>,
    pub seen: Tally,
    pub dropped: Tally,
}

impl Collected {
    /// No key of it is longer.
    pub fn longest_key(&self) -> usize {
        let spilled = self.spills.iter().map(|spill| spill.run.longest_key());
        spilled.fold(self.rest.longest_key, usize::max)
    }
}

/// Collects the records of one thread.
#[derive(Debug)]
pub struct Collector {
    plan: SortPlan,
    hasher: KeyHasher,
    share_bytes: usize,
    arena: Arena,
    entries: Vec<Entry>,
    units: Vec<(u64, u32)>,
    payload_bytes: u64,
    longest_key: usize,
    spills: Vec<Spill>,
    seen: Tally,
    dropped: Tally,
    /// The record at hand, with its operation.
    collected: Vec<u8>,
}

impl Collector {
    pub fn new(plan: &SortPlan) -> Self {
        let share_bytes = (plan.memory_bytes / plan.threads.max(1)).max(LEAST_SHARE_BYTES);
        Self {
            plan: plan.clone(),
            hasher: plan.hasher(),
            share_bytes,
            arena: Arena::new(share_bytes),
            entries: Vec::new(),
            units: Vec::new(),
            payload_bytes: 0,
            longest_key: 0,
            spills: Vec::new(),
            seen: Tally::default(),
            dropped: Tally::default(),
            collected: Vec::new(),
        }
    }

    /// The records that follow come from input unit `unit`. REQUIRES rising units.
    pub fn start_unit(&mut self, unit: u32) {
        let place = self.entries.last().map_or(0, |last| last.place + 1);
        self.units.push((place, unit));
    }

    /// Adds an update. REQUIRES a key of a valid length, and that the plan is one without operations.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), SortError> {
        if self.is_full(key.len() + value.len()) {
            self.spill()?;
        }
        self.seen.add(key, value);
        self.collect(key, value);
        Ok(())
    }

    /// Adds a record with an operation. REQUIRES a key of a valid length, and that the plan is one for
    /// operations.
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
        self.collect(key, &collected);
        self.collected = collected;
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

    /// Whether a record of `more` bytes would take the collector over its share. The table of
    /// entries doubles when it grows, and holds both halves while it does.
    #[inline]
    fn is_full(&self, more: usize) -> bool {
        let entry_bytes = size_of::<Entry>();
        let mut table = self.entries.capacity() * entry_bytes;
        if self.entries.len() == self.entries.capacity() {
            table *= 3;
        }
        let need = more + RECORD_HEAD_BYTES;
        let full = self.arena.room_bytes() < need;
        let grown = if full {
            self.arena.block_bytes.max(need)
        } else {
            0
        };
        self.arena.bytes + grown + table > self.share_bytes && !self.entries.is_empty()
    }

    fn sort(&mut self) -> Result<Sorted, SortError> {
        let mut sorted = Sorted {
            arena: std::mem::replace(&mut self.arena, Arena::new(self.share_bytes)),
            entries: std::mem::take(&mut self.entries),
            units: std::mem::take(&mut self.units),
            payload_bytes: std::mem::take(&mut self.payload_bytes),
            longest_key: std::mem::take(&mut self.longest_key),
        };
        let order = self.plan.order();
        let equal_heads = sort_entries(&mut sorted.entries, &sorted.arena, order);
        let Sorted { arena, entries, .. } = &mut sorted;
        settle_duplicates(entries, arena, &equal_heads, &self.plan, &mut self.dropped)?;
        Ok(sorted)
    }

    /// Sorts what is in memory and writes it as one run of the scratch directory.
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

    /// Sorts what is left. With runs already spilled the rest stays in memory beside them.
    pub fn finish(mut self) -> Result<Collected, SortError> {
        let rest = Arc::new(self.sort()?);
        let Self {
            spills,
            seen,
            dropped,
            ..
        } = self;
        Ok(Collected {
            spills,
            rest,
            seen,
            dropped,
        })
    }
}
