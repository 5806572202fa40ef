//! Finds the partition of a key.
//!
//! This is on the path of every read. In hashed tables of many partitions it is one load from a
//! table of 32 KiB. With few partitions, it compares with all of their bounds, so that many small
//! tables need little memory. In ordered tables it is a binary search over the bounds.
//!
//! The order is divided into *segments*. Each is a partition, or a gap between partitions whose
//! keys this store does not hold.

use std::ops::{Bound as RangeBound, Range};

use forebay_run::Order;
use forebay_run::batch::Ahead;
use forebay_run::hash::{KeyHasher, SLOTS, slot_of};
use forebay_run::scan::{Position, ScanRange};

use crate::keys::bound::Bound;
use crate::keys::partition::{Bounds, first_bound};
use crate::name::TableName;

/// The position and progress of the look-up of a key in a batch.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    pub hash: u64,
    pub partition: usize,
    pub ahead: Option<Ahead<'a>>,
}

/// A router that finds partitions by sort key.
#[derive(Debug)]
pub(crate) struct Router {
    hasher: KeyHasher,
    order: Order,
    map: Map,
    /// The partition of each segment, or [`GAP`].
    owners: Box<[u16]>,
    /// The number of this router among the table's routers, from 0.
    number: u64,
}

/// The most segments whose beginnings are compared by one or two instructions.
const FEW: usize = 8;

/// The value that stands for no partition.
const GAP: u16 = u16::MAX;

#[derive(Debug)]
enum Map {
    One,
    /// The beginnings of segments; the rest are after the last slot.
    FewSlots([u16; FEW]),
    Slots {
        /// The partition of each slot, or [`GAP`].
        of: Box<[u16; SLOTS as usize]>,
        /// The beginnings of segments.
        starts: Vec<u16>,
    },
    /// The beginnings of segments.
    Keys(Vec<Vec<u8>>),
}

impl Router {
    /// `held`: the held partitions, with the numbers that look-ups return. REQUIRES: their bounds
    /// rise, do not overlap, and are of this order.
    pub fn new<'a>(
        table: &TableName,
        order: Order,
        held: impl Iterator<Item = (usize, &'a Bounds)>,
    ) -> Self {
        let segments = segments(order, held);
        let owners: Box<[u16]> = segments.iter().map(|(_, owner)| *owner).collect();
        let starts = segments.into_iter().map(|(start, _)| start);
        let map = match order {
            _ if starts.len() == 1 => Map::One,
            Order::Hashed => slot_map(starts, &owners),
            Order::Ordered => Map::Keys(starts.filter_map(Bound::into_key).collect()),
        };
        Self {
            hasher: KeyHasher::new(&table.wire_prefix()),
            order,
            map,
            owners,
            number: 0,
        }
    }

