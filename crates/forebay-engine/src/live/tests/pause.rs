//! Paused writes to some partitions, while writes to others continue.

use std::ops::Bound as RangeBound;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering as Memory};
use std::time::Duration;

use forebay_io::Clock;
use forebay_io::sim::{Fault, TestOver};
use forebay_run::RunWriter;
use forebay_run::operation::{DeltaKind, Operation};

use super::*;
use crate::live::partition::shared::LiveShared;
use crate::live::writing::pause::Pause;
use crate::live::{Batch, IngestRun};

fn batch(key: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.push(key, Operation::Update(b"2"));
    batch
}

/// Two partitions, below `m` and from there on, with a key in each.
fn two_partitions() -> (SimDisk, LiveTable) {
    let (disk, table) = create(LiveDraft::ordered(vec![b"m".to_vec()]));
    for key in [b"a", b"z"] {
        table.update(key, b"1").unwrap().wait().unwrap();
    }
    (disk, table)
}

fn waits_for(table: &LiveTable, key: &[u8]) -> bool {
    table.try_write(&batch(key)).unwrap().is_none()
}

fn run_of(disk: &SimDisk, table: &LiveTable, key: &[u8]) -> IngestRun {
    run_with(disk, table, key, Operation::Update(b"loaded"))
}

fn run_with(disk: &SimDisk, table: &LiveTable, key: &[u8], of: Operation<'_>) -> IngestRun {
    let new = table.new_run();
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    let mut writer = RunWriter::create(&disk, &new.path, table.run_options(1, 100)).unwrap();
    writer.push(0, key, of).unwrap();
    writer.finish().unwrap();
    IngestRun {
        partition: table.partition_of(key).unwrap(),
        id: new.id,
    }
}

#[test]
fn writes_to_other_partitions_pass() {
    let (_disk, table) = two_partitions();
    let shared: &LiveShared = table.shared();
    let _one_at_a_time = shared.ingesting.lock();
    let paused = Pause::new(shared, vec![0]);
    assert!(waits_for(&table, b"a") && !waits_for(&table, b"z"));
    assert!(
        table
            .try_transact(&[b"a"], |_| (Batch::new(), ()))
            .unwrap()
            .is_none()
    );
    table.update(b"z", b"3").unwrap().wait().unwrap();
    table
        .modify(b"z", |_| (None, ()))
        .unwrap()
        .0
        .wait()
        .unwrap();
    let later = (RangeBound::Included(&b"n"[..]), RangeBound::Unbounded);
    table
        .delete_range(later.0, later.1)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(table.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(collect(table.entries()), [(b"a".to_vec(), b"1".to_vec())]);
    assert_eq!(
        table.try_get(b"z").unwrap(),
        crate::live::LiveLookup::Absent
    );
    drop(paused);
    assert!(!waits_for(&table, b"a"));
}

/// A waiting writer continues when the pause ends, or when the table takes no more writes.
#[test]
fn waiting_writes_are_released() {
    for fails in [false, true] {
        let (_disk, table) = two_partitions();
        let shared: &LiveShared = table.shared();
        let passed = AtomicBool::new(false);
        let _one_at_a_time = shared.ingesting.lock();
        std::thread::scope(|scope| {
            let paused = Pause::new(shared, vec![0]);
            let one = scope.spawn(|| {
                let outcome = table.update(b"a", b"2").map(|_| ());
                passed.store(true, Memory::Relaxed);
                outcome
            });
            let all = scope.spawn(|| table.delete_all().map(|_| ()));
            SystemClock.sleep(Duration::from_millis(60));
            assert!(!passed.load(Memory::Relaxed));
            assert_eq!(collect(table.entries()).len(), 2);
            if fails {
                shared.fail("by the test");
            } else {
                drop(paused);
            }
            let outcomes = [one.join().unwrap(), all.join().unwrap()];
            for outcome in outcomes {
                assert_eq!(outcome.is_err(), fails, "{outcome:?}");
            }
        });
    }
}

/// A load waits only for writes to its partitions. If they have nothing in memory, their pause ends
/// without a flush, even if other partitions have.
#[test]
fn a_pause_flushes_for_its_own_partitions_only() {
    let (_disk, table) = two_partitions();
    let shared: &LiveShared = table.shared();
    table.flush().unwrap();
    table.update(b"z", b"2").unwrap().wait().unwrap();
    let frozen = shared.progress.lock().frozen;
    let _one_at_a_time = shared.ingesting.lock();
    Pause::new(shared, vec![0]).flush().unwrap();
    assert_eq!(shared.progress.lock().frozen, frozen);
    Pause::new(shared, vec![0, 1]).flush().unwrap();
    assert_eq!(shared.progress.lock().frozen, frozen + 1);
    assert!(!shared.parts.at(1).lock().has_memory());
}

/// A load that fails within its pause leaves no writer waiting.
#[test]
fn a_pause_ends_with_a_load_that_fails() {
    let (disk, table) = two_partitions();
    let run = run_of(&disk, &table, b"b");
    disk.plan(3, Fault::Full);
    assert!(table.ingest(&[run]).is_err());
    disk.make_room();
    table.flush().unwrap();
    assert!(!waits_for(&table, b"a") && !waits_for(&table, b"z"));
    assert_eq!(table.get(b"b").unwrap(), None);
}

/// Deltas of writers and of loads to the same keys, and to other keys meanwhile, are all applied
/// exactly once, whenever the process is killed.
#[test]
fn deltas_of_loads_and_of_writers_are_counted_once() {
    let draft = LiveDraft::ordered(vec![b"m".to_vec()]).delta(DeltaKind::AddI64);
    let (disk, table) = create(draft);
    const LOADS: i64 = 25;
    const LOADED: i64 = 1_000_000;
    let (began, done) = ([0; 2].map(AtomicI64::new), [0; 2].map(AtomicI64::new));
    let over = TestOver::default();
    let keys = [b"a", b"z"];
    let check = |table: &LiveTable, least: [i64; 2], loads: i64| {
        for (at, key) in keys.iter().enumerate() {
            let value = table.get(*key).unwrap();
            let value = value.map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().unwrap()));
            let written = value - if at == 0 { loads * LOADED } else { 0 };
            let most = began[at].load(Memory::SeqCst);
            assert!(
                written >= least[at] && written <= most,
                "{written} of {least:?} to {most}"
            );
        }
    };
    let done_now = || [0, 1].map(|at: usize| done[at].load(Memory::SeqCst));
    std::thread::scope(|scope| {
        for (at, key) in keys.iter().enumerate() {
            let (table, began, done, over) = (&table, &began, &done, &over);
            scope.spawn(move || {
                while !over.is() {
                    began[at].fetch_add(1, Memory::SeqCst);
                    let commit = table.delta(*key, &1i64.to_le_bytes()).unwrap();
                    commit.wait().unwrap();
                    done[at].fetch_add(1, Memory::SeqCst);
                }
            });
        }
        let _at_end = over.at_end();
        for loads in 1..=LOADS {
            let run = run_with(&disk, &table, b"a", Operation::Delta(&LOADED.to_le_bytes()));
            table.ingest(&[run]).unwrap();
            let least = done_now();
            check(&open(&disk.after_kill()).unwrap(), least, loads);
            check(&table, least, loads);
        }
    });
    drop(table);
    check(&open(&disk).unwrap(), done_now(), LOADS);
}
