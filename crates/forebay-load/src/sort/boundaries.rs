//! Finds the boundaries that divide the sort order into partitions.

use std::ops::{self, Range};

use forebay_engine::Bound;
use forebay_run::Order;
use forebay_run::hash::{KeyHasher, SLOTS, first_hash_of};
use forebay_run::scan::ScanRange;

use super::arena::SortedRecords;
use super::collector::CollectedRecords;

/// The number of samples of the records that a collector holds in memory.
const SAMPLES: usize = 4096;

/// The lower bounds of partitions, ascending; the first is the very start. Each partition ends
/// where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundaries(Vec<Bound>);

impl Boundaries {
    /// Creates boundaries. There must be at least one; they ascend from the very start.
    pub fn at(boundaries: Vec<Bound>) -> Self {
        debug_assert!(!boundaries.is_empty());
        Self(boundaries)
    }

    /// Divides the slots evenly into `partitions` (at most one a slot).
    pub fn slots(partitions: u32) -> Self {
        let partitions = partitions.clamp(1, SLOTS);
        let first = |i: u32| (u64::from(i) * u64::from(SLOTS) / u64::from(partitions)) as u16;
        Self((0..partitions).map(|i| Bound::Slot(first(i))).collect())
    }

    /// Finds keys that divide the collected bytes evenly into at most `partitions`.
    pub fn keys(partitions: u32, collected: &[CollectedRecords]) -> Self {
        Self::by_samples(partitions, key_samples(collected))
    }

    /// Finds keys that divide the bytes represented by these samples evenly into at most
    /// `partitions`.
    pub fn by_samples(partitions: u32, mut samples: Vec<(Vec<u8>, u64)>) -> Self {
        samples.sort_unstable();
        let weight = |sample: &(Vec<u8>, u64)| u128::from(sample.1);
        let total: u128 = samples.iter().map(weight).sum();
        let mut boundaries = vec![Bound::Key(Vec::new())];
        let mut passed = 0;
        for (key, bytes) in samples {
            let due = passed * u128::from(partitions) >= total * boundaries.len() as u128;
            let rises = !matches!(boundaries.last(), Some(Bound::Key(last)) if *last >= key);
            if due && rises && (boundaries.len() as u32) < partitions {
                boundaries.push(Bound::Key(key));
            }
            passed += u128::from(bytes);
        }
        Self(boundaries)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn as_slice(&self) -> &[Bound] {
        &self.0
    }

    pub fn first_of(&self, partition: usize) -> &Bound {
        &self.0[partition]
    }

    /// Returns the number of the partition of a key.
    pub fn partition_of(&self, key: &[u8], hasher: &KeyHasher) -> usize {
        let above = match self.0.first() {
            Some(Bound::Slot(_)) => {
                let slot = hasher.slot(key);
                (self.0).partition_point(
                    |boundary| !matches!(boundary, Bound::Slot(first) if *first > slot),
                )
            }
            _ => (self.0).partition_point(
                |boundary| !matches!(boundary, Bound::Key(first) if first.as_slice() > key),
            ),
        };
        above.saturating_sub(1)
    }

    /// Returns the range of a run that partition number `partition` covers.
    pub fn range(&self, partition: usize) -> ScanRange {
        match (self.first_of(partition), self.0.get(partition + 1)) {
            (Bound::Slot(from), next) => {
                let to = match next {
                    Some(Bound::Slot(to)) => first_hash_of(u32::from(*to)),
                    _ => None,
                };
                ScanRange::hashes(first_hash_of(u32::from(*from)).unwrap_or(0), to)
            }
            (Bound::Key(from), next) => {
                let to = match next {
                    Some(Bound::Key(to)) => ops::Bound::Excluded(&to[..]),
                    _ => ops::Bound::Unbounded,
                };
                ScanRange::keys(ops::Bound::Included(from), to)
            }
        }
    }

    /// Returns the entries of `sorted` that partition number `partition` covers.
    pub fn entries(&self, partition: usize, sorted: &SortedRecords, order: Order) -> Range<usize> {
        let start = |partition: usize| match self.0.get(partition) {
            None => sorted.entries.len(),
            Some(Bound::Slot(slot)) => {
                let first = first_hash_of(u32::from(*slot)).unwrap_or(0);
                sorted.entries.partition_point(|entry| entry.head < first)
            }
            Some(Bound::Key(first)) => sorted
                .entries
                .partition_point(|entry| sorted.arena.key(entry.place) < first.as_slice()),
        };
        debug_assert_eq!(order == Order::Hashed, matches!(self.0[0], Bound::Slot(_)));
        start(partition)..start(partition + 1)
    }
}

/// Returns keys of the collected records, and the number of bytes each represents. Spilled runs of
/// a hashed table give none.
pub fn key_samples(collected: &[CollectedRecords]) -> Vec<(Vec<u8>, u64)> {
    let mut samples: Vec<(Vec<u8>, u64)> = Vec::new();
    for part in collected {
        if let Some(drawn) = &part.drawn {
            samples.extend(drawn.samples());
            continue;
        }
        sample_memory(&part.rest, &mut samples);
        for spill in &part.spills {
            let page_bytes = u64::from(spill.run.page_bytes());
            let separators = spill.run.separators();
            samples.extend(separators.map(|key| (key.to_vec(), page_bytes)));
        }
    }
    samples
}

fn sample_memory(sorted: &SortedRecords, samples: &mut Vec<(Vec<u8>, u64)>) {
    let count = sorted.entries.len();
    let step = count.div_ceil(SAMPLES).max(1);
    let each = sorted.payload_bytes / (count.div_ceil(step).max(1)) as u64;
    for entry in sorted.entries.iter().step_by(step) {
        samples.push((sorted.arena.key(entry.place).to_vec(), each.max(1)));
    }
}
