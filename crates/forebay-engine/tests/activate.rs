//! Versions opened ahead, and tables that switch versions, or are dropped, in one step.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{self, partial::Ids};
use crate::common::{name, push, random, read_all, root, rows};
use forebay_engine::{
    ActivateError, Next, Pointer, PushOptions, Serving, Store, StoreError, Table,
};
use forebay_io::sim::{Fault, HandClock, SimDisk, TestOver};
use forebay_io::{Clock, Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::Order;

const TABLES: [&str; 3] = ["t", "u", "v"];

fn store_at(disk: &SimDisk, clock: &Arc<HandClock>) -> Store {
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_or_create(shared, clock.clone(), random(1), root()).unwrap()
}

/// Three tables with versions 1 to 3, of which 2 serves and 1 did before.
fn base() -> SimDisk {
    let disk = SimDisk::new();
    let store = store_at(&disk, &common::clock());
    for table in TABLES {
        for version in 1..=3 {
            push(&store, table, Order::Hashed, &rows(version, 40), 2).unwrap();
            if version < 3 {
                self::table(&store, table).swap(version).unwrap();
            }
        }
    }
    disk
}

fn table(store: &Store, table: &str) -> Table {
    store.table(&name(table)).unwrap()
}

fn to_version(store: &Store, table: &str, version: u64) -> (forebay_engine::TableName, Next) {
    let pointer = self::table(store, table).pointer().unwrap();
    (name(table), Next::Serve(pointer.swapped(version)))
}

/// Returns the serving version of each table.
fn seen(serving: &Serving) -> Vec<Option<u64>> {
    let tables = serving.load();
    let version = |table: &&str| {
        tables
            .get(table.as_bytes())
            .map(|version| version.version())
    };
    TABLES.iter().map(version).collect()
}

/// Returns the versions that the pointers of a store on a disk name.
fn pointed(disk: &SimDisk) -> Vec<Option<u64>> {
    let store = store_at(disk, &common::clock());
    let pointer = |table: &&str| store.table(&name(table)).ok()?.pointer().ok()?.serving;
    TABLES.iter().map(pointer).collect()
}

#[test]
fn a_version_opened_ahead_is_found_by_number_and_serves_without_opening() {
    let disk = base();
    let store = store_at(&disk, &common::clock());
    let serving = Serving::manual(store.clone());
    let at = |version: u64| serving.load().at(b"t", version).is_some();
    let found = || [1, 2, 3].map(at);
    assert_eq!(found(), [true, true, false]);
    let next = [to_version(&store, "t", 3)];
    let refused = serving.activate(&next).unwrap_err();
    assert!(
        matches!(refused, ActivateError::NotOpen { version: 3, .. }),
        "{refused}"
    );
    serving.open_ahead(&name("t"), 3).unwrap();
    assert_eq!(found(), [true; 3]);
    assert_eq!(serving.states().tables[0].1.ahead, Some(3));
    serving.close_ahead(&name("t"));
    assert_eq!(found(), [true, true, false]);
    serving.open_ahead(&name("t"), 1).unwrap();
    serving.open_ahead(&name("t"), 3).unwrap();
    assert!(serving.open_ahead(&name("t"), 9).is_err());
    assert!(serving.open_ahead(&name("nobody"), 1).is_err());
    assert_eq!(serving.states().tables[0].1.ahead, Some(3));
    // Its files change: nothing reads them.
    for run in disk.list(&root().join("tables/t/runs")).unwrap() {
        let run = root().join("tables/t/runs").join(run);
        disk.tamper(&run, |bytes| bytes.truncate(9));
    }
    serving.activate(&next).unwrap();
    assert_eq!(seen(&serving), [Some(3), Some(2), Some(2)]);
    assert_eq!(read_all(&serving.table(b"t").unwrap()), rows(3, 40));
    let state = &serving.states().tables[0].1;
    assert_eq!(
        (state.serving, state.previous, state.ahead),
        (Some(3), Some(2), None)
    );
    assert_eq!(found(), [false, true, true]);
    serving.refresh();
    assert_eq!(seen(&serving), [Some(3), Some(2), Some(2)]);
    let pointer = table(&store, "t").pointer().unwrap();
    assert_eq!((pointer.serving, pointer.history), (Some(3), vec![1, 2]));
    assert!(serving.load().at(b"nobody", 1).is_none());
}

#[test]
fn readers_see_all_tables_change_at_one_moment() {
    let directory = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let (clock, random) = (Arc::new(SystemClock), Arc::new(SystemRandom));
    let store = Store::open_or_create(disk, clock, random, directory.path()).unwrap();
    for table in TABLES {
        for version in 1..=3 {
            push(&store, table, Order::Hashed, &rows(version, 10), 1).unwrap();
        }
        self::table(&store, table).swap(1).unwrap();
    }
    // Its thread reads the pointers all the time, also between their writes.
    let serving = Serving::open(store.clone(), Duration::from_micros(100)).unwrap();
    let over = TestOver::default();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut all = BTreeSet::new();
            while !over.is() {
                let found = seen(&serving);
                assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{found:?}");
                all.insert(found[0]);
            }
            all
        });
        let at_end = over.at_end();
        for round in 0..60 {
            let version = (round + 1) % 3 + 1;
            for table in TABLES {
                serving.open_ahead(&name(table), version).unwrap();
            }
            let next = TABLES.map(|table| to_version(&store, table, version));
            serving.activate(&next).unwrap();
            assert_eq!(seen(&serving), [Some(version); 3]);
            serving.refresh();
        }
        drop(at_end);
        assert_eq!(reader.join().unwrap(), BTreeSet::from([1, 2, 3].map(Some)));
    });
    assert_eq!(serving.states().tables[0].1.load_errors, 0);
}

