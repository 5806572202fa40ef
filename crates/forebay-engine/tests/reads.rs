//! Look-ups, batches, scans and cursors against a plain map, over orders, partitions and many runs.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::{self, Rows, draft, fill, name, read_all, rows, store_on, write_run};
use forebay_engine::{
    Bound as Lower, Lookup, Manifest, Partition, Push, PushOptions, ReadError, Store, Version,
};
use forebay_io::sim::SimDisk;
use forebay_io::{Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::Order;
use forebay_run::content::ContentSum;
use forebay_run::operation::Operation;
use forebay_run::scan::Direction;
use proptest::prelude::*;

fn open(order: Order, rows: &Rows, parts: usize) -> Arc<Version> {
    let store = store_on(&SimDisk::new(), 1);
    let version = common::push(&store, "t", order, rows, parts).unwrap();
    store
        .table(&name("t"))
        .unwrap()
        .open_version(version)
        .unwrap()
}

fn any_order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Hashed), Just(Order::Ordered)]
}

fn any_rows() -> impl Strategy<Value = Rows> {
    let key = proptest::collection::vec(97u8..102, 1..8);
    let value = proptest::collection::vec(any::<u8>(), 0..200);
    proptest::collection::btree_map(key, value, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reads_agree_with_a_map(
        order in any_order(), rows in any_rows(), parts in 1usize..9,
    ) {
        let version = open(order, &rows, parts);
        prop_assert_eq!(read_all(&version), rows.clone());
        let mut wanted: Vec<&[u8]> = rows.keys().map(|key| &key[..]).collect();
        let absent = [&b"absent"[..], b"z", b"a\0"];
        wanted.extend(absent);
        wanted.reverse();
        for key in &wanted {
            let expected = rows.get(*key).map(|value| &value[..]);
            let found = version.get(key).unwrap();
            prop_assert_eq!(found.as_deref(), expected);
            prop_assert_eq!(version.exists(key).unwrap(), expected.is_some());
        }
        let mut places = Vec::new();
        version.get_many(&wanted, |place, value| {
            assert_eq!(value.as_deref(), rows.get(wanted[place]).map(|value| &value[..]));
            places.push(place);
        }).unwrap();
        prop_assert_eq!(places, (0..wanted.len()).collect::<Vec<_>>());
        version.try_get_many(&wanted, |place, found| match found {
            Lookup::NotResident => {}
            Lookup::Absent => assert!(!rows.contains_key(wanted[place])),
            Lookup::Found(value) => assert_eq!(Some(&value.into_owned()), rows.get(wanted[place])),
        }).unwrap();
    }

    #[test]
    fn scans_go_both_ways_within_bounds(
        rows in any_rows(), parts in 1usize..9, limit in 0u64..50,
        a in proptest::collection::vec(97u8..102, 0..5), b in proptest::collection::vec(97u8..102, 0..5),
        kinds in (0..3, 0..3),
    ) {
        let version = open(Order::Ordered, &rows, parts);
        let bound = |kind, key: &Vec<u8>| match kind {
            0 => Bound::Included(key.clone()),
            1 => Bound::Excluded(key.clone()),
            _ => Bound::Unbounded,
        };
        let (from, to) = (bound(kinds.0, &a), bound(kinds.1, &b));
        let inside = |key: &Vec<u8>| {
            let low = match &from { Bound::Included(a) => key >= a, Bound::Excluded(a) => key > a, Bound::Unbounded => true };
            let high = match &to { Bound::Included(b) => key <= b, Bound::Excluded(b) => key < b, Bound::Unbounded => true };
            low && high
        };
        let mut expected: Vec<&Vec<u8>> = rows.keys().filter(|key| inside(key)).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let (from, to) = (from.as_ref().map(|key| &key[..]), to.as_ref().map(|key| &key[..]));
            let mut scan = version.scan_keys(from, to, direction).unwrap().limit(limit);
            for key in expected.iter().take(limit as usize) {
                prop_assert!(scan.advance().unwrap());
                prop_assert_eq!(scan.key(), &key[..]);
                prop_assert_eq!(scan.value(), &rows[*key][..]);
            }
            prop_assert!(!scan.advance().unwrap());
            expected.reverse();
        }
    }

    #[test]
    fn several_runs_of_a_partition_read_as_one(
        order in any_order(),
        layers in proptest::collection::vec(
            proptest::collection::btree_map(
                proptest::collection::vec(97u8..100, 1..4),
                (0..3, proptest::collection::vec(any::<u8>(), 0..9)), 1..30),
            1..5),
    ) {
        let mut expected = Rows::new();
        let store = store_on(&SimDisk::new(), 1);
        let push = store.begin_push(&name("t"), PushOptions::default()).unwrap();
        let mut runs = Vec::new();
        for layer in &layers {
            let operations: Vec<(&[u8], Operation<'_>)> = layer.iter().map(|(key, (kind, value))| {
                let operation = match kind {
                    0 => Operation::Update(value),
                    1 => Operation::Insert(value),
                    _ => Operation::Delete,
                };
                match operation {
                    Operation::Insert(value) => {
                        expected.entry(key.clone()).or_insert_with(|| value.to_vec());
                    }
                    Operation::Update(value) => { expected.insert(key.clone(), value.to_vec()); }
                    _ => { expected.remove(key); }
                }
                (&key[..], operation)
            }).collect();
            runs.push(write_run(&push, 0, order, &operations).unwrap());
        }
        let version = commit(&store, push, order, runs, &expected);
        prop_assert_eq!(read_all(&version), expected.clone());
        let keys: BTreeSet<&Vec<u8>> = layers.iter().flat_map(|layer| layer.keys()).collect();
        for key in keys {
            let found = version.get(key).unwrap();
            prop_assert_eq!(found.as_deref(), expected.get(key).map(|v| &v[..]));
        }
    }
}

