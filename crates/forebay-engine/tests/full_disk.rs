//! On a full disk, pointers move and tables can be dropped. An error, a crash or a power cut at any
//! call leaves the old pointer or the new one.
#![allow(clippy::unwrap_used)]

use crate::common::{self, View, name, push, rows, store_on, view};
use forebay_engine::live::{Budget, LiveDraft};
use forebay_engine::{Store, StoreError};
use forebay_io::sim::{Fault, SimDisk};
use forebay_io::{Disk, is_out_of_space};
use forebay_run::Order;

const TABLE: &str = "t";

/// Versions 1 to 4, of which 1 to 3 served, and 3 serves. No space is left.
fn full() -> SimDisk {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=4 {
        push(&store, TABLE, Order::Hashed, &rows(version, 20), 2).unwrap();
        if version < 4 {
            swap(&store, version).unwrap();
        }
    }
    disk.fill_up();
    disk
}

fn swap(store: &Store, version: u64) -> Result<(), StoreError> {
    store.table(&name(TABLE))?.swap(version).map(drop)
}

fn rollback(store: &Store) -> Result<(), StoreError> {
    let table = store.table(&name(TABLE))?;
    table.rollback_from(table.serving()?).map(drop)
}

fn serving(store: &Store) -> u64 {
    store.table(&name(TABLE)).unwrap().serving().unwrap()
}

fn reserve() -> std::path::PathBuf {
    let table = common::root().join("tables").join(TABLE);
    table.join("current.reserve")
}

/// Checks that no file can be created on the disk.
fn assert_full(disk: &SimDisk) {
    let error = disk.create(&common::root().join("another")).unwrap_err();
    assert!(is_out_of_space(&error), "{error}");
}

#[test]
fn pointers_move_any_number_of_times() {
    let disk = full();
    let store = store_on(&disk, 2);
    for _ in 0..10 {
        swap(&store, 4).unwrap();
        assert_eq!(serving(&store), 4);
        rollback(&store).unwrap();
        assert_eq!(serving(&store), 3);
        rollback(&store).unwrap();
        assert_eq!(serving(&store), 2);
        swap(&store, 3).unwrap();
        assert_eq!(serving(&store_on(&disk, 3)), 3);
        assert_full(&disk);
    }
    // With space again the table is normal, and the reserve has its full size.
    let reserve = || disk.open(&reserve()).unwrap().len_bytes();
    assert!(reserve() < 4096);
    disk.make_room();
    let version = push(&store, TABLE, Order::Hashed, &rows(9, 20), 2).unwrap();
    swap(&store, version).unwrap();
    assert_eq!(view(&store, TABLE).unwrap().serving, Some(version));
    assert_eq!(reserve(), 4096);
}

#[test]
fn a_table_is_dropped() {
    let disk = full();
    let store = store_on(&disk, 2);
    store.drop_table(&name(TABLE)).unwrap();
    let inside = common::root().join("tables").join(TABLE);
    let left = disk
        .files()
        .into_iter()
        .filter(|file| file.starts_with(&inside));
    assert_eq!(left.count(), 0);
    assert_eq!(view(&store, TABLE), None);
}

#[test]
fn the_swap_of_a_push_that_took_the_last_byte_happens() {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    push(&store, TABLE, Order::Hashed, &rows(1, 20), 2).unwrap();
    disk.fill_up();
    swap(&store, 1).unwrap();
    assert_eq!(serving(&store), 1);
}

#[test]
fn without_a_reserve_the_pointer_stays_and_the_error_names_the_reason() {
    let disk = full();
    disk.remove(&reserve()).unwrap();
    let store = store_on(&disk, 2);
    let error = swap(&store, 4).unwrap_err();
    assert!(error.to_string().contains("write the pointer"), "{error}");
    let StoreError::Io { source, .. } = &error else {
        panic!("{error}")
    };
    assert!(is_out_of_space(source), "{error}");
    assert_eq!(serving(&store), 3);
    // A move with space makes a reserve for the next move without.
    disk.make_room();
    swap(&store, 4).unwrap();
    disk.fill_up();
    rollback(&store).unwrap();
    assert_eq!(serving(&store), 3);
}

