//! Kept dropped tables: restore, expiry, and a crash at any call.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::common::{View, clock, name, push, random, root, rows, store_on, view};
use forebay_engine::live::{Budget, LiveDraft};
use forebay_engine::{Store, StoreError};
use forebay_io::Disk;
use forebay_io::sim::{Fault, HandClock, SimDisk};
use forebay_run::Order;

const WEEK: Duration = Duration::from_secs(7 * 86_400);

fn base() -> SimDisk {
    let disk = SimDisk::new();
    let store = store_on(&disk, 1);
    for version in 1..=3 {
        push(&store, "t", Order::Hashed, &rows(version, 40), 2).unwrap();
        store.table(&name("t")).unwrap().swap(version).unwrap();
    }
    disk
}

fn store_at(disk: &SimDisk, clock: &Arc<HandClock>) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_or_create(disk, clock.clone(), random(1), root()).unwrap()
}

#[test]
fn a_dropped_table_is_restored_unchanged_until_it_expires() {
    let (disk, clock, table) = (base(), clock(), name("t"));
    let store = store_at(&disk, &clock);
    let before = view(&store, "t");
    let dropped = store.drop_table_keeping(&table, WEEK).unwrap();
    assert!(view(&store, "t").is_none());
    assert_eq!(store.dropped_tables().unwrap(), [dropped]);
    store.undrop_table(&table, None).unwrap();
    assert_eq!(view(&store, "t"), before);
    assert_eq!(store.dropped_tables().unwrap(), []);

    // A table of that name blocks the restore; without it, undrop restores the last dropped one.
    store.drop_table_keeping(&table, WEEK).unwrap();
    clock.advance(Duration::from_secs(1));
    push(&store, "t", Order::Hashed, &rows(9, 5), 1).unwrap();
    let taken = store.undrop_table(&table, None).unwrap_err();
    assert!(matches!(taken, StoreError::NameTaken { .. }), "{taken}");
    store.drop_table_keeping(&table, WEEK).unwrap();
    assert_eq!(store.dropped_tables().unwrap().len(), 2);
    store.undrop_table(&table, None).unwrap();
    assert_eq!(store.table(&table).unwrap().version_numbers().unwrap(), [1]);
    store.drop_table(&table).unwrap();
    store.undrop_table(&table, None).unwrap();
    assert_eq!(view(&store, "t"), before);

    store.drop_table_keeping(&table, WEEK).unwrap();
    clock.advance(WEEK);
    let over = store.undrop_table(&table, None).unwrap_err();
    assert!(matches!(over, StoreError::NotKept { .. }), "{over}");
    push(&store, "other", Order::Hashed, &rows(1, 5), 1).unwrap();
    assert_eq!(store.dropped_tables().unwrap(), []);
    let left = disk.files().into_iter();
    assert!(
        !left
            .into_iter()
            .any(|path| path.starts_with("/store/dropped"))
    );
}

#[test]
fn a_live_table_is_restored_with_the_records_of_its_log() {
    let (store, table) = (store_on(&SimDisk::new(), 1), name("t"));
    let budget = Budget::new(64 << 20);
    let live = store
        .create_live(&table, LiveDraft::hashed(), &budget)
        .unwrap();
    live.update(b"a", b"1").unwrap().wait().unwrap();
    drop(live);
    store.drop_table_keeping(&table, WEEK).unwrap();
    assert!(store.live_table(&table, &budget).is_err());
    store.undrop_table(&table, None).unwrap();
    let live = store.live_table(&table, &budget).unwrap();
    assert_eq!(live.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

/// Fails a change at each of its calls in each way. Afterwards the table must exist, or be kept,
/// and be complete.
fn whole_at_every_call(base: &SimDisk, before: &View, change: impl Fn(&Store) -> bool) {
    let whole = base.after_kill();
    let store = store_on(&whole, 2);
    let calls_before = whole.calls();
    assert!(change(&store));
    let calls = whole.calls() - calls_before;
    for nth in 0..calls {
        for fault in [Fault::Error, Fault::Full, Fault::Dead] {
            let disk = base.after_kill();
            let store = store_on(&disk, 2);
            disk.plan(nth, fault);
            change(&store);
            let cuts = (0..3).map(|seed| disk.after_power_cut(seed));
            for (place, found) in std::iter::once(disk.after_kill()).chain(cuts).enumerate() {
                let words = format!("call {nth} of {calls}, {fault:?}, outcome {place}");
                let store = store_on(&found, 3);
                if view(&store, "t").is_none() {
                    assert_eq!(store.dropped_tables().unwrap().len(), 1, "{words}");
                    store.undrop_table(&name("t"), None).unwrap();
                }
                assert_eq!(view(&store, "t").as_ref(), Some(before), "{words}");
                assert_eq!(store.dropped_tables().unwrap(), [], "{words}");
            }
        }
    }
}

#[test]
fn a_death_at_any_call_leaves_the_table_or_the_dropped_table_whole() {
    let disk = base();
    let store = store_on(&disk, 1);
    let before = view(&store, "t").unwrap();
    whole_at_every_call(&disk, &before, |store| {
        store.drop_table_keeping(&name("t"), WEEK).is_ok()
    });
    store.drop_table_keeping(&name("t"), WEEK).unwrap();
    whole_at_every_call(&disk, &before, |store| {
        store.undrop_table(&name("t"), None).is_ok()
    });
}
