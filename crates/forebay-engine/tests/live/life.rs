//! A table on a simulated disk with its history, and operations on both.

use forebay_engine::PartitionRange;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_engine::live::{
    Batch, Budget, Durability, IngestRun, LiveDraft, LiveError, LiveLookup, LiveOptions, LiveScan,
    LiveTable, LogError, Snapshot,
};
use forebay_io::Disk;
use forebay_io::sim::{Rng, SimDisk};
use forebay_run::format::MAX_KEY_BYTES;
use forebay_run::operation::{CowOperation, DeltaKind};
use forebay_run::scan::Direction;
use forebay_run::{Order, RunWriter};

use crate::common::{name, store_on};
use crate::live::history::{History, Map, Op, Unit};
use crate::live::one_of;

pub const KINDS: [Option<DeltaKind>; 7] = [
    None,
    Some(DeltaKind::AddI64),
    Some(DeltaKind::AddI64Saturating),
    Some(DeltaKind::AddF64),
    Some(DeltaKind::Append),
    Some(DeltaKind::Min),
    Some(DeltaKind::Max),
];

pub const DURABILITIES: [Option<Durability>; 4] = [
    Some(Durability::Sync),
    Some(Durability::EveryMs(5)),
    Some(Durability::Os),
    None,
];

pub struct Life {
    pub disk: SimDisk,
    pub table: LiveTable,
    pub history: History,
    pub options: LiveOptions,
}

/// The keys of the tests: prefixes of each other, long ones, bytes of all kinds, on both sides of
/// the partitions' bounds.
pub fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..40).map(|n| format!("k{n}").into_bytes()).collect();
    keys.extend((0..6).map(|n| format!("{{tag}}:{n}").into_bytes()));
    keys.extend([
        vec![0],
        vec![0, 0],
        vec![0xff],
        vec![0xff; 1024],
        vec![0xff; 4096],
        vec![b'k'; MAX_KEY_BYTES],
        b"k".repeat(300),
    ]);
    keys
}

pub fn options(order: Order, kind: Option<DeltaKind>, durability: Option<Durability>) -> LiveDraft {
    let mut draft = match order {
        Order::Hashed => LiveDraft::hashed().partitions(3),
        Order::Ordered => LiveDraft::ordered(vec![b"k2".to_vec(), b"k33".to_vec()]),
    };
    draft.options.delta = kind;
    draft.options.durability = durability;
    draft.factor(2)
}

pub fn budget() -> Arc<Budget> {
    Budget::new(16 << 20)
}

pub fn open_on(disk: &SimDisk) -> Result<LiveTable, LiveError> {
    // Another seed each time, so that no id of a run is used twice.
    static OPENED: AtomicU64 = AtomicU64::new(1000);
    store_on(disk, OPENED.fetch_add(1, Ordering::Relaxed)).live_table(&name("t"), &budget())
}

pub fn is_full(error: &LiveError) -> bool {
    matches!(
        error,
        LiveError::Full { .. } | LiveError::Log(LogError::Full { .. })
    )
}

impl Life {
    pub fn new(draft: LiveDraft) -> Self {
        let disk = SimDisk::new();
        let table = store_on(&disk, 7).create_live(&name("t"), draft.clone(), &budget());
        Self {
            table: table.unwrap(),
            history: History::new(draft.options.delta),
            options: draft.options,
            disk,
        }
    }

    /// Returns the draft of another table like it.
    pub fn draft(&self) -> LiveDraft {
        LiveDraft {
            options: self.options.clone(),
            partitions: self.table.partitions(),
        }
    }

    /// Opens the table on the disk that the process left, and checks its content.
    pub fn reopen_on(&mut self, disk: SimDisk, may_lose: bool, words: &str) {
        self.disk = disk;
        self.table = open_on(&self.disk).unwrap_or_else(|error| panic!("{words}: {error}"));
        let found = collect(self.table.entries());
        self.history.found(found, may_lose, words);
        self.check(words);
    }

