//! Which partition a key lies in.
//!
//! This is on the path of every read, so it is one load from a table of 32 KiB for hashed tables (none
//! at all for a single partition), and a binary search over the bounds for ordered ones.

use forebay_run::Order;
use forebay_run::batch::Ahead;
use forebay_run::hash::{KeyHasher, SLOTS, slot_of};

use crate::bound::Bound;
use crate::name::TableName;

/// Where a key of a batch is looked up, and how far its look-up has come.
#[derive(Clone, Copy, Default)]
pub(crate) struct Route<'a> {
    pub hash: u64,
    pub partition: usize,
    pub ahead: Option<Ahead<'a>>,
}

/// Finds partitions by sort key.
#[derive(Debug)]
pub(crate) struct Router {
    hasher: KeyHasher,
    order: Order,
    map: Map,
}

#[derive(Debug)]
enum Map {
    One,
    /// The partition of each slot.
    Slots(Box<[u16; SLOTS as usize]>),
    /// The lower bounds of all partitions but the first.
    Keys(Vec<Vec<u8>>),
}

impl Router {
    /// `lowers`: where the partitions begin. REQUIRES: they rise from the first place there is, and are
    /// of this order.
    pub fn new<'a>(
        table: &TableName,
        order: Order,
        lowers: impl ExactSizeIterator<Item = &'a Bound>,
    ) -> Self {
        let map = match order {
            _ if lowers.len() == 1 => Map::One,
            Order::Hashed => Map::Slots(slot_map(lowers)),
            Order::Ordered => {
                let keys = lowers.skip(1).filter_map(|lower| match lower {
                    Bound::Key(key) => Some(key.clone()),
                    Bound::Slot(_) => None,
                });
                Map::Keys(keys.collect())
            }
        };
        Self {
            hasher: KeyHasher::new(&table.wire_prefix()),
            order,
            map,
        }
    }

    pub fn hasher(&self) -> &KeyHasher {
        &self.hasher
    }

    /// What a run's look-up wants along with the key: its hash64, or 0 where none is needed.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        match self.order {
            Order::Hashed => self.hasher.hash64(key),
            Order::Ordered => 0,
        }
    }

    /// The index of the partition of a key, whose hash the caller has.
    #[inline]
    pub fn partition(&self, hash: u64, key: &[u8]) -> usize {
        match &self.map {
            Map::One => 0,
            Map::Slots(slots) => usize::from(slots[usize::from(slot_of(hash))]),
            Map::Keys(lowers) => lowers.partition_point(|lower| &lower[..] <= key),
        }
    }
}

fn slot_map<'a>(lowers: impl Iterator<Item = &'a Bound>) -> Box<[u16; SLOTS as usize]> {
    let mut map = Box::new([0u16; SLOTS as usize]);
    for (index, lower) in lowers.enumerate() {
        if let Bound::Slot(lower) = lower {
            map[usize::from(*lower)..].fill(index as u16);
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_key_is_in_the_last_partition_that_begins_at_or_below_it(
            bounds in proptest::collection::btree_set(
                proptest::collection::vec(0u8..4, 1..4), 0..20),
            key in proptest::collection::vec(0u8..4, 1..5),
        ) {
            let keys = std::iter::once(Vec::new()).chain(bounds);
            let lowers: Vec<Bound> = keys.map(Bound::Key).collect();
            let wanted = lowers.iter().rposition(|lower| *lower <= Bound::Key(key.clone()));
            let router = Router::new(&TableName::new("t").unwrap(), Order::Ordered, lowers.iter());
            prop_assert_eq!(Some(router.partition(router.hash(&key), &key)), wanted);
        }

        #[test]
        fn a_slot_is_in_the_last_partition_that_begins_at_or_below_it(
            bounds in proptest::collection::btree_set(1u16..SLOTS as u16, 0..40),
            key in proptest::collection::vec(any::<u8>(), 1..8),
        ) {
            let lowers: Vec<Bound> = std::iter::once(0).chain(bounds).map(Bound::Slot).collect();
            let router = Router::new(&TableName::new("t").unwrap(), Order::Hashed, lowers.iter());
            let slot = KeyHasher::new(b"t:").slot(&key);
            let wanted = lowers.iter().rposition(|lower| *lower <= Bound::Slot(slot));
            prop_assert_eq!(Some(router.partition(router.hash(&key), &key)), wanted);
        }
    }
}
