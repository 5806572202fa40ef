use proptest::prelude::*;

use super::*;

fn table() -> TableName {
    TableName::new("t").unwrap()
}

/// Returns the partitions between neighbouring bounds, except those left out, with their indexes.
fn held(bounds: Vec<Bound>, kept: &[bool]) -> Vec<(usize, Bounds)> {
    let all = crate::keys::partition::side_by_side(bounds).enumerate();
    let keep = |place: usize| kept.get(place).copied().unwrap_or(true);
    all.filter(|(place, _)| keep(*place)).collect()
}

fn router(order: Order, held: &[(usize, Bounds)]) -> Router {
    Router::new(
        &table(),
        order,
        held.iter().map(|(at, bounds)| (*at, bounds)),
    )
}

/// Finds the partition by definition.
fn holder(held: &[(usize, Bounds)], at: &Bound) -> Option<usize> {
    let holds = |bounds: &Bounds| {
        bounds.lower <= *at && bounds.upper.as_ref().is_none_or(|upper| at < upper)
    };
    let found = held.iter().find(|(_, bounds)| holds(bounds));
    found.map(|(place, _)| *place)
}

proptest! {
    #[test]
    fn a_key_is_in_the_partition_that_holds_it_or_in_none(
        bounds in proptest::collection::btree_set(
            proptest::collection::vec(0u8..4, 1..4), 0..20),
        kept in proptest::collection::vec(any::<bool>(), 0..20),
        key in proptest::collection::vec(0u8..4, 1..5),
    ) {
        let keys = std::iter::once(Vec::new()).chain(bounds);
        let held = held(keys.map(Bound::Key).collect(), &kept);
        let router = router(Order::Ordered, &held);
        let found = router.partition(router.hash(&key), &key);
        prop_assert_eq!(found, holder(&held, &Bound::Key(key)));
    }

    #[test]
    fn a_slot_is_in_the_partition_that_holds_it_or_in_none(
        bounds in proptest::collection::btree_set(1u16..SLOTS as u16, 0..40),
        kept in proptest::collection::vec(any::<bool>(), 0..40),
        key in proptest::collection::vec(any::<u8>(), 1..8),
    ) {
        let bounds = std::iter::once(0).chain(bounds).map(Bound::Slot).collect();
        let held = held(bounds, &kept);
        let router = router(Order::Hashed, &held);
        let slot = KeyHasher::new(b"t:").slot(&key);
        let found = router.partition(router.hash(&key), &key);
        prop_assert_eq!(found, holder(&held, &Bound::Slot(slot)));
    }

    #[test]
    fn the_segments_of_a_range_have_every_partition_of_its_keys(
        bounds in proptest::collection::btree_set(
            proptest::collection::vec(0u8..4, 1..3), 0..12),
        kept in proptest::collection::vec(any::<bool>(), 0..12),
        mut ends in proptest::array::uniform2(proptest::collection::vec(0u8..4, 1..4)),
    ) {
        ends.sort();
        let keys = std::iter::once(Vec::new()).chain(bounds);
        let held = held(keys.map(Bound::Key).collect(), &kept);
        let router = router(Order::Ordered, &held);
        let [from, to] = &ends;
        let range = ScanRange::keys(RangeBound::Included(from), RangeBound::Included(to));
        let owners: Vec<_> = router.segments(&range).map(|at| router.owner(at)).collect();
        for key in [from, to] {
            let owner = holder(&held, &Bound::Key(key.clone()));
            prop_assert!(owners.contains(&owner));
        }
        let overlaps = |bounds: &Bounds| {
            bounds.lower <= Bound::Key(to.clone())
                && bounds.upper.as_ref().is_none_or(|upper| *upper > Bound::Key(from.clone()))
        };
        let wanted = held.iter().filter(|(_, bounds)| overlaps(bounds)).map(|(at, _)| *at);
        let found: Vec<usize> = owners.iter().copied().flatten().collect();
        prop_assert_eq!(found, wanted.collect::<Vec<_>>());
        let gap = router.gap_in(&range);
        prop_assert_eq!(gap.is_some(), owners.contains(&None));
        if let Some(gap) = gap {
            prop_assert!(holder(&held, &Bound::Key(gap)).is_none());
        }
    }
}
