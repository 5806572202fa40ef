//! Checkpoints of tables that are open in another process or in none, with every call failing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use forebay_io::sim::{Fault, HandClock, SimDisk, TestOver};
use forebay_io::{Clock, Disk, SystemClock, SystemRandom};

use super::{CheckpointError, CheckpointRequest};
use crate::error::StoreError;
use crate::live::{Budget, LiveDraft, LiveError, LiveTable};
use crate::name::TableName;
use crate::tables::store::Store;

fn name() -> TableName {
    TableName::new("t").unwrap()
}

fn budget() -> Arc<Budget> {
    Budget::new(64 << 20)
}

fn store_at(disk: &SimDisk, clock: Arc<dyn Clock>, root: &str) -> Store {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    Store::open_or_create(disk, clock, Arc::new(SystemRandom), Path::new(root)).unwrap()
}

fn store_on(disk: &SimDisk) -> Store {
    store_at(disk, Arc::new(SystemClock), "/s")
}

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn write(table: &LiveTable, number: u32) {
    table
        .update(&key(number), b"value")
        .unwrap()
        .wait()
        .unwrap();
}

/// Returns the number of consecutive keys that exist; no key exists after a missing one.
fn count(table: &LiveTable) -> u32 {
    let mut walk = table.entries();
    let mut found = Vec::new();
    while walk.advance().unwrap() {
        found.push(u32::from_be_bytes(walk.key().try_into().unwrap()));
    }
    found.sort_unstable();
    assert!(found.iter().copied().eq(0..found.len() as u32), "{found:?}");
    found.len() as u32
}

fn made(disk: &SimDisk, keys: u32) -> LiveTable {
    let table = store_on(disk).create_live(&name(), LiveDraft::hashed(), &budget());
    let table = table.unwrap();
    (0..keys).for_each(|number| write(&table, number));
    table
}

fn files_of_requests(disk: &SimDisk) -> usize {
    let asks = |path: &PathBuf| path.to_string_lossy().contains("/asks/");
    disk.files().iter().filter(|path| asks(path)).count()
}

/// Serves the requests for the table while `work` runs.
fn serving<R>(table: &LiveTable, work: impl FnOnce() -> R) -> R {
    let over = TestOver::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.is() {
                let _ = table.take_asks();
                std::thread::yield_now();
            }
        });
        let _at_end = over.at_end();
        work()
    })
}

#[test]
fn a_closed_table_is_copied() {
    let disk = SimDisk::new();
    drop(made(&disk, 100));
    let checkpoint = store_on(&disk).checkpoint(&name(), &budget()).unwrap();
    let mut reported = 0;
    let copied = checkpoint.copy_to(Path::new("/b"), &mut |bytes| reported += bytes);
    let copied = copied.unwrap();
    assert!(copied.records == 100 && copied.file_bytes == reported && reported > 0);
    let again = checkpoint
        .copy_to(Path::new("/b"), &mut |_| ())
        .unwrap_err();
    assert!(
        matches!(again, CheckpointError::Live(LiveError::Exists { .. })),
        "{again}"
    );
    drop(checkpoint);
    assert_eq!(files_of_requests(&disk), 0);
    // The two tables are independent from now on.
    let table = store_on(&disk).live_table(&name(), &budget()).unwrap();
    write(&table, 100);
    table.compact().unwrap();
    let copy = store_at(&disk, Arc::new(SystemClock), "/b");
    let copy = copy.live_table(&name(), &budget()).unwrap();
    assert_eq!((count(&table), count(&copy)), (101, 100));
    copy.delete(&key(99)).unwrap().wait().unwrap();
    copy.compact().unwrap();
    assert_eq!((count(&table), count(&copy)), (101, 99));
}

#[test]
fn a_checkpoint_during_writes_shows_one_moment() {
    let disk = SimDisk::new();
    let table = made(&disk, 500);
    let over = TestOver::default();
    // Without this limit, a fast writer makes each round longer than the one before.
    let most = AtomicU32::new(500);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 500;
            while !over.is() {
                if number < most.load(Ordering::Acquire) {
                    write(&table, number);
                    number += 1;
                } else {
                    std::thread::yield_now();
                }
            }
        });
        let _at_end = over.at_end();
        serving(&table, || {
            for _ in 0..5 {
                most.fetch_add(2000, Ordering::AcqRel);
                let before = count(&table);
                let checkpoint = store_on(&disk).checkpoint(&name(), &budget()).unwrap();
                let after = count(&table);
                table.compact().unwrap();
                let copy = checkpoint.store().live_table(&name(), &budget()).unwrap();
                assert!((before..=after).contains(&count(&copy)));
                assert!(copy.verify(&mut |_| ()).unwrap().1.is_empty());
            }
        });
    });
    assert_eq!(files_of_requests(&disk), 0);
}

