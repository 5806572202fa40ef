//! Readers, writers, flushes, merges, ingestion and drops at the same time, on the machine's own disk.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_engine::live::{
    Batch, Budget, Durability, IngestRun, LiveOptions, LiveTable, Snapshot,
};
use forebay_engine::{Store, StoreError};
use forebay_run::io::sim::Dice;
use forebay_run::io::{Disk, OsDisk, SystemClock, SystemRandom};
use forebay_run::operation::{DeltaKind, Operation};
use forebay_run::scan::Direction;
use forebay_run::{Order, RunWriter};

use crate::common::name;

const COUNTERS: u64 = 3000;
const WRITES: u64 = 40_000;
const WRITERS: u64 = 2;

pub fn store_in(dir: &Path) -> Store {
    let disk = Arc::new(OsDisk::default());
    Store::open_or_create(disk, Arc::new(SystemClock), Arc::new(SystemRandom), dir).unwrap()
}

/// Stamps of an ordered table's partitions; the second and the third begin with theirs.
const FIRST_STAMPS: [&str; 3] = ["stamp", "stamp:", "stamp:z"];

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

fn counter(writer: u64, number: u64) -> Vec<u8> {
    format!("counter:{writer}:{:05}", number * 7919 % COUNTERS).into_bytes()
}

/// Adds one to counters, and keeps the two keys of a pair the same.
fn write(table: &LiveTable, writer: u64, written: &AtomicU64) {
    let mut dice = Dice(writer);
    for at in 0..WRITES {
        let key = counter(writer, dice.below(COUNTERS));
        table
            .delta(&key, &1i64.to_le_bytes())
            .unwrap()
            .wait()
            .unwrap();
        written.fetch_add(1, Ordering::SeqCst);
        if at % 16 == 0 {
            let mut batch = Batch::new();
            for side in ["left", "right"] {
                let key = format!("{{pair{writer}}}:{side}");
                batch.update(key.as_bytes(), &(at as i64).to_le_bytes());
            }
            table.write(&batch).unwrap().wait().unwrap();
        }
    }
}

/// What a snapshot shows has to be of one moment.
fn check(snapshot: &Snapshot, partitions: usize, written: &AtomicU64, least: u64) -> u64 {
    let (mut sum, mut pairs, mut stamps) = (0, Vec::new(), Vec::new());
    let mut scan = snapshot.scan(Direction::Forward);
    let mut last = (0, Vec::new());
    while scan.advance().unwrap() {
        let place = (scan.hash(), scan.key().to_vec());
        assert!(place > last, "out of order");
        last = place;
        let value = number(scan.value());
        match scan.key().split(|byte| *byte == b':').next().unwrap() {
            b"counter" => sum += value as u64,
            b"stamp" => stamps.push(value),
            _ => pairs.push((scan.key().to_vec(), value)),
        }
    }
    assert!(
        sum >= least,
        "{sum} of {least}: a later snapshot shows less"
    );
    assert!(
        sum <= written.load(Ordering::SeqCst) + WRITERS,
        "{sum}: too much"
    );
    for (key, value) in &pairs {
        let same = pairs.iter().filter(|(other, _)| other[..7] == key[..7]);
        assert!(
            same.map(|(_, value)| value).all(|other| other == value),
            "{pairs:?}"
        );
    }
    assert!(
        stamps.is_empty() || stamps == vec![stamps[0]; partitions],
        "{stamps:?}"
    );
    sum
}

/// A key in each partition.
fn stamp_keys(table: &LiveTable, partitions: usize) -> Vec<Vec<u8>> {
    let find = |partition: usize| {
        let mut keys = (0..).map(|n| match table.order() {
            Order::Hashed => format!("stamp:{n}").into_bytes(),
            Order::Ordered => FIRST_STAMPS[partition].as_bytes().to_vec(),
        });
        keys.find(|key| table.partition(key) == partition).unwrap()
    };
    (0..partitions).map(find).collect()
}