/// Commits a version of one partition with those runs, checks that it verifies, and opens it.
fn commit(
    store: &Store,
    push: Push,
    order: Order,
    runs: Vec<forebay_engine::RunRef>,
    rows: &Rows,
) -> Arc<Version> {
    let lower = match order {
        Order::Hashed => Lower::Slot(0),
        Order::Ordered => Lower::Key(Vec::new()),
    };
    let merged = runs.len() <= 1;
    let manifest = push
        .manifest(draft(order, Partition::side_by_side([(lower, runs)])))
        .unwrap();
    let version = push.commit(manifest).unwrap();
    let table = store.table(&name("t")).unwrap();
    let report = table.verify(version, &mut |_| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    if !merged {
        let content = |(key, value): (&Vec<u8>, &Vec<u8>)| ContentSum::of(key, value);
        assert_eq!(report.totals.rows, rows.len() as u64);
        assert_eq!(report.totals.content, rows.iter().map(content).sum());
    }
    table.open_version(version).unwrap()
}

#[test]
fn ranges_of_keys_need_an_ordered_table() {
    let version = open(Order::Hashed, &rows(1, 10), 2);
    let scan = version.scan_keys(Bound::Unbounded, Bound::Unbounded, Direction::Forward);
    assert!(matches!(scan.unwrap_err(), ReadError::NoKeyOrder { .. }));
}

#[test]
fn empty_tables_and_empty_partitions_read_as_such() {
    for order in [Order::Hashed, Order::Ordered] {
        let store = store_on(&SimDisk::new(), 1);
        let push = store
            .begin_push(&name("t"), PushOptions::default())
            .unwrap();
        let version = commit(&store, push, order, Vec::new(), &Rows::new());
        assert_eq!(version.get(b"a").unwrap(), None);
        assert_eq!(version.try_get(b"a").unwrap(), Lookup::Absent);
        assert_eq!(read_all(&version), Rows::new());
    }
    // Two keys, 64 partitions.
    let few = rows(1, 2);
    let version = open(Order::Hashed, &few, 64);
    assert_eq!(read_all(&version), few);
}

#[test]
fn keys_in_one_slot_are_all_found() {
    let tagged = (0..500).map(|i| (format!("{{tag}}{i:03}").into_bytes(), vec![b'v'; 40]));
    let tagged: Rows = tagged.collect();
    let version = open(Order::Hashed, &tagged, 16);
    assert_eq!(read_all(&version), tagged);
}

#[test]
fn keys_hashed_for_another_table_are_refused() {
    // Like a builder that routes keys to the wrong partitions.
    let store = store_on(&SimDisk::new(), 1);
    let wrong = store
        .begin_push(&name("wrong"), PushOptions::default())
        .unwrap();
    let right = store
        .begin_push(&name("t"), PushOptions::default())
        .unwrap();
    let mut manifest: Manifest = fill(&wrong, Order::Hashed, &rows(1, 10), 1).unwrap();
    let from = manifest.runs().next().unwrap().id.clone();
    manifest.table = name("t");
    let runs = |table: &str| common::root().join("tables").join(table).join("runs");
    let disk = store.disk();
    let bytes = disk
        .read(&runs("wrong").join(format!("{from}.run")))
        .unwrap();
    let mut file = disk.create(&runs("t").join(format!("{from}.run"))).unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let error = right.open(&manifest).unwrap_err().to_string();
    assert!(
        error.contains("hashed for the prefix \"wrong:\""),
        "{error}"
    );
}

#[test]
fn pages_in_the_systems_cache_are_answered_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let store = Store::open_or_create(disk, clock, random, directory.path()).unwrap();
    let rows = rows(1, 2000);
    for order in [Order::Hashed, Order::Ordered] {
        let number = common::push(&store, "t", order, &rows, 3).unwrap();
        let version = store
            .table(&name("t"))
            .unwrap()
            .open_version(number)
            .unwrap();
        let keys: Vec<&Vec<u8>> = rows.keys().collect();
        // Just written, so in the system's cache, but not read yet.
        for (key, value) in rows.iter().step_by(97) {
            let found = version.try_get(key).unwrap();
            assert_eq!(found, Lookup::Found(value.into()));
        }
        let mut found = 0;
        version
            .try_get_many(&keys, |place, answer| {
                assert_eq!(answer, Lookup::Found((&rows[keys[place]]).into()));
                found += 1;
            })
            .unwrap();
        assert_eq!(found, rows.len());
        assert_eq!(version.try_get(b"nobody").unwrap(), Lookup::Absent);
        assert_eq!(version.forget_evicted(), 0);
        assert!(version.memory_bytes() > 0);
    }
}