    /// Records a write's outcome. With `wait`, waits until it is acknowledged.
    pub fn note(
        &mut self,
        unit: Unit,
        wait: bool,
        write: impl FnOnce(&LiveTable, &Unit) -> Result<bool, LiveError>,
    ) -> Result<(), LiveError> {
        match write(&self.table, &unit) {
            Ok(waited) => {
                self.history.wrote(unit);
                if waited && wait && self.options.durability == Some(Durability::Sync) {
                    self.history.acknowledged();
                }
                Ok(())
            }
            Err(error) => {
                if let LiveError::Log(LogError::Closed { .. }) = error {
                    self.history.doubted(vec![unit]);
                }
                Err(error)
            }
        }
    }

    pub fn write(&mut self, op: Op, wait: bool) -> Result<(), LiveError> {
        let mut failed = None;
        self.note(vec![op], wait, |table, unit| {
            let commit = match &unit[0] {
                Op::Insert(key, value) => table.insert(key, value),
                Op::Update(key, value) => table.update(key, value),
                Op::Delete(key) => table.delete(key),
                Op::Delta(key, delta) => table.delta(key, delta),
            }?;
            Ok(!wait || done(commit.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    pub fn write_batch(&mut self, unit: Unit, wait: bool) -> Result<(), LiveError> {
        let mut failed = None;
        self.note(unit, wait, |table, unit| {
            let commit = table.write(&batch(unit))?;
            Ok(!wait || done(commit.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Makes a write that depends on the present value: reverses a value, or sets an absent one.
    pub fn modify(&mut self, key: &[u8], absent: &[u8]) -> Result<(), LiveError> {
        let before = self.history.now().get(key).cloned();
        let op = match &before {
            Some(value) => Op::Update(key.to_vec(), value.iter().rev().copied().collect()),
            None => Op::Insert(key.to_vec(), absent.to_vec()),
        };
        let mut failed = None;
        self.note(vec![op], true, |table, unit| {
            let (commit, seen) = table.modify(key, |value| {
                let operation: CowOperation<'static> = unit[0].operation().to_owned();
                (Some(operation), value.map(<[u8]>::to_vec))
            })?;
            assert_eq!(seen, before);
            Ok(done(commit.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Swaps the values of two keys, or moves one, if they are of one partition.
    pub fn swap(&mut self, a: &[u8], b: &[u8]) -> Result<(), LiveError> {
        let get = |key: &[u8]| self.history.now().get(key).cloned();
        let before = vec![get(a), get(b)];
        let set = |key: &[u8], value: &Option<Vec<u8>>| match value {
            Some(value) => Op::Update(key.to_vec(), value.clone()),
            None => Op::Delete(key.to_vec()),
        };
        let unit = vec![set(a, &before[1]), set(b, &before[0])];
        if self.table.partition_of(a) != self.table.partition_of(b) {
            let refused = self.table.transact(&[a, b], |_| (Batch::new(), ()));
            assert!(matches!(refused, Err(LiveError::AcrossPartitions { .. })));
            return Ok(());
        }
        let mut failed = None;
        self.note(unit, true, |table, unit| {
            let (commit, ()) = table.transact(&[a, b], |values| {
                let values = values
                    .into_iter()
                    .map(|stored| stored.map(|stored| stored.value));
                assert_eq!(values.collect::<Vec<_>>(), before);
                (batch(unit), ())
            })?;
            Ok(done(commit.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Deletes a range, with or without a count of its keys.
    pub fn delete_range(
        &mut self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        counted: bool,
    ) -> Result<(), LiveError> {
        let range = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        let gone: Unit = match valid(from, to) {
            true => {
                let keys = self.history.now().range(range);
                keys.map(|(key, _)| Op::Delete(key.clone())).collect()
            }
            false => Vec::new(),
        };
        let mut failed = None;
        // A deletion of nothing is not written, so it acknowledges no earlier write.
        let wait = !is_void(from, to);
        self.note(gone, wait, |table, gone| {
            let commit = if counted {
                let (count, commit) = table.delete_range_counted(from, to)?;
                assert_eq!(count, gone.len() as u64);
                commit
            } else {
                table.delete_range(from, to)?
            };
            Ok(done(commit.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    pub fn delete_all(&mut self) -> Result<(), LiveError> {
        let keys = self.history.now().keys();
        let gone = keys.map(|key| Op::Delete(key.clone())).collect();
        let mut failed = None;
        self.note(gone, true, |table, _| {
            Ok(done(table.delete_all()?.wait(), &mut failed))
        })?;
        failed.map_or(Ok(()), Err)
    }

    pub fn flush(&mut self) -> Result<(), LiveError> {
        self.table.flush()?;
        self.history.acknowledged();
        Ok(())
    }

    pub fn compact(&mut self) -> Result<(), LiveError> {
        self.table.compact()?;
        self.history.acknowledged();
        assert!(self.table.stats().runs.iter().all(|runs| *runs <= 1));
        Ok(())
    }

    /// Adds one run per partition with these operations, one per key.
    pub fn ingest(&mut self, mut ops: Vec<Op>) -> Result<(), LiveError> {
        let hasher = self.table.hasher();
        let hash = |op: &Op| match self.options.order {
            Order::Hashed => hasher.hash64(op.key()),
            Order::Ordered => 0,
        };
        ops.sort_by_key(|op| (hash(op), op.key().to_vec()));
        ops.dedup_by_key(|op| op.key().to_vec());
        let mut runs = Vec::new();
        for PartitionRange { id: partition, .. } in self.table.partitions() {
            let inside = ops
                .iter()
                .filter(|op| self.table.partition_of(op.key()) == Some(partition));
            let inside: Vec<&Op> = inside.collect();
            if inside.is_empty() {
                continue;
            }
            let new = self.table.new_run();
            let options = self.table.run_options(inside.len() as u64, 4000);
            let options = options.for_keys_of(MAX_KEY_BYTES);
            let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
            let run_error = |source| LiveError::Run {
                table: name("t"),
                source,
            };
            let mut writer = RunWriter::create(&disk, &new.path, options).map_err(run_error)?;
            for op in inside {
                let pushed = writer.push(hash(op), op.key(), op.operation());
                pushed.map_err(run_error)?;
            }
            writer.finish().map_err(run_error)?;
            let id = new.id;
            runs.push(IngestRun { partition, id });
        }
        match self.table.ingest(&runs) {
            Ok(()) => {
                self.history.wrote(ops);
                self.history.acknowledged();
                Ok(())
            }
            Err(error) => {
                if self.table.stats().failed.is_some() {
                    self.history.doubted(vec![ops]);
                }
                Err(error)
            }
        }
    }

    /// Compares every way of reading with the history.
    pub fn check(&self, words: &str) {
        let now = self.history.now();
        let snapshot = self.table.snapshot();
        check_snapshot(&snapshot, now, words);
        let keys = keys();
        let values = self.table.get_many(&keys).unwrap();
        for (key, value) in keys.iter().zip(values) {
            let expected = now.get(key);
            assert_eq!(value.as_ref(), expected, "{words}: {key:?}");
            let expected = expected.map_or(LiveLookup::Absent, |v| LiveLookup::Found(v.clone()));
            let looked_up = self.table.try_get(key).unwrap();
            assert!(
                looked_up == expected || looked_up == LiveLookup::NotResident,
                "{words}"
            );
        }
    }

    /// Walks a part of the table and compares.
    pub fn scan(&self, from: Bound<&[u8]>, to: Bound<&[u8]>, limit: u64, words: &str) {
        if self.options.order == Order::Hashed {
            let refused = self.table.scan(from, to, Direction::Forward);
            assert!(matches!(refused, Err(LiveError::NoKeyOrder { .. })));
            return;
        }
        let range = (from.map(<[u8]>::to_vec), to.map(<[u8]>::to_vec));
        let inside: Vec<_> = match valid(from, to) {
            true => self.history.now().range(range).collect(),
            false => Vec::new(),
        };
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = self.table.scan(from, to, direction).unwrap().limit(limit);
            let mut expected = inside.clone();
            if direction == Direction::Backward {
                expected.reverse();
            }
            expected.truncate(limit as usize);
            for (key, value) in expected {
                assert!(scan.advance().unwrap(), "{words}: {key:?} is missing");
                assert_eq!(
                    (scan.key(), scan.value()),
                    (&key[..], &value[..]),
                    "{words}"
                );
            }
            assert!(
                !scan.advance().unwrap(),
                "{words}: {:?} is unexpected",
                scan.key()
            );
        }
    }
}

fn done(outcome: Result<(), LiveError>, failed: &mut Option<LiveError>) -> bool {
    let done = outcome.is_ok();
    *failed = outcome.err();
    done
}

pub fn batch(unit: &Unit) -> Batch {
    let mut batch = Batch::new();
    for op in unit {
        batch.push(op.key(), op.operation());
    }
    batch
}

/// Returns whether a map's range method accepts the bounds.
fn valid(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Excluded(from), Bound::Excluded(to)) => from < to,
        (
            Bound::Included(from) | Bound::Excluded(from),
            Bound::Included(to) | Bound::Excluded(to),
        ) => from <= to,
        _ => true,
    }
}

/// Returns whether a range is empty.
fn is_void(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    let successor = |key: &[u8]| [key, &[0]].concat();
    let first = match from {
        Bound::Unbounded => Vec::new(),
        Bound::Included(key) => key.to_vec(),
        Bound::Excluded(key) => successor(key),
    };
    match to {
        Bound::Unbounded => false,
        Bound::Included(key) => successor(key) <= first,
        Bound::Excluded(key) => *key <= *first,
    }
}

pub fn collect(mut scan: LiveScan) -> Map {
    let mut map = Map::new();
    while scan.advance().unwrap() {
        let twice = map.insert(scan.key().to_vec(), scan.value().to_vec());
        assert!(twice.is_none(), "{:?} occurs twice", scan.key());
    }
    map
}

pub fn check_snapshot(snapshot: &Snapshot, expected: &Map, words: &str) {
    for direction in [Direction::Forward, Direction::Backward] {
        let found = collect(snapshot.scan(direction));
        assert_eq!(
            crate::live::history::show(&found),
            crate::live::history::show(expected),
            "{words}: {direction:?}"
        );
        assert!(found == *expected, "{words}");
    }
    for (key, value) in expected {
        assert_eq!(snapshot.get(key).unwrap().as_ref(), Some(value), "{words}");
    }
}

/// Returns a value, or a delta, that the kind accepts.
pub fn value(rng: &mut Rng, kind: Option<DeltaKind>) -> Vec<u8> {
    match kind {
        None => {
            let length = one_of(rng, &[0, 1, 8, 30, 200]);
            let length = if rng.below(40) == 0 { 40_000 } else { length };
            vec![b'a' + rng.below(26) as u8; length]
        }
        Some(DeltaKind::Append) => {
            let letter = b'a' + rng.below(26) as u8;
            vec![letter; rng.below(12) as usize]
        }
        // Whole numbers, so that no order of adding rounds.
        Some(DeltaKind::AddF64) => (rng.below(1000) as f64 - 500.0).to_le_bytes().to_vec(),
        Some(_) => match rng.below(6) {
            0 => i64::MAX.to_le_bytes().to_vec(),
            1 => i64::MIN.to_le_bytes().to_vec(),
            _ => (rng.below(1000) as i64 - 500).to_le_bytes().to_vec(),
        },
    }
}

pub fn op(rng: &mut Rng, kind: Option<DeltaKind>) -> Op {
    let keys = keys();
    let key = keys[rng.below(keys.len() as u64) as usize].clone();
    match rng.below(if kind.is_some() { 8 } else { 5 }) {
        0 | 1 => Op::Insert(key, value(rng, kind)),
        2 => Op::Delete(key),
        3 | 4 => Op::Update(key, value(rng, kind)),
        _ => Op::Delta(key, value(rng, kind)),
    }
}
