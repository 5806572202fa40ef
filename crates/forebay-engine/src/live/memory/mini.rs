//! An immutable sorted run in memory.
//!
//! The records are consecutive, in sort order. A list has every sixteenth with its head, so that a
//! look-up searches a small array and then walks at most sixteen records. The first look-up builds
//! a filter. A run that is never read has none.

use std::sync::OnceLock;

use forebay_run::filter::{Filter, FilterBuilder};
use forebay_run::operation::Operation;

use crate::live::basics::record::{Record, append_raw};
use crate::live::basics::removed::RemovedRanges;
use crate::live::basics::shape::{KeyPlace, Shape};

/// Records between two entries of the list.
const BLOCK_RECORDS: u64 = 16;

#[derive(Debug, Clone, Copy)]
struct Block {
    head: u64,
    at: usize,
}

/// A sorted run in memory, with a list of its blocks.
#[derive(Debug, Default)]
pub(crate) struct MiniRun {
    /// How many times its records were merged in memory: see `levels`.
    pub level: u32,
    /// When the earliest of its deltas was written, in milliseconds since 1970-01-01 UTC: see
    /// [`LiveShared::droppable_ms`](crate::live::partition::shared::LiveShared::droppable_ms).
    pub deltas_since_ms: Option<u64>,
    /// The deleted ranges of older sources.
    pub removed: RemovedRanges,
    bytes: Vec<u8>,
    blocks: Vec<Block>,
    records: u64,
    longest_key: usize,
    filter: OnceLock<Filter>,
}

impl MiniRun {
    pub fn with_capacity(bytes: usize, records: u64) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            level: 0,
            deltas_since_ms: None,
            removed: RemovedRanges::default(),
            blocks: Vec::with_capacity((records / BLOCK_RECORDS) as usize + 1),
            records: 0,
            longest_key: 0,
            filter: OnceLock::new(),
        }
    }

    /// Creates a run without records that deletes these ranges.
    pub fn removing(removed: RemovedRanges) -> Self {
        Self {
            removed,
            ..Self::default()
        }
    }

    /// Appends a record. REQUIRES: its place is after that of the record before.
    #[inline]
    pub fn push(&mut self, head: u64, key: &[u8], tag: u8, payload: &[u8]) {
        if self.records.is_multiple_of(BLOCK_RECORDS) {
            let at = self.bytes.len();
            debug_assert!(
                self.blocks.last().is_none_or(|last| last.head <= head),
                "a record of head {head} comes after a block that begins with {:?}",
                self.blocks.last()
            );
            self.blocks.push(Block { head, at });
        }
        self.records += 1;
        self.longest_key = self.longest_key.max(key.len());
        append_raw(&mut self.bytes, key, tag, payload);
    }

    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the length of its longest key.
    pub fn longest_key(&self) -> usize {
        self.longest_key
    }

    /// Returns the memory it uses.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.removed.memory_bytes()
            + self.bytes.capacity()
            + self.blocks.capacity() * size_of::<Block>()
    }

    /// Frees unused capacity.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.blocks.shrink_to_fit();
    }

    /// Returns the record at an offset where one begins, or `None` at the end.
    #[inline]
    pub fn record(&self, at: usize) -> Option<Record<'_>> {
        Record::read(&self.bytes, at)
    }

    pub fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Returns keys at even distances, rising: about this many, or all listed ones.
    pub fn listed_keys(&self, count: usize) -> impl Iterator<Item = &[u8]> {
        let step = (self.blocks.len() / count.max(1)).max(1);
        let records = self.blocks.iter().step_by(step);
        records.filter_map(|block| Some(self.record(block.at)?.key))
    }

    /// Returns the bytes of a part of a record.
    #[inline]
    pub fn slice(&self, (start, end): (usize, usize)) -> &[u8] {
        &self.bytes[start..end]
    }

    /// Returns the last block that begins at or before the place, if there is one.
    #[inline]
    fn block_of(&self, head: u64, key: &[u8]) -> Option<usize> {
        let behind = |block: &Block| {
            block.head < head
                || block.head == head && self.record(block.at).is_some_and(|first| first.key <= key)
        };
        self.blocks.partition_point(behind).checked_sub(1)
    }

    /// Returns where the block begins that may have the place, and where it ends.
    pub fn block_around(&self, head: u64, key: &[u8]) -> (usize, usize) {
        let block = self.block_of(head, key).unwrap_or(0);
        self.block_bounds(block)
    }

    fn block_bounds(&self, block: usize) -> (usize, usize) {
        let at = |number: usize| self.blocks.get(number).map_or(self.end(), |block| block.at);
        (at(block), at(block + 1))
    }

    /// Returns the bounds of the last block that ends at or before the offset.
    pub fn block_before(&self, at: usize) -> Option<(usize, usize)> {
        let block = self.blocks.partition_point(|block| block.at < at);
        block.checked_sub(1).map(|block| self.block_bounds(block))
    }

    /// Returns the operation on a key.
    #[inline]
    pub fn get(&self, shape: &Shape, place: KeyPlace, key: &[u8]) -> Option<Operation<'_>> {
        if self.records == 0 {
            return None;
        }
        let filter = self.filter.get_or_init(|| self.build_filter(shape));
        if !filter.may_hold(place.spread) {
            return None;
        }
        let (mut at, end) = self.block_bounds(self.block_of(place.head, key)?);
        while at < end {
            let record = self.record(at)?;
            if record.key == key {
                return record.operation();
            }
            at += record.len_bytes;
        }
        None
    }

    fn build_filter(&self, shape: &Shape) -> Filter {
        let mut filter = FilterBuilder::new(self.records);
        let mut at = 0;
        while let Some(record) = self.record(at) {
            filter.add(shape.place(record.key).spread);
            at += record.len_bytes;
        }
        filter.finish()
    }
}