    /// Returns the router with the next number, to replace the previous one.
    pub fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// Returns the hash that a run's look-up needs with the key: its hash64, or 0 if none is
    /// needed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match self.order {
            Order::Hashed => self.hasher.hash64(key),
            Order::Ordered => 0,
        }
    }

    /// Returns the partition of a key, given its hash; `None` if it is not held.
    #[inline]
    pub fn partition(&self, hash: u64, key: &[u8]) -> Option<usize> {
        let owner = match &self.map {
            Map::One => self.owners[0],
            Map::FewSlots(starts) => self.owners[segment_of_slot(starts, slot_of(hash))],
            Map::Slots { of, .. } => of[usize::from(slot_of(hash))],
            Map::Keys(starts) => self.owners[segment_of_key(starts, key)],
        };
        (owner != GAP).then_some(usize::from(owner))
    }

    /// Returns the partition of a segment; `None` for a gap.
    pub fn owner(&self, segment: usize) -> Option<usize> {
        let owner = self.owners[segment];
        (owner != GAP).then_some(usize::from(owner))
    }

    /// Returns the segments that overlap a range.
    pub fn segments(&self, range: &ScanRange) -> Range<usize> {
        let segment = |at: &Position| match &self.map {
            Map::One => 0,
            Map::FewSlots(starts) => segment_of_slot(starts, slot_of(at.hash)),
            Map::Slots { starts, .. } => {
                let slot = slot_of(at.hash);
                starts.partition_point(|start| *start <= slot) - 1
            }
            Map::Keys(starts) => segment_of_key(starts, &at.key),
        };
        debug_assert!(!self.owners.is_empty(), "a router without a segment");
        let first = match &range.from {
            RangeBound::Included(at) | RangeBound::Excluded(at) => segment(at),
            RangeBound::Unbounded => 0,
        };
        let last = match (&range.to, &self.map) {
            // A range that ends where a segment begins does not overlap it.
            (RangeBound::Excluded(at), Map::Keys(starts)) => {
                starts[1..].partition_point(|start| *start < at.key)
            }
            (RangeBound::Included(at) | RangeBound::Excluded(at), _) => segment(at),
            (RangeBound::Unbounded, _) => self.owners.len() - 1,
        };
        first..last + 1
    }

    /// Returns the first position in a range of keys that is not held; `None` if all of it is.
    pub fn gap_in(&self, range: &ScanRange) -> Option<Vec<u8>> {
        let gap = self.segments(range).find(|at| self.owners[*at] == GAP)?;
        let start = match &self.map {
            Map::Keys(starts) => starts[gap].clone(),
            _ => Vec::new(),
        };
        let from = match &range.from {
            RangeBound::Included(at) | RangeBound::Excluded(at) => &at.key[..],
            RangeBound::Unbounded => &[],
        };
        Some(start.max(from.to_vec()))
    }
}

/// The first segment begins where the order does, so there is one below any key.
#[inline]
fn segment_of_key(starts: &[Vec<u8>], key: &[u8]) -> usize {
    starts[1..].partition_point(|start| &start[..] <= key)
}

/// The first segment begins with slot 0.
#[inline]
fn segment_of_slot(starts: &[u16; FEW], slot: u16) -> usize {
    let begun = starts.iter().map(|start| usize::from(*start <= slot));
    begun.sum::<usize>() - 1
}

/// Returns the beginnings of segments and their partitions.
fn segments<'a>(
    order: Order,
    held: impl Iterator<Item = (usize, &'a Bounds)>,
) -> Vec<(Bound, u16)> {
    let mut segments: Vec<(Bound, u16)> = vec![(first_bound(order), GAP)];
    for (partition, bounds) in held {
        debug_assert!(
            partition < usize::from(GAP),
            "partition {partition} has no number of 16 bits"
        );
        debug_assert!(
            segments
                .last()
                .is_some_and(|(start, owner)| *start <= bounds.lower
                    && (*owner == GAP || *start < bounds.lower)),
            "a partition {bounds} comes after what begins at {:?}",
            segments.last()
        );
        // There is no gap if the previous segment ends at this bound.
        if segments
            .last()
            .is_some_and(|(start, _)| *start == bounds.lower)
        {
            segments.pop();
        }
        segments.push((bounds.lower.clone(), partition as u16));
        segments.extend(bounds.upper.clone().map(|upper| (upper, GAP)));
    }
    segments
}

fn slot_map(starts: impl Iterator<Item = Bound>, owners: &[u16]) -> Map {
    let starts: Vec<u16> = starts.filter_map(Bound::into_slot).collect();
    if starts.len() <= FEW {
        let mut few = [SLOTS as u16; FEW];
        few[..starts.len()].copy_from_slice(&starts);
        return Map::FewSlots(few);
    }
    let mut of = Box::new([GAP; SLOTS as usize]);
    for (start, owner) in starts.iter().zip(owners) {
        of[usize::from(*start)..].fill(*owner);
    }
    Map::Slots { of, starts }
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