#[test]
fn a_failure_at_any_call_leaves_a_whole_copy_or_none() {
    for nth in 0.. {
        let disk = SimDisk::new();
        drop(made(&disk, 20));
        let store = store_on(&disk);
        let at = disk.calls() + nth;
        disk.plan(nth, Fault::Error);
        let copied = store
            .checkpoint(&name(), &budget())
            .and_then(|checkpoint| checkpoint.copy_to(Path::new("/b"), &mut |_| ()));
        let calls = disk.calls();
        disk.plan(u64::MAX / 2, Fault::Error);
        let copy = store_at(&disk, Arc::new(SystemClock), "/b");
        match copy.live_table(&name(), &budget()) {
            Ok(copy) => assert_eq!(count(&copy), 20),
            Err(error) => {
                assert!(
                    matches!(error, LiveError::NoTable { .. }),
                    "call {nth}: {error}"
                );
                assert!(copied.is_err(), "call {nth}");
            }
        }
        let table = store_on(&disk).live_table(&name(), &budget()).unwrap();
        assert_eq!(count(&table), 20);
        if calls < at {
            copied.unwrap();
            return;
        }
    }
}

#[test]
fn files_of_a_dead_process_are_removed() {
    let disk = SimDisk::new();
    let table = made(&disk, 20);
    let checkpoint = serving(&table, || store_on(&disk).checkpoint(&name(), &budget()));
    assert!(files_of_requests(&disk) > 0);
    drop(table);
    let disk = disk.after_kill();
    drop(checkpoint);
    let table = store_on(&disk).live_table(&name(), &budget()).unwrap();
    assert_eq!((files_of_requests(&disk), count(&table)), (0, 20));
    assert_eq!(table.take_asks().unwrap(), []);
}

#[test]
fn a_holder_that_does_nothing_is_named() {
    let disk = SimDisk::new();
    let table = made(&disk, 20);
    let store = store_at(&disk, Arc::new(HandClock::default()), "/s");
    let error = store.checkpoint(&name(), &budget()).unwrap_err();
    assert!(
        matches!(&error, CheckpointError::NotTaken { .. }),
        "{error}"
    );
    let error = store.drop_table(&name()).unwrap_err();
    assert!(matches!(&error, StoreError::InUse { .. }), "{error}");
    assert_eq!((files_of_requests(&disk), count(&table)), (0, 20));
}

#[test]
fn a_server_releases_a_table_that_is_to_be_dropped() {
    let disk = SimDisk::new();
    let table = made(&disk, 20);
    let store = store_on(&disk);
    std::thread::scope(|scope| {
        let dropping = scope.spawn(|| store.drop_table(&name()));
        while table.take_asks().unwrap() != [CheckpointRequest::GiveUp] {
            std::thread::yield_now();
        }
        assert!(store.is_to_be_given_up(&name()).unwrap());
        drop(table);
        dropping.join().unwrap().unwrap();
    });
    assert!(!store.is_to_be_given_up(&name()).unwrap());
    assert!(!store.is_live(&name()).unwrap());
}

#[test]
fn a_look_is_one_call_without_requests() {
    let disk = SimDisk::new();
    let table = made(&disk, 20);
    let look = || {
        let before = disk.calls();
        assert_eq!(table.take_all().unwrap(), (vec![], None));
        disk.calls() - before
    };
    // One of five looks also looks for a drop of the table.
    let five = || (0..5).map(|_| look()).sum::<u64>();
    five();
    assert_eq!(five(), 6);
    // A checkpoint leaves nothing to look at, either.
    drop(serving(&table, || store_on(&disk).checkpoint(&name(), &budget())).unwrap());
    five();
    assert_eq!(five(), 6);
    disk.fill_up();
    assert_eq!(five(), 6);
}