/// Fails `change` at each of its calls, on a disk that is always full, and checks every disk that
/// may be found afterwards.
fn old_or_new(full: impl Fn() -> SimDisk, change: impl Fn(&Store) -> Result<(), StoreError>) {
    let disk = full();
    let old = view(&store_on(&disk, 2), TABLE);
    let store = store_on(&disk, 2);
    let before = disk.calls();
    change(&store).unwrap();
    let calls = disk.calls() - before;
    let new = view(&store_on(&disk.after_kill(), 3), TABLE);
    assert_ne!(old, new);
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Dead] {
            let disk = full();
            let store = store_on(&disk, 2);
            disk.plan(nth, fault);
            let done = change(&store).is_ok();
            let cuts = (0..6).map(|seed| disk.after_power_cut(seed));
            for (place, found) in std::iter::once(disk.after_kill()).chain(cuts).enumerate() {
                let words = format!("call {nth} of {calls}, {fault:?}, outcome {place}");
                let seen = view(&store_on(&found, 3), TABLE);
                assert!(seen == old || seen == new, "{words}: {seen:?}");
                assert!(!done || seen == new, "{words}: the call had succeeded");
                assert_recovers(&found, seen, fault, &words);
            }
        }
    }
}

/// Checks that pointers move after a crash on a disk that is still full, and that pushes clean up
/// once there is space.
fn assert_recovers(disk: &SimDisk, seen: Option<View>, fault: Fault, words: &str) {
    let store = store_on(disk, 4);
    // An error at some calls may cost the reserve.
    if seen.is_some() && fault == Fault::Dead {
        disk.fill_up();
        for version in [1, 4, 2] {
            swap(&store, version).unwrap_or_else(|error| panic!("{words}: {error}"));
            assert_eq!(serving(&store), version, "{words}");
        }
        disk.make_room();
    }
    let version = push(&store, TABLE, Order::Hashed, &rows(9, 10), 1).unwrap();
    swap(&store, version).unwrap();
    let inside = common::root().join("tables").join(TABLE);
    let leftovers = disk.files().into_iter().filter(|file| {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        file.starts_with(&inside) && name.starts_with('.')
    });
    assert_eq!(
        leftovers.collect::<Vec<_>>(),
        Vec::<std::path::PathBuf>::new(),
        "{words}"
    );
}

#[test]
fn a_swap_happens_or_does_not() {
    old_or_new(full, |store| swap(store, 4));
}

#[test]
fn a_third_swap_happens_or_does_not() {
    // It writes over the file of the pointer before the last.
    let swapped = || {
        let disk = full();
        let store = store_on(&disk, 2);
        swap(&store, 4).unwrap();
        swap(&store, 1).unwrap();
        disk
    };
    old_or_new(swapped, |store| swap(store, 2));
}

#[test]
fn a_rollback_happens_or_does_not() {
    old_or_new(full, rollback);
}

#[test]
fn a_drop_happens_or_does_not() {
    old_or_new(full, |store| store.drop_table(&name(TABLE)));
}

/// Directories and files of tables that are not [`TABLE`].
fn others(disk: &SimDisk) -> Vec<String> {
    let mut names = disk.list(&common::root().join("tables")).unwrap();
    names.retain(|name| name != TABLE);
    names
}

/// `make` creates another table, with space until the call of each number.
fn leaves_nothing(make: impl Fn(&Store) -> Result<(), String>) {
    let base = || {
        let disk = full();
        disk.make_room();
        disk
    };
    let disk = base();
    let (store, before) = (store_on(&disk, 2), disk.calls());
    make(&store).unwrap();
    let calls = disk.calls() - before;
    let mut failed = 0;
    for nth in 0..calls {
        let disk = base();
        let store = store_on(&disk, 2);
        disk.plan(nth, Fault::Full);
        if make(&store).is_err() {
            failed += 1;
            assert_eq!(others(&disk), Vec::<String>::new(), "call {nth}");
            assert_eq!(store.tables().unwrap(), [name(TABLE)], "call {nth}");
        }
    }
    assert!(failed > 3, "{failed} of {calls}");
}

#[test]
fn a_table_that_cannot_be_made_leaves_nothing() {
    leaves_nothing(|store| {
        let pushed = push(store, "other", Order::Hashed, &rows(1, 20), 2);
        pushed.map(drop).map_err(|error| error.to_string())
    });
    leaves_nothing(|store| {
        let options = LiveDraft::ordered(vec![b"k".to_vec()]);
        let made = store.create_live(&name("other"), options, &Budget::new(0));
        made.map(drop).map_err(|error| error.to_string())
    });
}
