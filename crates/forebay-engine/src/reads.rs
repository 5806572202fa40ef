//! How often partitions of a version are looked up, about, for who places them by it.
//!
//! Threads share a partition's number, and look-ups are many: so of about 16 look-ups of a thread
//! one counts for all, at distances that vary, as clients may ask for keys in turn.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::partition::Bounds;

/// A look-up of so many counts, in the mean.
const ONE_IN: u64 = 16;

thread_local! {
    /// How many look-ups pass until one counts, and what says the next distance.
    static TURN: Cell<(u32, u32)> = const { Cell::new((1, 0x9e37_79b9)) };
}

/// Look-ups of a partition since the version was opened.
#[derive(Debug, Default)]
pub(crate) struct PartReads {
    reads: AtomicU64,
    bytes: AtomicU64,
}

/// Look-ups of a partition that is open, about, since it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReads {
    pub bounds: Bounds,
    pub reads: u64,
    /// Of the values that were found.
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
        // Xorshift: any other would do.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        // 1 to 31: 16 in the mean.
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
    use crate::bound::Bound;

    #[test]
    fn about_all_reads_count_also_where_partitions_are_read_in_turn() {
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
