//! Counts approximately how often each partition of a version is looked up, for placement.
//!
//! Threads share a partition's counter, and look-ups are frequent. So a thread counts about one of
//! 16 look-ups for all. The distance varies, because clients may request keys in a fixed cycle.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::keys::partition::Bounds;

/// One look-up in this many is counted, on average.
const ONE_IN: u64 = 16;

thread_local! {
    /// The number of look-ups until the next one is counted, and the state of the random generator.
    static TURN: Cell<(u32, u32)> = const { Cell::new((1, 0x9e37_79b9)) };
}

/// Look-ups of a partition since the version was opened.
#[derive(Debug, Default)]
pub(crate) struct PartReads {
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// The approximate look-ups of an open partition since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReads {
    pub bounds: Bounds,
    pub reads: u64,
    /// The bytes of the values that were found.
    pub bytes: u64,
}

impl PartReads {
    /// Counts a look-up that found so many bytes.
    #[inline]
    pub fn count(&self, bytes: usize) {
        let (left, state) = TURN.get();
        match left {
            0 | 1 => self.count_turn(state, bytes),
            _ => TURN.set((left - 1, state)),
        }
    }

    #[cold]
    fn count_turn(&self, mut state: u32, bytes: usize) {
        // Xorshift; any other generator would do.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // 1 to 31: 16 on average.
        TURN.set((1 + state % (2 * ONE_IN as u32 - 1), state));
        self.reads.fetch_add(ONE_IN, Ordering::Relaxed);
        self.bytes
            .fetch_add(ONE_IN * bytes as u64, Ordering::Relaxed);
    }

    pub fn reported(&self, bounds: &Bounds) -> PartitionReads {
        PartitionReads {
            bounds: bounds.clone(),
            reads: self.reads.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::bound::Bound;

    #[test]
    fn nearly_all_reads_count_when_partitions_are_read_in_turn() {
        let parts: Vec<PartReads> = (0..16).map(|_| PartReads::default()).collect();
        for read in 0..1_600_000 {
            parts[read % 16].count(10);
        }
        let bounds = Bounds {
            lower: Bound::Slot(0),
            upper: None,
        };
        for part in &parts {
            let reported = part.reported(&bounds);
            assert!(reported.reads.abs_diff(100_000) < 5_000, "{reported:?}");
            assert_eq!(reported.bytes, 10 * reported.reads);
        }
    }
}
