//! Readers, writers, flushes, merges, ingestion and drops at the same time, on the machine's own
//! disk.

use forebay_engine::PartitionId;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forebay_engine::live::{Batch, Budget, Durability, IngestRun, LiveDraft, LiveTable, Snapshot};
use forebay_engine::{Store, StoreError};
use forebay_io::sim::Rng;
use forebay_io::{Disk, OsDisk, SystemClock, SystemRandom};
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

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

fn counter(writer: u64, number: u64) -> Vec<u8> {
    format!("counter:{writer}:{:05}", number * 7919 % COUNTERS).into_bytes()
}

/// Adds one to counters, and keeps the two keys of a pair the same.
fn write(table: &LiveTable, writer: u64, written: &AtomicU64) {
    let mut rng = Rng(writer);
    for at in 0..WRITES {
        let key = counter(writer, rng.below(COUNTERS));
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

/// The state that the threads of a test share.
struct Shared {
    table: LiveTable,
    partitions: usize,
    /// How many times a counter was raised.
    written: AtomicU64,
    over: AtomicBool,
    /// A key in each partition: all are set in one ingestion.
    stamps: Vec<Vec<u8>>,
    /// A key in the first partition, and one in the last, which is set after it.
    turns: [Vec<u8>; 2],
}

impl Shared {
    fn new(table: LiveTable) -> Self {
        let partitions = table.partitions().len();
        let key_in = |name: &str, partition: usize| {
            let starts = ["a-", "stamp:", "zz-"];
            let mut keys = (0..).map(|n| format!("{}{name}:{n}", starts[n % 3]).into_bytes());
            keys.find(|key| table.partition_of(key) == Some(PartitionId(partition as u32)))
                .unwrap()
        };
        Self {
            partitions,
            written: AtomicU64::new(0),
            over: AtomicBool::new(false),
            stamps: (0..partitions)
                .map(|partition| key_in("mark", partition))
                .collect(),
            turns: [key_in("turn", 0), key_in("turn", partitions - 1)],
            table,
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Checks that a snapshot shows one moment. Returns how often counters were raised by then.
    fn check(&self, snapshot: &Snapshot, least: u64) -> u64 {
        let (mut sum, mut pairs, mut stamps) = (0, Vec::new(), Vec::new());
        let mut turns = [0, 0];
        let mut scan = snapshot.scan(Direction::Forward);
        let mut last = (0, Vec::new());
        while scan.advance().unwrap() {
            let place = (scan.hash(), scan.key().to_vec());
            assert!(place > last, "out of order");
            last = place;
            let (key, value) = (scan.key(), number(scan.value()));
            if let Some(at) = self.turns.iter().position(|turn| turn == key) {
                turns[at] = value;
            } else if self.stamps.iter().any(|stamp| stamp == key) {
                stamps.push(value);
            } else if key.starts_with(b"counter:") {
                sum += value as u64;
            } else {
                pairs.push((key.to_vec(), value));
            }
        }
        assert!(
            sum >= least,
            "{sum} of {least}: a later snapshot shows less"
        );
        let most = self.written.load(Ordering::SeqCst) + WRITERS;
        assert!(sum <= most, "{sum}: too much");
        for (key, value) in &pairs {
            let same = pairs.iter().filter(|(other, _)| other[..7] == key[..7]);
            let mut values = same.map(|(_, value)| value);
            assert!(values.all(|other| other == value), "{pairs:?}");
        }
        let one_stamp = stamps.is_empty() || stamps == vec![stamps[0]; self.partitions];
        assert!(one_stamp, "{stamps:?}");
        let [first, second] = turns;
        assert!(first == second || first == second + 1, "{turns:?}");
        sum
    }

    /// Sets a key of the first partition and then one of the last, repeatedly.
    fn take_turns(&self) {
        for turn in 1i64.. {
            for key in &self.turns {
                self.table
                    .update(key, &turn.to_le_bytes())
                    .unwrap()
                    .wait()
                    .unwrap();
            }
            if self.is_over() {
                break;
            }
        }
    }

    fn watch(&self) {
        let mut seen = 0;
        while !self.is_over() {
            seen = self.check(&self.table.snapshot(), seen);
        }
    }

    fn watch_counters(&self) {
        let mut seen = vec![0; COUNTERS as usize];
        let mut rng = Rng(9);
        while !self.is_over() {
            let at = rng.below(COUNTERS);
            let value = self.table.get(&counter(0, at)).unwrap();
            let value = value.map_or(0, |value| number(&value));
            assert!(value >= seen[at as usize], "a counter went back");
            seen[at as usize] = value;
        }
    }

    fn ingest_and_compact(&self) {
        for stamp in 0.. {
            if self.is_over() {
                break;
            }
            ingest(&self.table, &self.stamps, stamp);
            if stamp % 5 == 4 {
                self.table.compact().unwrap();
            }
        }
    }
}

/// Adds a run with the stamp `stamp` to each partition.
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
            partition: PartitionId(partition as u32),
            id: new.id,
        });
    }
    table.ingest(&runs).unwrap();
}

fn all_at_once(options: LiveDraft) {
    let dir = tempfile::tempdir().unwrap();
    let store = store_in(&dir.path().join("store"));
    // So little memory that flushes and merges run all the time.
    let budget = Budget::new(0);
    let made = store.create_live(&name("t"), options, &budget);
    let mut shared = Shared::new(made.unwrap());
    std::thread::scope(|scope| {
        let shared = &shared;
        let write = |writer| move || write(&shared.table, writer, &shared.written);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(write(writer)))
            .collect();
        scope.spawn(|| shared.watch());
        scope.spawn(|| shared.watch_counters());
        scope.spawn(|| shared.take_turns());
        scope.spawn(|| shared.ingest_and_compact());
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        shared.over.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|end| end.unwrap());
    });
    let all = WRITES * WRITERS;
    assert_eq!(shared.check(&shared.table.snapshot(), all), all);
    assert!(
        shared.table.stats().merges > 0,
        "{:?}",
        shared.table.stats()
    );
    // Closed before it is opened again.
    let snapshot = shared.table.snapshot();
    drop(std::mem::replace(&mut shared.table, other_table(&dir)));
    assert_eq!(shared.check(&snapshot, all), all);
    shared.table = store.live_table(&name("t"), &budget).unwrap();
    assert_eq!(shared.check(&shared.table.snapshot(), all), all);
    drop_while_read(&store, shared.table);
}

/// Returns a placeholder for a table that is to be closed.
fn other_table(dir: &tempfile::TempDir) -> LiveTable {
    let store = store_in(&dir.path().join("other"));
    let made = store.create_live(&name("t"), LiveDraft::hashed(), &Budget::new(0));
    made.unwrap()
}

/// A table cannot be dropped while it is open; a snapshot can be read after the drop.
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

fn options_of(order: Order) -> LiveDraft {
    let draft = match order {
        Order::Hashed => LiveDraft::hashed().partitions(3),
        Order::Ordered => LiveDraft::ordered(vec![b"stamp:".to_vec(), b"stamp:z".to_vec()]),
    };
    draft.factor(2).delta(DeltaKind::AddI64)
}

#[test]
fn a_hashed_table_is_read_written_and_merged_at_once() {
    all_at_once(options_of(Order::Hashed).durability(Durability::Os));
}

#[test]
fn an_ordered_table_is_read_written_and_merged_at_once() {
    all_at_once(options_of(Order::Ordered).durability(Durability::EveryMs(20)));
}