/// Adds a run to each partition, in which the stamp is `stamp`.
fn ingest(table: &LiveTable, keys: &[Vec<u8>], stamp: i64) {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::default());
    let mut runs = Vec::new();
    for (partition, key) in keys.iter().enumerate() {
        let new = table.new_run();
        let mut writer = RunWriter::create(&disk, &new.path, table.run_options(1, 20)).unwrap();
        let hash = match table.order() {
            Order::Hashed => table.hasher().hash64(key),
            Order::Ordered => 0,
        };
        writer
            .push(hash, key, Operation::Update(&stamp.to_le_bytes()))
            .unwrap();
        writer.finish().unwrap();
        runs.push(IngestRun {
            partition,
            id: new.id,
        });
    }
    table.ingest(&runs).unwrap();
}

fn all_at_once(options: LiveOptions) {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(&dir.path().join("store"));
    let partitions = options.lowers.len();
    // So little memory that flushes and merges go on all the time.
    let budget = Budget::new(0);
    let table = store.create_live(&name("t"), options, &budget).unwrap();
    let stamps = stamp_keys(&table, partitions);
    let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (table, written, over, stamps) = (&table, &written, &over, &stamps);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(table, writer, written)))
            .collect();
        scope.spawn(move || {
            let mut seen = 0;
            while !over.load(Ordering::SeqCst) {
                seen = check(&table.snapshot(), partitions, written, seen);
            }
        });
        scope.spawn(move || {
            let mut seen = vec![0; COUNTERS as usize];
            let mut dice = Dice(9);
            while !over.load(Ordering::SeqCst) {
                let at = dice.below(COUNTERS);
                let value = table
                    .get(&counter(0, at))
                    .unwrap()
                    .map_or(0, |value| number(&value));
                assert!(value >= seen[at as usize], "a counter went back");
                seen[at as usize] = value;
            }
        });
        scope.spawn(move || {
            let mut stamp = 0;
            while !over.load(Ordering::SeqCst) {
                ingest(table, stamps, stamp);
                stamp += 1;
                if stamp % 5 == 0 {
                    table.optimize().unwrap();
                }
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|end| end.unwrap());
    });
    let all = WRITES * WRITERS;
    assert_eq!(check(&table.snapshot(), partitions, &written, all), all);
    assert!(table.stats().merges > 0, "{:?}", table.stats());
    drop(table);
    let table = store.live_table(&name("t"), &budget).unwrap();
    assert_eq!(check(&table.snapshot(), partitions, &written, all), all);
    drop_while_read(&store, table);
}

/// A table cannot be dropped while it is open; a snapshot reads on after it was.
fn drop_while_read(store: &Store, table: LiveTable) {
    let before = table.get(&counter(0, 1)).unwrap();
    let snapshot = table.snapshot();
    let refused = store.drop_table(&name("t"));
    assert!(
        matches!(refused, Err(StoreError::InUse { .. })),
        "{refused:?}"
    );
    drop(table);
    store.drop_table(&name("t")).unwrap();
    assert_eq!(snapshot.get(&counter(0, 1)).unwrap(), before);
    assert!(!store.is_live(&name("t")).unwrap());
}

fn options_of(order: Order) -> LiveOptions {
    let options = match order {
        Order::Hashed => LiveOptions::hashed().partitions(3),
        Order::Ordered => LiveOptions::ordered(vec![b"stamp:".to_vec(), b"stamp:z".to_vec()]),
    };
    LiveOptions {
        factor: 2,
        ..options
    }
    .delta(DeltaKind::AddI64)
}

#[test]
fn a_hashed_table_is_read_written_and_merged_at_once() {
    all_at_once(options_of(Order::Hashed).durability(Durability::Os));
}

#[test]
fn an_ordered_table_is_read_written_and_merged_at_once() {
    all_at_once(options_of(Order::Ordered).durability(Durability::EveryMs(20)));
}