#[test]
fn a_rollback_and_a_drop_happen_with_the_other_changes() {
    let disk = base();
    let store = store_at(&disk, &common::clock());
    let serving = Serving::manual(store.clone());
    serving.open_ahead(&name("t"), 3).unwrap();
    let before = table(&store, "u").pointer().unwrap().rolled_back().unwrap();
    let next = [
        to_version(&store, "t", 3),
        (name("u"), Next::Serve(before)),
        (name("v"), Next::Dropped),
        (name("nobody"), Next::Dropped),
    ];
    let push = store
        .begin_push(&name("v"), PushOptions::default())
        .unwrap();
    let refused = serving.activate(&next).unwrap_err();
    let holder = |error: &ActivateError| {
        matches!(error, ActivateError::Refused(StoreError::PushRuns { .. }))
    };
    assert!(holder(&refused), "{refused}");
    assert_eq!(seen(&serving), [Some(2); 3]);
    drop(push);
    let unset = [
        to_version(&store, "t", 3),
        (name("u"), Next::Serve(Pointer::unset())),
    ];
    assert!(matches!(
        serving.activate(&unset),
        Err(ActivateError::Refused(_))
    ));
    assert_eq!(seen(&serving), [Some(2); 3]);
    let held = serving.table(b"v").unwrap();
    serving.activate(&next).unwrap();
    let expected = [Some(3), Some(1), None];
    assert_eq!(seen(&serving), expected);
    assert_eq!(read_all(&held), rows(2, 40), "an open handle still reads");
    assert!(!disk.exists(&root().join("tables/v")).unwrap());
    serving.refresh();
    assert_eq!(
        (seen(&serving), pointed(&disk)),
        (expected.to_vec(), expected.to_vec())
    );
    let pointer = table(&store, "u").pointer().unwrap();
    assert!(pointer.history.is_empty(), "it was rolled back from 2");
}

