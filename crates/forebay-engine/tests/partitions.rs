//! Versions of which only some partitions are open: keys of other partitions are never called
//! absent.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::common::{name, push, root, rows, store_on};
use forebay_engine::{Lookup, OpenPartitions, PartitionId, ReadError, Table, Version};
use forebay_io::Disk;
use forebay_io::sim::SimDisk;
use forebay_run::Order;
use forebay_run::scan::Direction;

const PARTITIONS: usize = 5;

fn held(ids: &[u32]) -> OpenPartitions {
    OpenPartitions::Only(ids.iter().copied().map(PartitionId).collect())
}

fn is_not_here<T>(read: Result<T, ReadError>) -> bool {
    matches!(read, Err(ReadError::NotHere { .. }))
}

/// Reads every key in every way and compares the results with the partitions `ids`.
fn check(whole: &Arc<Version>, version: &Arc<Version>, keys: &[Vec<u8>], ids: &BTreeSet<u32>) {
    let id_of = |key: &[u8]| whole.partition_of(key).unwrap() as u32;
    for key in keys {
        let value = whole.get(key).unwrap();
        if ids.contains(&id_of(key)) {
            assert_eq!(version.get(key).unwrap(), value);
            match version.try_get(key).unwrap() {
                Lookup::Found(found) => assert_eq!(Some(found), value),
                Lookup::Absent => assert_eq!(value, None),
                Lookup::NotResident => (),
            }
        } else {
            assert!(is_not_here(version.get(key)));
            assert!(is_not_here(version.try_get(key)));
            assert!(is_not_here(version.exists(key)));
            assert!(is_not_here(version.expires_ms(key)));
            assert!(is_not_here(version.get_many(&[key], |_, _| ())));
            let error = version.get(key).unwrap_err().to_string();
            assert!(error.contains("not open here"), "{error}");
        }
    }
    let here: Vec<&Vec<u8>> = keys
        .iter()
        .filter(|key| ids.contains(&id_of(key)))
        .collect();
    let mut answers = 0;
    version.get_many(&here, |_, _| answers += 1).unwrap();
    assert_eq!(answers, here.len());
    if let (Some(first), Some(other)) = (here.first(), keys.iter().find(|key| !here.contains(key)))
    {
        // A scan returns the keys before the first one that is not held.
        let mut answers = 0;
        let read = version.get_many(&[first, first, &other, first], |_, _| answers += 1);
        assert!(is_not_here(read));
        assert_eq!(answers, 2);
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = version.scan(direction);
        let mut found = Vec::new();
        while scan.advance().unwrap() {
            found.push(scan.key().to_vec());
        }
        let mut all = whole.scan(direction);
        let mut wanted = Vec::new();
        while all.advance().unwrap() {
            if ids.contains(&id_of(all.key())) {
                wanted.push(all.key().to_vec());
            }
        }
        assert_eq!(found, wanted);
    }
}

fn pushed(disk: &SimDisk, order: Order) -> (Table, Vec<Vec<u8>>) {
    let store = store_on(disk, 1);
    let rows = rows(1, 300);
    push(&store, "t", order, &rows, PARTITIONS).unwrap();
    let mut keys: Vec<Vec<u8>> = rows.keys().cloned().collect();
    // Some keys that no partition has.
    keys.extend((0..50).map(|at| format!("other-{at}").into_bytes()));
    (store.table(&name("t")).unwrap(), keys)
}

#[test]
fn each_subset_reads_only_the_partitions_that_it_holds() {
    for order in [Order::Hashed, Order::Ordered] {
        let (table, keys) = pushed(&SimDisk::new(), order);
        let whole = table.open_version(1).unwrap();
        for bits in 0..1u32 << PARTITIONS {
            let ids: BTreeSet<u32> = (0..PARTITIONS as u32)
                .filter(|id| bits >> id & 1 == 1)
                .collect();
            let some = held(&ids.iter().copied().collect::<Vec<_>>());
            let version = table.open_partitions(1, &some, &[]).unwrap();
            check(&whole, &version, &keys, &ids);
        }
    }
}

#[test]
fn ranges_are_walked_only_if_all_their_partitions_are_held() {
    let (table, keys) = pushed(&SimDisk::new(), Order::Ordered);
    let whole = table.open_version(1).unwrap();
    let lower = |at: usize| match &whole.manifest().partitions[at].bounds.lower {
        forebay_engine::Bound::Key(key) => key.clone(),
        forebay_engine::Bound::Slot(_) => unreachable!(),
    };
    let version = table.open_partitions(1, &held(&[1, 2, 4]), &[]).unwrap();
    let (one, three) = (lower(1), lower(3));
    let inside = (Bound::Included(&one[..]), Bound::Excluded(&three[..]));
    for direction in [Direction::Forward, Direction::Backward] {
        let mut scan = version.scan_keys(inside.0, inside.1, direction).unwrap();
        let mut found = 0;
        while scan.advance().unwrap() {
            found += 1;
        }
        let within = |key: &&Vec<u8>| **key >= one && **key < three;
        let wanted = keys.iter().filter(within);
        assert_eq!(
            found,
            wanted.filter(|key| whole.exists(key).unwrap()).count()
        );
    }
    assert!(is_not_here(version.scan_keys(
        Bound::Unbounded,
        inside.1,
        Direction::Forward
    )));
    assert!(is_not_here(version.scan_keys(
        inside.0,
        Bound::Unbounded,
        Direction::Backward
    )));
    assert!(is_not_here(version.scan_keys(
        inside.0,
        Bound::Included(&three),
        Direction::Forward
    )));
}

#[test]
fn files_of_other_partitions_are_not_touched_and_open_runs_are_shared() {
    let disk = SimDisk::new();
    let (table, keys) = pushed(&disk, Order::Hashed);
    let whole = table.open_version(1).unwrap();
    let partitions = &whole.manifest().partitions;
    let dir = root().join("tables/t/runs");
    let gone = &partitions[3].runs[0].id;
    disk.remove(&dir.join(format!("{gone}.run"))).unwrap();
    assert!(table.open_version(1).is_err());
    let some = table.open_partitions(1, &held(&[0, 1]), &[]).unwrap();
    // With more partitions: open runs are not opened again.
    let calls = disk.calls();
    let more = table
        .open_partitions(1, &held(&[0, 1, 2]), &[&some])
        .unwrap();
    let opened = disk.calls() - calls;
    let calls = disk.calls();
    table.open_partitions(1, &held(&[0, 1, 2]), &[]).unwrap();
    assert!(opened < disk.calls() - calls);
    check(&whole, &more, &keys, &[0, 1, 2].into());
}
