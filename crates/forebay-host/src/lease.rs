//! A group's lease, published for reads that do not take the replica's lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_replica::Replica;

/// The published lease of a group. Term and end share one word, so a torn read is harmless.
#[derive(Debug, Default)]
pub(crate) struct LeaseWord {
    /// The end in milliseconds of the host's clock, and the low bits of the term; 0: none.
    word: AtomicU64,
    committed: AtomicU64,
}

const TERM_BITS: u32 = 20;

impl LeaseWord {
    /// REQUIRES: the replica's lock.
    pub fn publish(&self, replica: &Replica) {
        let lease = replica.lease();
        debug_assert!(
            self.committed() <= replica.committed(),
            "entries up to {} were decided, and now up to {}",
            self.committed(),
            replica.committed()
        );
        debug_assert!(
            lease.is_none() || replica.is_leader(),
            "peer {:?} does not lead, and has a lease",
            replica.me()
        );
        self.committed.store(replica.committed(), Ordering::Release);
        let word = lease.map_or(0, |end| {
            let end_ms = u64::try_from(end.as_millis()).unwrap_or(0);
            debug_assert!(
                end_ms >> (u64::BITS - TERM_BITS) == 0,
                "a lease until {end:?} does not fit beside its term"
            );
            end_ms << TERM_BITS | replica.term() & ((1 << TERM_BITS) - 1)
        });
        self.word.store(word, Ordering::Release);
    }

    pub fn get(&self) -> Lease {
        Lease(self.word.load(Ordering::Acquire))
    }

    /// Returns the index up to which entries are decided.
    pub fn committed(&self) -> u64 {
        self.committed.load(Ordering::Acquire)
    }
}

/// A lease as it was published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease(u64);

impl Lease {
    pub fn holds(self, now: Duration) -> bool {
        now < Duration::from_millis(self.0 >> TERM_BITS)
    }

    pub fn is_of_the_same_term(self, other: Self) -> bool {
        let mask = (1 << TERM_BITS) - 1;
        self.0 & mask == other.0 & mask
    }
}