#[test]
fn a_failure_at_any_call_changes_all_tables_or_none_and_pointers_follow() {
    let base = base();
    let (old, new) = (vec![Some(2); 3], vec![Some(3), Some(3), None]);
    let begin = |disk: &SimDisk, clock: &Arc<HandClock>| {
        let store = store_at(disk, clock);
        let serving = Serving::manual(store.clone());
        for table in ["t", "u"] {
            serving.open_ahead(&name(table), 3).unwrap();
        }
        let next = [
            to_version(&store, "t", 3),
            to_version(&store, "u", 3),
            (name("v"), Next::Dropped),
        ];
        (serving, next)
    };
    let whole = base.after_kill();
    let (serving, next) = begin(&whole, &common::clock());
    let calls = whole.calls();
    serving.activate(&next).unwrap();
    let calls = whole.calls() - calls;
    let mut unwritten = 0;
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::NoFiles, Fault::Dead] {
            let (disk, clock) = (base.after_kill(), common::clock());
            let (serving, next) = begin(&disk, &clock);
            disk.plan(nth, fault);
            let outcome = serving.activate(&next);
            let words = format!("call {nth} of {calls}, {fault:?}: {outcome:?}");
            let now = seen(&serving);
            match &outcome {
                Err(ActivateError::Refused(_) | ActivateError::NotOpen { .. }) => {
                    assert_eq!(now, old, "{words}");
                }
                Err(_) | Ok(()) => assert_eq!(now, new, "{words}"),
            }
            for seed in 0..3 {
                let after = pointed(&disk.after_power_cut(seed));
                for (place, version) in after.into_iter().enumerate() {
                    let may_be_old = outcome.is_err() && version == old[place];
                    assert!(
                        version == new[place] || may_be_old,
                        "{words}, table {place}"
                    );
                }
            }
            if fault == Fault::Dead || now == old {
                continue;
            }
            // A pointer that could not be written is written once it can be, and no version goes
            // back meanwhile.
            unwritten += u64::from(matches!(outcome, Err(ActivateError::NotWritten { .. })));
            serving.refresh();
            assert_eq!(seen(&serving), new, "{words}");
            disk.make_room();
            clock.sleep(Duration::from_secs(2));
            serving.refresh();
            serving.refresh();
            assert_eq!(
                (seen(&serving), &pointed(&disk)),
                (new.clone(), &new),
                "{words}"
            );
            let states = serving.states();
            assert!(
                states
                    .tables
                    .iter()
                    .all(|(_, state)| state.problem.is_none()),
                "{words}"
            );
        }
    }
    assert!(unwritten > 5, "{unwritten} pointers were not written");
}

#[test]
fn a_reopen_happens_once_a_pending_pointer_is_written() {
    let (disk, clock) = (base(), common::clock());
    let store = store_at(&disk, &clock);
    let serving = Serving::manual(store.clone());
    serving.open_ahead(&name("t"), 3).unwrap();
    let next = [to_version(&store, "t", 3)];
    disk.remove(&root().join("tables/t/current.reserve"))
        .unwrap();
    disk.plan(0, Fault::Full);
    let unwritten = serving.activate(&next).unwrap_err();
    assert!(
        matches!(unwritten, ActivateError::NotWritten { .. }),
        "{unwritten}"
    );
    let before = serving.table(b"t").unwrap();
    assert_eq!(before.version(), 3);
    assert!(serving.states().tables[0].1.problem.is_some());
    serving.reopen(&name("t"));
    assert!(Arc::ptr_eq(&before, &serving.table(b"t").unwrap()));
    disk.make_room();
    clock.sleep(Duration::from_secs(2));
    serving.refresh();
    serving.refresh();
    let after = serving.table(b"t").unwrap();
    assert_eq!((after.version(), pointed(&disk)[0]), (3, Some(3)));
    assert!(!Arc::ptr_eq(&before, &after));
    assert!(serving.states().tables[0].1.problem.is_none());
}

#[test]
fn versions_opened_ahead_are_kept_and_follow_the_held_partitions() {
    let disk = base();
    let ids = Arc::new(Ids::default());
    ids.set([0, 1]);
    let store = store_at(&disk, &common::clock()).holding(ids.clone());
    let serving = Serving::manual(store.clone());
    let table = table(&store, "t");
    // Version 1 is older than the one that served before.
    for _ in 0..2 {
        push(&store, "t", Order::Hashed, &rows(1, 40), 2).unwrap();
    }
    serving.open_ahead(&name("t"), 1).unwrap();
    for version in [4, 5] {
        table.swap(version).unwrap();
        serving.refresh();
    }
    assert_eq!(table.retain(0).unwrap(), [2, 3]);
    assert_eq!(table.version_numbers().unwrap(), [1, 4, 5]);
    ids.set([1]);
    serving.rehold(&[name("t")]).unwrap();
    for version in [1, 4, 5] {
        assert_eq!(
            serving.load().at(b"t", version).unwrap().partitions().len(),
            1
        );
    }
    let before = Arc::clone(serving.load().at(b"t", 1).unwrap());
    serving.reopen(&name("t"));
    let after = Arc::clone(serving.load().at(b"t", 1).unwrap());
    assert!(!Arc::ptr_eq(&before, &after));
    drop((before, after));
    let pinned = table.pin(4);
    serving.activate(&[to_version(&store, "t", 1)]).unwrap();
    assert!(table.retain(0).unwrap().is_empty());
    serving.open_ahead(&name("t"), 4).unwrap();
    table.swap(5).unwrap();
    table.swap(1).unwrap();
    drop(pinned);
    assert!(table.retain(0).unwrap().is_empty());
    serving.close_ahead(&name("t"));
    assert_eq!(table.retain(0).unwrap(), [4]);
}
